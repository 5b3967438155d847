"""Minutes of mixed load at three quarters of the possible rate, in which nothing may grow.

The rate that the service can answer is found first; three quarters of it are sent then, whatever
the answers take, and the service's memory, threads, descriptors and files are sampled every five
seconds. Bounds of growth and of slowing down are stated here.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from statistics import quantiles
from typing import Any

from orders.cli.output import progress
from tests.proofs.core import command
from tests.proofs.core.clients import ORDERS, Key
from tests.proofs.core.history import Kind
from tests.proofs.core.times import Times
from tests.proofs.soak import load
from tests.proofs.soak.load import Plan, Record
from tests.support import stores as store
from tests.support.process import descriptors, resident_mib, threads
from tests.support.service import Service, running
from tests.support.wire import Wire

SHARE = 0.75
CLIENTS = 8
STANDING = 200
PLENTY = 1_000_000_000
MIB = 2**20
# The bounds, from the end of the first minute on. Of memory, SQLite's page caches may go on filling
# while the database grows: 2 MiB for each of some ten connections.
MOST_GROWTH = 24 * MIB
MOST_OF_A_CHANGE = 1024
MOST_WAL = 64 * MIB
# Connections are opened when they are first needed: one to write, and one to read for each thread,
# of which two lead, four are workers, eight make long lists, three are beside them. Each has the
# file and its -wal; the -shm is shared.
MOST_OF_DATABASE = 2 * (1 + 2 + 4 + 8 + 3) + 1
MOST_COUNTERS = MIB
# The last minute may be this much slower than the first: so many times, and so many seconds more.
MOST_SLOWER = {50: (1.25, 0.001), 99: (2.0, 0.005)}
_CHANGES = {Kind.PLACE, Kind.CANCEL, Kind.SHIP}
_WARM_UP_SECONDS = 2


@dataclass(frozen=True)
class Sample:
    """The service's use at a moment: memory and files in bytes, descriptors by number.

    Those of orders.db and the files beside it are counted apart.
    """

    at: float
    memory: int
    threads: int
    descriptors: int
    of_database: int
    files: dict[str, int]


def prove(folder: Path, *, minutes: float = 10.0, seed: int = 1) -> list[str]:
    """Soak, print the figures; return the violations."""
    records, samples = soak(folder, minutes * 60, seed)
    first, last = ends_of(records)
    report(records, samples, first, last)
    return [
        *faults_of_answers(records),
        *faults_of_use(samples, records),
        *faults_of_time(first, last),
    ]


def soak(
    folder: Path, seconds: float, seed: int, find_seconds: float = 8, every: float = 5
) -> tuple[list[Record], list[Sample]]:
    """Load a service for so long; return the requests, and samples of what it used."""
    instance = folder / "instance"
    key, small = store.make(instance, [(PLENTY, PLENTY), (1, PLENTY)], free=PLENTY)
    spawned = multiprocessing.get_context("spawn")
    with running(instance) as service, ProcessPoolExecutor(1, mp_context=spawned) as pool:
        standing = _furnish(service, key)

        def send(phase: str, rate: float, seconds: float) -> Future[list[Record]]:
            fixed = (service.url, Key(key, "key"), Key(small, "small"), standing, CLIENTS)
            return pool.submit(load.run, Plan(*fixed, rate, seconds, f"{seed}-{phase}"))

        send("warm", 0, _WARM_UP_SECONDS).result()
        possible = len(send("find", 0, find_seconds).result()) / find_seconds
        print(f"rate       {possible:,.0f} requests/s possible, {possible * SHARE:,.0f} sent")
        soaking = send("soak", possible * SHARE, seconds)
        samples = _watch(soaking, service, instance, seconds, every)
        return soaking.result(), samples


def _furnish(service: Service, key: str) -> list[int]:
    """Place the orders that nobody changes; the last of them has shipped."""
    wire = Wire(service.address, key)
    for number in range(STANDING):
        wire.ask("POST", ORDERS, {"petId": number + 1})
    wire.ask("POST", f"{ORDERS}/{STANDING}/ship")
    wire.close()
    return list(range(1, STANDING + 1))


def _watch(
    soaking: Future[Any], service: Service, instance: Path, seconds: float, every: float
) -> list[Sample]:
    began = time.monotonic()
    samples = []
    with progress("soaking", int(seconds // every)) as done:
        while time.monotonic() - began < seconds - every and not soaking.done():
            time.sleep(every)
            samples.append(_sample(service, instance, time.monotonic() - began))
            done(1)
    return samples


def _sample(service: Service, instance: Path, at: float) -> Sample:
    pid = service.process.pid
    is_of_database = [str(instance / "orders.db") in name for name in descriptors(pid)]
    return Sample(
        at,
        round(resident_mib(pid) * MIB),
        threads(pid),
        is_of_database.count(False),
        is_of_database.count(True),
        {file.name: file.stat().st_size for file in instance.iterdir()},
    )


def ends_of(records: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Return the seconds that the requests of the first and of the last minute took, sorted."""
    end = records[-1].at
    span = min(60.0, end / 3)
    first = sorted(record.took for record in records if record.at < span)
    last = sorted(record.took for record in records if record.at > end - span)
    return first, last


def faults_of_answers(records: Sequence[Record]) -> list[str]:
    """Return the answers that were not to be expected, each kind once."""
    odd = {(each.what, each.status) for each in records if not each.is_expected}
    return [f"{what} was answered {status}" for what, status in sorted(odd)]


def faults_of_use(samples: Sequence[Sample], records: Sequence[Record]) -> list[str]:
    """Return what grew beyond its bound."""
    span = min(60.0, samples[-1].at / 3)
    begin, *rest = [sample for sample in samples if sample.at >= span]
    faults = [
        f"{name} went from {before:,} to {now:,} by second {sample.at:.0f}"
        for sample in rest
        for name, before, now, most in _pairs(begin, sample, _changes(records, begin, sample))
        if now > most
    ]
    if any(sample.files.keys() != begin.files.keys() for sample in rest):
        faults.append("files came or went in the instance folder")
    return faults


def _pairs(begin: Sample, now: Sample, changes: int) -> list[tuple[str, int, int, int]]:
    """Return what is bounded: its name, what it was, what it is, and what it may be at most."""
    database = begin.files["orders.db"] + MOST_OF_A_CHANGE * changes + MIB
    counters = begin.files["counters.db"] + MOST_COUNTERS
    return [
        ("memory", begin.memory, now.memory, begin.memory + MOST_GROWTH),
        ("the number of threads", begin.threads, now.threads, begin.threads),
        ("the number of descriptors", begin.descriptors, now.descriptors, begin.descriptors),
        ("the descriptors of orders.db", begin.of_database, now.of_database, MOST_OF_DATABASE),
        ("orders.db", begin.files["orders.db"], now.files["orders.db"], database),
        ("orders.db-wal", begin.files["orders.db-wal"], now.files["orders.db-wal"], MOST_WAL),
        ("counters.db", begin.files["counters.db"], now.files["counters.db"], counters),
        ("counters.db-wal", begin.files["counters.db-wal"], now.files["counters.db-wal"], MOST_WAL),
    ]


def _is_change(record: Record) -> bool:
    return record.what in _CHANGES and record.status < HTTPStatus.BAD_REQUEST


def _changes(records: Sequence[Record], begin: Sample, now: Sample) -> int:
    return sum(_is_change(each) and begin.at <= each.at <= now.at for each in records)


def faults_of_time(first: Sequence[float], last: Sequence[float]) -> list[str]:
    """Return where the last minute was slower than the first by more than its bound."""
    before, after = (quantiles(each, n=100) for each in (first, last))
    return [
        f"the {percent}th percentile went from {was * 1000:.1f} to {now * 1000:.1f} ms"
        for percent, (times, more) in MOST_SLOWER.items()
        for was, now in [(before[percent - 1], after[percent - 1])]
        if now > was * times + more
    ]


def report(
    records: Sequence[Record],
    samples: Sequence[Sample],
    first: Sequence[float],
    last: Sequence[float],
) -> None:
    """Print the figures."""
    changes = sum(map(_is_change, records))
    print(f"requests         {len(records):,}, {changes:,} of them changes")
    for name, seconds in (("first", first), ("last", last)):
        print(f"{name:16} {Times.of(seconds)}")
    for name in ("memory", "threads", "descriptors", "of_database"):
        values = [getattr(sample, name) for sample in samples]
        scale, unit = (MIB, " MiB") if name == "memory" else (1, "")
        first_, most, last_ = (
            f"{value / scale:.0f}{unit}" for value in (values[0], max(values), values[-1])
        )
        print(f"{name:16} {first_} at first, {most} at most, {last_} at last")
    for name in sorted(samples[-1].files):
        sizes = [sample.files.get(name, 0) / MIB for sample in samples]
        print(f"{name:16} {sizes[0]:.1f} MiB at first, {max(sizes):.1f} at most")


if __name__ == "__main__":
    sys.exit(command.run(prove, minutes="length of the run", seed="chooses the clients' requests"))
