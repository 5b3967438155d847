"""Kills the service under load, again and again, and compares the store with its clients' history.

The real server answers clients that place, ship and cancel at the same time, with and without
Idempotency-Keys; others follow the stream of events through all of it. It is killed with SIGKILL
at random moments, some of them while it starts, and started again on the same folder; database and
API must then agree with the answers that the clients had (proofs.core.checks), and each follower
must have seen each event once, in order.
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
from pathlib import Path
from typing import Any

from orders.cli.common import progress
from tests.proofs.core import command, history
from tests.proofs.core.clients import Customer, Key
from tests.proofs.core.followers import Follower, unlike_the_log
from tests.proofs.core.history import History, Operation
from tests.proofs.crash.inspector import DAY_QUOTA, MINUTE_QUOTA, Inspector, run_into_a_ban
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
FOLLOWERS = 5
# However slow the machine, a follower is back within this.
FOLLOWED_SECONDS = 60
# However slow the machine, some answers of 429 come within this.
BAN_SECONDS = 60
JUST_AFTER_SECONDS = 0.02
# The journal is written every second, and then a loaded machine has to get to it.
LONGEST_BEHIND = 1.5


class Crashes:
    """A store whose service is killed, with its customers and its inspector."""

    def __init__(self, instance: Path, kills: int, clients: int, seed: int) -> None:
        self.kills = self.kills_of_starts = 0
        # In seconds.
        self.starts: list[float] = []
        self.complaints: list[str] = []
        self.history = History()
        self._instance, self._most, self._clients = instance, kills, clients
        self._seed, self._chance = seed, random.Random(seed)
        # Spread over the run, so that each is seen through some of the kills.
        self._bans = max(1, min(MOST_BANS, kills // 5))
        self._killed_at: float | None = None
        self._url = ""
        self.followers: list[Follower] = []

    def run(self, longest_behind: float = LONGEST_BEHIND) -> list[str]:
        """Kill it often enough, or until there is a complaint; return all complaints."""
        self._longest_behind = longest_behind
        with progress("kills", self._most) as step:
            for _ in range(FIRST_STARTS):
                self._kill_a_start()
                step(1)
            self._open()
            try:
                while self.kills < self._most and not self.complaints:
                    self._kill_somehow()
                    step(1)
                if not self.complaints:
                    self._end()
            except AssertionError as error:  # it does not start, or does not answer
                self.complaints.append(str(error))
            finally:
                for each in self.followers:
                    each.end(0, 0)
        return self.complaints

    def _open(self) -> None:
        service = self._start()
        self._key, reader, *self._small_keys = _issue_keys(service, self._bans)
        self._customers = [
            Customer(self.history, self._key, reader, f"{self._seed}-{number}")
            for number in range(self._clients)
        ]
        database = self._instance / "orders.db"
        self.inspector = Inspector(database, self.history, self._key, reader, self._seed)
        self.followers = [Follower(lambda: self._url, reader) for _ in range(FOLLOWERS)]
        for each in self.followers:
            each.start()
        service.kill()

    def _kill_somehow(self) -> None:
        if self._chance.random() < STARTS_AMONG_KILLS:
            self._kill_a_start()
            return
        service = self._start()
        try:
            self.complaints += self._inspect(service)
            self._kill_under_load(service)
        finally:
            if service.process.poll() is None:
                service.kill()

    def _kill_a_start(self) -> None:
        process = launch(environment_for(self._instance))
        time.sleep(self._chance.uniform(0, START_SECONDS))
        process.kill()
        process.communicate()
        self.kills += 1
        self.kills_of_starts += 1

    def _kill_under_load(self, service: Service) -> None:
        with ThreadPoolExecutor(self._clients + 1) as pool:
            try:
                clients = self._load(pool, service.url)
            finally:  # or clients would go on for ever after a Ctrl-C
                self._killed_at = time.monotonic()
                service.kill()
        self.inspector.bans += [ban for each in clients if (ban := each.result())]
        self.kills += 1

    def _load(self, pool: ThreadPoolExecutor, url: str) -> list[Future[Any]]:
        clients = [pool.submit(each.shop, url) for each in self._customers]
        if self._is_ban_due():
            banned = pool.submit(run_into_a_ban, url, self.history, self._small_keys.pop())
            futures.wait([banned], BAN_SECONDS)
            time.sleep(self._chance.uniform(0, JUST_AFTER_SECONDS))
            return [*clients, banned]
        time.sleep(self._chance.uniform(0, LOAD_SECONDS))
        return clients

    def _is_ban_due(self) -> bool:
        begun = self._bans - len(self._small_keys)
        return begun < self._bans and self.kills >= begun * self._most / self._bans

    def _inspect(self, service: Service) -> list[str]:
        return self.inspector.inspect(service.url, self._killed_at, self._longest_behind)

    def _end(self) -> None:
        # Once more after the last kill, and after a stop, which loses nothing of the counters.
        for _ in range(2):
            service = self._start()
            self.complaints += self._inspect(service)
            self._killed_at = None
            self._compare_followers()
            if service.stop() != 0:
                self.complaints.append(f"it did not stop: {''.join(service.log)}")
        self.complaints += history.damage(self._instance / "orders.db")

    def _compare_followers(self) -> None:
        contents = history.read(self._instance / "orders.db")
        for each in self.followers:
            each.end(contents.events[-1].id, FOLLOWED_SECONDS)
            self.complaints += [*each.complaints, *unlike_the_log(each.seen, contents)]

    def _start(self) -> Service:
        began = time.perf_counter()
        service = Service(self._instance)
        self._url = service.url
        self.starts.append(time.perf_counter() - began)
        return service


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


def summary(crashes: Crashes) -> str:
    starts, inspector = crashes.starts, crashes.inspector
    contents, operations = inspector.contents, crashes.history.operations
    known = {each.request_id for each in operations}
    unknown = sum(each.request_id not in known for each in contents.events)
    facts = {
        "kills": f"{crashes.kills:,}, {crashes.kills_of_starts} of them while starting",
        "operations": counts(operations),
        "store": f"{len(contents.orders):,} orders, {len(contents.events):,} events, "
        f"{unknown:,} of them of unknown operations",
        "followers": f"{len(crashes.followers)}, opened a stream "
        f"{sum(each.openings for each in crashes.followers):,} times",
        "starts": f"{statistics.median(starts):.2f} s (median), {max(starts):.2f} s at most",
        "counters": f"at most {inspector.behind:.2f} s behind",
        "bans": f"{len(inspector.bans)}, found in force {inspector.bans_seen} times",
    }
    return command.table(facts)


def counts(operations: Sequence[Operation]) -> str:
    unknown = sum(each.is_unknown for each in operations)
    done = sum(each.is_acknowledged for each in operations)
    refused = len(operations) - done - unknown
    return f"{len(operations):,}: {done:,} acknowledged, {refused:,} refused, {unknown:,} unknown"


def prove(folder: Path, *, kills: int = 300, clients: int = 8, seed: int = 1) -> list[str]:
    """Kill, compare, print the figures; return the complaints."""
    crashes = Crashes(folder / "instance", kills, clients, seed)
    complaints = crashes.run()
    print(summary(crashes))
    return complaints


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            kills="how often to kill the service",
            clients="clients at a time",
            seed="chooses the moments",
        )
    )
