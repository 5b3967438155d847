"""The webhooks of a store, delivered when a test says so."""

from __future__ import annotations

import threading
from random import Random

from orders.domain import EventType
from orders.webhooks import deliveries, endpoints, messages
from orders.webhooks.courier import Courier
from orders.webhooks.endpoints import NewEndpoint
from orders.webhooks.sender import Sender


class Hooks:
    """The webhooks of a store, whose deliveries a test makes happen itself, in its own thread."""

    def __init__(self, store, sender=None):
        self.store = store
        self.sender = sender or Sender(seconds=5)
        self.courier = self.another_courier()

    def another_courier(self, changes=None):
        """Return another process' courier, as far as the database knows."""
        shop = self.store.services
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
            secret or messages.generate_secret(),
            allow_private,
        )
        return self.change(endpoints.add, new, self.store.clock.now())

    def change(self, work, *arguments):
        """Have something done that changes the tables."""
        with self.store.database.write() as connection:
            return work(connection, *arguments)

    def ask(self, work, *arguments):
        """Have something asked of the tables."""
        with self.store.database.read() as connection:
            return work(connection, *arguments)

    def get(self, endpoint_id=1):
        """Return an endpoint."""
        return self.ask(endpoints.get, endpoint_id)

    def tries(self, endpoint_id=1):
        """Return what came of each try, from the first."""
        made = self.ask(endpoints.deliveries, endpoint_id, 1_000)
        return [(each.event_id, each.outcome, each.status) for each in reversed(made)]

    def refused(self, endpoint_id=1):
        """Return the event that was put aside and is tried again first."""
        return self.ask(deliveries.next_refused, endpoint_id)

    def deliver(self, *waits, endpoint_id=1):
        """Deliver what is due, after each of these waits; return whether no other process does."""
        for wait in waits or (0,):
            self.store.clock.advance(wait)
            is_ours = self.courier.deliver(endpoint_id)
        return is_ours
