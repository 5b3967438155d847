"""Sends what the event log says, in the background: one thread that watches, others that deliver.

The thread that watches hears of the service's own changes at once, and looks once a second whether
anybody else has committed something, or a wait is over. Each endpoint to which something is due
gets a thread of its own, which ends when nothing is due any more. So an endpoint that hangs holds
up itself and nobody else; and there are no more threads than there may be endpoints. A pool of
fewer would be full as soon as so many hang.

Without endpoints, one small question a second is all that it costs.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from datetime import timedelta

from orders.clock import Clock
from orders.store import events
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.database.group_commit import GroupCommit
from orders.webhooks import deliveries, endpoints
from orders.webhooks.courier import Courier
from orders.webhooks.sender import Sender

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
# Changes of so short a time are one piece of news: each look costs what a small request does.
TOGETHER_SECONDS = 0.05
# How long a stop waits for what is being sent.
IN_FLIGHT_SECONDS = 5.0
_BREAKING_OFF_SECONDS = 1.0
# Until an endpoint is looked at again where something went wrong.
_REST_SECONDS = 5.0
KEPT_FOR = timedelta(days=30)
_SWEPT_EVERY_SECONDS = 3_600


class Outbox:
    """The event log's outgoing side. Does nothing until it is started."""

    def __init__(
        self,
        database: Database,
        changes: GroupCommit,
        clock: Clock,
        store_id: Callable[[], str],
        sender: Sender | None = None,
    ) -> None:
        """Take the store, the clock, who knows the store's id, and what sends."""
        self._database = database
        self._changes = changes
        self._clock = clock
        self.sender = sender or Sender()
        self._news = threading.Event()
        self._ended = threading.Event()
        self._stopped = threading.Event()
        self.courier = Courier(
            database, changes, clock, self.sender, store_id=store_id, stopped=self._stopped
        )
        self._has_endpoints = False
        self._is_waiting = False
        self._is_told = False
        self._is_alone = True
        self._seen: Hashable = None
        self._swept = -math.inf
        self._resting: dict[int, float] = {}
        self._at_work: dict[int, threading.Thread] = {}
        self._watching = threading.Thread(target=self._watch, name="webhooks", daemon=True)

    def start(self, *, alone: bool = True) -> None:
        """Begin to deliver, `alone`, or with other processes from the same database."""
        self._is_alone = alone
        self._watching.start()

    def wake(self) -> None:
        """Hear that something was committed. Costs next to nothing."""
        if self._has_endpoints:
            self._news.set()

    def stop(self) -> None:
        """End: what is being sent gets a moment, and is then broken off, to be sent again."""
        self._stopped.set()
        self._news.set()
        if not self._watching.is_alive():
            return
        self._watching.join()
        self._await_couriers(IN_FLIGHT_SECONDS)
        if self._at_work:
            self.sender.cancel()
            self._await_couriers(_BREAKING_OFF_SECONDS)
        if self._has_endpoints and not self._is_alone:
            self._guarded(self.courier.release)

    def _await_couriers(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        for thread in list(self._at_work.values()):
            thread.join(max(0.0, ends - time.monotonic()))

    def _watch(self) -> None:
        if self._is_alone:
            self._guarded(self._release)
        while not self._stopped.is_set():
            self._news.clear()
            if not self._is_alone:
                self._guarded(self.courier.renew)
            self._guarded(self._look)
            self._news.wait(POLL_SECONDS)
            self._stopped.wait(TOGETHER_SECONDS)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StoreUnavailable as error:
            # Once: it may last, and others tell of it, too.
            if not self._is_told:
                log.warning("Webhooks wait for the database: %s.", error)
            self._is_told = True
            self._stopped.wait(_REST_SECONDS)
        except Exception:
            log.exception("Looking for what webhooks are due failed; it is tried again.")
            self._stopped.wait(_REST_SECONDS)
        else:
            self._is_told = False

    def _release(self) -> None:
        # What an earlier process had claimed, which is no more: this one is alone.
        with self._database.read() as connection:
            is_claimed = any(each.claimed_by for each in endpoints.get_all(connection))
        if is_claimed:
            self._changes.run(deliveries.release_all)

    def _look(self) -> None:
        version = self._database.version()
        if version == self._seen and not self._is_waiting and not self._ended.is_set():
            return
        self._ended.clear()
        with self._database.read() as connection:
            known = endpoints.get_all(connection)
            newest = events.newest_id(connection)
            refused = deliveries.soonest_refused(connection)
        self._has_endpoints = bool(known)
        self._is_waiting = False
        for endpoint in known:
            if endpoint.id not in self._at_work:
                wait = self.courier.seconds_to_work(endpoint, newest, refused.get(endpoint.id))
                self._begin(endpoint.id, wait)
        if known:
            self._sweep()
        # Not before: where something failed, all is looked at again.
        self._seen = version

    def _begin(self, endpoint_id: int, wait: float | None) -> None:
        if wait is None:
            return
        if wait > 0 or self._resting.get(endpoint_id, -math.inf) > time.monotonic():
            self._is_waiting = True
            return
        thread = threading.Thread(
            target=self._deliver, args=(endpoint_id,), name=f"webhook-{endpoint_id}", daemon=True
        )
        self._at_work[endpoint_id] = thread
        thread.start()

    def _deliver(self, endpoint_id: int) -> None:
        try:
            # Another process may have it, which may die.
            rest = 0.0 if self.courier.deliver(endpoint_id) else POLL_SECONDS
        except StoreUnavailable as error:
            log.warning("Webhook %d waits for the database: %s.", endpoint_id, error)
            rest = _REST_SECONDS
        except Exception:
            log.exception("Webhook %d could not be served; it is tried again.", endpoint_id)
            rest = _REST_SECONDS
        self._resting[endpoint_id] = time.monotonic() + rest
        del self._at_work[endpoint_id]
        # What was committed after it had looked for the last time would else be overlooked.
        self._ended.set()
        self._news.set()

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        if now - self._swept < _SWEPT_EVERY_SECONDS:
            return
        self._swept = now
        before = self._clock.now() - KEPT_FOR
        while self._changes.run(lambda connection: deliveries.sweep(connection, before)):
            pass
