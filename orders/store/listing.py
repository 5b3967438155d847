"""Orders as JSON, made by the database: whole lists, streamed, and single orders.

Making 100,000 orders into JSON in Python takes two seconds; SQLite does it in 40 ms, and other
threads run meanwhile. The list is read in chunks by key inside one read transaction, so that it
shows one moment of the store however long it takes to send, and no more than a chunk is held in
memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    bindparam,
    case,
    cast,
    func,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.orm import InstrumentedAttribute

from orders.domain import Status
from orders.store import events
from orders.store.engine import Database
from orders.store.tables import EventRow, OrderRow

CHUNK_ROWS = 4_000


def _text(column: InstrumentedAttribute[int]) -> ColumnElement[str]:
    return cast(column, String)


def _instant(column: InstrumentedAttribute[object]) -> ColumnElement[str]:
    # As it is kept on SQLite. PostgreSQL's `to_char` has its place here.
    return type_coerce(column, String)


def _order_v1() -> ColumnElement[str]:
    """Give the SQL for an order of version 1: five fields, none of which can hold free text."""
    ship_date = case(
        (OrderRow.ship_date.is_(None), ""),
        else_=literal(',"shipDate":"').concat(_instant(OrderRow.ship_date)).concat('"'),
    )
    complete = case((OrderRow.status == Status.SHIPPED, "true"), else_="false")
    return (
        literal('{"id":')
        .concat(_text(OrderRow.id))
        .concat(',"petId":')
        .concat(_text(OrderRow.pet_id))
        .concat(',"quantity":')
        .concat(_text(OrderRow.quantity))
        .concat(ship_date)
        .concat(',"complete":')
        .concat(complete)
        .concat("}")
    )


# For version 1, which can't tell it apart, a cancelled order is gone.
_VISIBLE = OrderRow.status != Status.CANCELLED

_CHUNK_ORDERS = (
    select(OrderRow.id, _order_v1().label("json"))
    .where(OrderRow.id > bindparam("after"), _VISIBLE)
    .order_by(OrderRow.id)
    .limit(bindparam("size"))
    .subquery()
)
_CHUNK = select(
    func.aggregate_strings(_CHUNK_ORDERS.c.json, ","),
    func.max(_CHUNK_ORDERS.c.id),
    func.count(),
)
_ONE = select(
    _order_v1(),
    select(func.max(EventRow.id)).where(EventRow.order_id == OrderRow.id).scalar_subquery(),
).where(OrderRow.id == bindparam("order_id"), _VISIBLE)


@dataclass(frozen=True, slots=True)
class Entity:
    """A JSON text, and the event that it shows the store as of."""

    json: str
    revision: int


def one_order(database: Database, order_id: int) -> Entity | None:
    """Give an order of version 1 as JSON; None where it does not exist or was cancelled."""
    with database.read() as connection:
        row = connection.execute(_ONE, {"order_id": order_id}).one_or_none()
    return None if row is None else Entity(row[0], row[1])


class OrderList:
    """All orders of version 1 as one JSON array, in chunks of bytes.

    It reads the first chunk when it is made, so that a database that is away is told before
    anything was sent. It holds a connection until it is at its end or closed.
    """

    def __init__(self, database: Database) -> None:
        """Begin to read.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        self._resources = contextlib.ExitStack()
        try:
            self._connection: Connection = self._resources.enter_context(database.snapshot())
            self.revision = events.newest_id(self._connection)
            self._after = 0
            self._chunk = self._read_chunk()
        except BaseException:
            self._resources.close()
            raise

    @property
    def is_whole(self) -> bool:
        """Whether the first chunk was the only one."""
        return self._connection.closed

    def __iter__(self) -> Iterator[bytes]:
        """Give the array, chunk by chunk."""
        separator = b"["
        while self._chunk:
            yield separator + self._chunk.encode()
            separator = b","
            self._chunk = "" if self.is_whole else self._read_chunk()
        yield b"]" if separator == b"," else b"[]"

    def close(self) -> None:
        """Give the connection back, wherever the reading stands."""
        self._resources.close()

    def _read_chunk(self) -> str:
        parameters = {"after": self._after, "size": CHUNK_ROWS}
        text, last, count = self._connection.execute(_CHUNK, parameters).one()
        if count < CHUNK_ROWS:
            self.close()
        else:
            self._after = last
        return text or ""
