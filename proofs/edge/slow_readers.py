"""Beside clients that read a long list slowly, a single order is read as fast as ever."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from http import HTTPStatus

from proofs.core.command import violated
from proofs.core.times import Read
from proofs.edge.slow_client import read_slowly
from tests.support.process import peak_mib, resident_mib
from tests.support.service import Service

LIST = "/v1/store/orders"
READERS = 12
MAX_MIB = 300


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
