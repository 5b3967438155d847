"""What clients know of a run that was cut off, and what the store holds after it.

A client notes each operation before it sends it, and again when it was answered. What was never
answered is unknown: it may have happened or not. `checker` compares the two sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from orders.domain import Status
from orders.store.database import sqlite

# The status of an operation that never left: nobody listened any more.
UNSENT = 0


class Kind(StrEnum):
    """What a client can ask for."""

    PLACE = "place"
    SHIP = "ship"
    CANCEL = "cancel"
    LOOK = "look"


@dataclass(slots=True)
class Operation:
    """One request, and what is known of its answer.

    `allowed` are the statuses that it may be answered with. `asked` is the body, `value` the
    Idempotency-Key. No two placings share a petId, unless they repeat an Idempotency-Key: an order
    is known by it even where its id was never told. `began` and `ended` are in monotonic seconds.
    """

    kind: Kind
    actor: str
    allowed: Sequence[int]
    order_id: int | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    value: str | None = None
    began: float = 0.0
    ended: float = math.inf
    status: int | None = None
    order: dict[str, Any] | None = None
    request_id: str | None = None
    replayed: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether it was sent and never answered."""
        return self.status is None

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was answered with success."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - as RFC 9110

    @property
    def subject(self) -> int | None:
        """What it is about: the petId of a placing, otherwise the order's id."""
        return self.asked["petId"] if self.kind is Kind.PLACE else self.order_id

    def __str__(self) -> str:
        """Name it in a complaint."""
        answer = "unknown" if self.is_unknown else f"answered {self.status}"
        return f"{self.kind} {self.subject} by {self.actor} ({answer}, {self.request_id})"


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


class EventRow(NamedTuple):
    """A row of the event log; from `pet_id` on it is the order as it stood after it."""

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

    @property
    def order(self) -> OrderRow:
        """The order as it stood after it."""
        return OrderRow(self.order_id, *self[6:])


class RememberedRow(NamedTuple):
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
    remembered: list[RememberedRow]

    @cached_property
    def events_of(self) -> dict[int, list[EventRow]]:
        """The events of each order, by its id."""
        found: dict[int, list[EventRow]] = {}
        for event in self.events:
            found.setdefault(event.order_id, []).append(event)
        return found


def read(path: Path) -> Contents:
    """Read a store's tables in one snapshot, with a connection that can't write."""
    with closing(_read_only(path)) as connection:
        connection.execute("BEGIN")
        return Contents(
            _rows(connection, OrderRow, "orders", "id"),
            _rows(connection, EventRow, "order_events", "id"),
            _rows(connection, RememberedRow, "idempotency_keys", "event_id"),
        )


def damage(path: Path) -> list[str]:
    """Return what SQLite finds wrong with a file and its foreign keys: nothing if it is sound."""
    with closing(_read_only(path)) as connection:
        told = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    found = [f"integrity_check: {line}" for line in told if line != "ok"]
    return found + [f"foreign_key_check: {row}" for row in broken]


def shown(order: OrderRow) -> dict[str, Any]:
    """Return an order as version 1 shows it."""
    answer = {"id": order.id, "petId": order.pet_id, "quantity": order.quantity}
    if order.ship_date is not None:
        answer["shipDate"] = order.ship_date
    return {**answer, "complete": order.status == Status.SHIPPED}


def _read_only(path: Path) -> Any:
    uri = f"file:{quote(str(path))}?mode=ro"
    return sqlite.sqlite_module().connect(uri, uri=True, isolation_level=None)


def _rows(connection: Any, kind: Any, table: str, order_by: str) -> list[Any]:
    columns = ", ".join(kind._fields)
    rows = connection.execute(f"SELECT {columns} FROM {table} ORDER BY {order_by}")  # noqa: S608
    return list(map(kind._make, rows))
