"""The orders. Each change is one conditional statement, and its event."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from orders.domain import EventType, NewOrder, Order, Origin, Status
from orders.store import events
from orders.store.database.errors import bad_rows_mean_corruption
from orders.store.database.queries import Query
from orders.store.tables import OrderRow, order_of

_INSERT = Query(
    insert(OrderRow)
    .values(
        pet_id=bindparam("new_pet_id"),
        quantity=bindparam("new_quantity"),
        ship_date=bindparam("new_ship_date"),
        status=Status.PENDING.value,
        placed_at=bindparam("now"),
        updated_at=bindparam("now"),
        reference=bindparam("new_reference"),
        note=bindparam("new_note"),
    )
    .returning(OrderRow.id)
)


def _change_of_pending(**values: object) -> Query:
    # The condition is part of the statement, so that one of two racing changes wins.
    return Query(
        update(OrderRow)
        .where(OrderRow.id == bindparam("order_id"), OrderRow.status == Status.PENDING.value)
        .values(updated_at=bindparam("now"), **values)
        .returning(*OrderRow.__table__.columns)
    )


_SHIP = _change_of_pending(status=Status.SHIPPED.value, ship_date=bindparam("new_ship_date"))
_CANCEL = _change_of_pending(status=Status.CANCELLED.value)


def insert_pending(
    connection: Connection, new: NewOrder, origin: Origin, now: datetime
) -> tuple[Order, int]:
    """Insert a pending order and its event; return the order and the event's id."""
    ((order_id,),) = _INSERT.execute(
        connection,
        new_pet_id=new.pet_id,
        new_quantity=new.quantity,
        new_ship_date=new.ship_date,
        new_reference=new.reference,
        new_note=new.note,
        now=now,
    ).fetchall()
    event_id = events.append(connection, EventType.PLACED, order_id, origin, now)
    order = Order(
        order_id,
        new.pet_id,
        new.quantity,
        new.ship_date,
        Status.PENDING,
        now,
        now,
        new.reference,
        new.note,
    )
    return order, event_id


def ship_pending(
    connection: Connection, order_id: int, ship_date: datetime, origin: Origin, now: datetime
) -> Order | None:
    """Ship the order if it is pending; return it, or None if it was not."""
    rows = _SHIP.execute(connection, order_id=order_id, new_ship_date=ship_date, now=now)
    return _changed(connection, rows.fetchall(), EventType.SHIPPED, origin, now)


def cancel_pending(
    connection: Connection, order_id: int, origin: Origin, now: datetime
) -> Order | None:
    """Cancel the order if it is pending; return it, or None if it was not."""
    rows = _CANCEL.execute(connection, order_id=order_id, now=now)
    return _changed(connection, rows.fetchall(), EventType.CANCELLED, origin, now)


@bad_rows_mean_corruption()
def status_of(connection: Connection, order_id: int) -> Status | None:
    """Return the status of an order; None where there is no such order."""
    status = connection.scalar(select(OrderRow.status).where(OrderRow.id == order_id))
    return None if status is None else Status(status)


def newest_id(connection: Connection) -> int:
    """Return the highest id of an order, 0 where there is none."""
    return connection.scalar(select(func.max(OrderRow.id))) or 0


def _changed(
    connection: Connection,
    rows: Sequence[tuple[Any, ...]],
    event: EventType,
    origin: Origin,
    now: datetime,
) -> Order | None:
    if not rows:
        return None
    order = order_of(rows[0])
    events.append(connection, event, order.id, origin, now)
    return order
