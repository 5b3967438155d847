"""Kills the service under load, again and again, and compares the store with its clients' history.

The real server answers clients that place, ship and cancel at the same time, with and without
Idempotency-Keys. It is killed with SIGKILL at random moments, some of them while it starts, and
started again on the same folder; database and API must then agree with the answers that the clients
had (proofs.core.checks).
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orders.cli.output import progress
from proofs.core import command, history
from proofs.core.clients import Customer, Key
from proofs.core.history import History, Operation
from proofs.crash.inspector import DAY_QUOTA, MINUTE_QUOTA, Inspector, run_into_a_ban
from tests.support.service import Service, environment_for, launch

LARGE = ("--per-minute", str(MINUTE_QUOTA), "--per-day", str(DAY_QUOTA))
SMALL = ("--per-minute", "5", "--per-day", "1000")
# A start takes 0.7 s: some are cut off in it, some as they begin to serve.
START_SECONDS = 0.9
LOAD_SECONDS = 2.0
STARTS_AMONG_KILLS = 0.15
# In these the store itself is made.
FIRST_STARTS = 2
MOST_BANS = 8
# However slow the machine, some answers of 429 come within this.
BAN_SECONDS = 60
JUST_AFTER_SECONDS = 0.02
# The journal is written every second, and then a loaded machine has to get to it.
LONGEST_BEHIND = 1.5


@dataclass
class Report:
    """The figures of a run, and the complaints. `starts` and `behind` are in seconds."""

    kills: int = 0
    kills_of_starts: int = 0
    starts: list[float] = field(default_factory=list)
    history: Sequence[Operation] = ()
    orders: int = 0
    events: int = 0
    events_of_unknown: int = 0
    behind: float = 0.0
    bans: int = 0
    bans_seen: int = 0
    complaints: list[str] = field(default_factory=list)


class Crashes:
    """A store whose service is killed, with its customers and its inspector."""

    def __init__(self, instance: Path, kills: int, clients: int, seed: int) -> None:
        """Take the folder for the store, how often to kill, and how many clients there are."""
        self.report = Report()
        self._instance, self._kills, self._clients = instance, kills, clients
        self._seed, self._chance = seed, random.Random(seed)
        # Spread over the run, so that each is seen through some of the kills.
        self._bans = max(1, min(MOST_BANS, kills // 5))
        self._history = History()
        self._killed_at: float | None = None

    def run(self, longest_behind: float = LONGEST_BEHIND) -> Report:
        """Kill it until it was killed often enough, or until there is a complaint."""
        self._longest_behind = longest_behind
        with progress("kills", self._kills) as step:
            for _ in range(FIRST_STARTS):
                self._kill_a_start()
                step(1)
            self._open()
            try:
                while self.report.kills < self._kills and not self.report.complaints:
                    self._kill_somehow()
                    step(1)
                if not self.report.complaints:
                    self._end()
            except AssertionError as error:  # it does not start, or does not answer
                self.report.complaints.append(str(error))
        self._sum_up()
        return self.report

    def _open(self) -> None:
        service = self._start()
        self._key, reader, *self._small_keys = _issue_keys(service, self._bans)
        self._customers = [
            Customer(self._history, self._key, reader, f"{self._seed}-{number}")
            for number in range(self._clients)
        ]
        database = self._instance / "orders.db"
        self._inspector = Inspector(database, self._history, self._key, reader, self._seed)
        service.kill()

    def _kill_somehow(self) -> None:
        if self._chance.random() < STARTS_AMONG_KILLS:
            self._kill_a_start()
            return
        service = self._start()
        try:
            self.report.complaints += self._inspect(service)
            self._kill_under_load(service)
        finally:
            if service.process.poll() is None:
                service.kill()

    def _kill_a_start(self) -> None:
        process = launch(environment_for(self._instance))
        time.sleep(self._chance.uniform(0, START_SECONDS))
        process.kill()
        process.communicate()
        self.report.kills += 1
        self.report.kills_of_starts += 1

    def _kill_under_load(self, service: Service) -> None:
        with ThreadPoolExecutor(self._clients + 1) as pool:
            try:
                clients = self._load(pool, service.url)
            finally:  # or clients would go on for ever after a Ctrl-C
                self._killed_at = time.monotonic()
                service.kill()
        self._inspector.bans += [ban for each in clients if (ban := each.result())]
        self.report.kills += 1

    def _load(self, pool: ThreadPoolExecutor, url: str) -> list[Future[Any]]:
        """Let the clients begin, and wait for the moment to kill."""
        clients = [pool.submit(each.shop, url) for each in self._customers]
        if self._is_ban_due():
            banned = pool.submit(run_into_a_ban, url, self._history, self._small_keys.pop())
            futures.wait([banned], BAN_SECONDS)
            time.sleep(self._chance.uniform(0, JUST_AFTER_SECONDS))
            return [*clients, banned]
        time.sleep(self._chance.uniform(0, LOAD_SECONDS))
        return clients

    def _is_ban_due(self) -> bool:
        begun = self._bans - len(self._small_keys)
        return begun < self._bans and self.report.kills >= begun * self._kills / self._bans

    def _inspect(self, service: Service) -> list[str]:
        return self._inspector.inspect(service.url, self._killed_at, self._longest_behind)

    def _end(self) -> None:
        # Once more after the last kill, and after a stop, which loses nothing of the counters.
        for _ in range(2):
            service = self._start()
            self.report.complaints += self._inspect(service)
            self._killed_at = None
            if service.stop() != 0:
                self.report.complaints.append(f"it did not stop: {''.join(service.log)}")
        self.report.complaints += history.damage(self._instance / "orders.db")

    def _start(self) -> Service:
        began = time.perf_counter()
        service = Service(self._instance)
        self.report.starts.append(time.perf_counter() - began)
        return service

    def _sum_up(self) -> None:
        report, contents = self.report, self._inspector.contents
        known = {each.request_id for each in self._history.operations}
        report.history = self._history.operations
        report.orders, report.events = len(contents.orders), len(contents.events)
        report.events_of_unknown = sum(each.request_id not in known for each in contents.events)
        report.behind = self._inspector.behind
        report.bans, report.bans_seen = len(self._inspector.bans), self._inspector.bans_seen


def _issue_keys(service: Service, small: int) -> list[Key]:
    secrets = [service.issue("enterprise", *LARGE)]
    secrets.append(service.issue("enterprise", *LARGE, "--scope", "read"))
    secrets += [service.issue("enterprise", *SMALL) for _ in range(small)]
    rows = json.loads(service.command("keys", "list", "--json").stdout)
    ids = {row["prefix"]: row["id"] for row in rows}
    return [
        Key(secret, f"key:{key_id}")
        for secret in secrets
        for prefix, key_id in ids.items()
        if secret.startswith(prefix)
    ]


def summary(report: Report) -> str:
    """Return the figures in a few lines."""
    starts = report.starts
    facts = {
        "kills": f"{report.kills:,}, {report.kills_of_starts} of them while starting",
        "operations": counts(report.history),
        "store": f"{report.orders:,} orders, {report.events:,} events, "
        f"{report.events_of_unknown:,} of them of unknown operations",
        "starts": f"{statistics.median(starts):.2f} s (median), {max(starts):.2f} s at most",
        "counters": f"at most {report.behind:.2f} s behind",
        "bans": f"{report.bans}, found in force {report.bans_seen} times",
    }
    return command.table(facts)


def counts(operations: Sequence[Operation]) -> str:
    """Return how many operations were acknowledged, refused, and unknown."""
    unknown = sum(each.is_unknown for each in operations)
    done = sum(each.is_acknowledged for each in operations)
    refused = len(operations) - done - unknown
    return f"{len(operations):,}: {done:,} acknowledged, {refused:,} refused, {unknown:,} unknown"


def prove(folder: Path, *, kills: int = 300, clients: int = 8, seed: int = 1) -> list[str]:
    """Kill, compare, print the figures; return the complaints."""
    report = Crashes(folder / "instance", kills, clients, seed).run()
    print(summary(report))
    return report.complaints


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            kills="how often to kill the service",
            clients="clients at a time",
            seed="chooses the moments",
        )
    )
