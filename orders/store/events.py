"""What is asked of the event log. Rows are appended, never changed; ids rise as they commit."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, Select, String, bindparam, func, insert, select

from orders.domain import EventType, Order, Origin
from orders.store.database.errors import bad_rows_mean_corruption
from orders.store.database.queries import Query
from orders.store.database.types import Instant
from orders.store.tables import EventRow, OrderRow, order_of

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


# The order as it stands in this transaction, as the columns of an event of it.
_COPIES = select(
    bindparam("event", type_=String),
    OrderRow.id,
    bindparam("now", type_=Instant),
    bindparam("actor", type_=String),
    bindparam("request_id", type_=String),
    *(getattr(OrderRow, name) for name in _COPIED),
)
_APPEND = Query(
    insert(EventRow)
    .from_select(_COLUMNS, _COPIES.where(OrderRow.id == bindparam("order_id")))
    .returning(EventRow.id)
)
# The id of the newest event, 0 where there is none: the revision behind the lists.
REVISION = select(func.coalesce(func.max(EventRow.id), 0)).scalar_subquery()
_NEWEST = Query(select(REVISION))
_ORDER_AFTER = Query(
    select(EventRow.order_id, *(getattr(EventRow, name) for name in _COPIED)).where(
        EventRow.id == bindparam("event_id")
    )
)


@bad_rows_mean_corruption()
def append(
    connection: Connection, event: EventType, order_id: int, origin: Origin, at: datetime
) -> int:
    """Append an event with the order as it stands in this transaction; return the event's id."""
    ((event_id,),) = _APPEND.execute(
        connection, order_id=order_id, **_facts(event, origin, at)
    ).fetchall()
    return int(event_id)


def append_for_all(
    connection: Connection,
    event: EventType,
    order_ids: Select[int],
    origin: Origin,
    at: datetime,
) -> None:
    """Append an event for each of the orders that a query gives the ids of, by id."""
    source = _COPIES.where(OrderRow.id.in_(order_ids)).order_by(OrderRow.id)
    connection.execute(insert(EventRow).from_select(_COLUMNS, source), _facts(event, origin, at))


def _facts(event: EventType, origin: Origin, at: datetime) -> dict[str, object]:
    return {
        "event": event.value,
        "now": at,
        "actor": origin.actor,
        "request_id": origin.request_id,
    }


@bad_rows_mean_corruption()
def newest_id(connection: Connection) -> int:
    """Return the id of the newest event, 0 where there is none: the revision behind the lists."""
    ((event_id,),) = _NEWEST.execute(connection).fetchall()
    return int(event_id)


@bad_rows_mean_corruption()
def order_after(connection: Connection, event_id: int) -> Order:
    """Return the order of an event as it stood after it."""
    (row,) = _ORDER_AFTER.execute(connection, event_id=event_id).fetchall()
    return order_of(row)
