"""Delivers to one endpoint after the other: what is due, one event at a time, and what follows.

The event log is the outbox. An endpoint has a position in it, which moves when the event behind it
was delivered, and not before: whatever happens to this process, nothing is missing, and only what
was on its way comes twice. An endpoint that is down keeps its position and waits. One that is up
but refuses an event holds up the others for a second try only; then the event is put aside and is
tried again by itself, on its own schedule.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random, SystemRandom

from sqlalchemy import Connection

from orders.clock import Clock
from orders.store import events
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.database.group_commit import GroupCommit
from orders.webhooks import attempt, deliveries, endpoints, messages, rules
from orders.webhooks.addresses import host_of
from orders.webhooks.alarms import Alarms
from orders.webhooks.deliveries import Event, Refused
from orders.webhooks.endpoints import Delivery, Endpoint
from orders.webhooks.rules import Outcome
from orders.webhooks.sender import Sender

log = logging.getLogger(__name__)

# What is left to be said when a change was committed.
Tell = Callable[[], None]

# A process that has not said for so long that it is at work may have died.
CLAIM = timedelta(seconds=15)
# No try begins with less left of a claim, and while it lasts the claim is renewed: see `renew`.
_RENEWED_BEFORE = timedelta(seconds=10)
_RENEWED_EVERY_SECONDS = 3.0
_WRITTEN_AGAIN_SECONDS = 1.0
PAUSED = "Webhook %d (%s) is paused: %s. `flask webhooks resume %d` goes on."


@dataclass(frozen=True, slots=True)
class _Task:
    """An event to be tried now. `aside` is what is known of it where it was put aside."""

    endpoint: Endpoint
    event: Event
    aside: Refused | None


@dataclass(slots=True)
class _Trying:
    """A try that goes on: since when, or when its claim was last renewed, in monotonic seconds."""

    endpoint_id: int
    since: float


class Courier:
    """Delivers, from any number of threads, each for another endpoint."""

    def __init__(  # noqa: PLR0913 - its parts, each by its name
        self,
        database: Database,
        changes: GroupCommit,
        clock: Clock,
        sender: Sender,
        *,
        store_id: Callable[[], str],
        stopped: threading.Event,
        chance: Random | None = None,
    ) -> None:
        """Take the store, the clock, what sends, the store's id, and what tells that it ends."""
        self._database = database
        self._changes = changes
        self._clock = clock
        self._sender = sender
        self._store_id = store_id
        self._stopped = stopped
        self._chance = chance or SystemRandom()
        self._name = secrets.token_hex(8)
        self._alarms = Alarms(clock)
        # Up to which event nothing is wanted: by endpoint, with the position that it was true at.
        self._looked: dict[int, tuple[int, int]] = {}
        self._trying: dict[int, _Trying] = {}
        self._counting = threading.Lock()
        self._outcomes: Counter[tuple[int, Outcome]] = Counter()

    @property
    def outcomes(self) -> dict[tuple[int, Outcome], int]:
        """How often each came of this process' tries, by endpoint."""
        with self._counting:
            return dict(self._outcomes)

    def seconds_to_work(
        self, endpoint: Endpoint, newest_event: int, refused: Refused | None
    ) -> float | None:
        """Return how long it is until something may be due; None where that depends on a change."""
        if endpoint.paused_at is not None:
            return None
        waits = self._waits(endpoint)
        if waits or newest_event > self.looked_up_to(endpoint):
            return waits
        return None if refused is None else self._refused_waits(endpoint, refused)

    def deliver(self, endpoint_id: int) -> bool:
        """Deliver everything that is due to an endpoint, until told to stop.

        Gives false where another process delivers to it.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        was_aside = False
        while not self._stopped.is_set():
            task = self._next(endpoint_id, aside_first=not was_aside)
            if task is None:
                break
            if self._has(task.endpoint):
                self._try(task)
                was_aside = task.aside is not None
            elif not self._takes(task.endpoint):
                return False
            # Whoever had it before may have delivered this just now: then something else is next.
        return True

    def renew(self) -> None:
        """Say that this process is still at work, where a try takes long. Call it every second.

        Raises:
            StoreUnavailable: the database can't be written.
        """
        now = self._clock.monotonic()
        trying = list(self._trying.values())
        due = [each for each in trying if now - each.since >= _RENEWED_EVERY_SECONDS]
        if due:
            self._changes.run(
                lambda connection: [self._claim(connection, each.endpoint_id) for each in due]
            )
        for each in due:
            each.since = now

    def release(self) -> None:
        """Let other processes deliver at once to all that this one delivered to.

        Raises:
            StoreUnavailable: the database can't be written.
        """
        self._changes.run(lambda connection: deliveries.release(connection, self._name))

    def _next(self, endpoint_id: int, *, aside_first: bool) -> _Task | None:
        with self._database.read() as connection:
            endpoint = endpoints.find(connection, endpoint_id)
            if endpoint is None or endpoint.paused_at is not None or self._waits(endpoint):
                return None
            # In turn: neither a stream of new events nor slow old ones shut out the others.
            finders = [self._next_aside, self._next_in_order]
            for find in finders if aside_first else reversed(finders):
                task = find(connection, endpoint)
                if task is not None:
                    return task
        return None

    def _next_aside(self, connection: Connection, endpoint: Endpoint) -> _Task | None:
        refused = deliveries.next_refused(connection, endpoint.id)
        if refused is None or self._refused_waits(endpoint, refused):
            return None
        return _Task(endpoint, deliveries.event(connection, refused.event_id), refused)

    def _next_in_order(self, connection: Connection, endpoint: Endpoint) -> _Task | None:
        newest = events.newest_id(connection)
        event = deliveries.next_wanted(connection, endpoint, self.looked_up_to(endpoint))
        if event is None:
            self._looked[endpoint.id] = (endpoint.position, newest)
            return None
        return _Task(endpoint, event, None)

    def looked_up_to(self, endpoint: Endpoint) -> int:
        """Return the event up to which nothing is left that the endpoint wants, as far as known."""
        position, looked = self._looked.get(endpoint.id, (None, 0))
        known = looked if position == endpoint.position else 0
        return max(known, endpoint.position)

    def _waits(self, endpoint: Endpoint) -> float:
        if endpoint.next_at is None:
            return 0.0
        longest = rules.longest_delay(endpoint.tries)
        return self._alarms.left(endpoint.id, endpoint.next_at, longest)

    def _refused_waits(self, endpoint: Endpoint, refused: Refused) -> float:
        name = (endpoint.id, refused.event_id)
        return self._alarms.left(name, refused.next_at, rules.longest_delay(refused.tries))

    def _has(self, endpoint: Endpoint) -> bool:
        if endpoint.claimed_by != self._name or endpoint.claimed_until is None:
            return False
        return _RENEWED_BEFORE < endpoint.claimed_until - self._clock.now() <= CLAIM

    def _takes(self, endpoint: Endpoint) -> bool:
        is_anothers = endpoint.claimed_by not in {None, self._name}
        if is_anothers and endpoint.claimed_until is not None:
            left = endpoint.claimed_until - self._clock.now()
            if timedelta(0) < left <= CLAIM:
                return False  # for which no lock is needed
        return self._changes.run(lambda connection: self._claim(connection, endpoint.id))

    def _claim(self, connection: Connection, endpoint_id: int) -> bool:
        now = self._clock.now()
        return deliveries.claim(connection, endpoint_id, self._name, now, now + CLAIM)

    def _try(self, task: _Task) -> None:
        endpoint_id = task.endpoint.id
        self._trying[endpoint_id] = _Trying(endpoint_id, self._clock.monotonic())
        try:
            self._send(task)
        finally:
            del self._trying[endpoint_id]

    def _send(self, task: _Task) -> None:
        at = self._clock.now()
        message = messages.of_event(task.event, self._store_id())
        answer = attempt.send(self._sender, task.endpoint, message, at)
        if self._sender.is_cancelled:
            return  # which is nobody's fault
        delivery = attempt.delivery_of(task.endpoint, task.event.id, at, answer)
        with self._counting:
            self._outcomes[task.endpoint.id, Outcome(delivery.outcome)] += 1
        self._write(lambda connection: self._settle(connection, task, delivery))

    def _write(self, work: Callable[[Connection], Tell]) -> None:
        # Until it is written down, or it would be sent again and again to whoever has it already.
        is_told = False
        while True:
            try:
                tell = self._changes.run(work)
            except StoreUnavailable as error:
                if not is_told:
                    log.warning("What a webhook answered can't be written down yet: %s.", error)
                is_told = True
                if self._stopped.wait(_WRITTEN_AGAIN_SECONDS):
                    return
            else:
                tell()
                return

    def _settle(self, connection: Connection, task: _Task, delivery: Delivery) -> Tell:
        """Write down what came of a try; return what tells of it, once it is committed."""
        endpoint = task.endpoint
        if not deliveries.log_delivery(connection, delivery):
            return lambda: None  # it was removed
        self._claim(connection, endpoint.id)
        outcome = Outcome(delivery.outcome)
        if outcome is Outcome.GONE:
            return self._pause(connection, endpoint, rules.GONE)
        if outcome is Outcome.DELIVERED:
            return self._go_on(connection, task)
        if task.aside is not None:
            return self._try_aside_later(connection, task, task.aside, delivery)
        return self._try_in_order_later(connection, task, delivery)

    def _go_on(self, connection: Connection, task: _Task) -> Tell:
        if task.aside is None:
            deliveries.move_on(connection, task.endpoint, task.event.id)
        else:
            deliveries.forget_refused(connection, task.endpoint.id, task.event.id)
            self._alarms.forget((task.endpoint.id, task.event.id))
        return lambda: None

    def _try_in_order_later(self, connection: Connection, task: _Task, delivery: Delivery) -> Tell:
        endpoint, tries = task.endpoint, task.endpoint.tries + 1
        if delivery.outcome == Outcome.REFUSED and tries >= rules.TRIES_IN_ORDER:
            return self._put_aside(connection, task)
        if tries >= rules.LAST_TRY:
            return self._pause(connection, endpoint, f"it is down ({_cause(delivery)})")
        deliveries.wait(connection, endpoint, tries, self._after(tries))
        return lambda: None

    def _put_aside(self, connection: Connection, task: _Task) -> Tell:
        # From here on its own schedule, however long the endpoint was down before.
        tries = rules.TRIES_IN_ORDER
        refused = Refused(task.event.id, tries, self._after(tries))
        deliveries.put_aside(connection, task.endpoint, refused)
        return lambda: log.warning(
            "Webhook %d (%s) refuses event %d, which is put aside and tried again by itself.",
            task.endpoint.id,
            host_of(task.endpoint.url),
            task.event.id,
        )

    def _try_aside_later(
        self, connection: Connection, task: _Task, aside: Refused, delivery: Delivery
    ) -> Tell:
        tries = aside.tries + 1
        if tries >= rules.LAST_TRY:
            return self._give_up(connection, task, delivery)
        again = Refused(aside.event_id, tries, self._after(tries))
        deliveries.try_again(connection, task.endpoint.id, again)
        return lambda: None

    def _after(self, tries: int) -> datetime:
        return self._clock.now() + rules.delay(tries, self._chance)

    def _give_up(self, connection: Connection, task: _Task, delivery: Delivery) -> Tell:
        endpoint, event_id = task.endpoint, task.event.id
        self._go_on(connection, task)
        return lambda: log.warning(
            "Webhook %d (%s) did not take event %d at its last try (%s). "
            "`flask webhooks redeliver %d %d` tries once more.",
            endpoint.id,
            host_of(endpoint.url),
            event_id,
            _cause(delivery),
            endpoint.id,
            event_id,
        )

    def _pause(self, connection: Connection, endpoint: Endpoint, because: str) -> Tell:
        is_news = endpoints.pause(connection, endpoint.id, because, self._clock.now())
        host = host_of(endpoint.url)
        return lambda: (
            log.warning(PAUSED, endpoint.id, host, because, endpoint.id) if is_news else None
        )


def _cause(delivery: Delivery) -> str:
    return delivery.fault or f"status {delivery.status}"
