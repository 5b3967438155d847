"""How long answers take: figures of many requests, and a read that is timed beside other load."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from tests.support.wire import Wire

# Between reads: they are no load of their own.
SECONDS_BETWEEN = 0.05


@dataclass(frozen=True, slots=True)
class Times:
    """How long answers took, in milliseconds."""

    median: float
    p99: float
    worst: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        """Sum up times in seconds; there must be one at least."""
        cuts = statistics.quantiles([*seconds, *seconds[:1]], n=100, method="inclusive")
        return cls(cuts[49] * 1000, cuts[98] * 1000, max(seconds) * 1000, len(seconds))

    def __str__(self) -> str:
        return (
            f"median {self.median:.1f} ms, p99 {self.p99:.1f} ms, "
            f"worst {self.worst:.1f} ms, of {self.count:,}"
        )


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a path, with a key, that is repeated."""

    address: tuple[str, int]
    path: str
    key: str

    def time(self, go_on: Callable[[int], bool]) -> tuple[Times, int]:
        """Read while `go_on`, called with the number of reads, says so.

        Reads are due at fixed times, and one that is late because the one before it took long
        counts from when it was due: else a standstill would be one long read among many. Returns
        the times, and how many reads were not answered 200.
        """
        wire = Wire(self.address, self.key)
        taken: list[float] = []
        unserved = 0
        due = time.monotonic()
        while not taken or go_on(len(taken)):
            due += SECONDS_BETWEEN
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic() if taken and taken[-1] < SECONDS_BETWEEN else due
            answer = wire.ask("GET", self.path)
            unserved += answer.status != HTTPStatus.OK
            taken.append(answer.ended - began)
        wire.close()
        return Times.of(taken), unserved
