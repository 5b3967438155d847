"""Reads answers over one kept connection with as little work as can be, and times them.

Run as `python -m bench.speed.reader URL AUTHORIZATION`, it reads an answer over and over until it
is ended.
"""

from __future__ import annotations

import socket
import sys
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from bench.speed.wrk import Request

_TIMEOUT_SECONDS = 60
_PIECE = 1024 * 1024
# Longer bodies are read and forgotten: who measures memory and time should not keep 30 MB.
_KEPT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; names of headers are lower case. `seconds` and `first_byte` are from the asking.

    `body` is its beginning, where it is long.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    first_byte: float
    seconds: float


class Reader:
    """A connection of one client, made anew where the server closes it."""

    def __init__(self, url: str) -> None:
        """Connect to the server of this address."""
        where = urlsplit(url)
        self._host = where.netloc
        self._address = (where.hostname or "", where.port or 80)
        self._socket = self._connected()
        self._buffer = bytearray(_PIECE)

    def ask(self, request: Request) -> Answer:
        """Send a request, and read its answer to the end."""
        message = self._message(request)
        began = time.perf_counter()
        self._socket.sendall(message)
        head = self._more()
        first_byte = time.perf_counter() - began
        while b"\r\n\r\n" not in head:
            head += self._more()
        head, _, body = head.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        status = int(status_line.split(" ")[1])
        if headers.get("transfer-encoding") == "chunked":
            body = self._read_chunked(body)
        elif status not in {204, 304}:
            body = self._read_counted(body, int(headers["content-length"]))
        seconds = time.perf_counter() - began
        if headers.get("connection", "").lower() == "close":
            self.close()
            self._socket = self._connected()
        return Answer(status, headers, body, first_byte, seconds)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _connected(self) -> socket.socket:
        connected = socket.create_connection(self._address, _TIMEOUT_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _message(self, request: Request) -> bytes:
        where = urlsplit(request.url)
        target = f"{where.path}?{where.query}" if where.query else where.path
        headers = {"Host": self._host, **request.headers}
        if request.body:
            headers["Content-Length"] = str(len(request.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n{request.body}".encode()

    def _more(self) -> bytes:
        count = self._socket.recv_into(self._buffer)
        if count == 0:
            raise ConnectionError("the server hung up")
        return bytes(memoryview(self._buffer)[:count])

    def _read_counted(self, begun: bytes, length: int) -> bytes:
        done = len(begun)
        while done < length:
            piece = self._more()
            done += len(piece)
            if len(begun) < _KEPT_BYTES:
                begun += piece
        return begun

    def _read_chunked(self, begun: bytes) -> bytes:
        # What is at hand is looked at only at its end: a JSON text never holds the last chunk.
        end = begun
        while not end.endswith(b"\r\n0\r\n\r\n"):
            piece = self._more()
            end = (end + piece)[-7:]
            if len(begun) < _KEPT_BYTES:
                begun += piece
        return begun


def main(url: str, authorization: str) -> None:
    """Read over and over."""
    request = Request("GET", url, {"Authorization": authorization})
    reader = Reader(url)
    while True:
        reader.ask(request)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
