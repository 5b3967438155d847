"""One message to one endpoint: made, signed and sent; the meaning of its answer, and when to retry.

An event's body is made from its row, which never changes, so each attempt sends the same bytes. The
database makes the order's JSON, the same as in the event feed. Signatures are those of Standard
Webhooks 1.0:
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

`http.client` speaks HTTP over a connection opened here, because no client library has all of this:
no redirects, no proxies from the environment, a size limit, and one deadline for everything from
resolving the name to the last byte, however slowly it drips. Each message has its own connection:
the other side may close a reused one at any moment, which would look like an endpoint that is down.
"""

from __future__ import annotations

import base64
import http.client
import io
import ipaddress
import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cached_property
from http import HTTPStatus
from random import Random
from typing import Any

from orders import apikeys
from orders.domain import format_instant
from orders.strictjson import to_json
from orders.webhooks import addresses
from orders.webhooks.addresses import InvalidURL, PrivateAddress, Resolver, Target
from orders.webhooks.deliveries import Event

# Standard Webhooks allows 24 to 64.
_SECRET_BYTES = 32
# How long the previous secret signs, too, after a rotation.
GRACE = timedelta(hours=24)
PING = "ping"

# Seconds after each failed attempt. The attempt after the last delay is the last one.
DELAYS = (5, 30, 120, 600, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
MAX_TRIES = len(DELAYS) + 1
# Up to a tenth is added, so that messages that failed together are not retried together.
JITTER = 0.1
# The longest `Retry-After` that is heeded, in seconds.
MAX_RETRY_AFTER = 3_600
# A refused event blocks later ones until this attempt.
TRIES_IN_ORDER = 2
# The reason of the pause after 410.
GONE = "it answered 410 Gone"

# The statuses whose `Retry-After` is heeded (RFC 9110, section 10.2.3; RFC 6585, section 4).
_HEEDED = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_DIGITS = re.compile("[0-9]{1,9}")
_DOWN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})

# For everything from resolving the name to the last byte of the answer.
SECONDS = 15.0
MAX_ANSWER = 1024 * 1024
_LOGGED_CHARACTERS = 200
# A UTF-8 character has at most four bytes.
_LOGGED_BYTES = 4 * _LOGGED_CHARACTERS
_CHUNK = 64 * 1024
_READ_SECONDS = 0.5
# Raised for bad names, broken connections and responses that are not HTTP.
_FAULTS = (OSError, http.client.HTTPException, ValueError)


def generate_secret() -> str:
    """Return a new secret from the operating system's random source."""
    return apikeys.WEBHOOK_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


@dataclass(frozen=True, slots=True)
class Message:
    """A message; its `id` is the same at each attempt."""

    id: str
    body: str

    @classmethod
    def of_event(cls, event: Event, store_id: str) -> Message:
        facts = {"eventId": event.id, "actor": event.actor, "requestId": event.request_id}
        body = _body(event.type, event.at, event.order, facts)
        return cls(f"evt_{store_id}_{event.id}", body)

    @classmethod
    def ping(cls, endpoint_id: int, store_id: str, now: datetime) -> Message:
        """Return a test message, which is about no event."""
        message_id = f"ping_{store_id}_{secrets.token_hex(8)}"
        return cls(message_id, _body(PING, now, f'{{"webhook":{endpoint_id}}}'))

    def signed_headers(self, at: datetime, with_secrets: Iterable[str]) -> dict[str, str]:
        """Return the three webhook headers of an attempt, signed with each of the secrets."""
        # Imported only when needed, for a fast start.
        from standardwebhooks import Webhook

        signatures = [Webhook(secret).sign(self.id, at, self.body) for secret in with_secrets]
        return {
            "webhook-id": self.id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": " ".join(signatures),
        }


def _body(kind: str, at: datetime, data: str, facts: Mapping[str, Any] | None = None) -> str:
    head = to_json({"type": kind, "timestamp": format_instant(at), **(facts or {})})
    return f'{head[:-1]},"data":{data}}}'


class Outcome(StrEnum):
    """The outcome of an attempt.

    `down`: the endpoint can't receive anything at the moment. `refused`: it is up, but does not
    accept this event. `gone`: it wants no more events.
    """

    DELIVERED = "delivered"
    DOWN = "down"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: its status and the start of its body; or, without a status, the fault.

    `retry_after` is the header of that name. Neither text nor fault has a key in it.
    """

    status: int | None
    fault: str | None
    text: str
    seconds: float
    retry_after: str | None = None

    @property
    def outcome(self) -> Outcome:
        """The meaning of the status.

        Redirects are not followed. They count as down, because they concern all events.
        """
        if self.status is None or self.status in _DOWN:
            return Outcome.DOWN
        if self.status == HTTPStatus.GONE:
            return Outcome.GONE
        if HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES:
            return Outcome.DELIVERED
        if HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return Outcome.REFUSED
        return Outcome.DOWN

    @property
    def cause(self) -> str:
        return self.fault or f"status {self.status}"

    def retry_delay(self, tries: int, now: datetime, chance: Random) -> timedelta:
        """Return the delay after `tries` failed attempts, of which there are under `MAX_TRIES`.

        It is no shorter than this answer, the last of them, asks for.
        """
        seconds = max(DELAYS[tries - 1], self._seconds_asked(now))
        return timedelta(seconds=seconds * (1 + chance.uniform(0, JITTER)))

    def _seconds_asked(self, now: datetime) -> float:
        if self.status not in _HEEDED or self.retry_after is None:
            return 0.0
        if _DIGITS.fullmatch(self.retry_after):
            return min(float(self.retry_after), MAX_RETRY_AFTER)
        try:
            left = (parsedate_to_datetime(self.retry_after) - now).total_seconds()
        except (TypeError, ValueError, OverflowError):  # no date, or one without a zone
            return 0.0
        return min(left, MAX_RETRY_AFTER)


def longest_delay(tries: int) -> float:
    """Return the maximum of the delay after `tries` failed attempts, in seconds."""
    return max(DELAYS[min(max(tries, 1), len(DELAYS)) - 1], MAX_RETRY_AFTER) * (1 + JITTER)


class _TooLate(OSError):
    """The deadline has passed."""


class _TooLarge(OSError):
    """The answer is larger than `MAX_ANSWER`."""


class _Deadline:
    def __init__(self, seconds: float, is_cancelled: Callable[[], bool]) -> None:
        self._end = time.monotonic() + seconds
        self._is_cancelled = is_cancelled

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0 or self._is_cancelled():
            raise _TooLate
        return left


class _Wire(io.RawIOBase):
    """A socket for `http.client`, with a deadline and a limit of bytes to read."""

    def __init__(self, connection: socket.socket, deadline: _Deadline, most: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left = most

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(self._deadline.left())
        self._connection.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left == 0:
            raise _TooLarge(f"its answer has more than {MAX_ANSWER} bytes")
        count = self._received(memoryview(buffer)[: self._left])
        self._left -= count
        return count

    def _received(self, room: memoryview) -> int:
        # Windows wakes no thread whose socket another has shut down, so it looks up now and then.
        while True:
            self._connection.settimeout(min(self._deadline.left(), _READ_SECONDS))
            with suppress(TimeoutError):
                return self._connection.recv_into(room)

    def close(self) -> None:
        """Do nothing: `http.client` closes this before the body is read; `Sender` does later."""


class Sender:
    """Sends messages, from any number of threads."""

    def __init__(
        self,
        *,
        seconds: float = SECONDS,
        resolve: Resolver = addresses.resolve,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """Set the time limit; tests replace the resolver and the trusted certificates."""
        self._seconds = seconds
        self._resolve = resolve
        self._custom_trust = trusted
        self._open: set[socket.socket] = set()
        # If so, a failure may be this side's own doing.
        self.is_cancelled = False

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return self._custom_trust or ssl.create_default_context()

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, allow_private: bool
    ) -> Response:
        """Send a message; return the answer. Raises nothing, whatever the other side does."""
        began = time.monotonic()
        try:
            target = addresses.parse_url(url, allow_private=allow_private)
            deadline = _Deadline(self._seconds, lambda: self.is_cancelled)
            with self._connected(target, deadline, allow_private=allow_private) as connection:
                wire = _Wire(connection, deadline, MAX_ANSWER)
                status, text, retry_after = _exchange(target, wire, headers, body)
        except (*_FAULTS, InvalidURL, PrivateAddress) as error:
            fault = apikeys.redact(_describe(error, self._seconds))
            return Response(None, fault, "", time.monotonic() - began)
        return Response(status, None, apikeys.redact(text), time.monotonic() - began, retry_after)

    def cancel(self) -> None:
        """Abort messages on their way, and send no more."""
        self.is_cancelled = True
        for connection in list(self._open):
            with suppress(OSError):
                # The plain socket's: TLS would first take its state from the reading thread.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    @contextmanager
    def _connected(
        self, target: Target, deadline: _Deadline, *, allow_private: bool
    ) -> Iterator[socket.socket]:
        candidates = self._addresses(target, deadline)
        if not candidates:
            raise OSError("it has no address")
        if not allow_private:
            addresses.check_all(target.host, candidates)
        with self._connect(candidates, target.port, deadline) as plain:
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
        seconds = deadline.left()
        return addresses.resolve_within(target.host, target.port, seconds, self._resolve)

    @contextmanager
    def _connect(
        self, candidates: list[str], port: int, deadline: _Deadline
    ) -> Iterator[socket.socket]:
        for count, address in enumerate(candidates, start=1):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with (
                socket.socket(family, socket.SOCK_STREAM) as connection,
                self._cancellable(connection),
            ):
                # Each address gets a share of the time that is left.
                connection.settimeout(deadline.left() / (len(candidates) - count + 1))
                try:
                    connection.connect((address, port))
                except OSError:
                    if count == len(candidates):
                        raise
                    continue
                # Otherwise the body would wait until the head is acknowledged.
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


def _exchange(
    target: Target, wire: _Wire, headers: Mapping[str, str], body: bytes
) -> tuple[int, str, str | None]:
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = wire
    own = {
        "Host": target.authority,
        "Content-Type": "application/json",
        "User-Agent": "store-orders",
        "Connection": "close",
    }
    connection.request("POST", target.path, body, {**own, **headers})
    response = _final(connection.getresponse())
    return response.status, _beginning(response), response.getheader("Retry-After")


def _final(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    # Interim answers may precede the final one (RFC 9110, section 15.2): `http.client` passes over
    # 100 only. After 101 no other follows.
    while response.status < HTTPStatus.OK and response.status != HTTPStatus.SWITCHING_PROTOCOLS:
        response.headers = None  # type: ignore[assignment] # nothing of this response was read yet
        response.begin()
    return response


def _beginning(response: http.client.HTTPResponse) -> str:
    # The status counts. The body is only logged, so one that breaks off is logged as far as read.
    logged = b""
    with suppress(*_FAULTS):
        while chunk := response.read1(_CHUNK):
            logged = (logged + chunk)[:_LOGGED_BYTES]
    # PostgreSQL stores no NUL.
    return logged.decode("utf-8", "replace").replace("\0", "\ufffd")[:_LOGGED_CHARACTERS]


def _describe(error: Exception, seconds: float) -> str:
    if isinstance(error, (_TooLate, TimeoutError)):
        return f"no answer within {seconds:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return f"its answer is not HTTP: {type(error).__name__}"
    return addresses.reason_of(error)[:_LOGGED_CHARACTERS]
