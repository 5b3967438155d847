"""Idempotency-Keys: a request's digest and its answer, for 24 hours."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, text, tuple_, update

from orders.domain import PERSONAL, IdempotencyKeyReused, name_in_api
from orders.store.database.database import Query
from orders.store.orders import Changed
from orders.store.tables import idempotency_keys, order_events

Answer = TypeVar("Answer", bound=Changed | str)
REMEMBERED_FOR = timedelta(hours=24)
# A few at a time, so that no request pays for all of a busy day before.
_SWEPT_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The value that a client sent, in the scope of its API key and version."""

    api_key_id: int
    version: int
    value: str


@dataclass(frozen=True, slots=True)
class Written(Generic[Answer]):
    """The answer of a write: the order after it, or a text with the results for several.

    `replayed` says that an earlier request did it. Then the order is as its answer showed it.
    """

    answer: Answer
    replayed: bool = False

    def shown(self, version: int) -> str:
        answer: Changed | str = self.answer
        return answer if isinstance(answer, str) else answer.shown(version)


_IS_KEY = (
    idempotency_keys.c.key_id == bindparam("api_key_id"),
    idempotency_keys.c.version == bindparam("api_version"),
    idempotency_keys.c.value == bindparam("sent"),
)
_IDENTITY = (idempotency_keys.c.key_id, idempotency_keys.c.version, idempotency_keys.c.value)
_FIND = Query(
    select(
        idempotency_keys.c.request,
        idempotency_keys.c.answer,
        idempotency_keys.c.event_id,
        order_events.c.order_id,
    )
    .outerjoin_from(idempotency_keys, order_events)
    .where(*_IS_KEY, idempotency_keys.c.at > bindparam("since"))
)
_REMOVE = Query(delete(idempotency_keys).where(*_IS_KEY))
_REMEMBER = Query(
    insert(idempotency_keys).values(
        key_id=bindparam("api_key_id"),
        version=bindparam("api_version"),
        value=bindparam("sent"),
        event_id=bindparam("done_by"),
        at=bindparam("now"),
        request=bindparam("digest"),
        answer=bindparam("shown"),
    )
)
_EXPIRED = (
    select(*_IDENTITY)
    .where(idempotency_keys.c.at <= bindparam("since"))
    .order_by(idempotency_keys.c.at)
    .limit(_SWEPT_AT_ONCE)
)
# Keys dated by a clock that was ahead would be remembered until then.
_BRING_BACK = Query(
    update(idempotency_keys)
    .where(idempotency_keys.c.at > bindparam("now"))
    .values(at=bindparam("now"))
)
_SHIFT = Query(
    text(
        "UPDATE idempotency_keys "
        r"SET at = coalesce(strftime('%Y-%m-%dT%H\:%M\:%fZ', at, :step), at)"
    ),
    text("UPDATE idempotency_keys SET at = at + CAST(:step AS interval)"),
)
_SWEEP = Query(delete(idempotency_keys).where(tuple_(*_IDENTITY).in_(_EXPIRED)))


# Answers with one of some orders, and those with several orders, whose ids only the text has.
_ANSWERS = Query.by_ids(
    lambda ids: select(*_IDENTITY, idempotency_keys.c.answer).where(
        or_(
            idempotency_keys.c.event_id.is_(None),
            idempotency_keys.c.event_id.in_(
                select(order_events.c.id).where(order_events.c.order_id.in_(ids))
            ),
        )
    )
)
_REWRITE = Query(update(idempotency_keys).where(*_IS_KEY).values(answer=bindparam("shown")))
_PERSONAL = [name_in_api(name) for name in PERSONAL]


def recall(
    connection: Connection, key: IdempotencyKey | None, request: Any, now: datetime
) -> Written[Any] | None:
    """Return the answer of a request that was sent with this key within 24 hours, or None.

    IdempotencyKeyReused is raised if it was a different request.
    """
    if key is None:
        return None
    rows = _FIND.execute(connection, **_values(key), since=now - REMEMBERED_FOR).fetchall()
    if not rows:
        return None
    ((digest, answer, event_id, order_id),) = rows
    if digest != _digest(request):
        raise IdempotencyKeyReused
    if event_id is not None:
        answer = Changed(event_id, order_id, answer, answer)
    return Written(answer, replayed=True)


def remember(
    connection: Connection,
    key: IdempotencyKey | None,
    request: Any,
    written: Written[Answer],
    now: datetime,
) -> Written[Answer]:
    """Remember the answer of a request with this key, and return it.

    A few keys that are older than a day are deleted; those dated in the future are dated now.
    """
    if key is None:
        return written
    answer: Changed | str = written.answer
    _REMOVE.execute(connection, **_values(key))
    _REMEMBER.execute(
        connection,
        **_values(key),
        done_by=answer.event_id if isinstance(answer, Changed) else None,
        digest=_digest(request),
        shown=written.shown(key.version),
        now=now,
    )
    _SWEEP.execute(connection, since=now - REMEMBERED_FOR)
    _BRING_BACK.execute(connection, now=now)
    return written


def _digest(request: Any) -> str:
    return hashlib.sha256(json.dumps(request, default=_plain, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> object:
    if not is_dataclass(value) or isinstance(value, type):
        return str(value)
    # Without the fields that were not sent: a later version may have more of them.
    return {name: each for name, each in asdict(value).items() if each is not None}


def follow_clock(connection: Connection, seconds: float, now: datetime) -> None:
    """Shift the times of all keys as the clock was set, so that they keep their age."""
    if seconds:
        _SHIFT.execute(connection, step=f"{seconds:+.3f} seconds")
    _BRING_BACK.execute(connection, now=now)


def forget(connection: Connection, order_ids: Collection[int]) -> None:
    """Delete personal data from the answers that show some orders."""
    rows = _ANSWERS.execute(connection, order_ids=json.dumps([*order_ids])).fetchall()
    known = frozenset(order_ids)
    for *key, answer in rows:
        blanked = _blanked(answer, known)
        if blanked != answer:
            _REWRITE.execute(connection, **_values(IdempotencyKey(*key)), shown=blanked)


def _blanked(answer: str, order_ids: Collection[int]) -> str:
    def blank(part: dict[str, Any]) -> dict[str, Any]:
        # In a list of results, an order's id stands beside the order, too.
        if "petId" not in part or part["id"] not in order_ids:
            return part
        return {name: value for name, value in part.items() if name not in _PERSONAL}

    shown = json.loads(answer, object_hook=blank)
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def _values(key: IdempotencyKey) -> dict[str, object]:
    return {"api_key_id": key.api_key_id, "api_version": key.version, "sent": key.value}
