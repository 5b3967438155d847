"""What clients know of a run that was cut off, and the rows that the store holds after it.

A client records each operation before it sends it, and again when it is answered. Without an answer
its outcome is unknown: it may have happened or not. `checks` compares the two sides.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from orders.domain import Status, format_instant
from orders.store.database import sqlite

# The status of an operation that was never sent: nobody listened any more.
UNSENT = 0
# Clients change the newest orders, so that they meet at the same ones.
_RECENT = 60


class Kind(StrEnum):
    """An operation of the API."""

    PLACE = "place"
    SHIP = "ship"
    CANCEL = "cancel"
    CHANGE = "change"
    GET = "get"


@dataclass(slots=True)
class Operation:
    """One request, and what is known of its answer.

    `allowed` are the statuses of the answers that may come. No two placings share a petId, unless
    they repeat an Idempotency-Key: it identifies an order whose id no client has seen. So does a
    note its change. `began` and `ended` are in monotonic seconds.
    """

    kind: Kind
    actor: str
    allowed: Sequence[int]
    order_id: int | None = None
    body: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    began: float = 0.0
    ended: float = math.inf
    status: int | None = None
    order: dict[str, Any] | None = None
    request_id: str | None = None
    replayed: bool = False
    # Of a request for several orders, all operations but the first.
    is_part: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether it was sent and never answered."""
        return self.status is None

    @property
    def is_acknowledged(self) -> bool:
        """Whether the answer was a success."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def subject(self) -> int | None:
        """The petId of a placing, otherwise the order's id."""
        return self.body["petId"] if self.kind is Kind.PLACE else self.order_id

    def __str__(self) -> str:
        answer = "unknown" if self.is_unknown else f"answered {self.status}"
        return f"{self.kind} {self.subject} by {self.actor} ({answer}, {self.request_id})"


@dataclass
class History:
    """The operations of all clients. Safe from any thread: it only ever appends and counts."""

    operations: list[Operation] = field(default_factory=list)
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    serials: Any = field(default_factory=lambda: itertools.count(1))
    # When, what, and why, of the requests that the service did not answer.
    unanswered: list[tuple[float, Kind, str]] = field(default_factory=list)

    def unique_order(self) -> dict[str, Any]:
        """Return an order with a petId of its own."""
        return {"petId": next(self.serials)}


class OrderRow(NamedTuple):
    """A row of the table of orders."""

    id: int
    pet_id: int
    quantity: int
    ship_date: str | None
    status: str
    placed_at: str
    updated_at: str
    reference: str | None
    note: str | None


class EventRow(NamedTuple):
    """A row of the event log; from `pet_id` on it is the order as the event left it."""

    id: int
    type: str
    order_id: int
    at: str
    actor: str
    request_id: str | None
    pet_id: int
    quantity: int
    ship_date: str | None
    status: str
    placed_at: str
    updated_at: str
    reference: str | None
    note: str | None

    @property
    def order(self) -> OrderRow:
        """The order as the event left it."""
        return OrderRow(self.order_id, *self[6:])


class KeyRow(NamedTuple):
    """A row of the table of Idempotency-Keys."""

    key_id: int
    version: int
    value: str
    event_id: int


@dataclass
class Contents:
    """The rows of a store at one moment, each table's in the order of its ids."""

    orders: list[OrderRow]
    events: list[EventRow]
    idempotency_keys: list[KeyRow]

    @cached_property
    def events_of(self) -> dict[int, list[EventRow]]:
        """The events of each order, by its id."""
        found: dict[int, list[EventRow]] = {}
        for event in self.events:
            found.setdefault(event.order_id, []).append(event)
        return found


def read(path: Path, order: int = 0, event: int = 0) -> Contents:
    """Read a store's file in one snapshot, with a connection that can't write.

    Only what follows an order and an event is read, all by default.
    """
    with closing(connect(path)) as connection:
        connection.execute("BEGIN")
        return _contents(connection.execute, order, event)


def read_postgres(conninfo: str) -> Contents:
    # Only proofs of several processes need the driver.
    import psycopg

    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return _contents(connection.execute)


def damage(path: Path) -> list[str]:
    """Return SQLite's complaints of a file and its foreign keys: none if it is sound."""
    with closing(connect(path)) as connection:
        lines = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    found = [f"integrity_check: {line}" for line in lines if line != "ok"]
    return found + [f"foreign_key_check: {row}" for row in broken]


def shown(order: OrderRow) -> dict[str, Any]:
    """Return an order as version 1 shows it."""
    answer = {"id": order.id, "petId": order.pet_id, "quantity": order.quantity}
    if order.ship_date is not None:
        answer["shipDate"] = order.ship_date
    return {**answer, "complete": order.status == Status.SHIPPED}


def connect(path: Path, more: str = "") -> Any:
    uri = f"file:{quote(str(path))}?mode=ro{more}"
    return sqlite.sqlite_module().connect(uri, uri=True, isolation_level=None)


def _contents(execute: Callable[[str], Any], order: int = 0, event: int = 0) -> Contents:
    def rows(kind: Any, table: str, key: str, after: int) -> list[Any]:
        columns = ", ".join(kind._fields)
        sql = f"SELECT {columns} FROM {table} WHERE {key} > {after} ORDER BY {key}"
        return [kind._make(map(_as_text, row)) for row in execute(sql)]

    return Contents(
        rows(OrderRow, "orders", "id", order),
        rows(EventRow, "order_events", "id", event),
        rows(KeyRow, "idempotency_keys", "event_id", event),
    )


def _as_text(value: Any) -> Any:
    return format_instant(value) if isinstance(value, datetime) else value
