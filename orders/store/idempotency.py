"""What is asked of the table of Idempotency-Keys: which event did this key place."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, insert, select, tuple_

from orders.store.database.queries import Query
from orders.store.tables import IdempotencyRow

REMEMBERED_FOR = timedelta(hours=24)
# A few at a time, so that no request pays for a busy day that was yesterday.
_SWEPT_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The value that a client sent, with what makes it the client's own."""

    api_key_id: int
    version: int
    value: str


_IS = (
    IdempotencyRow.key_id == bindparam("api_key_id"),
    IdempotencyRow.version == bindparam("api_version"),
    IdempotencyRow.value == bindparam("sent"),
)
_IDENTITY = (IdempotencyRow.key_id, IdempotencyRow.version, IdempotencyRow.value)
_PLACING_EVENT = Query(
    select(IdempotencyRow.event_id).where(*_IS, IdempotencyRow.at > bindparam("since"))
)
_FORGET = Query(delete(IdempotencyRow).where(*_IS))
_REMEMBER = Query(
    insert(IdempotencyRow).values(
        key_id=bindparam("api_key_id"),
        version=bindparam("api_version"),
        value=bindparam("sent"),
        event_id=bindparam("placing_event_id"),
        at=bindparam("now"),
    )
)
_PAST = (
    select(*_IDENTITY)
    .where(IdempotencyRow.at <= bindparam("since"))
    .order_by(IdempotencyRow.at)
    .limit(_SWEPT_AT_ONCE)
)
_SWEEP = Query(delete(IdempotencyRow).where(tuple_(*_IDENTITY).in_(_PAST)))


def placing_event(connection: Connection, key: IdempotencyKey, now: datetime) -> int | None:
    """Return the id of the event that this key placed within 24 hours, or None."""
    asked = _PLACING_EVENT.execute(connection, **_facts(key), since=now - REMEMBERED_FOR)
    rows = asked.fetchall()
    return rows[0][0] if rows else None


def remember(connection: Connection, key: IdempotencyKey, event_id: int, now: datetime) -> None:
    """Remember which event this key placed, and forget some keys that are past their day."""
    _FORGET.execute(connection, **_facts(key))
    _REMEMBER.execute(connection, **_facts(key), placing_event_id=event_id, now=now)
    _SWEEP.execute(connection, since=now - REMEMBERED_FOR)


def _facts(key: IdempotencyKey) -> dict[str, object]:
    return {"api_key_id": key.api_key_id, "api_version": key.version, "sent": key.value}
