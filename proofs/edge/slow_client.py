"""Clients that take their time: connections that drip, answers that are read slowly.

They run in processes of their own, so that they do not slow down the one that measures.
"""

from __future__ import annotations

import hashlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any, BinaryIO

# Little, so that a reader that is slow is felt by the server.
_RECEIVE_BUFFER = 64 * 1024
_PIECE = 64 * 1024
_TIMEOUT_SECONDS = 60


@dataclass
class Answer:
    """An answer that came whole."""

    status: int
    length: int = 0
    digest: str = ""
    closes: bool = False


def connect(address: tuple[str, int], *, small_buffer: bool = False) -> socket.socket:
    """Open a connection."""
    connection = socket.socket()
    connection.settimeout(_TIMEOUT_SECONDS)
    if small_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    connection.connect(address)
    return connection


def get(path: str, key: str = "-") -> bytes:
    """Return a GET request as it goes over the network."""
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def read_answer(file: BinaryIO, bytes_a_second: float | None = None) -> Answer | None:
    """Read an answer, at this pace; None where it breaks off or there is none."""
    kept_open: Any = _KeptOpen(file)
    response = HTTPResponse(kept_open)
    length, digest = 0, hashlib.sha256()
    try:
        response.begin()
        while piece := response.read(_PIECE):
            length += len(piece)
            digest.update(piece)
            if bytes_a_second:
                time.sleep(len(piece) / bytes_a_second)
    except HTTPException:
        return None
    if response.length:  # as much is missing of its Content-Length
        return None
    return Answer(response.status, length, digest.hexdigest(), response.will_close)


class _KeptOpen:
    """A connection's file that stays open after an answer, for those that were requested ahead."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def makefile(self, _mode: str) -> _KeptOpen:
        return self

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def read_slowly(
    address: tuple[str, int], path: str, key: str, readers: int, bytes_a_second: float
) -> list[Answer | None]:
    """Read a path over so many connections at once, each at this pace; return the answers."""

    def read(_: int) -> Answer | None:
        with connect(address, small_buffer=True) as connection:
            connection.sendall(get(path, key))
            with connection.makefile("rb") as file:
                return read_answer(file, bytes_a_second)

    with ThreadPoolExecutor(readers) as pool:
        return list(pool.map(read, range(readers)))


@dataclass
class Dripped:
    """The end of a connection that dripped: its status, and after how long."""

    status: int | None
    seconds: float


def drip(
    address: tuple[str, int], beginnings: list[bytes], every: float, at_most: float
) -> list[Dripped]:
    """Begin a request on a connection for each of these, and then send a byte now and then.

    `every` and `at_most` are in seconds. Returns the end of each connection.
    """
    dripping = [_Dripping(connect(address), each) for each in beginnings]
    ends = time.monotonic() + at_most
    while time.monotonic() < ends and any(each.status is None for each in dripping):
        round_ends = time.monotonic() + every
        for each in dripping:
            each.go_on()
        time.sleep(max(0.0, round_ends - time.monotonic()))
    for each in dripping:
        each.connection.close()
    return [Dripped(each.status, each.seconds) for each in dripping]


class _Dripping:
    """A connection that drips until it is answered."""

    def __init__(self, connection: socket.socket, beginning: bytes) -> None:
        self.connection = connection
        self.connection.sendall(beginning)
        self.connection.setblocking(False)
        self.began = time.monotonic()
        self.status: int | None = None
        self.seconds = 0.0

    def go_on(self) -> None:
        """Send one more byte, unless there is an answer."""
        if self.status is not None:
            return
        try:
            answer = self.connection.recv(_PIECE)
        except BlockingIOError:
            self.connection.send(b"a")
        except ConnectionError:
            self._note(0)
        else:
            self._note(int(answer[9:12] or 0))

    def _note(self, status: int) -> None:
        self.status, self.seconds = status, time.monotonic() - self.began
