"""What is due to a webhook's endpoint, and what came of it.

Whether what came of a try is still true of its endpoint is part of the statements: a command may
have paused it, moved its position or removed it while the message was on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from orders.domain import EventType, Order
from orders.store.tables import DeliveryRow, EndpointRow, EventRow, RefusedRow, order_of
from orders.store.webhooks import Delivery, Endpoint, EventNotFound, find, is_wanted

_SWEPT_AT_ONCE = 500
_ORDER = (
    EventRow.order_id,
    EventRow.pet_id,
    EventRow.quantity,
    EventRow.ship_date,
    EventRow.status,
    EventRow.placed_at,
    EventRow.updated_at,
    EventRow.reference,
)
_REFUSED = (RefusedRow.event_id, RefusedRow.tries, RefusedRow.next_at)
_EVENT = (EventRow.id, EventRow.type, EventRow.at, *_ORDER)


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the event log, with the order as it stood after it."""

    id: int
    type: EventType
    at: datetime
    order: Order


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that was put aside: how often it was tried, and when it is tried again."""

    event_id: int
    tries: int
    next_at: datetime


def next_wanted(connection: Connection, endpoint: Endpoint, after: int) -> Event | None:
    """Give the first event after that one, of a type that the endpoint wants; None if none."""
    wanted = select(*_EVENT).where(is_wanted(endpoint, after)).order_by(EventRow.id).limit(1)
    row = connection.execute(wanted).one_or_none()
    return _event(row) if row else None


def event(connection: Connection, event_id: int) -> Event:
    """Give an event.

    Raises:
        EventNotFound: there is none of this id.
    """
    row = connection.execute(select(*_EVENT).where(EventRow.id == event_id)).one_or_none()
    if row is None:
        raise EventNotFound(event_id)
    return _event(row)


def next_refused(connection: Connection, endpoint_id: int) -> Refused | None:
    """Give the event that was put aside and is tried again the soonest; None if none was."""
    own = select(*_REFUSED).where(RefusedRow.endpoint_id == endpoint_id)
    row = connection.execute(own.order_by(RefusedRow.next_at, RefusedRow.event_id).limit(1)).first()
    return Refused(*row) if row else None


def soonest_refused(connection: Connection) -> dict[int, Refused]:
    """Give for each endpoint, by its id, what `next_refused` gives; only where there is any."""
    order = (RefusedRow.endpoint_id, RefusedRow.next_at.desc(), RefusedRow.event_id.desc())
    rows = connection.execute(select(RefusedRow.endpoint_id, *_REFUSED).order_by(*order))
    return {row[0]: Refused(*row[1:]) for row in rows}


def claim(
    connection: Connection, endpoint_id: int, process: str, now: datetime, until: datetime
) -> bool:
    """Let a process be the one that delivers to an endpoint; tell whether no other one is.

    A claim that lies further off than `until` was made before the clock was set back: it is none.
    """
    others = and_(
        EndpointRow.claimed_by != process,
        EndpointRow.claimed_until > now,
        EndpointRow.claimed_until <= until,
    )
    free = update(EndpointRow).where(EndpointRow.id == endpoint_id, func.coalesce(~others, True))
    return connection.execute(free.values(claimed_by=process, claimed_until=until)).rowcount > 0


def release_all(connection: Connection) -> None:
    """Forget who delivered: for a process that knows that it is alone."""
    claimed = update(EndpointRow).where(EndpointRow.claimed_by.is_not(None))
    connection.execute(claimed.values(claimed_by=None, claimed_until=None))


def log_delivery(connection: Connection, delivery: Delivery) -> bool:
    """Append to the log of deliveries; false where the endpoint is gone."""
    if find(connection, delivery.endpoint_id) is None:
        return False
    values = {name: getattr(delivery, name) for name in Delivery.__slots__}
    connection.execute(insert(DeliveryRow).values(values))
    return True


def move_on(connection: Connection, endpoint: Endpoint, position: int) -> bool:
    """Go on after an event; false where a command has set another position meanwhile."""
    return _change_at(connection, endpoint, position=position, tries=0, next_at=None)


def wait(connection: Connection, endpoint: Endpoint, tries: int, next_at: datetime) -> bool:
    """Try the event after the position again at that time; false as in `move_on`."""
    return _change_at(connection, endpoint, tries=tries, next_at=next_at)


def put_aside(connection: Connection, endpoint: Endpoint, refused: Refused) -> bool:
    """Go on after an event that is tried again by itself; false as in `move_on`."""
    if not move_on(connection, endpoint, refused.event_id):
        return False
    forget_refused(connection, endpoint.id, refused.event_id)
    values = {name: getattr(refused, name) for name in Refused.__slots__}
    connection.execute(insert(RefusedRow).values(endpoint_id=endpoint.id, **values))
    return True


def try_again(connection: Connection, endpoint_id: int, refused: Refused) -> None:
    """Write when an event that was put aside is tried again."""
    connection.execute(
        update(RefusedRow)
        .where(_is_refused(endpoint_id, refused.event_id))
        .values(tries=refused.tries, next_at=refused.next_at)
    )


def forget_refused(connection: Connection, endpoint_id: int, event_id: int) -> None:
    """Try an event that was put aside no more."""
    connection.execute(delete(RefusedRow).where(_is_refused(endpoint_id, event_id)))


def sweep(connection: Connection, before: datetime) -> bool:
    """Remove some tries from before that time; tell whether there may be more."""
    old = select(DeliveryRow.id).where(DeliveryRow.at < before).order_by(DeliveryRow.at)
    swept = connection.execute(
        delete(DeliveryRow).where(DeliveryRow.id.in_(old.limit(_SWEPT_AT_ONCE)))
    )
    return swept.rowcount == _SWEPT_AT_ONCE


def _is_refused(endpoint_id: int, event_id: int) -> ColumnElement[bool]:
    return and_(RefusedRow.endpoint_id == endpoint_id, RefusedRow.event_id == event_id)


def _change_at(connection: Connection, endpoint: Endpoint, **values: Any) -> bool:
    same = update(EndpointRow).where(
        EndpointRow.id == endpoint.id, EndpointRow.position == endpoint.position
    )
    return connection.execute(same.values(**values)).rowcount > 0


def _event(row: Sequence[Any]) -> Event:
    event_id, kind, at, *order = row
    return Event(event_id, EventType(kind), at, order_of(order))
