"""Measures how many requests a second a cluster answers, and which of its parts takes the time.

Run it as `python -m bench.cluster.speed`, on a machine that does nothing else. For each number of
processes, wrk asks through nginx (HTTPS, eight connections) for one order and for the list of 20
orders, and places orders. wrk, nginx, PostgreSQL, Redis and the processes share the machine: what
each of them takes of its processors is told beside. PostgreSQL waits for the disk at each commit,
as in real life.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.cluster.run import PLENTY
from bench.cluster.stage import Stage, staged
from bench.crash.connection import ORDERS
from bench.speed import wrk
from bench.speed.processes import cpu_seconds

STANDING = 20
_WARM_UP_SECONDS = 1.0
_PLACE = '{"petId": 7, "quantity": 2}'
_CREATED = 201


@dataclass(frozen=True, slots=True)
class Figure:
    """One round. `busy` is the share of one processor that each part took."""

    requests_per_second: float
    p99: float
    busy: dict[str, float]


def measure(stage: Stage, request: wrk.Request, seconds: float) -> Figure:
    """Ask for so long; nothing may be refused.

    Raises:
        AssertionError: something was.
    """
    before, began = _used(stage), time.monotonic()
    load = wrk.run(request, seconds)
    passed = time.monotonic() - began
    assert not load.refused + load.broken, load  # noqa: S101 - a harness' own check
    busy = {name: (used - before[name]) / passed for name, used in _used(stage).items()}
    return Figure(load.requests_per_second, load.p99, busy)


def requests(stage: Stage) -> dict[str, wrk.Request]:
    """Furnish the store; give what is asked of it."""
    (key,) = stage.issue(PLENTY)
    for number in range(STANDING):
        placed = stage.nginx.request("POST", ORDERS, key.secret, json={"petId": number + 1})
        assert placed.status == _CREATED, placed.data  # noqa: S101 - as above
    headers, url = {"Authorization": f"Bearer {key.secret}"}, stage.url + ORDERS
    return {
        "getOrder": wrk.Request("GET", f"{url}/7", headers),
        "listOrders": wrk.Request("GET", url, headers),
        "placeOrder": wrk.Request("POST", url, headers, _PLACE),
    }


def _used(stage: Stage) -> dict[str, float]:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "services": sum(cpu_seconds(each.process.pid) for each in stage.services),
        "postgresql": cpu_seconds(stage.postgres.process.pid),
        "redis": cpu_seconds(stage.redis.process.pid),
        "nginx": cpu_seconds(stage.nginx.process.pid),
        "wrk": ended.ru_utime + ended.ru_stime,
    }


def _tell(processes: int, name: str, rounds: list[Figure]) -> None:
    middle = statistics.median(each.requests_per_second for each in rounds)
    p99 = statistics.median(each.p99 for each in rounds)
    busy = ", ".join(
        f"{part} {statistics.median(each.busy[part] for each in rounds):.2f}"
        for part in rounds[0].busy
    )
    print(f"{processes}  {name:<11} {middle:7,.0f}/s  p99 {p99:5.1f} ms  {busy}", flush=True)


def main() -> int:
    """Measure, print, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="how many in turn")
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many is told")
    parser.add_argument("--seconds", type=float, default=5, help="of each round")
    given = parser.parse_args()
    print(f"{os.cpu_count()} processors; of one each part took, beside:")
    for processes in given.processes:
        with (
            tempfile.TemporaryDirectory() as folder,
            staged(Path(folder), processes, careless=False) as stage,
        ):
            for name, request in requests(stage).items():
                measure(stage, request, _WARM_UP_SECONDS)
                rounds = [measure(stage, request, given.seconds) for _ in range(given.rounds)]
                _tell(processes, name, rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
