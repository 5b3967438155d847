"""Idempotency-Keys: what was done for a request, for 24 hours."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, text, tuple_, update

from orders.domain import (
    IdempotencyKeyReused,
    NewOrder,
    OrderAlreadyCancelled,
    OrderAlreadyShipped,
    Status,
    refusal_to_change,
)
from orders.store import orders as order_store
from orders.store.database.database import Query
from orders.store.orders import Changed, Outcome
from orders.store.tables import idempotency_keys

REMEMBERED_FOR = timedelta(hours=24)
# A few at a time, so that no request pays for all of a busy day before.
_SWEPT_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The value that a client sent, in the scope of its API key and version."""

    api_key_id: int
    version: int
    value: str


_IS_KEY = (
    idempotency_keys.c.key_id == bindparam("api_key_id"),
    idempotency_keys.c.version == bindparam("api_version"),
    idempotency_keys.c.value == bindparam("sent"),
)
_IDENTITY = (idempotency_keys.c.key_id, idempotency_keys.c.version, idempotency_keys.c.value)
_FIND = Query(
    select(
        idempotency_keys.c.event_id, idempotency_keys.c.request, idempotency_keys.c.outcomes
    ).where(*_IS_KEY, idempotency_keys.c.at > bindparam("since"))
)
_FORGET = Query(delete(idempotency_keys).where(*_IS_KEY))
_REMEMBER = Query(
    insert(idempotency_keys).values(
        key_id=bindparam("api_key_id"),
        version=bindparam("api_version"),
        value=bindparam("sent"),
        event_id=bindparam("done_by"),
        at=bindparam("now"),
        request=bindparam("digest"),
        outcomes=bindparam("facts"),
    )
)
_EXPIRED = (
    select(*_IDENTITY)
    .where(idempotency_keys.c.at <= bindparam("since"))
    .order_by(idempotency_keys.c.at)
    .limit(_SWEPT_AT_ONCE)
)
# What a clock has dated that was ahead would be remembered until then.
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


def recall(
    connection: Connection, key: IdempotencyKey | None, request: Any, now: datetime
) -> list[Outcome] | None:
    """Return the outcomes of a request that was sent with this key within 24 hours, or None.

    IdempotencyKeyReused is raised if it was a different request.
    """
    if key is None:
        return None
    since = now - REMEMBERED_FOR
    rows = _FIND.execute(connection, **_values(key), since=since).fetchall()
    if not rows:
        return None
    ((event_id, digest, outcomes),) = rows
    if digest is None:
        is_same = order_store.order_after(connection, event_id).as_sent() == request
    else:
        is_same = digest == _digest(request)
    if not is_same:
        raise IdempotencyKeyReused
    if event_id is not None:
        return [order_store.recall(connection, event_id)]
    return [_outcome(connection, *fact) for fact in json.loads(outcomes)]


def remember(
    connection: Connection,
    key: IdempotencyKey | None,
    request: Any,
    outcomes: Sequence[Outcome],
    now: datetime,
) -> Sequence[Outcome]:
    """Remember what was done with this key, and delete a few keys that are older than a day.

    Those that are dated in the future are dated now. Return what was done.
    """
    if key is None:
        return outcomes
    event_id = outcomes[0].event_id if isinstance(outcomes[0], Changed) else None
    facts = None
    if len(outcomes) > 1 or event_id is None:
        event_id, facts = None, json.dumps(list(map(_fact, outcomes)))
    _FORGET.execute(connection, **_values(key))
    _REMEMBER.execute(
        connection,
        **_values(key),
        done_by=event_id,
        digest=None if isinstance(request, NewOrder) else _digest(request),
        facts=facts,
        now=now,
    )
    _SWEEP.execute(connection, since=now - REMEMBERED_FOR)
    _BRING_BACK.execute(connection, now=now)
    return outcomes


def _digest(request: Any) -> str:
    return hashlib.sha256(json.dumps(request, default=str, sort_keys=True).encode()).hexdigest()


_STATUS_OF: dict[type, Status] = {
    OrderAlreadyShipped: Status.SHIPPED,
    OrderAlreadyCancelled: Status.CANCELLED,
}


def _fact(outcome: Any) -> tuple[int, int | str | None]:
    """Return an order's id, with its event's or, where it was not changed, with its status."""
    if isinstance(outcome, Changed):
        return outcome.order_id, outcome.event_id
    return outcome.order_id, _STATUS_OF.get(type(outcome))


def _outcome(connection: Connection, order_id: int, fact: int | str | None) -> Outcome:
    if isinstance(fact, int):
        return order_store.recall(connection, fact)
    return refusal_to_change(order_id, None if fact is None else Status(fact))


def follow_clock(connection: Connection, seconds: float, now: datetime) -> None:
    """Have all keys keep their age after the clock was set by so many seconds."""
    if seconds:
        _SHIFT.execute(connection, step=f"{seconds:+.3f} seconds")
    _BRING_BACK.execute(connection, now=now)


def _values(key: IdempotencyKey) -> dict[str, object]:
    return {"api_key_id": key.api_key_id, "api_version": key.version, "sent": key.value}
