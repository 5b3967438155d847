"""The time before which no clock is believed that judges keys.

A clock that is behind would revive keys that have expired, and rotated secrets past their grace. So
the store keeps the latest time that a service has seen: it is written with the times at which keys
were last used, every hour, at a stop, and when the clock is set back. After a kill, the newest
events show it, too.
"""

from __future__ import annotations

import logging
from datetime import datetime

from sqlalchemy import Connection, func, or_, select, update

from orders.domain import format_instant
from orders.store.tables import order_events, store

log = logging.getLogger(__name__)

# Those among which the latest is looked for: a kill may have come after a clock was set back.
_NEWEST_EVENTS = 1_000

_NEWEST = (
    select(order_events.c.at)
    .where(order_events.c.id > select(func.coalesce(store.c.misdated_events, 0)).scalar_subquery())
    .order_by(order_events.c.id.desc())
    .limit(_NEWEST_EVENTS)
    .subquery()
)
_LATEST = select(func.max(_NEWEST.c.at)).scalar_subquery()


def find(connection: Connection) -> datetime | None:
    """Return the latest time that the store knows of."""
    latest, floor = connection.execute(select(_LATEST, store.c.clock_floor)).one()
    return max((at for at in (latest, floor) if at), default=None)


def note(connection: Connection, seen: datetime) -> None:
    """Have keys judged by the later of the clock and this time, or a later one noted before."""
    is_earlier = or_(store.c.clock_floor.is_(None), store.c.clock_floor < seen)
    connection.execute(update(store).where(is_earlier).values(clock_floor=seen))


def trust_clock(connection: Connection) -> None:
    """Have keys judged by the clock: the events so far were dated by one that was ahead."""
    newest = select(func.max(order_events.c.id)).scalar_subquery()
    connection.execute(update(store).values(clock_floor=None, misdated_events=newest))


def warn(latest: datetime) -> None:
    """Log that the clock is behind, and what to do."""
    log.warning(
        "The clock is behind: it has been %s before. Until then, keys and secrets that had expired "
        "stay so. If the clock is right, and was ahead before, run "
        "`flask db check --clock-is-right`.",
        format_instant(latest),
    )
