"""The use cases: what a shop does with its orders. One function, one transaction.

Rules that a change depends on are part of the statement that makes it, so that of any number of
racing requests one wins; the others are then told what is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orders import domain
from orders.clock import Clock
from orders.domain import NewOrder, Order, Origin
from orders.store import events, idempotency
from orders.store import orders as order_store
from orders.store.engine import Database
from orders.store.idempotency import IdempotencyKey


@dataclass(frozen=True, slots=True)
class Placed:
    """The answer to placing: the order as it was placed, and whether that was an earlier time."""

    order: Order
    replayed: bool = False


class OrderService:
    """What can be done with orders."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Take the database that the orders are in, and the clock that dates changes."""
        self._database = database
        self._clock = clock

    def place(
        self, new: NewOrder, origin: Origin, idempotency_key: IdempotencyKey | None = None
    ) -> Placed:
        """Place an order; with an Idempotency-Key, at most once in 24 hours.

        Raises:
            IdempotencyKeyReused: the key came before, with another order.
        """
        now = self._clock.now()
        with self._database.write() as connection:
            if idempotency_key is None:
                order, _ = order_store.insert_pending(connection, new, origin, now)
                return Placed(order)
            earlier = idempotency.placing_event(connection, idempotency_key, now)
            if earlier is not None:
                return Placed(_same_order(new, events.order_after(connection, earlier)), True)
            order, event_id = order_store.insert_pending(connection, new, origin, now)
            idempotency.remember(connection, idempotency_key, event_id, now)
            return Placed(order)

    def ship(self, order_id: int, ship_date: datetime | None, origin: Origin) -> Order:
        """Ship a pending order, at the time given or now.

        Raises:
            OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled: it was not pending.
        """
        now = self._clock.now()
        with self._database.write() as connection:
            order = order_store.ship_pending(connection, order_id, ship_date or now, origin, now)
            if order is None:
                status = order_store.status_of(connection, order_id)
                raise domain.refusal_to_change(order_id, status)
            return order

    def cancel(self, order_id: int, origin: Origin) -> Order:
        """Cancel a pending order.

        Raises:
            OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled: it was not pending.
        """
        now = self._clock.now()
        with self._database.write() as connection:
            order = order_store.cancel_pending(connection, order_id, origin, now)
            if order is None:
                status = order_store.status_of(connection, order_id)
                raise domain.refusal_to_change(order_id, status)
            return order


def _same_order(new: NewOrder, placed: Order) -> Order:
    asked = (placed.pet_id, placed.quantity, placed.ship_date, placed.reference)
    if asked != (new.pet_id, new.quantity, new.ship_date, new.reference):
        raise domain.IdempotencyKeyReused(placed.id)
    return placed
