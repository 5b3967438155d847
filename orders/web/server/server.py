"""The listening sockets, the main loop, and a stop that drops no request.

A request passes through waitress in two steps. The main loop reads bytes into the channel of a
connection, and hands the channel to a thread once a request is whole; the thread runs a task, which
calls the application and sends the answer. What the client does not accept at once stays in the
channel's buffers, and the loop sends it. Channels are in `connection`, tasks in `answers`.
"""

from __future__ import annotations

import errno
import logging
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from orders.settings import Settings
from orders.web.call import NoteAnswer
from orders.web.logs import log_queue
from orders.web.server.answers import MAX_BODY_BYTES, MAX_HEAD_BYTES
from orders.web.server.buffers import MAX_UNSENT_BYTES
from orders.web.server.connection import Channel
from orders.web.server.long_answers import LongAnswers

log = logging.getLogger(__name__)

IDLE_SECONDS = 60
STOP_SECONDS = 30
MAX_CONNECTIONS = 4_000
_SPARE_DESCRIPTORS = 200
_FEWEST_CONNECTIONS = 10


class Listener(TcpWSGIServer):
    """A listening socket."""

    channel_class = Channel
    head_seconds = 10.0
    body_seconds = 30.0
    uncounted_headers: Callable[[], list[tuple[str, str]]]
    note_answer: NoteAnswer
    # Waitress goes by the wall clock, and would do no maintenance for an hour after that is set
    # back by one. `maintain_in_time` does it.
    next_channel_cleanup = math.inf
    _next_maintenance = 0.0
    long_answers: LongAnswers

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Prepare to listen, with the arguments of waitress' server."""
        self._serving = threading.local()
        super().__init__(*args, **kwargs)

    @contextmanager
    def waking_for(self, channel: Channel) -> Iterator[None]:
        """While this thread serves a channel, wake the main loop only for what it has to do.

        Waitress wakes it after every request. But a thread sends its answer itself, and the loop
        goes on waiting for the next request meanwhile.
        """
        self._serving.channel = channel
        try:
            yield
        finally:
            self._serving.channel = None

    def pull_trigger(self) -> None:
        """Wake the main loop."""
        channel: Channel | None = getattr(self._serving, "channel", None)
        if channel is None or channel.needs_main_loop():
            super().pull_trigger()

    def maintain_in_time(self) -> None:
        """Do maintenance when it is due. For the main loop, before it waits.

        Not while it makes its list of what to wait for, as waitress does: a connection that is
        closed then is on it, and the next to be accepted may get its number.
        """
        now = time.monotonic()
        if now >= self._next_maintenance:
            self._next_maintenance = now + self.adj.cleanup_interval
            self.maintenance(now)

    def maintenance(self, now: float) -> None:
        """Close idle and stuck connections, enforce deadlines. Called once a second."""
        super().maintenance(now)
        for channel in list(self.active_channels.values()):
            channel.close_if_stuck(IDLE_SECONDS)
            channel.keep_deadlines(self.head_seconds, self.body_seconds)

    def accept_all_waiting(self) -> None:
        """Accept the connections that have been made, whose requests may already be here."""
        for _ in range(self.adj.backlog):
            known = len(self.active_channels)
            self.handle_accept()
            if len(self.active_channels) == known:
                return


class Server:
    """The listening sockets of an application, and the loop that serves them."""

    def __init__(
        self,
        app: Flask,
        settings: Settings,
        uncounted_headers: Callable[[], list[tuple[str, str]]],
        note_answer: NoteAnswer = log_queue.note_request,
    ) -> None:
        """Bind the sockets. `note_answer` is called for input rejected before it is a request.

        Raises:
            OSError: the address is taken, or not of this machine.
        """
        sockets = _bound_sockets(settings.host, settings.port)
        adjustments = _adjustments(settings, sockets, connections_within(_descriptors()))
        self._map: dict[int, Any] = {}
        self._dispatcher = ThreadedTaskDispatcher()
        self._dispatcher.set_thread_count(settings.threads)
        self._long_answers = LongAnswers(self._dispatcher, settings.threads)
        self._stopping = False
        self._listeners = [
            Listener(
                app,
                self._map,
                _sock=each,
                dispatcher=self._dispatcher,
                adj=adjustments,
                sockinfo=(each.family, each.type, each.proto, each.getsockname()),
                bind_socket=False,
            )
            for each in sockets
        ]
        for listener in self._listeners:
            listener.head_seconds = settings.head_seconds
            listener.body_seconds = settings.body_seconds
            listener.uncounted_headers = uncounted_headers
            listener.note_answer = note_answer
            listener.long_answers = self._long_answers

    @property
    def addresses(self) -> list[str]:
        """The addresses being listened on."""
        return [
            f"http://{_shown_host(listener.effective_host)}:{listener.effective_port}"
            for listener in self._listeners
        ]

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._channels())

    @property
    def waiting(self) -> int:
        """How many whole requests wait for a thread."""
        return len(self._dispatcher.queue)

    def stop_on_signals(self) -> None:
        """From now on, SIGTERM and Ctrl-C stop the server, even before it runs."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: self.stop())

    def run(self) -> None:
        """Serve until `stop`; then finish what has arrived, and return."""
        while not self._stopping:
            self._loop_once(1)
        self._finish()

    def stop(self) -> None:
        """Ask the loop to end. A second Ctrl-C kills the process."""
        if not self._stopping:  # later, what wakes the loop may be closed already
            self._stopping = True
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self._listeners[0].pull_trigger()

    def _finish(self) -> None:
        for listener in self._listeners:
            listener.accept_all_waiting()
            wasyncore.dispatcher.close(listener)
        ends = time.monotonic() + STOP_SECONDS
        while self._channels() and time.monotonic() < ends:
            for channel in self._channels():
                channel.stopping = True
                if channel.is_at_rest():
                    channel.handle_close()
            self._loop_once(0.05)
        for channel in self._channels():
            log.warning("The stop cut off the answer to %s.", channel.addr[0])
            channel.handle_close()
        self._long_answers.end()
        self._dispatcher.shutdown()
        for listener in self._listeners:
            listener.trigger.close()

    def _channels(self) -> list[Channel]:
        return [each for each in list(self._map.values()) if isinstance(each, Channel)]

    def _loop_once(self, timeout: float) -> None:
        for listener in self._listeners:
            listener.maintain_in_time()
        wasyncore.loop(timeout=timeout, map=self._map, use_poll=True, count=1)


def connections_within(descriptors: int) -> int:
    """Return how many connections there may be where so many files can be open."""
    # Without a free descriptor, a connection waiting to be accepted would keep the loop spinning.
    return max(_FEWEST_CONNECTIONS, min(MAX_CONNECTIONS, descriptors - _SPARE_DESCRIPTORS))


def _adjustments(settings: Settings, sockets: list[socket.socket], connections: int) -> Adjustments:
    adjustments = Adjustments(
        sockets=sockets,
        threads=settings.threads,
        # Waitress also rejects a body or a head of exactly this size.
        max_request_body_size=MAX_BODY_BYTES + 1,
        max_request_header_size=MAX_HEAD_BYTES + 1,
        channel_timeout=IDLE_SECONDS,
        cleanup_interval=1,
        connection_limit=connections,
        asyncore_use_poll=True,
        # While a request is answered, the loop already waits for the next.
        channel_request_lookahead=1,
        outbuf_high_watermark=MAX_UNSENT_BYTES,
        ident=None,
        log_socket_errors=False,
        # The application decides which proxies to trust.
        clear_untrusted_proxy_headers=False,
    )
    # Threads send their answers themselves, from the first byte on. Not an argument above, as
    # waitress warns that later versions will have no such threshold.
    adjustments.send_bytes = 1
    return adjustments


def _bound_sockets(host: str, port: int) -> list[socket.socket]:
    # Bound before waitress creates anything that would have to be closed again.
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (UnicodeError, socket.gaierror):
        raise OSError(errno.EADDRNOTAVAIL, "there is no such address") from None
    bound: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(resolved):
            bound.append(socket.create_server(address[:2], family=family))
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _descriptors() -> int:
    """Raise the limit of open files as far as needed and allowed; return the limit."""
    wanted = MAX_CONNECTIONS + _SPARE_DESCRIPTORS
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
