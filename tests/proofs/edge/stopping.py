"""A stop under load answers every request that had arrived whole before the signal.

Bytes have arrived once the service's side of the connection has acknowledged them: those that a
client sent, less those that its system still keeps to send again.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from http import HTTPStatus
from itertools import chain
from typing import BinaryIO

from tests.proofs.core.command import violated
from tests.proofs.core.times import Read
from tests.proofs.edge.slow_readers import LIST, connect, get, read_answer
from tests.support.service import STOP_SECONDS, Service

LOAD_SECONDS = 2
ANSWERED = {HTTPStatus.OK, HTTPStatus.CREATED}


class Client(threading.Thread):
    """Sends the same request again and again over one connection, some before it reads."""

    def __init__(
        self,
        address: tuple[str, int],
        request: bytes,
        ahead: int = 1,
        bytes_a_second: float | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.request, self.ahead, self.bytes_a_second = request, ahead, bytes_a_second
        self.is_slow = bytes_a_second is not None
        self.connection = connect(address, small_buffer=self.is_slow)
        self.sent = 0
        self.answers = 0
        self.refused = 0
        self.must_close = False
        self._send_some()
        self.start()

    def run(self) -> None:
        """Send and read until the service hangs up."""
        with self.connection.makefile("rb") as file:
            with contextlib.suppress(ConnectionError):
                while all(self._read_one(file) for _ in range(self.ahead)) and self._send_some():
                    pass
            # Hung up on while sending; what was answered before that may still be there.
            while self._read_one(file):
                pass

    def arrived(self) -> int:
        """Return how many requests have reached the service's side whole."""
        sent = self.sent
        import fcntl  # these Windows lacks
        import termios

        kept = struct.unpack("i", fcntl.ioctl(self.connection, termios.TIOCOUTQ, bytes(4)))[0]
        return max(0, sent - kept) // len(self.request)

    def _send_some(self) -> bool:
        """Send the next requests; return whether the service still wants any."""
        if self.must_close:
            return False
        unsent = memoryview(self.request * self.ahead)
        while unsent:
            count = self.connection.send(unsent)
            self.sent += count
            unsent = unsent[count:]
        return True

    def _read_one(self, file: BinaryIO) -> bool:
        """Read an answer; return whether it came whole."""
        try:
            answer = read_answer(file, self.bytes_a_second)
        except OSError:
            return False
        if answer is None:
            return False
        self.answers += 1
        # Only so many long answers are made at a time.
        is_busy = self.is_slow and answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        self.refused += answer.status not in ANSWERED and not is_busy
        self.must_close |= answer.closes
        return True


def stop_under_load(service: Service, one: Read, bytes_a_second: float) -> list[str]:
    """Stop the service while clients of all kinds are at work; slow ones read at this pace.

    Prints the figures; returns the violations.
    """
    read, whole_list = get(one.path, one.key), get(LIST, one.key)
    kinds = {
        "reads, one after the other": (16, read, 1, None),
        "reads, 20 ahead": (6, read, 20, None),
        "reads, 400 ahead": (4, read, 400, None),
        "orders placed": (4, placing(one.key), 1, None),
        "lists read slowly": (8, whole_list, 1, bytes_a_second),
        "lists read slowly, one ahead": (2, whole_list, 2, bytes_a_second),
    }
    clients = {
        kind: [Client(service.address, *arguments) for _ in range(count)]
        for kind, (count, *arguments) in kinds.items()
    }
    time.sleep(LOAD_SECONDS)
    clients["reads of the last moment"] = [Client(service.address, read) for _ in range(50)]
    arrived = {kind: [each.arrived() for each in group] for kind, group in clients.items()}
    began = time.monotonic()
    service.process.terminate()
    for each in chain.from_iterable(clients.values()):
        each.join(2 * STOP_SECONDS)
        each.connection.close()
    # Not `stop`, which would send a second signal.
    status = service.wait()
    print(
        f"the stop                    took {time.monotonic() - began:.1f} s, exit status {status}"
    )
    cut_off = sum("cut off" in line or "Traceback" in line for line in service.log)
    violations = {f"exit status {status}": status, f"{cut_off} complaints in the log": cut_off}
    for kind, counts in arrived.items():
        violations |= _outcome(kind, clients[kind], counts)
    return violated(violations)


def _outcome(kind: str, clients: list[Client], arrived: list[int]) -> dict[str, object]:
    """Print what became of the requests of a kind that had arrived; return possible violations."""
    lost = sum(max(0, n - each.answers) for each, n in zip(clients, arrived, strict=True))
    refused = sum(each.refused for each in clients)
    print(f"arrived before the signal   {sum(arrived)} {kind}; dropped {lost}")
    return {
        f"{lost} dropped: {kind}": lost,
        f"nothing had arrived: {kind}": not sum(arrived),
        f"{refused} answers were refusals: {kind}": refused,
    }


def placing(key: str) -> bytes:
    return (
        f"POST {LIST} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        'Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{"petId": 7}'
    ).encode()
