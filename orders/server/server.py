"""The server as others see it: it binds, serves until a signal, and stops dropping no request."""

from __future__ import annotations

import errno
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from waitress.adjustments import Adjustments

from orders.server import sockets
from orders.server.answers import MOST_LONG, Listener, Policy
from orders.server.loop import Loop
from orders.server.parser import MAX_HEAD_BYTES

MAX_CONNECTIONS = 4_000
# The two that lead by turns, and one for each long answer.
EXTRA_THREADS = 2 + MOST_LONG
BACKLOG = 1024
# The system's buffer for bytes that clients send before they are read.
RECEIVE_BUFFER_BYTES = 64 * 1024
# One thread may be held up in an answer whose client is gone.
_LEAVE_SECONDS = 1
_SPARE_DESCRIPTORS = 200
_FEWEST_CONNECTIONS = 10


class ServerFailed(Exception):
    """The loop ended by an error of its own."""


class Server:
    """The listening sockets of an application, and the loop that serves them."""

    def __init__(
        self,
        app: Callable[..., Any],
        policy: Policy,
        address: tuple[str, int],
        threads: int,
        deadlines: tuple[float, float],
    ) -> None:
        """Bind the sockets of an address; OSError if it is taken, or not of this machine.

        `threads` answer what may wait. The deadlines of a head and of a body are in seconds.
        """
        adjustments = Adjustments(
            # The parser has a limit for each request.
            max_request_body_size=sys.maxsize,
            # Waitress also rejects a head of exactly this size.
            max_request_header_size=MAX_HEAD_BYTES + 1,
            ident=None,
            # The application decides which proxies to trust.
            clear_untrusted_proxy_headers=False,
        )
        self._listeners = [
            Listener(each, app, adjustments, *each.getsockname()[:2])
            for each in _bound_sockets(*address)
        ]
        wanted = MAX_CONNECTIONS + _SPARE_DESCRIPTORS
        self._loop = Loop(
            self._listeners,
            policy,
            threads,
            deadlines,
            connections_within(sockets.descriptors(wanted, _SPARE_DESCRIPTORS)),
        )

    @property
    def addresses(self) -> list[str]:
        return [
            f"http://{_shown_host(each.server_name)}:{each.effective_port}"
            for each in self._listeners
        ]

    @property
    def connections(self) -> int:
        return len(self._loop.connections)

    @property
    def waiting(self) -> int:
        """How many whole requests nobody has begun to answer."""
        return self._loop.waiting

    def stop_on_signals(self) -> None:
        """From now on, SIGTERM and Ctrl-C stop the server, even before it runs."""
        sockets.on_stop_signals(self.stop)

    def run(self) -> None:
        """Serve until `stop`, then finish what has arrived; ServerFailed if the loop fails."""
        lead = self._loop.lead
        threads = [
            threading.Thread(target=lead.run, name=f"loop-{number}", daemon=True)
            for number in range(2)
        ]
        for each in threads:
            each.start()
        # This thread only waits, and runs the handlers of signals.
        lead.wait()
        if lead.failure is not None:
            raise ServerFailed from lead.failure
        for each in threads:
            each.join(_LEAVE_SECONDS)
        self._loop.close()

    def stop(self) -> None:
        """Ask the loop to end. A second Ctrl-C kills the process."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._loop.stop()


def connections_within(descriptors: int) -> int:
    """Return how many connections there may be with this many file descriptors."""
    # Without a free descriptor, a connection waiting to be accepted would keep the loop spinning.
    return max(_FEWEST_CONNECTIONS, min(MAX_CONNECTIONS, descriptors - _SPARE_DESCRIPTORS))


def _bound_sockets(host: str, port: int) -> list[socket.socket]:
    # Bound before waitress creates anything that would have to be closed again.
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (UnicodeError, socket.gaierror):
        raise OSError(errno.EADDRNOTAVAIL, "there is no such address") from None
    bound: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(resolved):
            each = sockets.listen(family, address[:2], BACKLOG)
            bound.append(each)
            # Accepted sockets inherit these.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sockets.SEND_BUFFER_BYTES)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # HTTP has no urgent bytes: they are read like others, and rejected.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
