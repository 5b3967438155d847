"""Reads answers over one kept connection with little work, and times them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPMessage
from urllib.parse import urlsplit

from tests.bench.wrk import Request

_TIMEOUT_SECONDS = 60
_PIECE = 1024 * 1024
# Longer bodies are read and forgotten: measures of memory and time should not keep 30 MB.
_KEPT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and the beginning of its body. `seconds` and `first_byte` are from the request."""

    status: int
    headers: HTTPMessage
    body: bytes
    first_byte: float
    seconds: float


class Reader:
    """A connection of one client, made anew where the server closes it."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_SECONDS)
        self._connection.connect()
        self._buffer = memoryview(bytearray(_PIECE))

    def ask(self, request: Request) -> Answer:
        where = urlsplit(request.url)
        target = f"{where.path}?{where.query}" if where.query else where.path
        began = time.perf_counter()
        body = request.body.encode() or None
        self._connection.request(request.method, target, body, request.headers)
        response = self._connection.getresponse()
        first_byte = time.perf_counter() - began
        kept = b""
        while count := response.readinto(self._buffer):
            if len(kept) < _KEPT_BYTES:
                kept += self._buffer[:count]
        seconds = time.perf_counter() - began
        return Answer(response.status, response.headers, kept, first_byte, seconds)

    def close(self) -> None:
        self._connection.close()
