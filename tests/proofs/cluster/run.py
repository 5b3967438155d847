"""A run: a cluster under load, whose parts are killed, ended, and started again."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import psycopg

from orders.cli.common import progress
from tests.proofs.cluster.readers import FeedReader
from tests.proofs.cluster.shoppers import Plan, Shopping, shopping
from tests.proofs.cluster.stage import Stage
from tests.proofs.core import checks, history
from tests.proofs.core.clients import ORDERS
from tests.proofs.core.followers import Follower
from tests.proofs.core.history import Contents
from tests.support.receiver import Receiver, receiving

PLENTY = (1_000_000_000, 1_000_000_000)
LOADS = 2
# nginx gives a process that it could not reach no requests for ten seconds: with kills closer
# than this, it would have none left at times.
BETWEEN_KILLS_SECONDS = 5.0
ENDED_AMONG_KILLS = 0.25
REDIS_AWAY_SECONDS = 3.0
POSTGRES_AWAY_SECONDS = 2.0
# What the endpoints want.
TYPES = (
    ("order.placed", "order.shipped", "order.cancelled"),
    ("order.cancelled",),
)
_POLL_SECONDS = 0.2
_OK = 200
# However slow the machine is. A claim of a killed process is waited for, too.
PATIENCE_SECONDS = 180.0

Step = Callable[[int], None]


@dataclass
class Findings:
    """What happened. Moments are in monotonic seconds."""

    seconds: float = 0.0
    kills: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    # From and until when the database was away.
    away: tuple[float, float] | None = None
    until_ready: float | None = None
    redis_was_away: bool = False
    shopping: list[Shopping] = field(default_factory=list)
    readers: list[FeedReader | Follower] = field(default_factory=list)
    receivers: list[Receiver] = field(default_factory=list)
    delivered_after: float = 0.0
    contents: Contents = field(default_factory=lambda: Contents([], [], []))
    # Outcomes of delivery attempts, by endpoint.
    tries: Counter[tuple[int, str]] = field(default_factory=Counter)
    access_log: str = ""
    complaints: list[str] = field(default_factory=list)


class Run:
    """One run over a stage."""

    def __init__(self, stage: Stage, clients: int, seed: int) -> None:
        self.findings = Findings()
        self._stage, self._clients, self._seed = stage, clients, seed
        self._chance = random.Random(seed)

    def run(self, seconds: float, *, redis: bool = True, postgres: bool = True) -> Findings:
        """Let it go on for so long; by default Redis and PostgreSQL are away once each."""
        with ExitStack() as resources:
            self._listen(resources)
            with shopping(self._plans()) as loads:
                began = time.monotonic()
                with progress("seconds", round(seconds)) as step:
                    self._disturb(seconds, step, redis=redis, postgres=postgres)
                self.findings.seconds = time.monotonic() - began
                self.findings.shopping = loads.end()
            self._conclude()
        return self.findings

    def _listen(self, resources: ExitStack) -> None:
        stage, found = self._stage, self.findings
        self._key, self._reader = stage.issue(PLENTY), stage.issue(PLENTY, scopes=["read"])
        for types in TYPES:
            receiver = resources.enter_context(receiving())
            stage.add_webhook(receiver.url, types)
            found.receivers.append(receiver)
        # One through nginx, and one who keeps to the first process, whenever that is there.
        ways = [(stage.url, stage.ca_certs), (stage.services[0].url, None)]
        reader = self._reader[0]
        found.readers = [FeedReader(url, reader, certs) for url, certs in ways]
        found.readers += [Follower(lambda url=url: url, reader, certs) for url, certs in ways]
        for each in found.readers:
            each.start()
            resources.callback(each.end, 0, 0)

    def _plans(self) -> list[Plan]:
        stage = self._stage
        fixed = (stage.url, stage.ca_certs, self._key[0], self._reader[0], self._clients)
        return [Plan(*fixed, number, self._seed) for number in range(LOADS)]

    # Disturbances.

    def _disturb(self, seconds: float, step: Step, *, redis: bool, postgres: bool) -> None:
        began = time.monotonic()
        to_come = [(0.35, self._lose_redis)] * redis + [(0.7, self._lose_postgres)] * postgres
        done = 0
        # On a slow machine the time may be over before all has been tried.
        while (passed := time.monotonic() - began) < seconds or to_come:
            step(round(passed) - done)
            done = round(passed)
            if to_come and passed > to_come[0][0] * seconds:
                to_come.pop(0)[1]()
            else:
                self._lose_a_process()

    def _lose_a_process(self) -> None:
        began = time.monotonic()
        number = self._chance.randrange(len(self._stage.services))
        service = self._stage.services[number]
        if self._chance.random() < ENDED_AMONG_KILLS:
            self.findings.stops.append(began)
            if service.stop() != 0:
                self.findings.complaints.append(f"it did not stop: {''.join(service.log[-20:])}")
        else:
            self.findings.kills.append(began)
            service.kill()
        self.findings.starts.append(self._stage.start(number))
        time.sleep(max(0.0, BETWEEN_KILLS_SECONDS - (time.monotonic() - began)))

    def _lose_redis(self) -> None:
        self._stage.redis.kill()
        ends = time.monotonic() + REDIS_AWAY_SECONDS
        while time.monotonic() < ends:
            for status, body in self._readiness():
                if status != _OK:
                    self.findings.complaints.append(f"without Redis, one is not ready: {body}")
            time.sleep(_POLL_SECONDS)
        self.findings.redis_was_away = all("degraded" in body for _, body in self._readiness())
        self._stage.redis.start()
        self._wait(lambda: all('"counters":"ok"' in body for _, body in self._readiness()))

    def _lose_postgres(self) -> None:
        began = time.monotonic()
        self._stage.postgres.stop()
        time.sleep(POSTGRES_AWAY_SECONDS)
        if any(status == _OK for status, _ in self._readiness()):
            self.findings.complaints.append("without PostgreSQL, one says that it is ready")
        self._stage.postgres.start()
        back = time.monotonic()
        self._wait(lambda: all(status == _OK for status, _ in self._readiness()))
        self.findings.away = (began, time.monotonic())
        self.findings.until_ready = time.monotonic() - back

    def _readiness(self) -> list[tuple[int, str]]:
        answers = [each.request("GET", "/readyz") for each in self._stage.services]
        return [(each.status, each.data.decode()) for each in answers]

    def _compared(self) -> Iterator[str]:
        for service in self._stage.services:
            listed = service.request("GET", ORDERS, self._reader[0].secret)
            yield from checks.listed_otherwise(listed.json(), self.findings.contents)
        checked = self._stage.services[0].command("db", "check")
        if checked.returncode != 0:
            yield checked.stderr.strip()

    def _wait(self, is_so: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > ends:
                raise AssertionError(f"it did not come back: {self._readiness()}")
            time.sleep(_POLL_SECONDS)

    def _conclude(self) -> None:
        found, began = self.findings, time.monotonic()
        found.contents = history.read_postgres(self._stage.conninfo)
        newest = found.contents.events[-1].id
        for each in found.readers:
            each.end(newest, PATIENCE_SECONDS)
            found.complaints += each.complaints
        for receiver, types in zip(found.receivers, TYPES, strict=True):
            last = max(row.id for row in found.contents.events if row.type in types)
            with suppress(AssertionError):  # the verdict names what is missing
                self._wait(lambda receiver=receiver, last=last: last in receiver.events[-5:])
        found.delivered_after = time.monotonic() - began
        found.complaints += self._compared()
        found.tries = _tries(self._stage.conninfo)
        found.access_log = self._stage.nginx.log


def _tries(conninfo: str) -> Counter[tuple[int, str]]:
    sql = (
        "SELECT endpoint_id, coalesce(fault, outcome), count(*) FROM webhook_deliveries "
        "GROUP BY 1, 2"
    )
    with psycopg.connect(conninfo) as connection:
        return Counter({(each, what): number for each, what, number in connection.execute(sql)})
