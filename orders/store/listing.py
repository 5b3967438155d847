"""Orders as JSON, made by the database: whole lists, kept or streamed, and single orders.

A list of fewer than 4,000 orders is kept, and brought up to date with the events that came since. A
longer one is read in chunks by key inside one read transaction, so that it shows one moment of the
store however long it takes to send, and no more than a chunk is held in memory.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    bindparam,
    func,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by

from orders.domain import Status
from orders.store import events, orders_json
from orders.store.database.engine import Database
from orders.store.database.errors import bad_rows_mean_corruption
from orders.store.database.queries import Query
from orders.store.tables import EventRow, OrderRow

CHUNK_ROWS = 4_000
# So many events since, and it is no dearer to read a short list anew.
_MOST_EVENTS = 500
# A long list is not looked at again, whether it has become short, before so many more events.
_LONG_FOR_EVENTS = 1_000

# For version 1, which can't tell it apart, a cancelled order is gone.
_VISIBLE = OrderRow.status != Status.CANCELLED.value
_VISIBLE_STATUSES = [status for status in Status if status is not Status.CANCELLED]

# Merged from an index of each status, so that cancelled orders, of which there may be any number,
# are not even passed over.
_CHUNK_IDS = (
    union_all(
        *(
            select(OrderRow.id.label("order_id")).where(
                OrderRow.status == status.value,
                OrderRow.id > bindparam("after", type_=BigInteger),
            )
            for status in _VISIBLE_STATUSES
        )
    )
    .order_by(literal_column("order_id"))
    .limit(bindparam("size"))
    .subquery()
)
_CHUNK_ORDERS = (
    select(OrderRow.id, orders_json.order_v1().label("json"))
    .select_from(_CHUNK_IDS)
    .join(OrderRow, OrderRow.id == _CHUNK_IDS.c.order_id)
)
_CHUNK_JSON = _CHUNK_ORDERS.subquery()
# Not a parameter, which this function alone would have rendered anew at each execution.
_COMMA: Any = literal_column("','")
# PostgreSQL merges them where each is sorted and cut for itself, and keeps no order that it is not
# asked for.
_CHUNK_ON_POSTGRES = (
    union_all(
        *(
            select(
                select(OrderRow.id, orders_json.order_v1().label("json"))
                .where(
                    OrderRow.status == status.value,
                    OrderRow.id > bindparam("after", type_=BigInteger),
                )
                .order_by(OrderRow.id)
                .limit(bindparam("size"))
                .subquery()
            )
            for status in _VISIBLE_STATUSES
        )
    )
    .order_by(literal_column("id"))
    .limit(bindparam("size"))
    .subquery()
)
_IN_ORDER = aggregate_order_by(_COMMA, _CHUNK_ON_POSTGRES.c.id)


def _chunk(rows: Any, joined: Any) -> Select[Any]:
    # One statement, so that the orders and the revision are of the same moment.
    return select(func.coalesce(joined, ""), func.max(rows.c.id), func.count(), events.REVISION)


_CHUNK = Query(
    _chunk(_CHUNK_JSON, func.aggregate_strings(_CHUNK_JSON.c.json, _COMMA)),
    _chunk(_CHUNK_ON_POSTGRES, func.string_agg(_CHUNK_ON_POSTGRES.c.json, _IN_ORDER)),
)
_REVISION_FIRST = union_all(
    select(events.REVISION.label("id"), null().label("json")), select(_CHUNK_ON_POSTGRES)
).subquery()
# The first row has the revision in the place of an id: there may be no other.
_EACH = Query(
    union_all(select(events.REVISION, null()), _CHUNK_ORDERS),
    select(_REVISION_FIRST).order_by(_REVISION_FIRST.c.json.is_not(None), _REVISION_FIRST.c.id),
)
_CHANGES = Query(
    select(EventRow.id, EventRow.order_id, EventRow.status, orders_json.order_v1_after())
    .where(EventRow.id > bindparam("after", type_=BigInteger))
    .order_by(EventRow.id)
    .limit(bindparam("size"))
)
_REVISION = Query(select(events.REVISION))
_LATEST_EVENT = (
    select(func.max(EventRow.id)).where(EventRow.order_id == OrderRow.id).scalar_subquery()
)
_IS_IT = OrderRow.id == bindparam("order_id")
_ONE = {
    1: Query(select(orders_json.order_v1(), _LATEST_EVENT).where(_IS_IT, _VISIBLE)),
    2: Query(select(orders_json.order_v2(), _LATEST_EVENT).where(_IS_IT)),
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


@bad_rows_mean_corruption()
def one_order(database: Database, order_id: int, version: int) -> Entity | None:
    """Return an order as a version shows it; None where it does not exist or is not shown."""
    rows = database.ask(_ONE[version], order_id=order_id)
    return Entity(rows[0][0].encode(), rows[0][1]) if rows else None


@dataclass(slots=True)
class _ShortList:
    """Orders as JSON texts by id, in the order of their ids, as of an event."""

    orders: dict[int, str]
    revision: int

    def apply(self, changes: Iterable[tuple[Any, ...]]) -> bool:
        """Bring it up to date with the events since; tell whether it is still a short list."""
        newest = next(reversed(self.orders), 0)
        for event_id, order_id, status, text in changes:
            if status == Status.CANCELLED.value:
                self.orders.pop(order_id, None)
            elif order_id in self.orders or order_id > newest:
                self.orders[order_id] = text
                newest = max(newest, order_id)
            else:
                # An import may bring ids that lie between others.
                return False
            self.revision = event_id
        return len(self.orders) < CHUNK_ROWS

    def listed(self) -> Listed:
        """Return it as one JSON array."""
        return Listed(self.revision, f"[{','.join(self.orders.values())}]".encode())


class CurrentList:
    """The list of all orders of version 1, kept where it is short. Each thread keeps its own."""

    def __init__(self, database: Database) -> None:
        """Take the database. Reads nothing."""
        self._database = database
        self._thread = threading.local()
        # The event at which the list was last found to be long.
        self._long_at: int | None = None

    def now(self) -> Listed:
        """Return the list as it is now, without its body where that is long.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        # Asked before anything is read: a commit between the two makes the next one read again.
        version = self._database.version()
        if getattr(self._thread, "version", None) != version:
            self._thread.version = None
            self._thread.listed = self._read()
            self._thread.version = version
        listed: Listed = self._thread.listed
        return listed

    @bad_rows_mean_corruption()
    def _read(self) -> Listed:
        kept: _ShortList | None = getattr(self._thread, "short", None)
        # Whatever goes wrong while it is changed, it is not used again.
        self._thread.short = None
        short = kept if kept and self._is_brought_up(kept) else self._read_whole()
        self._thread.short = short
        return short.listed() if short else Listed(self._revision(), None)

    def _is_brought_up(self, short: _ShortList) -> bool:
        changes = self._database.ask(_CHANGES, after=short.revision, size=_MOST_EVENTS)
        # A commit without events may be somebody's who mends rows by hand: then all is read.
        return 0 < len(changes) < _MOST_EVENTS and short.apply(changes)

    def _read_whole(self) -> _ShortList | None:
        if self._long_at is not None and self._revision() < self._long_at + _LONG_FOR_EVENTS:
            return None
        (revision, _), *orders = self._database.ask(_EACH, after=0, size=CHUNK_ROWS)
        is_long = len(orders) == CHUNK_ROWS
        self._long_at = revision if is_long else None
        return None if is_long else _ShortList(dict(orders), revision)

    def _revision(self) -> int:
        ((revision,),) = self._database.ask(_REVISION)
        return int(revision)


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
        """Return the array, chunk by chunk."""
        separator = b"["
        while self._chunk:
            yield separator + self._chunk.encode()
            separator = b","
            self._chunk = "" if self._connection.closed else self._read_chunk()[0]
        yield b"]" if separator == b"," else b"[]"

    def close(self) -> None:
        """Return the connection back, wherever the reading stands."""
        self._resources.close()

    def _read_chunk(self) -> tuple[str, int]:
        # The connection is kept where there is more to read. An error is told by its context.
        with self._resources as resources, bad_rows_mean_corruption():
            asked = _CHUNK.execute(self._connection, after=self._after, size=CHUNK_ROWS)
            ((text, last, count, revision),) = asked.fetchall()
            if count == CHUNK_ROWS:
                self._after = last
                self._resources = resources.pop_all()
            return text, revision
