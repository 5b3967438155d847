"""What is asked of the orders table. Each change is one conditional statement and its event."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from orders.domain import EventType, NewOrder, Order, Origin, Status
from orders.store import events
from orders.store.tables import OrderRow


def insert_pending(
    connection: Connection, new: NewOrder, origin: Origin, now: datetime
) -> tuple[Order, int]:
    """Insert a pending order and its event; give the order and the event's id."""
    row = connection.execute(
        insert(OrderRow)
        .values(
            pet_id=new.pet_id,
            quantity=new.quantity,
            ship_date=new.ship_date,
            status=Status.PENDING,
            placed_at=now,
            updated_at=now,
            reference=new.reference,
        )
        .returning(*OrderRow.__table__.columns)
    ).one()
    event_id = events.append(connection, EventType.PLACED, row.id, origin, now)
    return _order(row), event_id


def ship_pending(
    connection: Connection, order_id: int, ship_date: datetime, origin: Origin, now: datetime
) -> Order | None:
    """Ship the order if it is pending; give it, or None if it was not."""
    values = {"status": Status.SHIPPED, "ship_date": ship_date, "updated_at": now}
    return _change_pending(connection, order_id, values, EventType.SHIPPED, origin, now)


def cancel_pending(
    connection: Connection, order_id: int, origin: Origin, now: datetime
) -> Order | None:
    """Cancel the order if it is pending; give it, or None if it was not."""
    values = {"status": Status.CANCELLED, "updated_at": now}
    return _change_pending(connection, order_id, values, EventType.CANCELLED, origin, now)


def status_of(connection: Connection, order_id: int) -> Status | None:
    """Give the status of an order; None where there is no such order."""
    status = connection.scalar(select(OrderRow.status).where(OrderRow.id == order_id))
    return None if status is None else Status(status)


def newest_id(connection: Connection) -> int:
    """Give the highest id of an order, 0 where there is none."""
    return connection.scalar(select(func.max(OrderRow.id))) or 0


def _change_pending(  # noqa: PLR0913, PLR0917 - the facts of one change, all of them needed
    connection: Connection,
    order_id: int,
    values: dict[str, object],
    event: EventType,
    origin: Origin,
    now: datetime,
) -> Order | None:
    row = connection.execute(
        update(OrderRow)
        .where(OrderRow.id == order_id, OrderRow.status == Status.PENDING)
        .values(**values)
        .returning(*OrderRow.__table__.columns)
    ).one_or_none()
    if row is None:
        return None
    events.append(connection, event, order_id, origin, now)
    return _order(row)


def _order(row: Row[Any]) -> Order:
    fields = row._asdict()
    return Order(**{**fields, "status": Status(fields["status"])})
