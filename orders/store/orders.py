"""The orders. Each change is one conditional statement, and its event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    func,
    insert,
    not_,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from orders.domain import EventType, NewOrder, Order, Origin, Status
from orders.store import events
from orders.store.database.database import LISTED, Query
from orders.store.events import Changed, order_of
from orders.store.tables import orders

_INSERT = Query(
    insert(orders)
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
    .returning(orders.c.id)
)
_HAS_ID = orders.c.id == bindparam("order_id")
_IS_PENDING = orders.c.status == Status.PENDING.value
_FIND = Query(select(*orders.columns).where(_HAS_ID))


def _change_of_pending(which: ColumnElement[bool], **values: object) -> ReturningUpdate[int]:
    # The condition is part of the statement, so that one of two racing changes wins.
    changing = update(orders).where(which, _IS_PENDING)
    return changing.values(updated_at=bindparam("now"), **values).returning(orders.c.id)


_SHIPPED = {"status": Status.SHIPPED.value, "ship_date": bindparam("new_ship_date")}
_SHIP = Query(*(_change_of_pending(orders.c.id.in_(ids), **_SHIPPED) for ids in LISTED))
_CANCEL = Query(_change_of_pending(_HAS_ID, status=Status.CANCELLED.value))


@cache
def _patch(names: tuple[str, ...]) -> Query:
    """Return the statement that changes some fields: all while it is pending, a note always."""
    new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    same = {
        name: getattr(orders.c, name).is_not_distinct_from(value) for name, value in new.items()
    }
    only_its_note = and_(true(), *(same[name] for name in names if name != "note"))
    return Query(
        update(orders)
        .where(_HAS_ID, or_(_IS_PENDING, only_its_note), not_(and_(true(), *same.values())))
        .values(updated_at=bindparam("now"), **new)
        .returning(orders.c.id)
    )


def insert_pending(connection: Connection, new: NewOrder, origin: Origin, now: datetime) -> Changed:
    """Insert a pending order and its event; return it."""
    ((order_id,),) = _INSERT.execute(
        connection,
        new_pet_id=new.pet_id,
        new_quantity=new.quantity,
        new_ship_date=new.ship_date,
        new_reference=new.reference,
        new_note=new.note,
        now=now,
    ).fetchall()
    return events.append(connection, EventType.PLACED, order_id, origin, now)


def ship_pending(
    connection: Connection, order_ids: list[int], ship_date: datetime, origin: Origin, now: datetime
) -> list[Changed]:
    """Ship those of the orders that are pending; return them."""
    values = {"order_ids": json.dumps(order_ids), "new_ship_date": ship_date, "now": now}
    shipped = [row[0] for row in _SHIP.execute(connection, **values).fetchall()]
    return events.append_for_each(connection, EventType.SHIPPED, shipped, origin, now)


def cancel_pending(
    connection: Connection, order_id: int, origin: Origin, now: datetime
) -> Changed | None:
    """Cancel the order if it is pending; return it, or None if it was not."""
    rows = _CANCEL.execute(connection, order_id=order_id, now=now)
    return _changed(connection, rows.fetchall(), EventType.CANCELLED, origin, now)


def patch(
    connection: Connection, order_id: int, fields: Mapping[str, Any], origin: Origin, now: datetime
) -> Changed | None:
    """Change fields of the order, if they may change and do; return it, or None if not."""
    new = {f"new_{name}": value for name, value in fields.items()}
    rows = _patch(tuple(sorted(fields))).execute(connection, order_id=order_id, now=now, **new)
    return _changed(connection, rows.fetchall(), EventType.CHANGED, origin, now)


def find(connection: Connection, order_id: int) -> Order | None:
    """Return an order; None where there is no such order."""
    rows = _FIND.execute(connection, order_id=order_id).fetchall()
    return order_of(rows[0]) if rows else None


def newest_id(connection: Connection) -> int:
    """Return the highest id of an order, 0 where there is none."""
    return connection.scalar(select(func.max(orders.c.id))) or 0


def _changed(
    connection: Connection,
    rows: Sequence[tuple[Any, ...]],
    event: EventType,
    origin: Origin,
    now: datetime,
) -> Changed | None:
    return events.append(connection, event, rows[0][0], origin, now) if rows else None
