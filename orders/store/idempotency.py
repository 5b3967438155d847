"""Idempotency-Keys: which event an order was placed by, for 24 hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, insert, select, text, tuple_, update

from orders.store.database.queries import Query
from orders.store.tables import IdempotencyRow

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
    IdempotencyRow.key_id == bindparam("api_key_id"),
    IdempotencyRow.version == bindparam("api_version"),
    IdempotencyRow.value == bindparam("sent"),
)
_IDENTITY = (IdempotencyRow.key_id, IdempotencyRow.version, IdempotencyRow.value)
_PLACING_EVENT = Query(
    select(IdempotencyRow.event_id).where(*_IS_KEY, IdempotencyRow.at > bindparam("since"))
)
_FORGET = Query(delete(IdempotencyRow).where(*_IS_KEY))
_REMEMBER = Query(
    insert(IdempotencyRow).values(
        key_id=bindparam("api_key_id"),
        version=bindparam("api_version"),
        value=bindparam("sent"),
        event_id=bindparam("placing_event_id"),
        at=bindparam("now"),
    )
)
_EXPIRED = (
    select(*_IDENTITY)
    .where(IdempotencyRow.at <= bindparam("since"))
    .order_by(IdempotencyRow.at)
    .limit(_SWEPT_AT_ONCE)
)
# What a clock has dated that was ahead would be remembered until then.
_BRING_BACK = Query(
    update(IdempotencyRow).where(IdempotencyRow.at > bindparam("now")).values(at=bindparam("now"))
)
_SHIFT = Query(
    text(
        "UPDATE idempotency_keys "
        r"SET at = coalesce(strftime('%Y-%m-%dT%H\:%M\:%fZ', at, :step), at)"
    ),
    text("UPDATE idempotency_keys SET at = at + CAST(:step AS interval)"),
)
_SWEEP = Query(delete(IdempotencyRow).where(tuple_(*_IDENTITY).in_(_EXPIRED)))


def placing_event(connection: Connection, key: IdempotencyKey, now: datetime) -> int | None:
    """Return the id of the event that placed an order with this key within 24 hours, or None."""
    since = now - REMEMBERED_FOR
    rows = _PLACING_EVENT.execute(connection, **_values(key), since=since).fetchall()
    return rows[0][0] if rows else None


def remember(connection: Connection, key: IdempotencyKey, event_id: int, now: datetime) -> None:
    """Remember which event this key placed, and delete a few keys that are older than a day.

    Those that are dated in the future are dated now.
    """
    _FORGET.execute(connection, **_values(key))
    _REMEMBER.execute(connection, **_values(key), placing_event_id=event_id, now=now)
    _SWEEP.execute(connection, since=now - REMEMBERED_FOR)
    _BRING_BACK.execute(connection, now=now)


def follow_clock(connection: Connection, seconds: float, now: datetime) -> None:
    """Have all keys keep their age after the clock was set by so many seconds."""
    if seconds:
        _SHIFT.execute(connection, step=f"{seconds:+.3f} seconds")
    _BRING_BACK.execute(connection, now=now)


def _values(key: IdempotencyKey) -> dict[str, object]:
    return {"api_key_id": key.api_key_id, "api_version": key.version, "sent": key.value}
