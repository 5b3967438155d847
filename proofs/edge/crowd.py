"""Beside a crowd that holds connections and sends next to nothing, others are served."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from proofs.core.times import Read, Times
from proofs.edge.slow_client import Dripped, connect, drip, get, read_answer
from tests.support.process import descriptors, resident_mib
from tests.support.service import Service

SETTLE_SECONDS = 10
HEAD = b"GET /v1/store/orders HTTP/1.1\r\nHost: bench\r\nX-Drip: "
BODY = b"POST /v1/store/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 100000\r\n\r\n"
_TIMED_OUT = 408


@dataclass
class Crowd:
    """The figures of reads beside a crowd."""

    alone: Times
    beside: Times
    unserved: int
    dripped: list[Dripped]
    idle_ends: int
    descriptors: tuple[int, int, int]  # before, during, after
    memory: tuple[float, float]  # before, after, in MiB

    @property
    def not_timed_out(self) -> int:
        """How many connections that dripped got no 408."""
        return sum(each.status != _TIMED_OUT for each in self.dripped)

    @property
    def latest(self) -> float:
        """After how many seconds the last of them was answered."""
        return max(each.seconds for each in self.dripped)

    @property
    def faults(self) -> list[str]:
        """The violations, whatever the machine."""
        before, during, after = self.descriptors
        found = {
            f"{self.unserved} reads were not served": self.unserved,
            f"{self.not_timed_out} dripping connections got no 408": self.not_timed_out,
            f"{self.idle_ends} idle connections were closed": self.idle_ends,
            "the crowd was not there": during < 2 * len(self.dripped),
            f"{after - before} descriptors were kept": after > before,
        }
        return [fault for fault, is_so in found.items() if is_so]


def stand_beside(
    service: Service, read: Read, reads: int, connections: int, deadline: int
) -> Crowd:
    """Time a read alone, and beside so many connections that drip and as many that are idle.

    `reads` are made alone. `deadline` is how many seconds the service waits for a head, or a body.
    """
    pid = service.process.pid
    alone, unserved = read.time(lambda count: count < reads)
    before, memory = len(descriptors(pid)), resident_mib(pid)
    with idle_connections(service, connections) as idle, ProcessPoolExecutor(1) as pool:
        # Half of them have sent a head, and drip a body.
        beginnings = [HEAD, BODY] * (connections // 2)
        dripping = pool.submit(drip, service.address, beginnings, 0.5, deadline + 20)
        wanted = len(idle) + len(beginnings)
        wait_until(lambda: len(descriptors(pid)) >= wanted or dripping.done())
        during = len(descriptors(pid))
        beside, more = read.time(lambda _: not dripping.done())
        idle_ends = sum(has_ended(each) for each in idle)
    wait_until(lambda: len(descriptors(pid)) <= before)
    return Crowd(
        alone,
        beside,
        unserved + more,
        dripping.result(),
        idle_ends,
        (before, during, len(descriptors(pid))),
        (memory, resident_mib(pid)),
    )


@contextmanager
def idle_connections(service: Service, count: int) -> Iterator[list[socket.socket]]:
    """Hold connections that send nothing; half of them have had an answer."""
    with ExitStack() as held:
        connections = [held.enter_context(connect(service.address)) for _ in range(count)]
        for each in connections[::2]:
            each.sendall(get("/healthz"))
            with each.makefile("rb") as file:
                read_answer(file)
        yield connections


def has_ended(connection: socket.socket) -> bool:
    """Return whether the service has closed a connection on which nothing is to be read."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = SETTLE_SECONDS) -> None:
    """Wait for a condition, at most so many seconds."""
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)
