"""The use cases: what a shop does with its orders, each in one transaction.

Simultaneous changes share a transaction (see `commits`), which may run a change in another
thread and more than once: so each is a function of its connection. The rule that a change depends
on is part of its statement, so that one of any number of racing requests wins; the others then
learn the order's new state. Changes are dated in their transaction, so that events are in the order
of their times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, cast

from sqlalchemy import Connection

from orders import domain
from orders.clock import STEP_SECONDS, Clock
from orders.domain import NewOrder, NotPending, Origin
from orders.files import staging
from orders.files.rows import PETS, Cells, Fault, Faults, checked, orders, pet
from orders.files.staging import Staging
from orders.store import idempotency, pets
from orders.store import orders as order_store
from orders.store.database.commits import GroupCommit
from orders.store.database.database import Database
from orders.store.idempotency import IdempotencyKey
from orders.store.orders import Changed, Outcome

# Whether an order, or the list, with this revision may be changed.
Condition = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of each order of a request; `replayed` if an earlier request did it."""

    outcomes: list[Outcome]
    replayed: bool = False

    @property
    def order(self) -> Changed:
        """The one order that was written."""
        (order,) = self.outcomes
        return cast("Changed", order)


class OrderService:
    """What can be done with orders. A `domain.Refusal` is raised where the rules forbid it."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        changes: GroupCommit | None = None,
        changed: Callable[[], None] = lambda: None,
        *,
        is_alone: bool = True,
    ) -> None:
        """Set up the use cases over a database, with the clock that dates changes.

        `changes` commits them, together with those of its other users; `changed` is called after
        each commit. `is_alone` is false where other processes use the database.
        """
        self._database = database
        self._changes = changes or GroupCommit(database)
        self._changed = changed
        self._clock = clock
        self._is_alone = is_alone
        self._following = threading.Lock()
        # What wall time is ahead of monotonic time.
        self._to_wall: float | None = None

    def follow_clock(self) -> None:
        """Have Idempotency-Keys keep their age where the clock was set. Called twice a second."""
        to_wall = self._clock.time() - self._clock.monotonic()
        if self._to_wall is not None and abs(to_wall - self._to_wall) <= STEP_SECONDS:
            return
        with self._following:
            # What others placed is dated by their clocks.
            step = to_wall - self._to_wall if self._to_wall is not None and self._is_alone else 0.0
            now = self._clock.now()
            self._changes.run(lambda connection: idempotency.follow_clock(connection, step, now))
            self._to_wall = to_wall

    def place(
        self,
        new: NewOrder,
        origin: Origin,
        key: IdempotencyKey | None = None,
        condition: Condition | None = None,
    ) -> Written:
        """Place an order. An Idempotency-Key makes it, as all writes, at most once in 24 hours."""

        def place(connection: Connection, now: datetime) -> Changed:
            _require_list(connection, condition)
            return order_store.insert_pending(connection, new, origin, now)

        return self._write_one(place, key, new)

    def ship(
        self,
        order_id: int,
        ship_date: datetime | None,
        origin: Origin,
        condition: Condition | None = None,
        key: IdempotencyKey | None = None,
    ) -> Written:
        """Ship a pending order, at the time given or now."""

        def ship(connection: Connection, now: datetime) -> Changed:
            _require(connection, order_id, condition)
            at = ship_date or now
            shipped = order_store.ship_pending(connection, [order_id], at, origin, now)
            return shipped[0] if shipped else _refuse(connection, order_id)

        return self._write_one(ship, key, ("ship", order_id, ship_date))

    def ship_all(
        self,
        order_ids: list[int],
        ship_date: datetime | None,
        origin: Origin,
        condition: Condition | None = None,
        key: IdempotencyKey | None = None,
    ) -> Written:
        """Ship each of some orders that is pending, at the time given or now."""

        def ship(connection: Connection, now: datetime) -> list[Outcome]:
            _require_list(connection, condition)
            at = ship_date or now
            shipped = order_store.ship_pending(connection, order_ids, at, origin, now)
            outcomes = {order.order_id: order for order in shipped}
            return [outcomes.get(each) or _refusal(connection, each) for each in order_ids]

        return self._write(ship, key, ("ship", order_ids, ship_date))

    def cancel(
        self,
        order_id: int,
        origin: Origin,
        condition: Condition | None = None,
        key: IdempotencyKey | None = None,
    ) -> Written:
        """Cancel a pending order."""

        def cancel(connection: Connection, now: datetime) -> Changed:
            _require(connection, order_id, condition)
            order = order_store.cancel_pending(connection, order_id, origin, now)
            return order or _refuse(connection, order_id)

        return self._write_one(cancel, key, ("cancel", order_id))

    def change(
        self,
        order_id: int,
        fields: Mapping[str, Any],
        origin: Origin,
        condition: Condition | None = None,
        key: IdempotencyKey | None = None,
    ) -> Written:
        """Change fields of an order, as its status allows."""

        def change(connection: Connection, now: datetime) -> Changed:
            _require(connection, order_id, condition, fields)
            order = order_store.patch(connection, order_id, fields, origin, now)
            return order or _unchanged(connection, order_id, fields)

        return self._write_one(change, key, ("change", order_id, dict(fields)))

    def _write_one(
        self,
        make: Callable[[Connection, datetime], Changed],
        key: IdempotencyKey | None,
        request: Any,
    ) -> Written:
        return self._write(lambda connection, now: [make(connection, now)], key, request)

    def _write(
        self,
        make: Callable[[Connection, datetime], list[Outcome]],
        key: IdempotencyKey | None,
        request: Any,
    ) -> Written:
        def write(connection: Connection) -> Written:
            now = self._clock.now()
            if key is None:
                return Written(make(connection, now))
            earlier = idempotency.recall(connection, key, request, now)
            if earlier is not None:
                return Written(earlier, replayed=True)
            outcomes = make(connection, now)
            idempotency.remember(connection, key, request, outcomes, now)
            return Written(outcomes)

        if key is not None:
            self.follow_clock()
        written = self._changes.run(write)
        self._changed()
        return written

    def import_orders(self, rows: Iterable[tuple[int, Cells]], faults: Faults) -> int:
        """Import all rows of a file or none; return their number.

        `rows` are line numbers with cells; `faults` has what their reader found wrong. All rows are
        checked before the store is locked, then copied in one short transaction.
        """
        now = domain.format_instant(self._clock.now())
        with closing(Staging(self._database.folder)) as staged:
            staged.extend(orders(rows, now, faults))
            for line, order_id in staged.repeated_ids():
                faults.add(Fault(line, "id", f"{order_id} is also on an earlier line"))
            staged.summarize()
            with self._database.write(staged.beside()) as connection:
                for line, order_id in staging.existing_ids(connection):
                    faults.add(Fault(line, "id", f"order {order_id} exists already"))
                faults.raise_if_any()
                return staging.copy_to_store(connection, Origin("cli"), self._clock.now())

    def import_pets(self, rows: Iterable[tuple[int, Cells]], faults: Faults) -> int:
        """Import all pets of a file or none, replacing those with the same ids."""
        imported = {cells.get("id"): cells for _, cells in checked(rows, PETS, faults)}
        faults.raise_if_any()
        with self._database.write() as connection:
            pets.replace_all(connection, [pet(cells) for cells in imported.values()])
        return len(imported)


def _require_list(connection: Connection, condition: Condition | None) -> None:
    if condition is not None and not condition(order_store.newest_event(connection)):
        raise domain.PreconditionFailed


def _require(
    connection: Connection,
    order_id: int,
    condition: Condition | None,
    fields: Mapping[str, Any] | None = None,
) -> None:
    # In the transaction of the change, before which no other can come: it has the writers' lock.
    if condition is None or condition(order_store.newest_event_of(connection, order_id)):
        return
    # Why it can't be changed at all comes first (RFC 9110, section 13.2.1).
    if fields is not None:
        _unchanged(connection, order_id, fields)
    elif (order := order_store.find(connection, order_id)) is None or not order.is_pending:
        _refuse(connection, order_id)
    raise domain.PreconditionFailed(order_id)


def _unchanged(connection: Connection, order_id: int, fields: Mapping[str, Any]) -> Changed:
    """Return an order that new values of its fields leave as it is, or raise why they may not."""
    order = order_store.find(connection, order_id)
    if order is None or not order.allows(fields):
        _refuse(connection, order_id)
    return order_store.recall(connection, order_store.newest_event_of(connection, order_id))


def _refuse(connection: Connection, order_id: int) -> NoReturn:
    raise _refusal(connection, order_id)


def _refusal(connection: Connection, order_id: int) -> NotPending:
    order = order_store.find(connection, order_id)
    return domain.refusal_to_change(order_id, order.status if order else None)
