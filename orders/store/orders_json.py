"""Orders and events as JSON, written in SQL, and what reads them: version 1's list, one order.

Making 100,000 orders into JSON in Python takes two seconds; SQLite does it in 40 ms, and other
threads run meanwhile. Both databases make the same bytes: a test compares them.

A list of fewer than 4,000 orders is cached until the next commit. A longer one is read in chunks by
key inside one read transaction, so that it shows one moment of the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection
from sqlalchemy.sql.functions import FunctionElement

from orders.domain import Status, name_in_api
from orders.store.database.commits import CommitCache
from orders.store.database.database import Database, Instant, InstantText, Query, sql_function
from orders.store.tables import FreeText, order_events, orders

# The id of the newest event, 0 where there is none: the revision behind the lists.
REVISION = sa.select(sa.func.coalesce(sa.func.max(order_events.c.id), 0)).scalar_subquery()
_EMPTY: ColumnElement[str] = sa.literal_column("''", sa.String)


@sql_function(sqlite="json_quote({})", postgresql="CAST(to_json(CAST({} AS text)) AS text)")
class _Quoted(FunctionElement[str]):
    """A text as JSON."""

    type = sa.String()


# The columns that version 1 shows, and `complete`; version 2 shows the others behind them.
_OF_V1 = ("id", "pet_id", "quantity", "ship_date")


def order_v1(of: sa.Table = orders) -> ColumnElement[str]:
    """Return the SQL for an order of version 1, as it stands or stood after an event."""
    # Its end is chosen as a whole: each || copies all before it, which takes a third of the time.
    # What has shipped has a date.
    before, date = ',"shipDate":"', InstantText(of.c.ship_date)
    end = sa.case(
        (of.c.ship_date.is_(None), joined(',"complete":false}')),
        (of.c.status == Status.SHIPPED.value, joined(before, date, '","complete":true}')),
        else_=joined(before, date, '","complete":false}'),
    )
    return joined("{", *_members(of, [name for name in _OF_V1 if name != "ship_date"]), end)


def order_v2(of: sa.Table = orders) -> ColumnElement[str]:
    """Return the SQL for an order of version 2, as it stands or stood after an event."""
    return joined(*_order_v2(of))


def order_line() -> ColumnElement[str]:
    """Return the SQL for an order as a line of a file: version 2's without `complete`."""
    return joined("{", *_members(orders, orders.columns.keys()), "}")


def event() -> ColumnElement[str]:
    """Return the SQL for an event, with its order in version 2's form as it stood after it."""
    request_id = sa.case(
        (order_events.c.request_id.is_(None), sa.literal_column("'null'", sa.String)),
        else_=_Quoted(order_events.c.request_id),
    )
    return joined(
        *('{"id":', order_events.c.id),
        *(',"type":"', order_events.c.type),
        *('","orderId":', order_events.c.order_id),
        *(',"at":"', InstantText(order_events.c.at)),
        *('","actor":', _Quoted(order_events.c.actor)),
        *(',"requestId":', request_id),
        *(',"order":', *_order_v2(order_events)),
        "}",
    )


def _order_v2(table: sa.Table) -> list[Any]:
    others = [name for name in orders.columns.keys() if name not in _OF_V1]  # noqa: SIM118 - no dict
    complete = ',"complete":', _flag(table.c.status == Status.SHIPPED.value)
    return ["{", *_members(table, _OF_V1), *complete, *_members(table, others), "}"]


def _members(table: sa.Table, names: Iterable[str]) -> Iterator[Any]:
    """Return the members of an order's object, by the types of its columns."""
    for name in names:
        column = table.c.order_id if name == "id" and table is order_events else table.c[name]
        before = f'{"" if name == "id" else ","}"{name_in_api(name)}":'
        member = [before, *_value(column)]
        yield from [unless_null(column, *member)] if orders.c[name].nullable else member


def unless_null(column: Any, *parts: Any) -> ColumnElement[str]:
    """Return the SQL that joins texts made of a column, to an empty one where it is NULL."""
    if isinstance(column.type, FreeText | sa.Boolean):
        return sa.case((column.is_(None), _EMPTY), else_=joined(*parts))
    # A text joined to NULL is NULL. Not so the above: of NULL, SQLite's json_quote makes null.
    return sa.func.coalesce(joined(*parts), _EMPTY)


def _value(column: Any) -> list[Any]:
    if isinstance(column.type, FreeText):
        return [_Quoted(column)]
    if isinstance(column.type, sa.Integer | sa.Boolean):
        return [as_text(column)]
    return ['"', as_text(column), '"']


def as_text(column: Any) -> ColumnElement[str]:
    """Return the SQL for a column as the API's text, without quotes."""
    if isinstance(column.type, sa.Boolean):
        return _flag(column)
    return InstantText(column) if isinstance(column.type, Instant) else column


def _flag(condition: Any) -> ColumnElement[str]:
    true, false = (sa.literal_column(f"'{word}'", sa.String) for word in ("true", "false"))
    return sa.case((condition, true), else_=false)


def joined(*parts: Any) -> ColumnElement[str]:
    """Return the SQL that joins texts: fixed ones, without quotes in them, and columns."""
    pieces: list[Any] = []
    for is_fixed, run in groupby(parts, lambda part: isinstance(part, str)):
        some = [*run]
        # These texts are part of the statement: parameters would be sent each time.
        pieces += [sa.literal_column(f"'{''.join(some)}'", sa.String)] if is_fixed else some
    return reduce(ColumnElement.concat, pieces)


CHUNK_ROWS = 4_000

# For version 1, which can't tell it apart, a cancelled order is gone.
_VISIBLE = orders.c.status != Status.CANCELLED.value

# Passing over a cancelled order costs a fraction of what showing one does.
_ROWS = (
    sa.select(orders.c.id, order_v1().label("json"))
    .where(_VISIBLE, orders.c.id > sa.bindparam("after", type_=sa.BigInteger))
    .order_by(orders.c.id)
    .limit(sa.bindparam("size"))
    .subquery()
)
# Not a parameter, which this function alone would have rendered anew at each execution.
_COMMA: Any = sa.literal_column("','")


def _chunk(text: Any) -> sa.Select[Any]:
    # One statement, so that the orders and the revision are of the same moment.
    return sa.select(sa.func.coalesce(text, ""), sa.func.max(_ROWS.c.id), sa.func.count(), REVISION)


_JOINED = sa.func.aggregate_strings(_ROWS.c.json, _COMMA)
# PostgreSQL keeps no order that it is not asked for.
_CHUNK = Query(_chunk(_JOINED), _chunk(_JOINED.aggregate_order_by(_ROWS.c.id)))
_LATEST_EVENT = (
    sa.select(sa.func.max(order_events.c.id))
    .where(order_events.c.order_id == orders.c.id)
    .scalar_subquery()
)
_HAS_ID = orders.c.id == sa.bindparam("order_id")
_ONE = {
    1: Query(sa.select(order_v1(), _LATEST_EVENT).where(_HAS_ID, _VISIBLE)),
    2: Query(sa.select(order_v2(), _LATEST_EVENT).where(_HAS_ID)),
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


def one_order(database: Database, order_id: int, version: int) -> Entity | None:
    rows = database.fetch_all(_ONE[version], order_id=order_id)
    return Entity(rows[0][0].encode(), rows[0][1]) if rows else None


class CurrentList:
    """The list of all orders of version 1, cached until the next commit where it is short."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = CommitCache[Listed](database, most=1)
        # As of the last reading by any thread; at first, to be on the safe side.
        self.is_long = True

    def now(self) -> Listed:
        """Return the current list, without its body where that is long."""
        return self._cache.get("list", self._read)

    def _read(self) -> Listed:
        ((text, _, count, revision),) = self._database.fetch_all(_CHUNK, after=0, size=CHUNK_ROWS)
        self.is_long = count == CHUNK_ROWS
        return Listed(revision, None if self.is_long else f"[{text}]".encode())


class OrderList:
    """All orders of version 1 as one JSON array, in chunks of bytes.

    The first chunk is read when it is made, so that a database that is away is noticed before
    anything was sent. It keeps a connection until it is at its end or closed.
    """

    def __init__(self, database: Database) -> None:
        self._after = 0
        with contextlib.ExitStack() as resources:
            self._connection: Connection = resources.enter_context(database.snapshot())
            self._resources = resources.pop_all()
        self._chunk, self.revision = self._read_chunk()

    def __iter__(self) -> Iterator[bytes]:
        separator = b"["
        while self._chunk:
            yield separator + self._chunk.encode()
            separator = b","
            self._chunk = "" if self._connection.closed else self._read_chunk()[0]
        yield b"]" if separator == b"," else b"[]"

    def close(self) -> None:
        self._resources.close()

    def _read_chunk(self) -> tuple[str, int]:
        # The connection is kept where there is more to read; an error returns it.
        with self._resources as resources:
            rows = _CHUNK.execute(self._connection, after=self._after, size=CHUNK_ROWS).fetchall()
            ((text, last, count, revision),) = rows
            if count == CHUNK_ROWS:
                self._after = last
                self._resources = resources.pop_all()
            return text, revision
