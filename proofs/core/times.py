"""What is measured of a running service: times of answers, memory, descriptors."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

# From read to read: they are no load of their own.
SECONDS_BETWEEN = 0.05


@dataclass(frozen=True, slots=True)
class Times:
    """How long answers took, in milliseconds."""

    median: float
    p99: float
    worst: float
    count: int

    @classmethod
    def of(cls, seconds: list[float]) -> Times:
        """Sum up times, which are in seconds; at least two of them."""
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        return cls(cuts[49] * 1000, cuts[98] * 1000, max(seconds) * 1000, len(seconds))

    def __str__(self) -> str:
        """Say them in a line."""
        return (
            f"median {self.median:.1f} ms, p99 {self.p99:.1f} ms, "
            f"worst {self.worst:.1f} ms, of {self.count}"
        )


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a path, with a key, that is asked again and again."""

    address: tuple[str, int]
    path: str
    key: str

    def time(self, go_on: Callable[[int], bool]) -> tuple[Times, int]:
        """Read over a kept connection while `go_on`, given the number of reads, says so.

        Reads are due at fixed times, and one that is late because the one before it took long
        counts from when it was due: else a standstill would be one long read among many. Gives
        the times, and how many reads were not answered 200.
        """
        connection = HTTPConnection(*self.address, timeout=60)
        taken: list[float] = []
        unserved = 0
        due = time.perf_counter()
        while len(taken) < 2 or go_on(len(taken)):
            due += SECONDS_BETWEEN
            time.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter() if taken and taken[-1] < SECONDS_BETWEEN else due
            unserved += self._once(connection) != HTTPStatus.OK
            taken.append(time.perf_counter() - began)
        connection.close()
        return Times.of(taken), unserved

    def _once(self, connection: HTTPConnection) -> int:
        connection.request("GET", self.path, headers={"Authorization": f"Bearer {self.key}"})
        response = connection.getresponse()
        response.read()
        return response.status


def resident_mib(pid: int, *, at_most: bool = False) -> float:
    """Return a process' resident memory in MiB: as it is now, or the most that it was (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    name = "VmHWM" if at_most else "VmRSS"
    return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process has open (Linux)."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
