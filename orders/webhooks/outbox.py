"""Delivers the event log to webhooks in the background, in order, and schedules retries.

The event log is the outbox. Each endpoint has a position in it, which advances only once the event
after it was delivered: if this process dies, nothing is lost, and at most the message on its way is
sent twice. An endpoint that is down stays at its position, to be retried on the schedule. One that
is up but refuses an event blocks its queue for two attempts only; then the event is put aside and
retried on a schedule of its own.

Of several processes over one database, one at a time delivers to an endpoint (`Claims`), so that
events arrive in order. A process that dies without releasing its claims is followed by another
within 4 seconds.

One thread watches for work: it is woken by the service's own commits, and polls every second for
those of other processes and for waits that are over. Each endpoint with something due gets a thread
until nothing is due any more. So an endpoint that hangs delays only itself; a smaller pool would be
full once that many hang. Without endpoints, this costs one small query per second.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random, SystemRandom

from sqlalchemy import Connection

from orders.clock import Clock
from orders.installation import command
from orders.settings import TEST_HEADER, TEST_LABEL
from orders.store import audit
from orders.store import orders as order_store
from orders.store.database.commits import GroupCommit
from orders.store.database.database import Database
from orders.store.database.errors import StoreUnavailable
from orders.webhooks import deliveries, endpoints, sender
from orders.webhooks.addresses import host_of
from orders.webhooks.deliveries import Delivery, Event, RefusedEvent
from orders.webhooks.endpoints import Endpoint
from orders.webhooks.sender import Message, Outcome, Response, Sender

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
# Commits that close together share one poll, which costs about as much as a small request.
TOGETHER_SECONDS = 0.05
# How long a stop waits for attempts under way.
IN_FLIGHT_SECONDS = 5.0
_CANCEL_SECONDS = 1.0
# The pause after something went wrong.
_REST_SECONDS = 5.0
_RECORD_AGAIN_SECONDS = 1.0
LOG_RETENTION = timedelta(days=30)
_SWEPT_EVERY_SECONDS = 3_600
# No attempt begins with less than this left of a claim; during an attempt the claim is renewed.
_LEAST_LEFT = timedelta(seconds=2)
_RENEWED_EVERY_SECONDS = 0.75


class Claims:
    def __init__(self, changes: GroupCommit, clock: Clock) -> None:
        self._changes = changes
        self._clock = clock
        self._process = secrets.token_hex(8)
        # Endpoints with an attempt under way, and when their claims were last renewed (monotonic).
        self._in_use: set[int] = set()
        self._renewed_at = -math.inf

    def is_ours(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint is claimed by this process, for long enough to try."""
        if endpoint.claimed_by != self._process or endpoint.claimed_until is None:
            return False
        return _LEAST_LEFT < endpoint.claimed_until - self._clock.now() <= deliveries.CLAIM_LASTS

    def acquire(self, endpoint: Endpoint) -> float:
        """Claim an endpoint; return 0, or the seconds until another process' claim may lapse."""
        is_claimed_elsewhere = endpoint.claimed_by not in {None, self._process}
        if is_claimed_elsewhere and endpoint.claimed_until is not None:
            left = endpoint.claimed_until - self._clock.now()
            if timedelta(0) < left <= deliveries.CLAIM_LASTS + deliveries.CLOCKS_DIFFER:
                return left.total_seconds()  # as just read, without taking the write lock
        with self._changes.transaction() as connection:
            is_ours = self.claim(connection, endpoint.id)
        return 0.0 if is_ours else deliveries.CLAIM_LASTS.total_seconds()

    def claim(self, connection: Connection, endpoint_id: int) -> bool:
        """Claim an endpoint, or renew its claim; return False if another process claimed it."""
        return deliveries.claim(connection, endpoint_id, self._process, self._clock.now())

    @contextmanager
    def renewing(self, endpoint_id: int) -> Iterator[None]:
        """Let `renew` renew the claim of an endpoint while an attempt is under way."""
        self._in_use.add(endpoint_id)
        try:
            yield
        finally:
            self._in_use.discard(endpoint_id)

    def renew(self) -> None:
        """Renew the claims of endpoints with an attempt under way. Call it every second."""
        now = self._clock.monotonic()
        in_use = list(self._in_use)
        if in_use and now - self._renewed_at >= _RENEWED_EVERY_SECONDS:
            with self._changes.transaction() as connection:
                for each in in_use:
                    self.claim(connection, each)
            self._renewed_at = now

    def release(self) -> None:
        """Release the claims of this process, so that another can deliver at once."""
        with self._changes.transaction() as connection:
            deliveries.release(connection, self._process)


class _Waits:
    """Waits until an instant that is stored in wall time, which survives a restart.

    Within a process they are measured by the monotonic clock, so that setting the other changes
    nothing; after a restart, no wait is longer than any of its kind may be.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[object, tuple[datetime, float]] = {}

    def left(self, name: object, due: Endpoint | RefusedEvent) -> float:
        """Return the seconds left until a retry, at most the longest delay after its tries."""
        if due.next_at is None:
            return 0.0
        now = self._clock.monotonic()
        instant, end = self._ends.get(name, (None, 0.0))
        if instant != due.next_at:
            left = (due.next_at - self._clock.now()).total_seconds()
            end = now + min(max(left, 0.0), sender.longest_delay(due.tries))
            self._ends[name] = due.next_at, end
        return max(end - now, 0.0)

    def forget(self, name: object) -> None:
        self._ends.pop(name, None)


@dataclass(frozen=True, slots=True)
class _Task:
    """An event to send now; `aside` is its own schedule if it was put aside."""

    endpoint: Endpoint
    event: Event
    aside: RefusedEvent | None


class Courier:
    """Delivers to endpoints, from any number of threads, each with an endpoint of its own."""

    def __init__(  # noqa: PLR0913 - its parts, each by its name
        self,
        database: Database,
        changes: GroupCommit,
        clock: Clock,
        sender: Sender,
        *,
        store_id: Callable[[], str],
        stopped: threading.Event,
        is_test: bool = False,
        chance: Random | None = None,
    ) -> None:
        """Take the parts. No attempt begins once `stopped` is set."""
        self.claims = Claims(changes, clock)
        self._database = database
        self._changes = changes
        self._clock = clock
        self._sender = sender
        self._store_id = store_id
        self._stopped = stopped
        self._headers = dict([TEST_HEADER]) if is_test else {}
        self._chance = chance or SystemRandom()
        self._waits = _Waits(clock)
        # By endpoint: its position, and the event up to which none after it is wanted.
        self._scanned: dict[int, tuple[int, int]] = {}
        self._counting = threading.Lock()
        self._outcomes: Counter[tuple[int, Outcome]] = Counter()

    @property
    def outcomes(self) -> dict[tuple[int, Outcome], int]:
        """Attempts of this process, by endpoint and outcome."""
        with self._counting:
            return dict(self._outcomes)

    def seconds_until_due(
        self, connection: Connection, endpoint: Endpoint, newest_event: int
    ) -> float | None:
        """Return the seconds until something may be due, or None if that takes a new event."""
        if endpoint.paused_at is not None:
            return None
        wait = self._waits.left(endpoint.id, endpoint)
        if wait or newest_event > self.scanned_to(endpoint):
            return wait
        refused = deliveries.next_refused(connection, endpoint.id)
        if refused is None:
            return None
        return self._waits.left((endpoint.id, refused.event_id), refused)

    def deliver(self, endpoint_id: int) -> float:
        """Deliver everything due to an endpoint, unless stopped.

        Return 0, or the seconds until the claim of another process that delivers to it may lapse.
        """
        was_aside = False
        while not self._stopped.is_set():
            task = self._next(endpoint_id, aside_first=not was_aside)
            if task is None:
                break
            if self.claims.is_ours(task.endpoint):
                with self.claims.renewing(endpoint_id):
                    self._try(task)
                was_aside = task.aside is not None
            elif seconds := self.claims.acquire(task.endpoint):
                return seconds
            # Another process may have delivered this before it was claimed: look again.
        return 0.0

    def attempt(self, endpoint: Endpoint, message: Message, event_id: int | None) -> Delivery:
        """Sign and send a message; return its line for the log of deliveries."""
        at = self._clock.now()
        return _line(endpoint, event_id, at, self._send(endpoint, message, at))

    def _send(self, endpoint: Endpoint, message: Message, at: datetime) -> Response:
        headers = {**self._headers, **message.signed_headers(at, endpoint.secrets(at))}
        body = message.body.encode()
        return self._sender.post(endpoint.url, headers, body, allow_private=endpoint.allow_private)

    def scanned_to(self, endpoint: Endpoint) -> int:
        """Return the event up to which nothing is due to the endpoint, as far as known."""
        position, scanned = self._scanned.get(endpoint.id, (None, 0))
        return max(scanned if position == endpoint.position else 0, endpoint.position)

    def _next(self, endpoint_id: int, *, aside_first: bool) -> _Task | None:
        with self._database.read() as connection:
            endpoint = endpoints.find(connection, endpoint_id)
            if endpoint is None or endpoint.paused_at is not None:
                return None
            if self._waits.left(endpoint.id, endpoint):
                return None
            # In turn, so that neither new events nor slow old ones starve the others.
            finders = [self._next_aside, self._next_in_order]
            for find in finders if aside_first else reversed(finders):
                task = find(connection, endpoint)
                if task is not None:
                    return task
        return None

    def _next_aside(self, connection: Connection, endpoint: Endpoint) -> _Task | None:
        refused = deliveries.next_refused(connection, endpoint.id)
        if refused is None or self._waits.left((endpoint.id, refused.event_id), refused):
            return None
        return _Task(endpoint, deliveries.event(connection, refused.event_id), refused)

    def _next_in_order(self, connection: Connection, endpoint: Endpoint) -> _Task | None:
        newest = order_store.newest_event(connection)
        event = deliveries.next_wanted(connection, endpoint, self.scanned_to(endpoint))
        if event is None:
            self._scanned[endpoint.id] = (endpoint.position, newest)
            return None
        return _Task(endpoint, event, None)

    def _try(self, task: _Task) -> None:
        at = self._clock.now()
        answer = self._send(task.endpoint, Message.of_event(task.event, self._store_id()), at)
        if self._sender.is_cancelled:
            return  # and the endpoint is not to blame
        with self._counting:
            self._outcomes[task.endpoint.id, answer.outcome] += 1
        self._record(task, at, answer)

    def _record(self, task: _Task, at: datetime, answer: Response) -> None:
        # Retried until committed: otherwise a message that arrived would be sent over and over.
        has_warned = False
        while True:
            try:
                with self._changes.transaction() as connection:
                    warning = self._settle(connection, task, at, answer)
            except StoreUnavailable as error:
                if not has_warned:
                    log.warning("The outcome of a webhook can't be recorded yet: %s.", error)
                has_warned = True
                if self._stopped.wait(_RECORD_AGAIN_SECONDS):
                    return
            else:
                if warning:
                    log.warning("%s", warning)
                return

    def _settle(
        self, connection: Connection, task: _Task, at: datetime, answer: Response
    ) -> str | None:
        """Record an attempt and its consequences; return the warning to log once committed."""
        if not deliveries.log_delivery(connection, _line(task.endpoint, task.event.id, at, answer)):
            return None  # the endpoint was removed, or the log emptied
        self.claims.claim(connection, task.endpoint.id)
        if answer.outcome is Outcome.GONE:
            return self._pause(connection, task.endpoint, sender.GONE)
        if answer.outcome is Outcome.DELIVERED:
            self._finish(connection, task)
            return None
        if task.aside is not None:
            return self._retry_aside(connection, task, task.aside.tries + 1, answer)
        return self._retry_in_order(connection, task, task.endpoint.tries + 1, answer)

    def _finish(self, connection: Connection, task: _Task) -> None:
        if task.aside is None:
            deliveries.advance(connection, task.endpoint, task.event.id)
        else:
            deliveries.forget_refused(connection, task.endpoint.id, task.event.id)
            self._waits.forget((task.endpoint.id, task.event.id))

    def _retry_in_order(
        self, connection: Connection, task: _Task, tries: int, answer: Response
    ) -> str | None:
        endpoint = task.endpoint
        if answer.outcome is Outcome.REFUSED and tries >= sender.TRIES_IN_ORDER:
            # A full schedule of its own from here on, however long the endpoint was down before.
            tries = sender.TRIES_IN_ORDER
            refused = RefusedEvent(task.event.id, tries, self._next_at(tries, answer))
            deliveries.put_aside(connection, endpoint, refused)
            return (
                f"Webhook {_name(endpoint)} refuses event {task.event.id}, "
                "which is put aside and retried separately."
            )
        if tries >= sender.MAX_TRIES:
            return self._pause(connection, endpoint, f"it is down ({answer.cause})")
        deliveries.schedule_retry(connection, endpoint, tries, self._next_at(tries, answer))
        return None

    def _retry_aside(
        self, connection: Connection, task: _Task, tries: int, answer: Response
    ) -> str | None:
        endpoint, event_id = task.endpoint, task.event.id
        if tries < sender.MAX_TRIES:
            again = RefusedEvent(event_id, tries, self._next_at(tries, answer))
            deliveries.reschedule(connection, endpoint.id, again)
            return None
        self._finish(connection, task)
        redeliver = command(f"webhooks redeliver {endpoint.id} {event_id}")
        return (
            f"Webhook {_name(endpoint)} did not accept event {event_id} at the last attempt ("
            f"{answer.cause}). `{redeliver}` tries once more."
        )

    def _next_at(self, tries: int, answer: Response) -> datetime:
        now = self._clock.now()
        return now + answer.retry_delay(tries, now, self._chance)

    def _pause(self, connection: Connection, endpoint: Endpoint, because: str) -> str | None:
        now, name = self._clock.now(), _name(endpoint)
        if not endpoints.pause(connection, endpoint.id, because, now):
            return None
        audit.record(connection, now, "webhook.paused", f"webhook {name}", audit.SERVICE)
        return (
            f"Webhook {name} is paused: {because}. "
            f"Resume it with `{command(f'webhooks resume {endpoint.id}')}`."
        )


def _name(endpoint: Endpoint) -> str:
    return f"{endpoint.id} ({host_of(endpoint.url)})"


def _line(endpoint: Endpoint, event_id: int | None, at: datetime, answer: Response) -> Delivery:
    return Delivery(
        endpoint_id=endpoint.id,
        event_id=event_id,
        at=at,
        outcome=answer.outcome.value,
        status=answer.status,
        fault=answer.fault,
        milliseconds=round(answer.seconds * 1000),
        answer=answer.text,
    )


class Outbox:
    """Delivers the event log to webhooks. Idle until started."""

    def __init__(  # noqa: PLR0913 - its parts, each by its name
        self,
        database: Database,
        changes: GroupCommit,
        clock: Clock,
        store_id: Callable[[], str],
        sender: Sender | None = None,
        *,
        on_commit: set[threading.Event],
        is_test: bool = False,
    ) -> None:
        self._database = database
        self._changes = changes
        self._clock = clock
        self._on_commit = on_commit
        self.sender = sender or Sender()
        self._news = threading.Event()
        self._ended = threading.Event()
        self._stopped = threading.Event()
        self.courier = Courier(
            *(database, changes, clock, self.sender),
            store_id=store_id,
            stopped=self._stopped,
            is_test=is_test,
        )
        self._label = TEST_LABEL * is_test
        self._has_waits = False
        # The fault that is logged as waiting for the database.
        self._warned: set[str] = set()
        self._is_alone = True
        self._seen: Hashable = None
        self._swept = -math.inf
        # The newest line of the log at the first sweep, and the monotonic time of that.
        self._dated: tuple[datetime, float] | None = None
        self._resting: dict[int, float] = {}
        self._at_work: dict[int, threading.Thread] = {}
        self._watching = threading.Thread(
            target=self._watch, name=f"{self._label}webhooks", daemon=True
        )

    def start(self, *, alone: bool = True) -> None:
        """Begin to deliver; `alone` if no other process uses the same database."""
        self._is_alone = alone
        self._watching.start()

    def wake(self) -> None:
        """Look for work now."""
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
        if self._news in self._on_commit and not self._is_alone:
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
            self._warn_once("Webhooks wait", error)
            # No longer than that: claims must be renewed in time.
            self._stopped.wait(POLL_SECONDS)
        except Exception:
            log.exception("Looking for due webhooks failed; retrying.")
            self._stopped.wait(_REST_SECONDS)
        else:
            self._warned.discard("Webhooks wait")

    def _warn_once(self, who: str, error: StoreUnavailable) -> None:
        # It may last, and other parts log it, too.
        if who not in self._warned:
            log.warning("%s for the database: %s.", who, error)
        self._warned.add(who)

    def _release_stale_claims(self) -> None:
        # Claims of an earlier process, which must be dead: this one is alone.
        with self._database.read() as connection:
            is_claimed = any(each.claimed_by for each in endpoints.get_all(connection))
        if is_claimed:
            with self._changes.transaction() as connection:
                deliveries.release(connection)

    def _poll(self) -> None:
        self._renew_claims()
        version = self._database.version()
        if version == self._seen and not self._has_waits and not self._ended.is_set():
            return
        self._ended.clear()
        self._seen = None  # everything is polled again, unless all of this succeeds
        with self._database.read() as connection:
            all_endpoints = endpoints.get_all(connection)
            newest = order_store.newest_event(connection)
            waits = {
                each.id: self.courier.seconds_until_due(connection, each, newest)
                for each in all_endpoints
                if each.id not in self._at_work
            }
        self._follow_commits(are_any=bool(all_endpoints))
        if all_endpoints:
            # Before deliveries add lines by a clock that may be ahead.
            self.sweep()
        self._has_waits = False
        for endpoint_id, wait in waits.items():
            self._begin(endpoint_id, wait)
        self._seen = version

    def _follow_commits(self, *, are_any: bool) -> None:
        # A shop without webhooks is not to wake a thread with each order.
        if are_any:
            self._on_commit.add(self._news)
        else:
            self._on_commit.discard(self._news)

    def _begin(self, endpoint_id: int, wait: float | None) -> None:
        if wait is None:
            return
        if wait > 0 or self._resting.get(endpoint_id, -math.inf) > time.monotonic():
            self._has_waits = True
            return
        name = f"{self._label}webhook-{endpoint_id}"
        thread = threading.Thread(target=self._deliver, args=(endpoint_id,), name=name, daemon=True)
        self._at_work[endpoint_id] = thread
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads at the moment
            del self._at_work[endpoint_id]
            raise

    def _deliver(self, endpoint_id: int) -> None:
        who = f"Webhook {endpoint_id} waits"
        try:
            # Another process may have claimed it, and may die.
            rest = self.courier.deliver(endpoint_id)
            self._warned.discard(who)
        except StoreUnavailable as error:
            self._warn_once(who, error)
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
        before = self._believable_time(now) - LOG_RETENTION
        has_more = True
        while has_more:
            with self._changes.transaction() as connection:
                has_more = deliveries.sweep(connection, before)
            self._renew_claims()

    def _believable_time(self, now: float) -> datetime:
        # A clock that is ahead must not empty the log. So no more time is believed to have passed
        # since its newest line than this process has seen pass.
        if self._dated is None:
            with self._database.read() as connection:
                self._dated = deliveries.newest_at(connection) or self._clock.now(), now
        newest, since = self._dated
        return min(self._clock.now(), newest + timedelta(seconds=now - since))
