"""One message to one endpoint: resolved once, checked, sent to the address that was checked.

`http.client` speaks HTTP over a connection that is made here, because nothing else keeps all that
is promised: no redirects, no proxies of the environment, one limit of time for everything from the
name to the last byte, however slowly it drips, and one of size. Each message has a connection of
its own: one that was kept could be closed by the other side just then, which looks like an endpoint
that is down.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orders.webhooks import addresses
from orders.webhooks.addresses import PrivateAddress, Resolver, Target

SECONDS = 15.0
MAX_ANSWER = 1024 * 1024
KEPT_CHARACTERS = 200
_CHUNK = 64 * 1024
# No character of UTF-8 has more bytes.
_KEPT_BYTES = 4 * KEPT_CHARACTERS
_LONGEST_FAULT = 200
# What comes of names, connections and answers that are not as they should be.
_FAULTS = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, or None and the fault that kept it away; the body's beginning."""

    status: int | None
    fault: str | None
    text: str
    seconds: float


class _TooLate(OSError):
    """The time for the whole exchange is over."""


class _TooLarge(OSError):
    """The answer has more bytes than are read of one."""


class _Deadline:
    """The moment by which an exchange must be over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise _TooLate
        return left


class _Wire:
    """A connection as `http.client` needs one, which keeps to a deadline and a number of bytes."""

    def __init__(self, connection: socket.socket, deadline: _Deadline, most: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left = most

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(self._deadline.left())
        self._connection.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self))

    def receive_into(self, buffer: memoryview) -> int:
        if self._left == 0:
            raise _TooLarge(f"its answer has more than {MAX_ANSWER} bytes")
        self._connection.settimeout(self._deadline.left())
        count = self._connection.recv_into(buffer[: self._left])
        self._left -= count
        return count

    def close(self) -> None:
        """Do nothing: the connection is closed by whoever opened it."""


class _Incoming(io.RawIOBase):
    """What comes in over a wire."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.receive_into(memoryview(buffer))


class Sender:
    """Sends messages, from any number of threads."""

    def __init__(
        self,
        *,
        seconds: float = SECONDS,
        resolve: Resolver = addresses.resolve,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """Take how long an exchange may last, who knows addresses, whose certificates count."""
        self._seconds = seconds
        self._resolve = resolve
        self._given = trusted
        self._open: set[socket.socket] = set()
        # Whether what came back last may be this side's own doing.
        self.is_cancelled = False

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return self._given or ssl.create_default_context()

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, allow_private: bool
    ) -> Answer:
        """Send a message; return what came back. Raises nothing, whatever the other side does."""
        began = time.monotonic()
        try:
            target = addresses.target_of(url, allow_private=allow_private)
            deadline = _Deadline(self._seconds)
            with self._connected(target, deadline, allow_private=allow_private) as connection:
                wire = _Wire(connection, deadline, MAX_ANSWER)
                status, text = _exchange(target, wire, headers, body)
        except (*_FAULTS, addresses.UnfitURL, PrivateAddress) as error:
            return Answer(None, self._in_words(error), "", time.monotonic() - began)
        return Answer(status, None, text, time.monotonic() - began)

    def cancel(self) -> None:
        """Break off what is being sent, and send nothing more."""
        self.is_cancelled = True
        for connection in list(self._open):
            with suppress(OSError):
                # Of the plain socket: TLS would first take its state from the thread that reads.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    @contextmanager
    def _connected(
        self, target: Target, deadline: _Deadline, *, allow_private: bool
    ) -> Iterator[socket.socket]:
        found = self._addresses(target, deadline)
        if not allow_private:
            addresses.check_all(target.host, found)
        with self._first_that_answers(found, target.port, deadline) as plain:
            if target.scheme == "http":
                yield plain
                return
            plain.settimeout(deadline.left())
            with (
                self._trusted.wrap_socket(
                    plain, server_hostname=target.host, do_handshake_on_connect=False
                ) as secured,
                self._cancellable(secured),
            ):
                secured.do_handshake()
                yield secured

    def _addresses(self, target: Target, deadline: _Deadline) -> list[str]:
        with suppress(ValueError):
            return [str(ipaddress.ip_address(target.host))]
        # The system's resolver takes its own time. Whoever waits for it need not.
        found: list[list[str] | OSError] = []
        asking = threading.Thread(target=self._ask, args=(target, found), daemon=True)
        asking.start()
        asking.join(deadline.left())
        if not found:
            raise _TooLate
        if isinstance(found[0], OSError):
            raise found[0]
        return found[0]

    def _ask(self, target: Target, found: list[list[str] | OSError]) -> None:
        try:
            found.append(self._resolve(target.host, target.port) or OSError("it has no address"))
        except (OSError, UnicodeError) as error:
            found.append(OSError(f"{target.host} can't be resolved: {_reason(error)}"))

    @contextmanager
    def _first_that_answers(
        self, found: list[str], port: int, deadline: _Deadline
    ) -> Iterator[socket.socket]:
        for count, address in enumerate(found, start=1):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with (
                socket.socket(family, socket.SOCK_STREAM) as connection,
                self._cancellable(connection),
            ):
                # Those behind it get their share of the time, too.
                connection.settimeout(deadline.left() / (len(found) - count + 1))
                try:
                    connection.connect((address, port))
                except OSError:
                    if count == len(found):
                        raise
                    continue
                # Or the body would wait for the head to be acknowledged.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield connection
                return

    @contextmanager
    def _cancellable(self, connection: socket.socket) -> Iterator[None]:
        self._open.add(connection)
        try:
            if self.is_cancelled:
                raise _TooLate
            yield
        finally:
            self._open.discard(connection)

    def _in_words(self, error: Exception) -> str:
        if isinstance(error, (_TooLate, TimeoutError)):
            return f"no answer within {self._seconds:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}"
        if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
            return f"its answer is not HTTP: {type(error).__name__}"
        return _reason(error)[:_LONGEST_FAULT]


def _exchange(
    target: Target, wire: _Wire, headers: Mapping[str, str], body: bytes
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = wire
    own = {
        "Host": target.authority,
        "Content-Type": "application/json",
        "User-Agent": "store-orders",
        "Connection": "close",
    }
    connection.request("POST", target.path, body, {**own, **headers})
    response = connection.getresponse()
    return response.status, _beginning(response)


def _beginning(response: http.client.HTTPResponse) -> str:
    # The status has arrived, and counts. The body is only for the log: what is cut off is left out.
    kept = b""
    with suppress(*_FAULTS):
        while chunk := response.read1(_CHUNK):
            kept = (kept + chunk)[:_KEPT_BYTES]
    # The one character that not every database keeps.
    return kept.decode("utf-8", "replace").replace("\0", "\ufffd")[:KEPT_CHARACTERS]


def _reason(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(reason).split())
