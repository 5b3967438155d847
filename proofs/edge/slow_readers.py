"""Beside clients that read a long list slowly, a single order is read as fast as ever."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus

from proofs.core.times import Read, Times
from proofs.edge.slow_client import Answer, read_slowly
from tests.support.process import peak_mib, resident_mib
from tests.support.service import Service

LIST = "/v1/store/orders"


@dataclass
class SlowReaders:
    """The figures of reads beside slow readers."""

    idle: Times
    beside: Times
    unserved: int
    expected: Answer | None
    lists: list[Answer | None]
    memory: tuple[float, float]  # before, and the most there was, in MiB

    @property
    def times_slower(self) -> float:
        """How many times slower reads were beside the readers: median or p99, what is worse."""
        return max(self.beside.median / self.idle.median, self.beside.p99 / self.idle.p99)

    @property
    def faults(self) -> list[str]:
        """The violations, whatever the machine."""
        broken = sum(each is None or each != self.expected for each in self.lists)
        found = {
            f"{self.unserved} reads were not served": self.unserved,
            f"{broken} lists did not come whole": broken,
            "the list was refused": not self.expected or self.expected.status != HTTPStatus.OK,
        }
        return [fault for fault, is_so in found.items() if is_so]


def read_beside(
    service: Service, read: Read, reads: int, readers: int, bytes_a_second: float
) -> SlowReaders:
    """Time so many reads alone, and more beside readers of the list, each at this pace."""
    pid = service.process.pid
    memory = resident_mib(pid)
    idle, unserved = read.time(lambda count: count < reads)
    with ProcessPoolExecutor(1) as pool:
        reading = pool.submit(read_slowly, service.address, LIST, read.key, readers, bytes_a_second)
        beside, more = read.time(lambda _: not reading.done())
        most = peak_mib(pid)
        (expected,) = pool.submit(read_slowly, service.address, LIST, read.key, 1, None).result()
    return SlowReaders(idle, beside, unserved + more, expected, reading.result(), (memory, most))
