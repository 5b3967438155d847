"""The queue of each endpoint: events that are due, claims, retries, and the log of deliveries.

A command may pause an endpoint, move its position or remove it while a message is on its way. So
the statements that record an outcome check that the endpoint is as it was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Update,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from orders.store import orders_json
from orders.store.tables import DeliveryRow, EndpointRow, EventRow, RefusedRow
from orders.webhooks.endpoints import Delivery, Endpoint, EventNotFound, find

_SWEPT_AT_ONCE = 500
# A backlog is counted within this many events, which takes some milliseconds.
MOST_BEHIND = 10_000
# Between the machines of several processes.
CLOCKS_DIFFER = timedelta(seconds=1)
_EVENT = (EventRow.c.id, EventRow.c.type, EventRow.c.at, orders_json.order_v2(EventRow))


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `order` is the order as it stood then, as JSON in version 2's form."""

    id: int
    type: str
    at: datetime
    order: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that was put aside, the attempts so far, and when the next is due."""

    event_id: int
    tries: int
    next_at: datetime


def next_wanted(connection: Connection, endpoint: Endpoint, after: int) -> Event | None:
    """Return the first event after `after` of a type that the endpoint wants, or None."""
    wanted = select(*_EVENT).where(EventRow.c.id > after, EventRow.c.type.in_(endpoint.events))
    row = connection.execute(wanted.order_by(EventRow.c.id).limit(1)).first()
    return Event(*row) if row else None


def event(connection: Connection, event_id: int) -> Event:
    """Return an event.

    Raises:
        EventNotFound: there is no such event.
    """
    row = connection.execute(select(*_EVENT).where(EventRow.c.id == event_id)).one_or_none()
    if row is None:
        raise EventNotFound(event_id)
    return Event(*row)


def behind(connection: Connection, endpoint: Endpoint, after: int) -> tuple[int, datetime | None]:
    """Return the size of an endpoint's backlog after an event, and when its oldest event happened.

    Only the next `MOST_BEHIND` events, of any type, are considered.
    """
    later = (
        select(EventRow.c.type, EventRow.c.at)
        .where(EventRow.c.id > after)
        .order_by(EventRow.c.id)
        .limit(MOST_BEHIND)
        .subquery()
    )
    wanted = select(func.count(), func.min(later.c.at)).where(later.c.type.in_(endpoint.events))
    count, oldest = connection.execute(wanted).one()
    return count, oldest


def next_refused(connection: Connection, endpoint_id: int) -> Refused | None:
    """Return the event put aside whose retry is due first, or None."""
    row = connection.execute(select_refused(endpoint_id)).first()
    return Refused(*row) if row else None


def select_refused(endpoint_id: int) -> Select[Any]:
    """Return the statement that finds the event put aside whose retry is due first."""
    own = select(RefusedRow.c.event_id, RefusedRow.c.tries, RefusedRow.c.next_at).where(
        RefusedRow.c.endpoint_id == endpoint_id
    )
    return own.order_by(RefusedRow.c.next_at, RefusedRow.c.event_id).limit(1)


def refused_counts(connection: Connection) -> dict[int, int]:
    """Return how many events each endpoint, by its id, has put aside; only where there are any."""
    counts = select(RefusedRow.c.endpoint_id, func.count()).group_by(RefusedRow.c.endpoint_id)
    return dict(connection.execute(counts).all())


def claim(
    connection: Connection, endpoint_id: int, process: str, now: datetime, lasts: timedelta
) -> bool:
    """Claim an endpoint for a process; return False if another process holds a claim."""
    is_free = or_(
        EndpointRow.c.claimed_by.is_(None),
        EndpointRow.c.claimed_by == process,
        EndpointRow.c.claimed_until <= now,
        # Made before the clock was set back.
        EndpointRow.c.claimed_until > now + lasts + CLOCKS_DIFFER,
    )
    claimed = update(EndpointRow).where(EndpointRow.c.id == endpoint_id, is_free)
    values = {"claimed_by": process, "claimed_until": now + lasts}
    return connection.execute(claimed.values(values)).rowcount > 0


def release(connection: Connection, process: str | None = None) -> None:
    """Release the claims of a process that ends, or those of all."""
    owner = EndpointRow.c.claimed_by
    claimed = owner.is_not(None) if process is None else owner == process
    connection.execute(
        update(EndpointRow).where(claimed).values(claimed_by=None, claimed_until=None)
    )


def log_delivery(connection: Connection, delivery: Delivery) -> bool:
    """Append to the log of deliveries; return False if the endpoint was removed."""
    if find(connection, delivery.endpoint_id) is None:
        return False
    connection.execute(insert(DeliveryRow).values(asdict(delivery)))
    return True


def move_on(connection: Connection, endpoint: Endpoint, position: int) -> bool:
    """Advance an endpoint past an event; return False if a command moved it meanwhile."""
    values = {"position": position, "tries": 0, "next_at": None}
    return connection.execute(_unmoved(endpoint).values(values)).rowcount > 0


def wait(connection: Connection, endpoint: Endpoint, tries: int, next_at: datetime) -> bool:
    """Schedule a retry of the event after the position; return False as `move_on` does."""
    values = {"tries": tries, "next_at": next_at}
    return connection.execute(_unmoved(endpoint).values(values)).rowcount > 0


def put_aside(connection: Connection, endpoint: Endpoint, refused: Refused) -> bool:
    """Advance past an event that is retried by itself; return False as `move_on` does."""
    if not move_on(connection, endpoint, refused.event_id):
        return False
    forget_refused(connection, endpoint.id, refused.event_id)
    values = {"endpoint_id": endpoint.id, **asdict(refused)}
    connection.execute(insert(RefusedRow).values(values))
    return True


def try_again(connection: Connection, endpoint_id: int, refused: Refused) -> None:
    """Reschedule an event that was put aside."""
    connection.execute(
        update(RefusedRow)
        .where(_is_refused(endpoint_id, refused.event_id))
        .values(tries=refused.tries, next_at=refused.next_at)
    )


def forget_refused(connection: Connection, endpoint_id: int, event_id: int) -> None:
    """Stop retrying an event that was put aside."""
    connection.execute(delete(RefusedRow).where(_is_refused(endpoint_id, event_id)))


def newest_at(connection: Connection) -> datetime | None:
    """Return the latest time in the log, or None where it is empty."""
    newest: datetime | None = connection.scalar(select(func.max(DeliveryRow.c.at)))
    return newest


def sweep(connection: Connection, before: datetime) -> bool:
    """Delete some log lines older than `before`; return whether there may be more."""
    old = select(DeliveryRow.c.id).where(DeliveryRow.c.at < before).order_by(DeliveryRow.c.at)
    swept = connection.execute(
        delete(DeliveryRow).where(DeliveryRow.c.id.in_(old.limit(_SWEPT_AT_ONCE)))
    )
    return swept.rowcount == _SWEPT_AT_ONCE


def _is_refused(endpoint_id: int, event_id: int) -> ColumnElement[bool]:
    return and_(RefusedRow.c.endpoint_id == endpoint_id, RefusedRow.c.event_id == event_id)


def _unmoved(endpoint: Endpoint) -> Update:
    # If no command has set its position since it was read.
    return update(EndpointRow).where(
        EndpointRow.c.id == endpoint.id, EndpointRow.c.position == endpoint.position
    )
