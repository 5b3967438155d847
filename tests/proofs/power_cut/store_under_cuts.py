"""A store on a disk that forgets at power cuts, and the changes that it acknowledged.

The parts are the project's own: the connections and pragmas of `orders.store.database.sqlite`, the
use cases of `orders.service`, the schema of the migrations, the checks of a start. For
`tests.proofs.power_cut`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from orders import apikeys
from orders.clock import Clock
from orders.domain import EventType, NewOrder, Refusal
from orders.files.rows import Faults
from orders.service import BY_COMMAND, OrderService
from orders.store import apikeys as key_store
from orders.store.apikeys import NewKey
from orders.store.care import checks, opening
from orders.store.database.database import continue_ids_above
from orders.store.database.errors import StoreUnavailable
from orders.store.database.sqlite import SqliteDatabase
from orders.store.idempotency import IdempotencyKey
from tests.proofs.power_cut import apsw_driver
from tests.proofs.power_cut.disk import Disk
from tests.support.orders import REPEATED

WHAT_HAPPENS = {"place": 60, "ship": 20, "cancel": 10, "import": 5, "read": 5}
# Orders that are placed get ids above this; those that are imported come with one below.
LAST_IMPORTED_ID = 1_000_000
_EVENTS = "SELECT type, reference FROM order_events ORDER BY id"
_PENDING = "SELECT reference, id FROM orders WHERE status = 'pending'"
_UNLIKE_THEIR_EVENTS = f"""
WITH newest AS (
    SELECT order_id, {REPEATED} FROM order_events
    WHERE id IN (SELECT max(id) FROM order_events GROUP BY order_id)
), standing AS (SELECT id, {REPEATED} FROM orders)
SELECT (SELECT count(*) FROM (SELECT * FROM newest EXCEPT SELECT * FROM standing))
     + (SELECT count(*) FROM (SELECT * FROM standing EXCEPT SELECT * FROM newest))
"""

# The type of an event, and the reference of its order: no two orders here share one.
Event = tuple[str, str]


@dataclass(frozen=True)
class Change:
    """A change, and the events that it should leave."""

    events: list[Event]
    make: Callable[[], Any]


@dataclass(frozen=True)
class Found:
    """The state after a cut: acknowledged events that are lost; whether the database is sound."""

    lost: int
    is_sound: bool


class Store:
    """A store whose database is on a forgetful disk."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        apsw_driver.layer = None  # it is made before the disk begins to forget
        opening.create(path)
        self.path, self._chance = path, chance
        self._key_id = _issue_key(path)
        self.disk = Disk(path, chance)
        apsw_driver.layer = self.disk.name
        # Acknowledged events, and ids of pending orders.
        self.events: list[Event] = []
        self._pending: dict[str, int] = {}
        self._references = 0
        self.open()

    def open(self) -> None:
        """Begin to use the database, as the service does after the checks of a start."""
        self.database = SqliteDatabase(self.path)
        self._service = OrderService(self.database, Clock())

    def live_until_cut(self) -> Change:
        """Make changes until the power goes; return the one that was not acknowledged any more."""
        with closing(self.database), ExitStack() as reading:
            while True:
                change = self._next_change(reading)
                self._tend()
                if not self._is_acknowledged(change):
                    return change
                self.events.extend(change.events)

    def start_again(self, under_way: Change) -> Found:
        """Check the database as a start does, and compare it with the acknowledged changes."""
        try:
            checks.check(self.path)
            checks.check_whole(self.path)
        except checks.UnfitDatabase:
            return Found(0, is_sound=False)
        self.open()
        with self.database.snapshot() as connection:
            found = _events_in(connection)
            unlike = connection.exec_driver_sql(_UNLIKE_THEIR_EVENTS).scalar_one()
            self._pending = dict(map(tuple, connection.exec_driver_sql(_PENDING)))
        lost = max(0, len(self.events) - len(found))
        # A change in progress when the power went is there completely or not at all.
        with_last = self.events + under_way.events
        is_expected = found in (with_last, self.events[: len(found)])
        self.events = found
        return Found(lost, is_sound=is_expected and not unlike)

    def repeat(self, change: Change) -> int:
        """Repeat a change that was not acknowledged, as clients do.

        Returns how many of its events are not there then, or more than once: a lost order can't
        change.
        """
        with suppress(Refusal):  # it had been made
            change.make()
        with self.database.read() as connection:
            self.events = _events_in(connection)
        return sum(self.events.count(event) != 1 for event in change.events)

    def _tend(self) -> None:
        # As the service does twice a second: no commit copies the log by itself.
        with suppress(StoreUnavailable, apsw_driver.Error):
            self.database.long_reads.tend()

    def _is_acknowledged(self, change: Change) -> bool:
        try:
            change.make()
        except (StoreUnavailable, apsw_driver.Error):
            if not self.disk.is_off:
                raise
        return not self.disk.is_off

    def _next_change(self, reading: ExitStack) -> Change:
        (what,) = self._chance.choices(list(WHAT_HAPPENS), list(WHAT_HAPPENS.values()))
        reading.close()
        if what == "read":
            # A reader delays a checkpoint, here until the next change was made.
            key_store.store_id(reading.enter_context(self.database.snapshot()))
        elif what == "import":
            return self._import(self._chance.randint(2, 100))
        elif what != "place" and self._pending:
            return self._end(what, self._chance.choice(list(self._pending)))
        return self._place()

    def _place(self) -> Change:
        reference = self._new_reference()

        def make() -> None:
            key = IdempotencyKey(self._key_id, 1, reference)
            placed = self._service.place(
                NewOrder(7, 2, None, reference), replace(BY_COMMAND, key=key)
            )
            self._pending[reference] = placed.answer.order_id

        return Change([(EventType.PLACED, reference)], make)

    def _end(self, what: str, reference: str) -> Change:
        order_id = self._pending[reference]

        def make() -> None:
            self._pending.pop(reference, None)
            if what == "ship":
                self._service.ship(order_id, None, BY_COMMAND)
            else:
                self._service.cancel(order_id, BY_COMMAND)

        kind = EventType.SHIPPED if what == "ship" else EventType.CANCELLED
        return Change([(kind, reference)], make)

    def _import(self, count: int) -> Change:
        references = [self._new_reference() for _ in range(count)]
        cells = [{"id": int(each), "petId": 8, "reference": each} for each in references]
        make = partial(self._import_rows, cells)
        return Change([(EventType.IMPORTED, each) for each in references], make)

    def _import_rows(self, cells: list[dict[str, Any]]) -> None:
        self._service.import_orders(enumerate(cells, start=2), Faults())

    def _new_reference(self) -> str:
        self._references += 1
        return str(self._references)


def _issue_key(path: Path) -> int:
    secret = apikeys.generate()
    key = NewKey("power cuts", "business", ("read", "write"))
    with closing(SqliteDatabase(path)) as database, database.write() as connection:
        continue_ids_above(connection, "orders", LAST_IMPORTED_ID)
        return key_store.issue(connection, key, secret, Clock().now())


def _events_in(connection: Connection) -> list[Event]:
    return [(kind, reference) for kind, reference in connection.exec_driver_sql(_EVENTS)]
