"""Beside a crowd that holds connections and sends next to nothing, others are served."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager

from proofs.core.command import violated
from proofs.core.times import Read
from proofs.edge.slow_client import Dripped, connect, drip, get, read_answer
from tests.support.process import descriptors, resident_mib
from tests.support.service import Service

SETTLE_SECONDS = 10
HEAD = b"GET /v1/store/orders HTTP/1.1\r\nHost: bench\r\nX-Drip: "
BODY = b"POST /v1/store/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 100000\r\n\r\n"
# Of memory, each pair of connections may leave behind so much.
MOST_KEPT_MIB = 0.16
_TIMED_OUT = 408


def stand_beside(
    service: Service, read: Read, reads: int, connections: int, deadline: int
) -> list[str]:
    """Time a read alone, and beside so many connections that drip and as many that are idle.

    `reads` are made alone. `deadline` is how many seconds the service waits for a head, or a body.
    Prints the figures; returns the violations.
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
    after, kept = len(descriptors(pid)), resident_mib(pid) - memory
    print(f"a read alone                {alone}")
    print(f"beside the crowd            {beside}")
    print(f"descriptors                 {before}, {during} beside the crowd, {after} after it")
    print(f"memory                      {memory:.0f} MiB, {memory + kept:.0f} after it")
    return _without_408(dripping.result()) + violated(
        {
            f"{unserved + more} reads were not served": unserved + more,
            f"{idle_ends} idle connections were closed": idle_ends,
            "the crowd was not there": during < 2 * len(beginnings),
            f"{after - before} descriptors were kept": after > before,
            f"{kept:.0f} MiB of memory were kept": kept > MOST_KEPT_MIB * connections,
        }
    )


def _without_408(dripped: list[Dripped]) -> list[str]:
    seconds = [each.seconds for each in dripped if each.status == _TIMED_OUT]
    print(f"dripping, answered 408      {len(seconds)} of {len(dripped)}", end="")
    print(f", the last after {max(seconds, default=0):.1f} s")
    missing = len(dripped) - len(seconds)
    return violated({f"{missing} dripping connections got no 408": missing})


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
