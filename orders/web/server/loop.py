"""The loop: polls, accepts, answers what is short, hands over the rest, and stops in order.

One thread at a time runs it (`crew`); only that one touches connections and what is polled.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from orders.web.server import places
from orders.web.server.answers import Exchange, Listener, Policy, Work
from orders.web.server.connection import IDLE_SECONDS, Connection, Phase
from orders.web.server.crew import Lead, Workers
from orders.web.server.long_answers import LongAnswers

log = logging.getLogger(__name__)

# How long bodies are read, and requests answered, before the loop polls again.
TURN_SECONDS = 0.05
STOP_SECONDS = 30
# A request that no worker has begun for so long is refused. With the second until that is noticed,
# and the 5 s that one may then wait for the database's lock, no client waits longer than 10 s.
QUEUE_SECONDS = 4
MAINTENANCE_SECONDS = 1
# How often long answers that wait for a place are looked at.
PLACES_SECONDS = 0.05
# How long bytes are read, and forgotten, after the last answer.
LINGER_SECONDS = 2
_ACCEPTED_AT_ONCE = 100


class Loop:
    """The connections, and what is to be done for them."""

    def __init__(
        self,
        listeners: list[Listener],
        policy: Policy,
        threads: int,
        deadlines: tuple[float, float],
        most_connections: int,
    ) -> None:
        """Take the sockets that listen, and the seconds that a head and a body may take."""
        self.policy = policy
        self.patience = _patience(*deadlines)
        # In the order in which they came.
        self.connections: dict[Connection, None] = {}
        self.now = time.monotonic()
        self.lead = Lead(self._turn)
        self.is_stopping = False
        self._listeners = listeners
        self._most_connections = most_connections
        self._stop_wanted = False
        self._stop_ends = 0.0
        self._next_maintenance = self.now
        self.chunked: OrderedDict[Connection, None] = OrderedDict()
        # Whole requests: probes, but for those that were pipelined, and others.
        self._urgent: deque[Exchange] = deque()
        self._ready: deque[Exchange] = deque()
        self._workers = Workers(threads, self.note_progress)
        self._long = LongAnswers(self.note_progress, policy.has_room_for_long)
        self.kept_at_most = 0
        # Filled by other threads: exchanges that have something to send, or are to be handed over.
        self._progress: deque[Exchange] = deque()
        self._was_urgent = False
        self._is_woken = False
        self._woken, self._waker = socket.socketpair()
        self._selector = DefaultSelector()
        self._poll()

    @property
    def waiting(self) -> int:
        """How many whole requests nobody has begun to answer."""
        queues = (self._urgent, self._ready, self._workers.waiting, self._long.waiting)
        return sum(map(len, queues))

    def stop(self) -> None:
        """Answer what has arrived, and end. For any thread, and for signals' handlers."""
        if not self._stop_wanted:
            self._stop_wanted = True
            self._wake()

    def note_progress(self, exchange: Exchange) -> None:
        """Have an exchange's connection proceed. For any thread."""
        self._progress.append(exchange)
        self._wake()

    def enqueue(self, exchange: Exchange, *, first: bool) -> None:
        """Have a whole request answered, perhaps before others."""
        (self._urgent if first else self._ready).append(exchange)

    def watch(self, connection: Connection, events: int) -> None:
        """Poll a connection for these events, or for none."""
        if events == connection.watched:
            return
        if not connection.watched:
            self._selector.register(connection.socket, events, connection)
        elif events:
            self._selector.modify(connection.socket, events, connection)
        else:
            self._selector.unregister(connection.socket)
        connection.watched = events

    def close(self) -> None:
        """Close what polls. For the end."""
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _poll(self) -> None:
        for each in (self._woken, self._waker, *(each.socket for each in self._listeners)):
            each.setblocking(False)
        self._selector.register(self._woken, EVENT_READ, self._woken)
        for listener in self._listeners:
            self._selector.register(listener.socket, EVENT_READ, listener)

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            with suppress(OSError):  # an answer that nobody waits for may be made after the end
                self._waker.send(b"\0")

    def _turn(self) -> None:
        events = self._selector.select(self._timeout())
        self.now = time.monotonic()
        for key, ready in events:
            self._handle(key.data, ready)
        self._read_chunks()
        self._take_progress()
        for exchange in self._long.begin(self.now):
            self._workers.submit(exchange)
        if self.kept_at_most > places.MOST_KEPT_BYTES:
            self.kept_at_most = places.make_room(self.connections, self.now)
        if self.now >= self._next_maintenance:
            self._maintain()
        if self._stop_wanted:
            self._stop()
        self._answer_ready()

    def _timeout(self) -> float:
        if self._ready or self._urgent or self._progress or self.chunked:
            return 0
        if self._long.waiting:
            return PLACES_SECONDS
        return max(0, self._next_maintenance - time.monotonic())

    def _handle(self, source: Connection | Listener | socket.socket, ready: int) -> None:
        if isinstance(source, Connection):
            if source.is_in_chunks:
                self.chunked[source] = None
            elif not source.is_closed:
                self._guard(source, source.on_event, ready)
        elif isinstance(source, Listener):
            self._accept(source)
        else:
            self._woken.recv(1024)
            self._is_woken = False

    def _read_chunks(self) -> None:
        # They may be tiny, and cost much: heads come first.
        ends = time.monotonic() + TURN_SECONDS
        while self.chunked:
            connection, _ = self.chunked.popitem(last=False)
            if connection.is_in_chunks and not connection.is_closed:  # still
                self._guard(connection, connection.read)
            if time.monotonic() > ends:
                return

    def _guard(self, connection: Connection, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(*arguments)
        except Exception:
            log.exception("The connection of %s is closed, as it failed.", connection.addr[0])
            connection.close()

    def _accept(self, listener: Listener) -> int:
        """Accept connections that wait; return how many, at most _ACCEPTED_AT_ONCE."""
        count = excess = 0
        while count < _ACCEPTED_AT_ONCE:
            try:
                accepted, address = listener.socket.accept()
            except BlockingIOError:
                break
            except OSError as error:
                # A client that is gone already; or no descriptor is left, which one gives back.
                log.warning("A connection can't be accepted: %s.", error.strerror)
                excess = 1
                break
            count += 1
            accepted.setblocking(False)
            connection = Connection(self, listener, accepted, address)
            self.connections[connection] = None
            self.watch(connection, EVENT_READ)
        excess = max(excess, len(self.connections) - self._most_connections)
        if excess > 0:
            for connection in places.giving_way(self.connections, excess, self.now):
                connection.close(drop=connection.outgoing.unacknowledged() > 0)
        return count

    def _take_progress(self) -> None:
        for _ in range(len(self._progress)):
            exchange = self._progress.popleft()
            connection: Connection = exchange.channel
            if not (exchange.is_answered or exchange.spool):
                self._hand_over(exchange)
            elif connection.exchange is exchange:
                self._guard(connection, connection.send)

    def _answer_ready(self) -> None:
        ends = self.now + TURN_SECONDS
        for _ in range(len(self._urgent) + len(self._ready)):
            exchange = self._next()
            connection: Connection = exchange.channel
            if connection.is_closed:
                exchange.discard()
            elif not self.lead.during(partial(exchange.begin, self.lead.has_standby)):
                self.note_progress(exchange)
                return
            elif exchange.is_answered:
                self._guard(connection, connection.send)
            else:
                self._hand_over(exchange)
            self.now = time.monotonic()
            if self.now > ends:
                return

    def _next(self) -> Exchange:
        # By turns: probes can't keep others waiting either.
        queues = (self._ready, self._urgent) if self._was_urgent else (self._urgent, self._ready)
        queue = queues[0] or queues[1]
        self._was_urgent = queue is self._urgent
        return queue.popleft()

    def _hand_over(self, exchange: Exchange) -> None:
        if exchange.work is Work.LONG:
            self._long.submit(exchange)
            self._wake()  # it may have a place at once
        else:
            self._workers.submit(exchange)

    def _maintain(self) -> None:
        self._next_maintenance = self.now + MAINTENANCE_SECONDS
        self.policy.note_turn()
        for connection in list(self.connections):
            self._guard(connection, connection.keep_deadlines)
        waiting = self._workers.waiting
        with suppress(IndexError, ValueError):  # there is none; a worker was faster
            while (exchange := waiting[0]).whole_at < self.now - QUEUE_SECONDS:
                waiting.remove(exchange)
                exchange.is_late = True
                exchange.answer()
                self.note_progress(exchange)

    def _stop(self) -> None:
        if not self.is_stopping:
            self.is_stopping, self._stop_ends = True, self.now + STOP_SECONDS
            self._stop_listening()
            for connection in list(self.connections):
                self._guard(connection, connection.hear_out)
        elif self.now > self._stop_ends:
            for connection in list(self.connections):
                log.warning("The stop cut off the answer to %s.", connection.addr[0])
                connection.close()
        if not self.connections:
            self.lead.end()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            while self._accept(listener) == _ACCEPTED_AT_ONCE:
                pass
            self._selector.unregister(listener.socket)
            listener.socket.close()


def _patience(head_seconds: float, body_seconds: float) -> dict[Phase, float]:
    return {
        Phase.NEW: head_seconds,
        Phase.RESTING: IDLE_SECONDS,
        Phase.HEAD: head_seconds,
        Phase.BODY: body_seconds,
        Phase.LEAVING: LINGER_SECONDS,
    }
