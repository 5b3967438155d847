"""Clients that read slowly: beside them, a single order is read as fast as ever."""

from __future__ import annotations

import hashlib
import socket
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any, BinaryIO

from tests.proofs.core.command import violated
from tests.proofs.core.times import Read
from tests.support.process import peak_mib, resident_mib
from tests.support.service import Service

# Small, so that the server feels a slow reader.
_RECEIVE_BUFFER = 64 * 1024
_PIECE = 64 * 1024
_TIMEOUT_SECONDS = 60
_RETRY_SECONDS = 1
LIST = "/v1/store/orders"
READERS = 12
MAX_MIB = 300


@dataclass
class Answer:
    """An answer that came whole."""

    status: int
    length: int = 0
    digest: str = ""
    closes: bool = False


def connect(address: tuple[str, int], *, small_buffer: bool = False) -> socket.socket:
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
    """Read a path over so many connections at once, each at this pace; return the answers.

    Where too many long answers are being made, a reader asks again, as it is told to.
    """

    def read(_: int) -> Answer | None:
        with connect(address, small_buffer=True) as connection, connection.makefile("rb") as file:
            while True:
                connection.sendall(get(path, key))
                answer = read_answer(file, bytes_a_second)
                if answer is None or answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    return answer
                time.sleep(_RETRY_SECONDS)

    with ThreadPoolExecutor(readers) as pool:
        return list(pool.map(read, range(readers)))


def read_beside(
    service: Service, read: Read, reads: int, bytes_a_second: float, most_times_slower: float
) -> list[str]:
    """Time so many reads alone, and more beside readers of the list, each at this pace.

    Prints the figures; returns the violations.
    """
    pid = service.process.pid
    memory = resident_mib(pid)
    alone, unserved = read.time(lambda count: count < reads)
    with ProcessPoolExecutor(1) as pool:
        reading = pool.submit(read_slowly, service.address, LIST, read.key, READERS, bytes_a_second)
        beside, more = read.time(lambda _: not reading.done())
        most = peak_mib(pid)
        (expected,) = pool.submit(read_slowly, service.address, LIST, read.key, 1, None).result()
    if expected is None:
        raise AssertionError("the list breaks off even for a single reader")
    times_slower = max(beside.median / alone.median, beside.p99 / alone.p99)
    print(f"lists read slowly           {READERS} of {expected.length / 1e6:.1f} MB")
    print(f"a read alone                {alone}")
    print(f"beside them                 {beside}", end="")
    print(f"; {times_slower:.1f} times slower (at most {most_times_slower})")
    print(f"memory                      {memory:.0f} MiB, {most:.0f} at most (under {MAX_MIB})")
    broken = sum(each is None or each != expected for each in reading.result())
    return violated(
        {
            f"{unserved + more} reads were not served": unserved + more,
            f"{broken} lists did not come whole": broken,
            "the list was refused": expected.status != HTTPStatus.OK,
            f"reads were {times_slower:.1f} times slower": times_slower > most_times_slower,
            f"{most:.0f} MiB of memory": most > MAX_MIB,
        }
    )
