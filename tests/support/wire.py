"""A client that costs little: one connection that is kept, and answers as they are."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from dataclasses import dataclass
from typing import Any

from tests.support.machine import PATIENCE_SECONDS

TIMEOUT_SECONDS = 30
# Errors that clients of a stopped or killed service get.
GONE = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `ended` is when it was complete, in monotonic seconds."""

    status: int
    headers: Any
    body: bytes
    ended: float

    @property
    def code(self) -> str:
        """The code of a refusal."""
        return json.loads(self.body)["code"]

    def header(self, name: str) -> int:
        """Return a header that is a whole number."""
        return int(self.headers[name])

    def left(self) -> dict[str, int]:
        """Return the requests left in each window, as `RateLimit` reports them."""
        told = re.findall(r'"(\w+)";r=(\d+);', self.headers["RateLimit"])
        return {name: int(count) for name, count in told}


def exchange(address: tuple[str, int], *sent: bytes, half_close: bool = False) -> bytes:
    """Send bytes over a connection of their own; return all that comes until it is closed."""
    with socket.create_connection(address, PATIENCE_SECONDS) as connection:
        for each in sent:
            connection.sendall(each)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


class Wire:
    """A kept connection to the service, with or without a key. For one thread."""

    def __init__(self, address: tuple[str, int], key: str | None = None) -> None:
        """Take where the service listens, and the key to send with each request."""
        self._connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def connect(self) -> None:
        """Connect now, instead of with the first request."""
        self._connection.connect()

    def ask(
        self,
        method: str,
        path: str,
        order: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request, with an order as its body if one is given; return the answer.

        Raises:
            OSError, http.client.HTTPException: there was none.
        """
        sent = {**self._headers, **(headers or {})}
        body = None
        if order is not None:
            body, sent["Content-Type"] = json.dumps(order), "application/json"
        self._connection.request(method, path, body, sent)
        response = self._connection.getresponse()
        body = response.read()
        return Answer(response.status, response.headers, body, time.monotonic())

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
