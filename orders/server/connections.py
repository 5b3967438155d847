"""A connection: requests are read from it, one after the other, and their answers sent.

Only the thread that leads the loop touches one; threads that answer get an `Exchange`. The next
request waits, unread, until the answer before it has been sent: a client that accepts nothing can't
ask for more. Once all places, or the system's memory for answers, are taken, some give way.
"""

from __future__ import annotations

import math
import socket as socket_module
import struct
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection
from contextlib import suppress
from enum import Enum, auto
from itertools import islice
from operator import attrgetter
from selectors import EVENT_READ, EVENT_WRITE
from socket import IPPROTO_TCP, SHUT_WR, SO_LINGER, SOL_SOCKET, socket
from typing import Any, Protocol

from orders.server import sockets
from orders.server.answers import SENT_AT_ONCE, Exchange, Listener, Policy, Spool
from orders.server.parser import Parser, RequestTimeout

READ_BYTES = 8 * 1024
# How long one connection's chunks are decoded before it is another's turn, and in what pieces:
# chunks may be tiny, and cost much.
SLICE_SECONDS = 0.001
_PIECE_BYTES = 512
IDLE_SECONDS = 60
# How long the reader of an answer that rests may take nothing, and how often that is looked at:
# there may be thousands of them.
RESTING_READER_SECONDS = 30
_RESTING_CHECK_SECONDS = 5
# How often a connection is read before a stop: enough for all that the system has buffered.
_LAST_READS = 16
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# How often a client's acknowledgements are recorded, for a minute.
_MARK_SECONDS = 10
_MARKS = 6
# The seconds within which a connection's first request is expected.
_NEW = 1
_since = attrgetter("since")
# In Linux' `struct tcp_info`, the milliseconds since bytes last arrived, counted in the system's
# ticks of up to 10 ms: what is within two of them is no wait. Windows has no such option.
_TCP_INFO = getattr(socket_module, "TCP_INFO", None)
_LAST_RECEIVED = slice(52, 56)
_TICKS_SECONDS = 0.02


class Phase(Enum):
    """The phases of a connection: what it waits for."""

    # The first request; the next one.
    NEW = auto()
    RESTING = auto()
    # The rest of a request.
    HEAD = auto()
    BODY = auto()
    # An answer, or its reader.
    ANSWER = auto()
    # The client's end, as the last answer has been sent.
    LEAVING = auto()


_RESTING = frozenset({Phase.NEW, Phase.RESTING, Phase.LEAVING})
ARRIVING = frozenset({Phase.HEAD, Phase.BODY})


class LoopProtocol(Protocol):
    """The parts of the loop that a connection needs."""

    policy: Policy
    # In monotonic seconds, as of its current turn.
    now: float
    # How many seconds a phase may last.
    patience: dict[Phase, float]
    connections: dict[Connection, None]
    # Connections that have sent more of a request that was begun, oldest first.
    arriving: OrderedDict[Connection, None]
    # Bytes that the system buffers for clients: never less than there are.
    buffered_at_most: int

    def watch(self, connection: Connection, events: int) -> None:
        """Poll a connection for these events, or for none; not for those that it is polled for."""

    def wake(self, exchange: Exchange) -> None:
        """Ask a resting answer for more, in the loop."""

    def enqueue(self, exchange: Exchange, *, was_waiting: bool) -> None:
        """Queue a whole request, which may have waited for the answer before it."""


class Connection:
    """A connection of a client."""

    def __init__(self, loop: LoopProtocol, listener: Listener, accepted: socket, addr: Any) -> None:
        self.loop, self.server, self.socket, self.addr = loop, listener, accepted, addr
        self.network = loop.policy.owner(addr[0], None)
        self.phase, self.since = Phase.NEW, loop.now
        # When its deadlines are to be checked again.
        self.due = loop.now
        self.watched = 0
        self.exchange: Exchange | None = None
        self.is_closed = False
        # The client sends no more; nothing more is read, because of a stop.
        self._is_at_end = False
        self.is_heard_out = False
        self._unread = b""
        self._request: Parser | None = None
        self._whole: deque[Parser] = deque()
        self.outgoing = Outgoing(accepted, loop.now)

    @property
    def is_in_chunks(self) -> bool:
        """Whether a chunked body is read next."""
        return self.phase is Phase.BODY and self._request is not None and self._request.chunked

    @property
    def is_resting(self) -> bool:
        """Whether an answer has no bytes to send now, and may never have."""
        exchange = self.exchange
        return exchange is not None and exchange.rests and not self.outgoing.has_more(None)

    @property
    def is_sending(self) -> bool:
        """Whether an answer waits for its reader."""
        exchange = self.exchange
        return exchange is not None and (exchange.spool is not None or self.outgoing.has_more(None))

    def is_last(self) -> bool:
        """Return whether the answer being made is the last, because of a stop."""
        return self.is_heard_out and not self._whole

    def check_client_disconnected(self) -> bool:
        """Return whether the connection was closed. For waitress' task."""
        return self.is_closed

    def on_event(self, events: int) -> None:
        """Send or read, as the system says is possible."""
        if events & EVENT_WRITE:
            self.send()
        if events & EVENT_READ and not self.is_closed:
            self.read()

    def read(self) -> None:
        """Read what has arrived, and begin a request that is whole."""
        if not self._unread:  # of a chunked body, something may be left
            self._receive()
        if self.is_closed:
            return
        if self.phase is Phase.LEAVING:
            self._unread = b""
            if self._is_at_end:
                self._part()
        elif self.exchange is None:
            self._advance()
        elif self._is_at_end and self.exchange.rests:
            self.close()  # nobody waits for the rest
        else:  # more is read when it is the next's turn
            self._watch(self.watched & ~EVENT_READ)

    def send(self) -> None:
        """Send as much of an answer as the client accepts now, at most a piece: others wait."""
        exchange = self.exchange
        if exchange is None or self.is_closed:
            return
        was_held_up = self.outgoing.has_more(None)
        if exchange.rests and not was_held_up:
            self._ask(exchange)
        has_ended = exchange.is_answered  # before the size of its file is read
        try:
            self.loop.buffered_at_most += self.outgoing.send(exchange, self.loop.now)
        except OSError:
            self.close()
            return
        if self.outgoing.has_more(exchange.spool):
            self._wait_for_reader(exchange)
        elif has_ended:
            self._end_exchange(exchange)
        elif exchange.rests:
            if was_held_up:
                self.loop.wake(exchange)
            self._watch(0 if self._unread else EVENT_READ)  # its client may leave
        else:
            self._watch(0)  # until the next piece is made

    def _ask(self, exchange: Exchange) -> None:
        if exchange.resting is not None:
            if self.is_heard_out:
                exchange.resting.stop()
            exchange.go_on(exchange.resting)

    def _wait_for_reader(self, exchange: Exchange) -> None:
        if exchange.resting is not None and self.is_heard_out:
            self.close(drop=True)  # a stop does not wait for it: it can go on elsewhere
        else:
            self._watch(EVENT_WRITE)

    def hear_out(self) -> None:
        """Read the bytes that are here before a stop, and from then on no more."""
        for _ in range(_LAST_READS):
            if self.phase is Phase.LEAVING or not self._receive():
                break
        self.is_heard_out = True
        if self.is_closed or self.phase is Phase.LEAVING:
            return
        self._parse()
        if self.exchange is not None:
            self._watch(self.watched & ~EVENT_READ)
            if self.exchange.rests:
                self.loop.wake(self.exchange)
        elif self._whole:
            self._advance()
        else:
            self.close()

    def check_deadlines(self) -> None:
        """Close a connection that rests or stands still for too long; reject a late request."""
        if self.exchange is not None and self.exchange.rests:
            self.due = self.loop.now + _RESTING_CHECK_SECONDS
            self._check_pace(RESTING_READER_SECONDS)
        elif self.is_sending:
            self._check_pace(IDLE_SECONDS)
        elif self.phase is Phase.LEAVING:
            if self._is_at_end or self._is_overdue():
                self._part()
        elif self._is_overdue():
            # Bytes that came in time may lie there unread, when it is the loop that was late.
            if not self.is_in_chunks:  # chunks have their turns
                self.read()
            if self._is_overdue() and not self.is_closed:
                self._give_up()

    def close(self, *, drop: bool = False) -> None:
        """Close the connection; `drop` also what the system still buffers for its client."""
        if self.is_closed:
            return
        self.is_closed = True
        self.loop.connections.pop(self, None)
        try:
            self._watch(0)
            if drop:
                self.socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        finally:
            self.socket.close()
            if self.exchange is not None and (self.exchange.is_answered or self.exchange.rests):
                self.exchange.discard()

    def _watch(self, events: int) -> None:
        if events != self.watched:
            self.loop.watch(self, events)

    def _enter(self, phase: Phase) -> None:
        self.phase, self.since = phase, self.loop.now
        self.due = self.loop.now

    def _is_overdue(self) -> bool:
        return self.loop.now - self.since > self.loop.patience.get(self.phase, math.inf)

    def _receive(self) -> bool:
        """Return whether bytes came."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        self._is_at_end = not data
        self._unread += data
        return bool(data)

    def _advance(self, *, was_waiting: bool = False) -> None:
        """Begin the next request, if it is here whole; it may have waited for an answer."""
        self._parse()
        if self._whole:
            self._begin(self._whole.popleft(), was_waiting=was_waiting)
        elif self._unread:
            self.loop.arriving[self] = None
        elif self._is_at_end or self.is_heard_out:
            self._leave()
        else:
            self._watch(EVENT_READ)

    def _parse(self) -> None:
        """Parse a request from the bytes read, and before a stop the next one, too."""
        wanted = 2 if self.is_heard_out else 1
        ends = math.inf if self.is_heard_out else time.monotonic() + SLICE_SECONDS
        while self._unread and len(self._whole) < wanted:
            request = self._request or self._first_bytes()
            if request is None:
                return
            taken = request.received(
                self._unread[:_PIECE_BYTES] if request.chunked else self._unread
            )
            if request.completed:
                self._request = None
                self._whole.append(request)
            self._unread = b"" if request.error else self._unread[taken:]
            if self._request and request.headers_finished and self.phase is Phase.HEAD:
                self._begin_body(request)
            if request.chunked and time.monotonic() > ends:
                return

    def _first_bytes(self) -> Parser | None:
        # Blank lines before a request begin nothing (RFC 9112, section 2.2).
        self._unread = self._unread.lstrip(b"\r\n")
        if self._unread:
            self._request = Parser(self.server.adj, self.loop.policy.body_bytes)
            if self.exchange is None:
                self._enter(Phase.HEAD)
        return self._request

    def _begin_body(self, request: Parser) -> None:
        self._enter(Phase.BODY)
        if not request.expect_continue:
            return
        # RFC 9110, section 10.1.1: the final answer, where the body would not change it.
        if self.loop.policy.wants_body(request.command, request.path, request.headers):
            with suppress(OSError):
                self.socket.send(_CONTINUE)
        else:
            request.end_unread()
            self._request, self._unread = None, b""
            self._whole.append(request)

    def _begin(self, request: Parser, *, was_waiting: bool = False) -> None:
        self._enter(Phase.ANSWER)
        self.outgoing.begin()
        self._watch(self.watched & EVENT_READ)
        # A request that waited for the answer before it, or is not whole, waits from now on.
        waited = 0 if was_waiting or request.error else _waited(self.socket)
        self.exchange = Exchange(self, request, self.loop.now - waited)
        self.loop.enqueue(self.exchange, was_waiting=was_waiting)

    def _give_up(self) -> None:
        request, self._request = self._request, None
        if request is None:
            self._leave()
        else:
            request.reject(RequestTimeout(""))
            self._begin(request)

    def _end_exchange(self, exchange: Exchange) -> None:
        self.exchange = None
        exchange.discard()
        self._enter(Phase.RESTING)
        if exchange.is_broken:
            self.close(drop=True)  # or it would look complete in HTTP/1.0
        elif exchange.resting is not None and self.is_last():
            self.close()  # without waiting for thousands of clients to hang up
        elif exchange.close_on_finish:
            self._leave()
        else:
            self._advance(was_waiting=True)

    def _leave(self) -> None:
        # Since when the phase before has lasted, this one has, too.
        self.phase, self._unread = Phase.LEAVING, b""
        try:
            self.socket.shutdown(SHUT_WR)
        except OSError:
            self._is_at_end = True
        if self._is_at_end:
            self._part()
        else:
            self._watch(EVENT_READ)

    def _part(self) -> None:
        # The system would go on buffering, unseen, the bytes that the client has not acknowledged.
        if self.is_heard_out or not self.outgoing.unacknowledged():
            self.close()
        else:
            self._watch(self.watched & (0 if self._is_at_end else EVENT_READ))
            self._check_pace(IDLE_SECONDS)

    def _check_pace(self, patience: float) -> None:
        if self.outgoing.stands_still_for(self.loop.now) > patience:
            self.close(drop=True)


class Outgoing:
    """The answers that are sent over a connection, one after the other."""

    def __init__(self, connected: socket, now: float) -> None:
        """Take the socket, and the time in monotonic seconds."""
        self._socket = connected
        self._unsent: deque[memoryview] = deque()
        self._position = 0  # in the file of a long answer
        self._sent = 0
        self._is_held_up = False  # the system has not taken all that there is
        self._taken = 0
        self._progress_at = now
        # When, in the last minute, how many bytes had been acknowledged.
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MARKS)

    def begin(self) -> None:
        self._position = 0
        self._marks.clear()

    def send(self, answer: Exchange, now: float) -> int:
        """Send as much as the client accepts now, at most a piece; return how many bytes.

        OSError is raised where the client is gone.
        """
        self._unsent.extend(map(memoryview, answer.pieces))
        answer.pieces = []
        self._progress_at = now
        sent = 0
        with suppress(BlockingIOError):
            if self._unsent:
                # The pieces are not joined: that would copy a page for each of its readers.
                is_cut = len(self._unsent[0]) > SENT_AT_ONCE
                next_ones = islice(self._unsent, 1 if is_cut else 2)
                pieces = [each[:SENT_AT_ONCE] for each in next_ones]
                sent = sockets.send_pieces(self._socket, pieces)
                self._forget(sent)
            elif answer.spool is not None:
                sent = answer.spool.send(self._socket, self._position)
                self._position += sent
        self._sent += sent
        self._is_held_up = self.has_more(answer.spool)
        return sent

    def has_more(self, spool: Spool | None) -> bool:
        """Return whether bytes are there to be sent."""
        return bool(self._unsent) or (spool is not None and self._position < spool.size)

    def unacknowledged(self) -> int:
        """Return how many bytes the system buffers that the client has not acknowledged."""
        return sockets.unacknowledged(self._socket, self._sent, is_held_up=self._is_held_up)

    def pace(self, now: float) -> float:
        """Return how many bytes a second the client took in its last minute."""
        if not self._marks or self._marks[0][0] == now:
            return math.inf
        began, taken = self._marks[0]
        return (self._sent - self.unacknowledged() - taken) / (now - began)

    def stands_still_for(self, now: float) -> float:
        """Record the client's progress; return for how many seconds there has been none.

        A client that has acknowledged everything waits for the server, which may be slow itself.
        """
        if self._taken == self._sent:  # as of the last look, since when nothing was sent
            self._marks.clear()
            return 0
        behind = self.unacknowledged()
        taken = self._sent - behind
        if taken != self._taken or not behind:
            self._taken, self._progress_at = taken, now
        if not self._marks or now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, taken))
        return now - self._progress_at

    def _forget(self, count: int) -> None:
        while self._unsent and count >= len(self._unsent[0]):
            count -= len(self._unsent.popleft())
        if count:
            self._unsent[0] = self._unsent[0][count:]


def giving_way(connections: Collection[Connection], count: int, now: float) -> list[Connection]:
    """Return the connections to close for new ones, never one that is being answered.

    First those that have rested longest, of the network with the most places; then the oldest
    incomplete requests; then the readers that took least in their last minute; then those that
    have only just come, and whose request may be on its way.
    """
    resting = sorted(
        (each for each in connections if each.phase in _RESTING or each.is_resting), key=_since
    )
    chosen = _of_the_most(connections, [each for each in resting if each.since < now - _NEW], count)
    chosen += sorted((each for each in connections if each.phase in ARRIVING), key=_since)
    sending = [each for each in connections if each.is_sending]
    chosen += sorted(sending, key=lambda each: each.outgoing.pace(now))
    if len(chosen) < count:
        chosen += _of_the_most(connections, [each for each in resting if each not in chosen], count)
    return chosen[:count]


def _of_the_most(
    connections: Collection[Connection], resting: list[Connection], count: int
) -> list[Connection]:
    """Return those of `resting`, oldest first, whose network has the most connections."""
    places = Counter(each.network for each in connections)
    queues: defaultdict[str, deque[Connection]] = defaultdict(deque)
    for each in resting:
        queues[each.network].append(each)
    chosen: list[Connection] = []
    while queues and len(chosen) < count:
        network = max(queues, key=lambda each: places[each])
        chosen.append(queues[network].popleft())
        places[network] -= 1
        if not queues[network]:
            del queues[network]
    return chosen


def make_room(connections: Collection[Connection], most: int, now: float) -> int:
    """Return how many bytes the system buffers for clients that have not acknowledged them.

    While that is more than allowed, the readers that took least in their last minute are closed.
    """
    buffered = {each: each.outgoing.unacknowledged() for each in connections}
    total = sum(buffered.values())
    for each in sorted(filter(buffered.get, buffered), key=lambda each: each.outgoing.pace(now)):
        if total <= most:
            break
        total -= buffered[each]
        with suppress(OSError):  # the client is gone
            each.close(drop=True)
    return total


def _waited(connected: socket) -> float:
    """Return for how many seconds the bytes received last have waited; 0 if that is unknown."""
    if _TCP_INFO is None:
        return 0
    try:
        facts = connected.getsockopt(IPPROTO_TCP, _TCP_INFO, _LAST_RECEIVED.stop)
    except OSError:  # the client is gone
        return 0
    seconds = int.from_bytes(facts[_LAST_RECEIVED], sys.byteorder) / 1000
    return seconds if seconds > _TICKS_SECONDS else 0
