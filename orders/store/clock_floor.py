"""The time before which no clock is believed that judges keys.

A clock that is behind at a start would revive keys that have expired, and rotated secrets past
their grace. The newest event shows how late it is at least.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, select, update

from orders.store.tables import EventRow, StoreRow

_NEWEST = (
    select(EventRow.c.at)
    .where(EventRow.c.id > func.coalesce(StoreRow.c.misdated_events, 0))
    .order_by(EventRow.c.id.desc())
    .limit(1)
    .correlate(StoreRow)
    .scalar_subquery()
)


def find(connection: Connection, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the time that was noted, and the one to note: None where the clock is not behind."""
    newest, noted = connection.execute(select(_NEWEST, StoreRow.c.clock_floor)).one()
    return noted, max((at for at in (newest, noted) if at and at > now), default=None)


def note(connection: Connection, floor: datetime | None) -> None:
    """Have keys judged by the later of the clock and this time, also after another start."""
    connection.execute(update(StoreRow).values(clock_floor=floor))


def trust_clock(connection: Connection) -> None:
    """Have keys judged by the clock: the events so far were dated by one that was ahead."""
    newest = select(func.max(EventRow.c.id)).scalar_subquery()
    connection.execute(update(StoreRow).values(clock_floor=None, misdated_events=newest))
