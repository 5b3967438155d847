"""Orders as JSON, made by the database: whole lists, kept or streamed, and single orders.

A list of fewer than 4,000 orders is kept while nothing is committed. A longer one is read in chunks
by key inside one read transaction, so that it shows one moment of the store however long it takes
to send, and no more than a chunk is held in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    bindparam,
    func,
    literal_column,
    select,
)

from orders.domain import Status
from orders.store import events, forms
from orders.store.engine import Database
from orders.store.failures import damage_told
from orders.store.kept import Kept
from orders.store.query import Query
from orders.store.tables import EventRow, OrderRow

CHUNK_ROWS = 4_000

# For version 1, which can't tell it apart, a cancelled order is gone.
_VISIBLE = OrderRow.status != Status.CANCELLED.value

_CHUNK_ORDERS = (
    select(OrderRow.id, forms.order_v1().label("json"))
    .where(OrderRow.id > bindparam("after"), _VISIBLE)
    .order_by(OrderRow.id)
    .limit(bindparam("size"))
    .subquery()
)
# Not a parameter, which this function alone would have rendered anew at each execution.
_COMMA: Any = literal_column("','")
# One statement, so that the orders and the revision are of the same moment.
_CHUNK = Query(
    select(
        func.coalesce(func.aggregate_strings(_CHUNK_ORDERS.c.json, _COMMA), ""),
        func.max(_CHUNK_ORDERS.c.id),
        func.count(),
        events.REVISION,
    )
)
_REVISION = Query(select(events.REVISION))
_LATEST_EVENT = (
    select(func.max(EventRow.id)).where(EventRow.order_id == OrderRow.id).scalar_subquery()
)
_IS_IT = OrderRow.id == bindparam("order_id")
_ONE = {
    1: Query(select(forms.order_v1(), _LATEST_EVENT).where(_IS_IT, _VISIBLE)),
    2: Query(select(forms.order_v2(), _LATEST_EVENT).where(_IS_IT)),
}


@dataclass(frozen=True, slots=True)
class Entity:
    """A JSON text in UTF-8, and the event that it shows the store as of."""

    body: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Listed:
    """The list of all orders, None where it is long, and the event that it is as of."""

    revision: int
    body: bytes | None


@damage_told()
def one_order(database: Database, order_id: int, version: int) -> Entity | None:
    """Give an order as a version shows it; None where it does not exist or is not shown."""
    rows = database.ask(_ONE[version], order_id=order_id)
    return Entity(rows[0][0].encode(), rows[0][1]) if rows else None


class CurrentList:
    """The list of all orders of version 1, kept while nothing is committed."""

    def __init__(self, database: Database) -> None:
        """Take the database. Reads nothing."""
        self._database = database
        self._kept: Kept[Listed] = Kept(database, 1)
        self._was_long = False

    def now(self) -> Listed:
        """Give the list as it is now, without its body where that is long.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        return self._kept.get("all", self._read)

    @damage_told()
    def _read(self) -> Listed:
        if self._was_long:
            ((revision,),) = self._database.ask(_REVISION)
            return Listed(revision, None)
        ((text, _, count, revision),) = self._database.ask(_CHUNK, after=0, size=CHUNK_ROWS)
        self._was_long = count == CHUNK_ROWS
        return Listed(revision, None if self._was_long else f"[{text}]".encode())


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
        self._after = 0
        with contextlib.ExitStack() as resources:
            self._connection: Connection = resources.enter_context(database.snapshot())
            self._resources = resources.pop_all()
        self._chunk, self.revision = self._read_chunk()

    def __iter__(self) -> Iterator[bytes]:
        """Give the array, chunk by chunk."""
        separator = b"["
        while self._chunk:
            yield separator + self._chunk.encode()
            separator = b","
            self._chunk = "" if self._connection.closed else self._read_chunk()[0]
        yield b"]" if separator == b"," else b"[]"

    def close(self) -> None:
        """Give the connection back, wherever the reading stands."""
        self._resources.close()

    def _read_chunk(self) -> tuple[str, int]:
        # The connection is kept where there is more to read. An error is told by its context.
        with self._resources as resources, damage_told():
            asked = _CHUNK.execute(self._connection, after=self._after, size=CHUNK_ROWS)
            ((text, last, count, revision),) = asked.fetchall()
            if count == CHUNK_ROWS:
                self._after = last
                self._resources = resources.pop_all()
            return text, revision
