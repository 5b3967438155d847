"""What is asked of the event log. Rows are appended, never changed; ids rise as they commit."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, insert, literal, select

from orders.domain import EventType, Order, Origin, Status
from orders.store.tables import EventRow, Instant, OrderRow

# The part of an order that each of its events repeats, as it stood after the change.
_COPIED = (
    "pet_id",
    "quantity",
    "ship_date",
    "status",
    "placed_at",
    "updated_at",
    "reference",
)


def append(
    connection: Connection, event: EventType, order_id: int, origin: Origin, at: datetime
) -> int:
    """Append an event with the order as it stands in this transaction; give the event's id."""
    copied = [getattr(OrderRow, name) for name in _COPIED]
    source = select(
        literal(event.value),
        OrderRow.id,
        literal(at, Instant),
        literal(origin.actor),
        literal(origin.request_id),
        *copied,
    ).where(OrderRow.id == order_id)
    columns = ["type", "order_id", "at", "actor", "request_id", *_COPIED]
    statement = insert(EventRow).from_select(columns, source).returning(EventRow.id)
    event_id: int = connection.execute(statement).scalar_one()
    return event_id


def newest_id(connection: Connection) -> int:
    """Give the id of the newest event, 0 where there is none: the revision behind the lists."""
    return connection.scalar(select(func.max(EventRow.id))) or 0


def order_after(connection: Connection, event_id: int) -> Order:
    """Give the order of an event as it stood after it."""
    columns = [getattr(EventRow, name) for name in _COPIED]
    row = connection.execute(
        select(EventRow.order_id.label("id"), *columns).where(EventRow.id == event_id)
    ).one()
    fields = row._asdict()
    return Order(**{**fields, "status": Status(fields["status"])})
