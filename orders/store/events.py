"""What is asked of the event log. Rows are appended, never changed; ids rise as they commit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, insert, literal, select

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
_COLUMNS = ("type", "order_id", "at", "actor", "request_id", *_COPIED)


def append(
    connection: Connection, event: EventType, order_id: int, origin: Origin, at: datetime
) -> int:
    """Append an event with the order as it stands in this transaction; give the event's id."""
    source = _copies(event, origin, at).where(OrderRow.id == order_id)
    statement = insert(EventRow).from_select(_COLUMNS, source).returning(EventRow.id)
    event_id: int = connection.execute(statement).scalar_one()
    return event_id


def append_for_all(
    connection: Connection,
    event: EventType,
    order_ids: Select[int],
    origin: Origin,
    at: datetime,
) -> None:
    """Append an event for each of the orders that a query gives the ids of, by id."""
    source = _copies(event, origin, at).where(OrderRow.id.in_(order_ids)).order_by(OrderRow.id)
    connection.execute(insert(EventRow).from_select(_COLUMNS, source))


def _copies(event: EventType, origin: Origin, at: datetime) -> Select[Any]:
    # The order as it stands in this transaction, as the columns of an event of it.
    return select(
        literal(event.value),
        OrderRow.id,
        literal(at, Instant),
        literal(origin.actor),
        literal(origin.request_id),
        *(getattr(OrderRow, name) for name in _COPIED),
    )


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
