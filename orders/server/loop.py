"""The loop: polls, accepts, gives short answers, hands over the rest, and stops in order.

Two threads can run it, of which one leads; only that one touches connections and polled sockets.
The leader polls, and gives short answers. Should such an answer take longer than
PATIENCE_SECONDS, the other takes the lead, so that one thread polls whatever happens; the first
hands its answer to the loop when it is made, and stands by from then on. While it is not back,
the leader itself answers nothing that could block. Workers give answers that wait.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from orders.server.answers import MOST_LONG, Exchange, Listener, LongAnswers, Policy, Work
from orders.server.connections import (
    ARRIVING,
    IDLE_SECONDS,
    SLICE_SECONDS,
    Connection,
    Phase,
    giving_way,
    make_room,
)

log = logging.getLogger(__name__)

# How long new requests are read, and requests answered, before the loop polls again. Between them,
# the rest of begun requests is read, for no longer than the last answers took: neither keeps the
# other waiting.
READ_SECONDS = 0.1
TURN_SECONDS = 0.05
STOP_SECONDS = 30
# A request that nobody begins to answer within this time is refused. With the second until that is
# noticed, and the 5 s that one may wait for the database's lock, no client waits longer than 10 s.
QUEUE_SECONDS = 4
MAINTENANCE_SECONDS = 1
# How long answers that rest are asked for more, or followers' requests answered, before it is
# others' turn.
RESTING_SECONDS = 0.002
# How often long answers that wait for a place are looked at.
PLACES_SECONDS = 0.05
# How long bytes are read, and forgotten, after the last answer.
LINGER_SECONDS = 2
# Bytes of answers that clients have not acknowledged, in the system's buffers of all connections.
MOST_BUFFERED_BYTES = 64 * 1024 * 1024
_ACCEPTED_AT_ONCE = 100
# How long a short answer may take before another thread leads.
PATIENCE_SECONDS = 0.02
# How long a signal may wait that the system gave to another thread than the first.
_SIGNAL_SECONDS = 1.0
# A line of the log that a client or a shortage can cause comes at most so often: unbounded, as
# often as the loop turns, it would fill a disk.
QUIET_SECONDS = 60


class Loop:
    """The connections, and the work on them."""

    is_stopping = False
    buffered_at_most = 0
    _stop_wanted = False
    _stop_ends = 0.0
    _answering_took = 0.0
    _was_urgent = False
    _is_woken = False

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
        self._listeners = listeners
        self._most_connections = most_connections
        self._next_maintenance = self.now
        # The system's reports, and the connections whose requests go on, oldest first.
        self._events: OrderedDict[Connection | Listener | socket.socket, int] = OrderedDict()
        self.arriving: OrderedDict[Connection, None] = OrderedDict()
        # Listeners that are not polled until the next maintenance: none could be accepted.
        self._full: list[Listener] = []
        self._repeats = Repeats(log)
        # Whole requests: probes, but for those that were pipelined; others; followers'.
        self._urgent: deque[Exchange] = deque()
        self._ready: deque[Exchange] = deque()
        self._following: deque[Exchange] = deque()
        self._workers = Workers(threads, self.proceed)
        makers = Workers(MOST_LONG, self.proceed, "long")
        self._long = LongAnswers(makers.submit, self._workers.submit, policy.has_room_for_long)
        # Filled by other threads: exchanges that have something to send, or have to be handed over.
        self._progress: deque[Exchange] = deque()
        # Filled by other threads, too: resting answers that have more to say.
        self._woken_up: deque[Exchange] = deque()
        self._woken, self._waker = socket.socketpair()
        self._selector = DefaultSelector()
        self._poll()

    @property
    def waiting(self) -> int:
        """How many whole requests nobody has begun to answer."""
        in_loop = (self._urgent, self._ready, self._following)
        return sum(map(len, (*in_loop, self._workers.waiting, self._long.waiting)))

    def stop(self) -> None:
        """Answer what has arrived, and end. For any thread, and for signals' handlers."""
        if not self._stop_wanted:
            self._stop_wanted = True
            self._wake()

    def proceed(self, exchange: Exchange) -> None:
        """Let an exchange's connection proceed. For any thread."""
        self._progress.append(exchange)
        self._wake()

    def wake(self, exchange: Exchange) -> None:
        """Ask a resting answer for more, in the loop. For any thread."""
        if not exchange.is_woken:
            exchange.is_woken = True
            self._woken_up.append(exchange)
            self._wake()

    def enqueue(self, exchange: Exchange, *, was_waiting: bool) -> None:
        """Queue a whole request, which may have waited for the answer before it."""
        request = exchange.request
        is_followed = request.path == self.policy.resting
        if is_followed and self.policy.may_rest(request.query, request.headers):
            self._following.append(exchange)
        elif request.path == self.policy.probe and not was_waiting:
            self._urgent.append(exchange)
        else:
            self._ready.append(exchange)

    def watch(self, connection: Connection, events: int) -> None:
        """Poll a connection for these events, or for none; not for those that it is polled for."""
        if not connection.watched:
            self._selector.register(connection.socket, events, connection)
        elif events:
            self._selector.modify(connection.socket, events, connection)
        else:
            self._selector.unregister(connection.socket)
        connection.watched = events

    def close(self) -> None:
        """Close the poller. For the end."""
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
        try:
            for key, ready in self._selector.select(self._timeout()):
                self._events[key.data] = ready
            for step in (
                self._handle_events,
                self._read_arriving,
                self._take_progress,
                self._continue_resting,
                self._begin_long,
                self._make_room,
                self._maintain,
                self._stop,
                self._answer_ready,
            ):
                # Each by a clock of its own: none uses up another's time.
                self.now = time.monotonic()
                step()
        except MemoryError as error:  # of no one connection: there may be more in a moment
            self._report("A turn of the loop failed.", error)

    def _timeout(self) -> float:
        waits = (self._ready, self._urgent, self._progress, self._woken_up, self.arriving)
        if self._events or any(waits) or self._may_begin_following():
            return 0
        if self._long.waiting:
            return PLACES_SECONDS
        return max(0, self._next_maintenance - time.monotonic())

    def _handle_events(self) -> None:
        ends = self.now + READ_SECONDS
        while self._events and self.now < ends:
            source, ready = self._events.popitem(last=False)
            if isinstance(source, Connection):
                self._guard(source, self._handle, source, ready & source.watched)
            elif isinstance(source, Listener):
                self._accept(source)
            else:
                self._woken.recv(1024)
                self._is_woken = False
            self.now = time.monotonic()

    def _handle(self, connection: Connection, ready: int) -> None:
        if connection.phase in ARRIVING:
            self.arriving[connection] = None
        else:
            connection.on_event(ready)

    def _read_arriving(self) -> None:
        ends = self.now + min(TURN_SECONDS, max(SLICE_SECONDS, self._answering_took))
        while self.arriving:
            connection, _ = self.arriving.popitem(last=False)
            if connection.phase in ARRIVING and not connection.is_closed:  # still
                self._guard(connection, connection.read)
            self.now = time.monotonic()
            if self.now >= ends:
                return

    def _guard(self, connection: Connection, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - it is reported
            with suppress(Exception):  # the first failure is logged
                connection.close()
            self._report("The connection of %s is closed, as it failed.", error, connection.addr[0])

    def _report(self, message: str, error: BaseException, *facts: object) -> None:
        with suppress(MemoryError):
            self._repeats.log(self.now, message, *facts, exc_info=error)

    def _accept(self, listener: Listener) -> bool:
        """Accept connections, _ACCEPTED_AT_ONCE at most; return whether more may wait."""
        may_wait = True
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                self._admit(listener, *listener.socket.accept())
            except ConnectionAbortedError:  # its client is gone already
                continue
            except BlockingIOError:
                may_wait = False
                break
            except (OSError, MemoryError) as error:
                self._make_place(listener, error)
                may_wait = False
                break
        self._give_way(len(self.connections) - self._most_connections)
        return may_wait

    def _admit(self, listener: Listener, accepted: socket.socket, address: Any) -> None:
        try:
            accepted.setblocking(False)
            connection = Connection(self, listener, accepted, address)
        except Exception as error:  # noqa: BLE001 - it is reported
            accepted.close()
            self._report("A new connection is closed, as it failed.", error)
            return
        self.connections[connection] = None
        self._guard(connection, self.watch, connection, EVENT_READ)

    def _make_place(self, listener: Listener, error: OSError | MemoryError) -> None:
        # Most often, no descriptor is left: a connection that is closed gives one back. While none
        # may be closed, polling would report the next one again and again.
        cause = getattr(error, "strerror", None) or "there is no memory"
        self._repeats.log(self.now, f"A connection can't be accepted: {cause}.")
        if not self._give_way(1) and not self.is_stopping:
            self._selector.unregister(listener.socket)
            self._full.append(listener)

    def _give_way(self, count: int) -> bool:
        """Close as many connections, if possible; return whether there was one."""
        chosen = giving_way(self.connections, count, self.now) if count > 0 else []
        for each in chosen:
            self._guard(each, partial(each.close, drop=each.outgoing.unacknowledged() > 0))
        return bool(chosen)

    def _take_progress(self) -> None:
        for _ in range(len(self._progress)):
            exchange = self._progress.popleft()
            connection: Connection = exchange.channel
            if not (exchange.is_answered or exchange.spool or exchange.resting):
                self._guard(connection, self._hand_over, exchange)
            elif connection.exchange is exchange:
                self._guard(connection, connection.send)

    def _continue_resting(self) -> None:
        ends = self.now + RESTING_SECONDS
        while self._woken_up and self.now < ends:
            exchange = self._woken_up.popleft()
            exchange.is_woken = False
            if exchange.channel.exchange is exchange:
                self._guard(exchange.channel, exchange.channel.send)
            self.now = time.monotonic()

    def _begin_long(self) -> None:
        if not self._long.waiting:
            return
        for exchange in self._long.pending():
            self._guard(exchange.channel, self._long.begin, exchange, self.now)

    def _make_room(self) -> None:
        if self.buffered_at_most > MOST_BUFFERED_BYTES:
            self.buffered_at_most = make_room(self.connections, MOST_BUFFERED_BYTES, self.now)

    def _answer_ready(self) -> None:
        began, self._answering_took = self.now, 0.0
        for exchange in self._chosen():
            if not self.lead.during(partial(self._begin, exchange)):
                self.proceed(exchange)
                return
            self._guard(exchange.channel, self._go_on_with, exchange)
            self.now = time.monotonic()
            self._answering_took = self.now - began

    def _chosen(self) -> Iterator[Exchange]:
        """Yield the requests whose turn it is, followers' last."""
        ends = self.now + TURN_SECONDS
        for _ in range(len(self._urgent) + len(self._ready)):
            yield self._next()
            if self.now > ends:
                break
        ends = self.now + RESTING_SECONDS
        while self._may_begin_following() and self.now < ends:
            exchange = self._following.popleft()
            exchange.is_late = self.is_stopping
            yield exchange

    def _may_begin_following(self) -> bool:
        # A worker's queue is for others, too.
        following = self._following
        return bool(following) and (not self._workers.waiting or self._is_late(following[0]))

    def _is_late(self, exchange: Exchange) -> bool:
        return exchange.whole_at < self.now - QUEUE_SECONDS

    def _begin(self, exchange: Exchange) -> None:
        if exchange.channel.is_closed:
            return
        exchange.is_late |= self._is_late(exchange)
        try:
            exchange.begin(self.lead.has_standby)
        except BaseException as error:  # noqa: BLE001 - it is reported
            exchange.fail()
            self._report("The answer to %s failed.", error, exchange.channel.addr[0])

    def _go_on_with(self, exchange: Exchange) -> None:
        connection: Connection = exchange.channel
        if connection.is_closed:
            exchange.discard()
        elif exchange.is_answered or exchange.resting:
            connection.send()
        else:
            self._hand_over(exchange)

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
        if self.now < self._next_maintenance:
            return
        self._next_maintenance = self.now + MAINTENANCE_SECONDS
        self.policy.on_turn()
        self._repeats.count_up(self.now)
        self._listen_again()
        for connection in list(self.connections):
            if connection.due <= self.now:
                self._guard(connection, connection.check_deadlines)
        waiting = self._workers.waiting
        with suppress(IndexError, ValueError):  # there is none; a worker was faster
            while self._is_late(exchange := waiting[0]):
                waiting.remove(exchange)
                self._ready.append(exchange)  # to be refused

    def _listen_again(self) -> None:
        while self._full:
            self._selector.register(self._full[-1].socket, EVENT_READ, self._full[-1])
            self._full.pop()

    def _stop(self) -> None:
        if not self._stop_wanted:
            return
        if not self.is_stopping:
            self.is_stopping, self._stop_ends = True, self.now + STOP_SECONDS
            self._stop_listening()
            for connection in list(self.connections):
                self._guard(connection, connection.hear_out)
        elif self.now > self._stop_ends:
            for connection in list(self.connections):
                log.warning("The stop cut off the answer to %s.", connection.addr[0])
                self._guard(connection, connection.close)
        if not self.connections:
            self.lead.end()

    def _stop_listening(self) -> None:
        self._listen_again()
        for listener in self._listeners:
            self._events.pop(listener, None)
            while self._accept(listener):
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


class Lead:
    """The lead, which one of two threads has."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._lock = threading.Lock()
        self._leader: int | None = None
        # Counts the beginnings and the ends of answers: odd during one.
        self._task = 0
        self._begun = threading.Event()
        self._ended = threading.Event()
        # Whether another thread would take over from the leader.
        self.has_standby = False
        # An exception that no turn may raise.
        self.failure: BaseException | None = None
        self.takeovers = 0

    def run(self) -> None:
        """Lead, or stand by to lead, until the end. Called by both threads."""
        try:
            with self._lock:
                self._leader = self._leader or threading.get_ident()
            while not self._ended.is_set():
                if self.is_mine():
                    self._turn()
                else:
                    self._stand_by()
        except BaseException as error:
            log.critical("The server's loop failed.", exc_info=error)
            self.failure = error
            self.end()

    def is_mine(self) -> bool:
        return self._leader == threading.get_ident()

    def during(self, answer: Callable[[], None]) -> bool:
        """Answer; return whether the calling thread still leads. If not, it must touch nothing."""
        self._task += 1
        if not self._begun.is_set():
            self._begun.set()
        answer()
        with self._lock:
            if not self.is_mine():
                return False
            self._task += 1
            return True

    def wait(self) -> None:
        # Handlers of signals run in this thread, which a signal that another one got does not wake.
        while not self._ended.wait(_SIGNAL_SECONDS):
            pass

    def end(self) -> None:
        self._ended.set()
        self._begun.set()

    def _stand_by(self) -> None:
        self.has_standby = True
        task = self._task
        if task % 2 == 0:
            # Nothing is being answered: sleep until something is.
            self._begun.clear()
            if self._task == task and not self._ended.is_set():
                self._begun.wait()
        elif not self._ended.wait(PATIENCE_SECONDS):
            self._take_over(task)

    def _take_over(self, task: int) -> None:
        with self._lock:
            if self._task == task:
                self._task += 1
                self._leader = threading.get_ident()
                self.has_standby = False
                self.takeovers += 1


class Workers:
    """Threads for answers that wait for a lock, a disk or another server.

    The one that was busy last goes first: its memory and its connection to the database are reused,
    and the others need none.
    """

    def __init__(
        self, count: int, answered: Callable[[Exchange], None], name: str = "worker"
    ) -> None:
        # Exchanges that nobody has begun to answer, oldest first.
        self.waiting: deque[Exchange] = deque()
        self._lock = threading.Lock()
        self.resting: list[threading.Semaphore] = []
        self._answered = answered
        for number in range(count):
            self._start(f"{name}-{number}")

    def submit(self, exchange: Exchange) -> None:
        """Queue an exchange, which may be taken back from `waiting`."""
        with self._lock:
            self.waiting.append(exchange)
            if self.resting:
                self.resting.pop().release()

    def _start(self, name: str) -> None:
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        called = threading.Semaphore(0)
        try:
            while True:
                exchange = self._next(called)
                if exchange is None:
                    called.acquire()
                else:
                    self._answer(exchange)
        except BaseException as error:
            log.critical("A thread that answers requests is replaced.", exc_info=error)
            self._replace()

    def _answer(self, exchange: Exchange) -> None:
        try:
            exchange.answer()
        except BaseException:
            exchange.fail()
            raise
        finally:
            self._answered(exchange)

    def _replace(self) -> None:
        try:
            self._start(threading.current_thread().name)
        except (RuntimeError, MemoryError):  # the system gives none: this one goes on
            self._work()

    def _next(self, called: threading.Semaphore) -> Exchange | None:
        """Return an exchange to answer; None if there is none: the next one wakes the caller."""
        with self._lock:
            try:
                return self.waiting.popleft()
            except IndexError:
                self.resting.append(called)
                return None


@dataclass
class _Repeat:
    since: float
    more: int = 0


class Repeats:
    """Logs each message at once, and then at most once a minute, with how often it came."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        # By the message without its facts: their number is fixed.
        self._repeats: dict[str, _Repeat] = {}

    def log(
        self, now: float, message: str, *facts: object, exc_info: BaseException | None = None
    ) -> None:
        """Log a warning, or count it. `now` is in monotonic seconds."""
        if said := self._repeats.get(message):
            said.more += 1
        else:
            self._repeats[message] = _Repeat(now)
            self._logger.warning(message, *facts, exc_info=exc_info)

    def count_up(self, now: float) -> None:
        """Log the messages that came again within the last minute. Call it every second or so."""
        for message, said in list(self._repeats.items()):
            if now - said.since < QUIET_SECONDS:
                continue
            if said.more:
                again = "%d more within a minute of: %s"
                self._logger.warning(again, said.more, message.replace("%s", "…"))
                self._repeats[message] = _Repeat(now)
            else:
                del self._repeats[message]
