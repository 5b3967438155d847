"""What is asked of the table of Idempotency-Keys: which event did this key place."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, delete, insert, select, tuple_

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


def placing_event(connection: Connection, key: IdempotencyKey, now: datetime) -> int | None:
    """Give the id of the event that this key placed within 24 hours, or None."""
    event_id: int | None = connection.scalar(
        select(IdempotencyRow.event_id).where(*_is(key), IdempotencyRow.at > now - REMEMBERED_FOR)
    )
    return event_id


def remember(connection: Connection, key: IdempotencyKey, event_id: int, now: datetime) -> None:
    """Remember which event this key placed, and forget some keys that are past their day."""
    connection.execute(delete(IdempotencyRow).where(*_is(key)))
    connection.execute(
        insert(IdempotencyRow).values(
            key_id=key.api_key_id,
            version=key.version,
            value=key.value,
            event_id=event_id,
            at=now,
        )
    )
    identity = (IdempotencyRow.key_id, IdempotencyRow.version, IdempotencyRow.value)
    past = (
        select(*identity)
        .where(IdempotencyRow.at <= now - REMEMBERED_FOR)
        .order_by(IdempotencyRow.at)
        .limit(_SWEPT_AT_ONCE)
    )
    connection.execute(delete(IdempotencyRow).where(tuple_(*identity).in_(past)))


def _is(key: IdempotencyKey) -> tuple[ColumnElement[bool], ...]:
    return (
        IdempotencyRow.key_id == key.api_key_id,
        IdempotencyRow.version == key.version,
        IdempotencyRow.value == key.value,
    )
