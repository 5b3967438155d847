"""Measures how many requests a second a cluster answers, and which of its parts takes the time.

Run it as `python -m tests.proofs.cluster.speed`, on a machine that does nothing else. wrk asks
through nginx (HTTPS, eight connections) for one order and for the list of 20 orders, and places
orders; before one process, before two, and so on, in turn, round after round. wrk, nginx,
PostgreSQL, Redis and the processes share the machine: what each of them takes of its processors
for a request is printed, too, in milliseconds. PostgreSQL waits for the disk at each commit, as in
real life.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.speed import wrk
from tests.proofs.cluster.run import PLENTY
from tests.proofs.cluster.stage import Stage, staged
from tests.proofs.core import command
from tests.proofs.core.clients import ORDERS, Key
from tests.support.nginx import Nginx
from tests.support.process import cpu_seconds

STANDING = 20
_WARM_UP_SECONDS = 1.0
_PLACE = '{"petId": 7, "quantity": 2}'
_CREATED = 201


@dataclass(frozen=True, slots=True)
class Figure:
    """One round. `cost` is the processor time of each part for a request, in milliseconds."""

    requests_per_second: float
    p99: float
    cost: dict[str, float]


# By how many processes, and the operation.
Rounds = dict[tuple[int, str], list[Figure]]


def measure(stage: Stage, request: wrk.Request, seconds: float) -> Figure:
    """Ask for so long; nothing may be refused.

    Raises:
        AssertionError: something was.
    """
    before = _used(stage)
    load = wrk.run(request, seconds)
    assert not load.refused + load.broken, load  # noqa: S101 - a harness' own check
    used = {name: each - before[name] for name, each in _used(stage).items()}
    cost = {name: each / load.requests * 1_000 for name, each in used.items()}
    return Figure(load.requests_per_second, load.p99, cost)


def measure_all(stage: Stage, processes: Sequence[int], rounds: int, seconds: float) -> Rounds:
    """Measure everything in turn, round after round; the first round only warms up."""
    (key,) = stage.issue(PLENTY)
    _furnish(stage, key)
    fronts = {count: _requests(stage.front(count), key) for count in processes}
    found: Rounds = defaultdict(list)
    # Lists would grow with what is placed.
    for names in (("getOrder", "listOrders"), ("placeOrder",)):
        for number in range(rounds + 1):
            for count in processes:
                for name in names:
                    length = seconds if number else _WARM_UP_SECONDS
                    figure = measure(stage, fronts[count][name], length)
                    if number:
                        found[count, name].append(figure)
    return found


def _furnish(stage: Stage, key: Key) -> None:
    for number in range(STANDING):
        placed = stage.nginx.request("POST", ORDERS, key.secret, json={"petId": number + 1})
        assert placed.status == _CREATED, placed.data  # noqa: S101 - as above


def _requests(front: Nginx, key: Key) -> dict[str, wrk.Request]:
    headers, url = {"Authorization": f"Bearer {key.secret}"}, front.url + ORDERS
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
        "nginx": sum(cpu_seconds(each.process.pid) for each in stage.fronts),
        "wrk": ended.ru_utime + ended.ru_stime,
    }


def line(processes: int, name: str, rounds: Sequence[Figure]) -> str:
    """Return the medians of rounds."""
    rate = statistics.median(each.requests_per_second for each in rounds)
    p99 = statistics.median(each.p99 for each in rounds)
    cost = {part: statistics.median(each.cost[part] for each in rounds) for part in rounds[0].cost}
    parts = ", ".join(f"{part} {each:.2f}" for part, each in cost.items())
    return (
        f"{processes}  {name:<11} {rate:6,.0f}/s  p99 {p99:5.1f} ms  "
        f"{sum(cost.values()):.2f} ms each: {parts}"
    )


def prove(folder: Path, *, processes: int = 2, rounds: int = 5, seconds: float = 4.0) -> list[str]:
    """Measure and print; there is nothing to violate."""
    with staged(folder, processes, careless=False) as stage:
        found = measure_all(stage, range(1, processes + 1), rounds, seconds)
    print(f"{os.cpu_count()} processors")
    for (count, name), figures in found.items():
        print(line(count, name, figures))
    return []


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            processes="how many there are at most: one, two, and so on are measured in turn",
            rounds="the median of so many is printed",
            seconds="length of each round",
        )
    )
