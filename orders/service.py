"""The use cases: what a shop does with its orders. One function, one transaction.

Changes that come at the same time share one: see `group_commit`.
Rules that a change depends on are part of the statement that makes it, so that of any number of
racing requests one wins; the others are then told what is true. Changes are dated when it is their
turn, so that events come in the order of their times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from orders import domain
from orders.clock import Clock
from orders.domain import NewOrder, Order, Origin
from orders.files import formats, staging
from orders.files.formats import Cells, Fault, Faults
from orders.files.staging import Staging
from orders.store import events, idempotency, pets
from orders.store import orders as order_store
from orders.store.database.engine import Database
from orders.store.database.group_commit import GroupCommit, Result
from orders.store.idempotency import IdempotencyKey


@dataclass(frozen=True, slots=True)
class Placed:
    """The answer to placing: the order as it was placed, and whether that was an earlier time."""

    order: Order
    replayed: bool = False


class OrderService:
    """What can be done with orders."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        changes: GroupCommit | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the database that the orders are in, and the clock that dates changes.

        `changes` makes the changes, with those of others who use it; `changed` is called after
        each of ours was committed.
        """
        self._database = database
        self._changes = changes or GroupCommit(database)
        self._changed = changed
        self._clock = clock

    def place(
        self, new: NewOrder, origin: Origin, idempotency_key: IdempotencyKey | None = None
    ) -> Placed:
        """Place an order; with an Idempotency-Key, at most once in 24 hours.

        Raises:
            IdempotencyKeyReused: the key came before, with another order.
        """

        def place(connection: Connection) -> Placed:
            now = self._clock.now()
            if idempotency_key is None:
                order, _ = order_store.insert_pending(connection, new, origin, now)
                return Placed(order)
            earlier = idempotency.placing_event(connection, idempotency_key, now)
            if earlier is not None:
                return Placed(_same_order(new, events.order_after(connection, earlier)), True)
            order, event_id = order_store.insert_pending(connection, new, origin, now)
            idempotency.remember(connection, idempotency_key, event_id, now)
            return Placed(order)

        return self._change(place)

    def ship(self, order_id: int, ship_date: datetime | None, origin: Origin) -> Order:
        """Ship a pending order, at the time given or now.

        Raises:
            OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled: it was not pending.
        """

        def ship(connection: Connection) -> Order:
            now = self._clock.now()
            order = order_store.ship_pending(connection, order_id, ship_date or now, origin, now)
            return _changed(connection, order_id, order)

        return self._change(ship)

    def cancel(self, order_id: int, origin: Origin) -> Order:
        """Cancel a pending order.

        Raises:
            OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled: it was not pending.
        """

        def cancel(connection: Connection) -> Order:
            now = self._clock.now()
            order = order_store.cancel_pending(connection, order_id, origin, now)
            return _changed(connection, order_id, order)

        return self._change(cancel)

    def _change(self, work: Callable[[Connection], Result]) -> Result:
        result = self._changes.run(work)
        self._changed()
        return result

    def import_orders(self, rows: Iterable[tuple[int, Cells]], faults: Faults) -> int:
        """Import the rows of a file, all of them or none; give how many there were.

        `rows` are line numbers with cells, and `faults` has what their reader found wrong. All is
        checked before the store is locked, and then copied in one short transaction.

        Raises:
            FileRefused: some rows can't be taken.
        """
        check = partial(formats.check_order, now=domain.format_instant(self._clock.now()))
        with closing(Staging(self._database.folder)) as staged:
            staged.extend(formats.checked(rows, check, faults))
            for line, order_id in staged.repeated_ids():
                faults.add(Fault(line, "id", f"{order_id} stands on an earlier line, too"))
            staged.summarize()
            with self._database.write(staged.beside()) as connection:
                for line, order_id in staging.existing_ids(connection):
                    faults.add(Fault(line, "id", f"order {order_id} exists already"))
                faults.raise_if_any()
                return staging.copy_to_store(connection, Origin("cli"), self._clock.now())

    def import_pets(self, rows: Iterable[tuple[int, Cells]], faults: Faults) -> int:
        """Import the pets of a file, all of them or none, in place of those with equal ids.

        Raises:
            FileRefused: some rows can't be taken.
        """
        found = {pet.id: pet for _, pet in formats.checked(rows, formats.check_pet, faults)}
        faults.raise_if_any()
        with self._database.write() as connection:
            pets.replace_all(connection, list(found.values()))
        return len(found)


def _changed(connection: Connection, order_id: int, order: Order | None) -> Order:
    # None is a change that did not find the order pending: say what it is instead.
    if order is None:
        raise domain.refusal_to_change(order_id, order_store.status_of(connection, order_id))
    return order


def _same_order(new: NewOrder, placed: Order) -> Order:
    asked = (placed.pet_id, placed.quantity, placed.ship_date, placed.reference)
    if asked != (new.pet_id, new.quantity, new.ship_date, new.reference):
        raise domain.IdempotencyKeyReused(placed.id)
    return placed
