"""Kills the service under load, again and again, and compares what is left with what it said.

Run it as `python -m proofs.crash`. It runs the real server, and clients that place, ship and cancel
at the same time, with and without Idempotency-Keys. It kills the server with SIGKILL at random
moments, also while it starts; starts it again; and compares database and API with what the clients
were told: see `checker`. Exits 1 where they do not agree.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orders.cli.progress import progress
from proofs.core.clients import Customer, run_into_a_ban
from proofs.core.history import Operation
from proofs.crash import history
from proofs.crash.connection import Books, Key
from proofs.crash.inspector import DAY_QUOTA, MINUTE_QUOTA, Inspector
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
# The journal is written a second after the last time, and then a loaded machine has to get to it.
LONGEST_BEHIND = 1.5
# Of the complaints: one fault may make thousands.
SHOWN = 20


@dataclass
class Report:
    """What was done and found. `starts` and `behind` are in seconds."""

    kills: int = 0
    kills_of_starts: int = 0
    starts: list[float] = field(default_factory=list)
    history: Sequence[Operation] = ()
    orders: int = 0
    events: int = 0
    events_unheard_of: int = 0
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
        self._books = Books()
        self._killed_at: float | None = None

    def run(self, longest_behind: float = LONGEST_BEHIND) -> Report:
        """Kill it as often as asked for, or until something is not as it should be."""
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
            except AssertionError as error:  # it does not start, or serves and does not answer
                self.report.complaints.append(str(error))
        self._sum_up()
        return self.report

    def _open(self) -> None:
        service = self._start()
        self._key, reader, *self._small_keys = _issue_keys(service, self._bans)
        self._customers = [
            Customer(self._books, self._key, reader, f"{self._seed}-{number}")
            for number in range(self._clients)
        ]
        database = self._instance / "orders.db"
        self._inspector = Inspector(database, self._books, self._key, reader, self._seed)
        service.kill()

    def _kill_somehow(self) -> None:
        if self._chance.random() < STARTS_AMONG_KILLS:
            self._kill_a_start()
            return
        service = self._start()
        try:
            self.report.complaints += self._look_over(service)
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
                working = self._set_to_work(pool, service.url)
            finally:  # or clients would go on for ever after a Ctrl-C
                self._killed_at = time.monotonic()
                service.kill()
        self._inspector.bans += [ban for each in working if (ban := each.result())]
        self.report.kills += 1

    def _set_to_work(self, pool: ThreadPoolExecutor, url: str) -> list[Future[Any]]:
        """Let the clients begin, and wait for the moment to kill; return what they end with."""
        working = [pool.submit(each.shop, url) for each in self._customers]
        if self._is_ban_due():
            key = self._small_keys.pop()
            banned = pool.submit(run_into_a_ban, url, self._books, key)
            futures.wait([banned], BAN_SECONDS)
            time.sleep(self._chance.uniform(0, JUST_AFTER_SECONDS))
            return [*working, banned]
        time.sleep(self._chance.uniform(0, LOAD_SECONDS))
        return working

    def _is_ban_due(self) -> bool:
        begun = self._bans - len(self._small_keys)
        return begun < self._bans and self.report.kills >= begun * self._kills / self._bans

    def _look_over(self, service: Service) -> list[str]:
        return self._inspector.look_over(service.url, self._killed_at, self._longest_behind)

    def _end(self) -> None:
        # Once more after the last kill, and after a stop, which loses nothing of the counters.
        for _ in range(2):
            service = self._start()
            self.report.complaints += self._look_over(service)
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
        found, contents = self.report, self._inspector.contents
        heard = {each.request_id for each in self._books.history}
        found.history = self._books.history
        found.orders, found.events = len(contents.orders), len(contents.events)
        found.events_unheard_of = sum(each.request_id not in heard for each in contents.events)
        found.behind = self._inspector.behind
        found.bans, found.bans_seen = len(self._inspector.bans), self._inspector.bans_seen


def _issue_keys(service: Service, small: int) -> list[Key]:
    secrets = [service.issue("enterprise", *LARGE)]
    secrets.append(service.issue("enterprise", *LARGE, "--scope", "read"))
    secrets += [service.issue("enterprise", *SMALL) for _ in range(small)]
    listed = json.loads(service.command("keys", "list", "--json").stdout)
    ids = {row["prefix"]: row["id"] for row in listed}
    return [
        Key(secret, f"key:{key_id}")
        for secret in secrets
        for prefix, key_id in ids.items()
        if secret.startswith(prefix)
    ]


def summary(report: Report) -> str:
    """Return what was done and found in a few lines."""
    asked = len(report.history)
    unknown = sum(each.is_unknown for each in report.history)
    done = sum(each.is_acknowledged for each in report.history)
    facts = {
        "kills": f"{report.kills:,}, {report.kills_of_starts} of them while starting",
        "operations": f"{asked:,}: {done:,} acknowledged, {asked - done - unknown:,} refused, "
        f"{unknown:,} unknown",
        "store": f"{report.orders:,} orders, {report.events:,} events, "
        f"{report.events_unheard_of:,} of them of unknown operations",
        "starts": f"{statistics.median(report.starts):.2f} s (median), "
        f"{max(report.starts):.2f} s at most",
        "counters": f"at most {report.behind:.2f} s behind",
        "bans": f"{report.bans}, found in force {report.bans_seen} times",
        "violations": f"{len(report.complaints):,}",
    }
    return "\n".join(f"{name:<12}{fact}" for name, fact in facts.items())


def main() -> int:
    """Kill, compare, print, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--clients", type=int, default=8, help="how many at a time (default: 8)")
    parser.add_argument("--seed", type=int, default=1, help="the same one chooses the same moments")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        instance = Path(folder) / "instance"
        report = Crashes(instance, given.kills, given.clients, given.seed).run()
    print(summary(report))
    for complaint in report.complaints[:SHOWN]:
        print(f"  {complaint}")
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
