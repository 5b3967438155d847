"""Delivers what is due to one endpoint, one event at a time, and schedules retries.

The event log is the outbox. Each endpoint has a position in it, which moves on only once the event
after it was delivered: if this process dies, nothing is lost, and at most the message on its way is
sent twice. An endpoint that is down keeps its position and is retried on the schedule. An endpoint
that is up but refuses an event blocks its queue for two attempts only; then the event is put aside
and retried on a schedule of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random, SystemRandom

from sqlalchemy import Connection

from orders import keys
from orders.clock import Clock
from orders.store import audit, events
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.database.group_commit import GroupCommit
from orders.webhooks import deliveries, endpoints, messages, rules
from orders.webhooks.addresses import host_of
from orders.webhooks.claims import Claims
from orders.webhooks.deliveries import Event, Refused
from orders.webhooks.endpoints import Delivery, Endpoint
from orders.webhooks.messages import Message
from orders.webhooks.rules import Outcome
from orders.webhooks.sender import Sender

log = logging.getLogger(__name__)

# A format and its values, to be logged once the change is committed.
_Warning = tuple[object, ...]

_RECORD_AGAIN_SECONDS = 1.0
_PAUSED = "Webhook %d (%s) is paused: %s. Resume it with `flask webhooks resume %d`."
_PUT_ASIDE = "Webhook %d (%s) refuses event %d, which is put aside and retried by itself."
_GIVEN_UP = (
    "Webhook %d (%s) did not accept event %d at the last attempt (%s). "
    "`flask webhooks redeliver %d %d` tries once more."
)


@dataclass(frozen=True, slots=True)
class _Task:
    """An event to send now; `aside` is its own schedule if it was put aside.

    `asked` is for how many seconds the endpoint asks to be left alone after an attempt.
    """

    endpoint: Endpoint
    event: Event
    aside: Refused | None
    asked: float = 0.0


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
        chance: Random | None = None,
    ) -> None:
        """Keep the parts. Once `stopped` is set, no further attempt begins."""
        self.claims = Claims(changes, clock)
        self._database = database
        self._changes = changes
        self._clock = clock
        self._sender = sender
        self._store_id = store_id
        self._stopped = stopped
        self._chance = chance or SystemRandom()
        self._waits = rules.Waits(clock)
        # By endpoint: its position, and the event up to which nothing behind it is wanted.
        self._passed_over: dict[int, tuple[int, int]] = {}
        self._counting = threading.Lock()
        self._outcomes: Counter[tuple[int, Outcome]] = Counter()

    @property
    def outcomes(self) -> dict[tuple[int, Outcome], int]:
        """Attempts of this process, by endpoint and outcome."""
        with self._counting:
            return dict(self._outcomes)

    def seconds_to_work(
        self, connection: Connection, endpoint: Endpoint, newest_event: int
    ) -> float | None:
        """Return the seconds until something may be due, or None if that takes a new event."""
        if endpoint.paused_at is not None:
            return None
        wait = self._wait(endpoint)
        if wait or newest_event > self.looked_up_to(endpoint):
            return wait
        refused = deliveries.next_refused(connection, endpoint.id)
        return None if refused is None else self._wait_aside(endpoint, refused)

    def deliver(self, endpoint_id: int) -> float:
        """Deliver everything due to an endpoint, unless stopped.

        Return 0, or the seconds until the claim of another process that delivers to it may lapse.
        """
        was_aside = False
        while not self._stopped.is_set():
            task = self._next(endpoint_id, aside_first=not was_aside)
            if task is None:
                break
            if self.claims.is_held(task.endpoint):
                with self.claims.renewing(endpoint_id):
                    self._try(task)
                was_aside = task.aside is not None
            elif seconds := self.claims.acquire(task.endpoint):
                return seconds
            # Another process may have delivered this before it was claimed: look again.
        return 0.0

    def attempt(self, endpoint: Endpoint, message: Message, event_id: int | None) -> Delivery:
        """Sign and send a message; return its line for the log of deliveries."""
        return self._attempt(endpoint, message, event_id)[0]

    def _attempt(
        self, endpoint: Endpoint, message: Message, event_id: int | None
    ) -> tuple[Delivery, float]:
        at = self._clock.now()
        headers = message.signed_headers(at, endpoint.secrets(at))
        answer = self._sender.post(
            endpoint.url, headers, message.body.encode(), allow_private=endpoint.allow_private
        )
        delivery = Delivery(
            endpoint.id,
            event_id,
            at,
            rules.outcome_of(answer.status).value,
            answer.status,
            answer.fault and keys.redact(answer.fault),
            round(answer.seconds * 1000),
            keys.redact(answer.text),
        )
        return delivery, rules.seconds_asked(answer.status, answer.retry_after, self._clock.now())

    def looked_up_to(self, endpoint: Endpoint) -> int:
        """Return the event up to which nothing is due to the endpoint, as far as known."""
        position, passed_over = self._passed_over.get(endpoint.id, (None, 0))
        return max(passed_over if position == endpoint.position else 0, endpoint.position)

    def _next(self, endpoint_id: int, *, aside_first: bool) -> _Task | None:
        with self._database.read() as connection:
            endpoint = endpoints.find(connection, endpoint_id)
            if endpoint is None or endpoint.paused_at is not None or self._wait(endpoint):
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
        if refused is None or self._wait_aside(endpoint, refused):
            return None
        return _Task(endpoint, deliveries.event(connection, refused.event_id), refused)

    def _next_in_order(self, connection: Connection, endpoint: Endpoint) -> _Task | None:
        newest = events.newest_id(connection)
        event = deliveries.next_wanted(connection, endpoint, self.looked_up_to(endpoint))
        if event is None:
            self._passed_over[endpoint.id] = (endpoint.position, newest)
            return None
        return _Task(endpoint, event, None)

    def _wait(self, endpoint: Endpoint) -> float:
        if endpoint.next_at is None:
            return 0.0
        return self._waits.left(endpoint.id, endpoint.next_at, endpoint.tries)

    def _wait_aside(self, endpoint: Endpoint, refused: Refused) -> float:
        return self._waits.left((endpoint.id, refused.event_id), refused.next_at, refused.tries)

    def _try(self, task: _Task) -> None:
        message = messages.of_event(task.event, self._store_id())
        delivery, asked = self._attempt(task.endpoint, message, task.event.id)
        if self._sender.is_cancelled:
            return  # and the endpoint is not to blame
        with self._counting:
            self._outcomes[task.endpoint.id, Outcome(delivery.outcome)] += 1
        self._record(replace(task, asked=asked), delivery)

    def _record(self, task: _Task, delivery: Delivery) -> None:
        # Retried until committed: otherwise a message that arrived would be sent over and over.
        has_warned = False
        while True:
            try:
                warning = self._changes.run(
                    lambda connection: self._settle(connection, task, delivery)
                )
            except StoreUnavailable as error:
                if not has_warned:
                    log.warning("The outcome of a webhook can't be recorded yet: %s.", error)
                has_warned = True
                if self._stopped.wait(_RECORD_AGAIN_SECONDS):
                    return
            else:
                if warning:
                    log.warning(*warning)
                return

    def _settle(self, connection: Connection, task: _Task, delivery: Delivery) -> _Warning | None:
        """Record an attempt and what follows from it; return the warning to log once committed."""
        if not deliveries.log_delivery(connection, delivery):
            return None  # the endpoint was removed
        self.claims.claim(connection, task.endpoint.id)
        outcome = Outcome(delivery.outcome)
        if outcome is Outcome.GONE:
            return self._pause(connection, task.endpoint, rules.GONE)
        if outcome is Outcome.DELIVERED:
            self._finish(connection, task)
            return None
        if task.aside is not None:
            return self._retry_aside(connection, task, task.aside, delivery)
        return self._retry_in_order(connection, task, delivery)

    def _finish(self, connection: Connection, task: _Task) -> None:
        if task.aside is None:
            deliveries.move_on(connection, task.endpoint, task.event.id)
        else:
            deliveries.forget_refused(connection, task.endpoint.id, task.event.id)
            self._waits.forget((task.endpoint.id, task.event.id))

    def _retry_in_order(
        self, connection: Connection, task: _Task, delivery: Delivery
    ) -> _Warning | None:
        endpoint, event_id, tries = task.endpoint, task.event.id, task.endpoint.tries + 1
        if delivery.outcome == Outcome.REFUSED and tries >= rules.TRIES_IN_ORDER:
            # A full schedule of its own from here on, however long the endpoint was down before.
            tries = rules.TRIES_IN_ORDER
            refused = Refused(event_id, tries, self._after(tries, task))
            deliveries.put_aside(connection, endpoint, refused)
            return _PUT_ASIDE, endpoint.id, host_of(endpoint.url), event_id
        if tries >= rules.LAST_TRY:
            return self._pause(connection, endpoint, f"it is down ({_cause(delivery)})")
        deliveries.wait(connection, endpoint, tries, self._after(tries, task))
        return None

    def _retry_aside(
        self, connection: Connection, task: _Task, aside: Refused, delivery: Delivery
    ) -> _Warning | None:
        endpoint, event_id, tries = task.endpoint, task.event.id, aside.tries + 1
        if tries >= rules.LAST_TRY:
            self._finish(connection, task)
            ids = endpoint.id, event_id
            return _GIVEN_UP, endpoint.id, host_of(endpoint.url), event_id, _cause(delivery), *ids
        again = Refused(event_id, tries, self._after(tries, task))
        deliveries.try_again(connection, endpoint.id, again)
        return None

    def _after(self, tries: int, task: _Task) -> datetime:
        return self._clock.now() + rules.delay(tries, self._chance, task.asked)

    def _pause(self, connection: Connection, endpoint: Endpoint, because: str) -> _Warning | None:
        now, host = self._clock.now(), host_of(endpoint.url)
        if not endpoints.pause(connection, endpoint.id, because, now):
            return None
        subject = f"webhook {endpoint.id} ({host})"
        audit.note(connection, now, "webhook.paused", subject, audit.SERVICE)
        return _PAUSED, endpoint.id, host, because, endpoint.id


def _cause(delivery: Delivery) -> str:
    return delivery.fault or f"status {delivery.status}"
