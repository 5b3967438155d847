"""Sends webhooks in the background: one thread watches for work, and others deliver.

The watching thread is woken by the service's own commits, and polls every second for commits of
other processes and for waits that are over. Each endpoint with something due gets a thread of its
own, which ends when nothing is due any more. So an endpoint that hangs holds up only itself, and
there are never more threads than endpoints; a smaller pool would be full once that many hang.

Without endpoints, this costs one small query per second.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta

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
# Commits that close together share one poll, which costs about as much as a small request.
TOGETHER_SECONDS = 0.05
# How long a stop waits for attempts under way.
IN_FLIGHT_SECONDS = 5.0
_CANCEL_SECONDS = 1.0
# The pause after something went wrong.
_REST_SECONDS = 5.0
KEPT_FOR = timedelta(days=30)
_SWEPT_EVERY_SECONDS = 3_600


class Outbox:
    """Delivers the event log to webhooks. Idle until started."""

    def __init__(
        self,
        database: Database,
        changes: GroupCommit,
        clock: Clock,
        store_id: Callable[[], str],
        sender: Sender | None = None,
    ) -> None:
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
        self._has_waits = False
        self._has_warned = False
        self._is_alone = True
        self._seen: Hashable = None
        self._swept = -math.inf
        # The newest line of the log at the first sweep, and the monotonic time of that.
        self._dated: tuple[datetime, float] | None = None
        self._resting: dict[int, float] = {}
        self._at_work: dict[int, threading.Thread] = {}
        self._watching = threading.Thread(target=self._watch, name="webhooks", daemon=True)

    def start(self, *, alone: bool = True) -> None:
        """Begin to deliver; `alone` if no other process uses the same database."""
        self._is_alone = alone
        self._watching.start()

    def wake(self) -> None:
        """Look for work after a commit. Costs next to nothing."""
        if self._has_endpoints:
            self._news.set()

    def stop(self) -> None:
        """Stop: attempts under way get some seconds, are then cancelled, and made again later."""
        self._stopped.set()
        self._news.set()
        if not self._watching.is_alive():
            return
        self._watching.join()
        self._await_couriers(IN_FLIGHT_SECONDS)
        if self._at_work:
            self.sender.cancel()
            self._await_couriers(_CANCEL_SECONDS)
        if self._has_endpoints and not self._is_alone:
            self._guarded(self.courier.claims.release)

    def _await_couriers(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        for thread in list(self._at_work.values()):
            thread.join(max(0.0, ends - time.monotonic()))

    def _watch(self) -> None:
        if self._is_alone:
            self._guarded(self._release_stale_claims)
        while not self._stopped.is_set():
            self._news.clear()
            self._guarded(self._renew_claims)
            self._guarded(self._poll)
            self._news.wait(self._seconds_to_poll())
            self._stopped.wait(TOGETHER_SECONDS)

    def _seconds_to_poll(self) -> float:
        now = time.monotonic()
        rests = [end - now for end in list(self._resting.values()) if end > now]
        return min([POLL_SECONDS, *rests])

    def _renew_claims(self) -> None:
        if not self._is_alone:
            self.courier.claims.renew()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StoreUnavailable as error:
            # Logged once: it may last, and other parts log it, too.
            if not self._has_warned:
                log.warning("Webhooks wait for the database: %s.", error)
            self._has_warned = True
            # No longer than that: claims must be renewed in time.
            self._stopped.wait(POLL_SECONDS)
        except Exception:
            log.exception("Looking for due webhooks failed; retrying.")
            self._stopped.wait(_REST_SECONDS)
        else:
            self._has_warned = False

    def _release_stale_claims(self) -> None:
        # Claims of an earlier process, which must be dead: this one is alone.
        with self._database.read() as connection:
            is_claimed = any(each.claimed_by for each in endpoints.get_all(connection))
        if is_claimed:
            self._changes.run(deliveries.release)

    def _poll(self) -> None:
        version = self._database.version()
        if version == self._seen and not self._has_waits and not self._ended.is_set():
            return
        self._ended.clear()
        self._seen = None  # everything is polled again, unless all of this succeeds
        with self._database.read() as connection:
            all_endpoints = endpoints.get_all(connection)
            newest = events.newest_id(connection)
            waits = {
                each.id: self.courier.seconds_to_work(connection, each, newest)
                for each in all_endpoints
                if each.id not in self._at_work
            }
        self._has_endpoints = bool(all_endpoints)
        if all_endpoints:
            # Before deliveries add lines by a clock that may be ahead.
            self.sweep()
        self._has_waits = False
        for endpoint_id, wait in waits.items():
            self._begin(endpoint_id, wait)
        self._seen = version

    def _begin(self, endpoint_id: int, wait: float | None) -> None:
        if wait is None:
            return
        if wait > 0 or self._resting.get(endpoint_id, -math.inf) > time.monotonic():
            self._has_waits = True
            return
        thread = threading.Thread(
            target=self._deliver, args=(endpoint_id,), name=f"webhook-{endpoint_id}", daemon=True
        )
        self._at_work[endpoint_id] = thread
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads at the moment
            del self._at_work[endpoint_id]
            raise

    def _deliver(self, endpoint_id: int) -> None:
        try:
            # Another process may hold its claim, and may die.
            rest = self.courier.deliver(endpoint_id)
        except StoreUnavailable as error:
            log.warning("Webhook %d waits for the database: %s.", endpoint_id, error)
            rest = _REST_SECONDS
        except Exception:
            log.exception("Delivering to webhook %d failed; retrying.", endpoint_id)
            rest = _REST_SECONDS
        self._resting[endpoint_id] = time.monotonic() + rest
        del self._at_work[endpoint_id]
        # Otherwise events committed after its last query would be missed.
        self._ended.set()
        self._news.set()

    def sweep(self) -> None:
        """Delete old lines of the log of deliveries, at most once an hour."""
        now = self._clock.monotonic()
        if now - self._swept < _SWEPT_EVERY_SECONDS:
            return
        self._swept = now
        before = self._believable_time(now) - KEPT_FOR
        while self._changes.run(lambda connection: deliveries.sweep(connection, before)):
            self._renew_claims()

    def _believable_time(self, now: float) -> datetime:
        # A clock that is ahead must not empty the log. So no more time is believed to have passed
        # since its newest line than this process has seen pass.
        if self._dated is None:
            with self._database.read() as connection:
                self._dated = deliveries.newest_at(connection) or self._clock.now(), now
        newest, since = self._dated
        return min(self._clock.now(), newest + timedelta(seconds=now - since))
