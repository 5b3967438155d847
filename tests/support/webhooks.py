"""The webhooks of a store, delivered when a test says so, in its own thread."""

from __future__ import annotations

import threading
from random import Random

from orders.domain import EventType
from orders.webhooks import deliveries, endpoints, sender
from orders.webhooks.endpoints import NewEndpoint
from orders.webhooks.outbox import Courier
from orders.webhooks.sender import Sender


class Hooks:
    def __init__(self, store, sender=None):
        self.store = store
        self.sender = sender or Sender(seconds=5)
        self.courier = self.another_courier()

    def another_courier(self, changes=None):
        """Return a courier like another process'."""
        shop = self.store.shop
        return Courier(
            shop.database,
            changes or shop.changes,
            self.store.clock,
            self.sender,
            store_id=lambda: shop.store_id,
            stopped=threading.Event(),
            chance=Random(1),
        )

    def add(self, url, *events, allow_private=True, secret=None):
        """Add an endpoint; return its id."""
        new = NewEndpoint(
            url,
            events or (EventType.PLACED, EventType.SHIPPED, EventType.CANCELLED),
            secret or sender.generate_secret(),
            allow_private,
        )
        return self.change(endpoints.add, new, self.store.clock.now())

    def change(self, work, *arguments):
        """Call a function that changes the tables."""
        with self.store.database.write() as connection:
            return work(connection, *arguments)

    def ask(self, work, *arguments):
        """Call a function that reads the tables."""
        with self.store.database.read() as connection:
            return work(connection, *arguments)

    def get(self, endpoint_id=1):
        return self.ask(endpoints.get, endpoint_id)

    def tries(self, endpoint_id=1):
        """Return the outcome of each attempt, from the first."""
        made = self.ask(deliveries.latest, endpoint_id, 1_000)
        return [(each.event_id, each.outcome, each.status) for each in reversed(made)]

    def refused(self, endpoint_id=1):
        """Return the refused event that is retried next."""
        return self.ask(deliveries.next_refused, endpoint_id)

    def deliver(self, *waits, endpoint_id=1):
        """Deliver after each of these waits; return whether no other process does."""
        for wait in waits or (0,):
            self.store.clock.advance(wait)
            is_ours = not self.courier.deliver(endpoint_id)
        return is_ours
