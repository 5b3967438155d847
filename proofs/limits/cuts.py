"""Counters and bans over stops and kills, under load.

Clients note when each request was acknowledged. After a stop the counters must be exact; after a
kill they may lack what was acknowledged in the second before it, and nothing else. A ban that was
reported to a client must be in force after either.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isinf
from pathlib import Path

from orders.cli.output import progress
from proofs.limits.crowd import PATH, PLENTY
from tests.support import stores as store
from tests.support.service import Service
from tests.support.wire import GONE, Answer, Wire

CLIENTS = 3
DAY_QUOTA = 100_000_000
MAY_BE_LOST_SECONDS = 1.0
BAN_SECONDS = 300
# How long it takes at most until a key is banned that goes on.
_BANNED_SECONDS = 30


@dataclass
class Tally:
    """What clients know of one identity: a key, or the address where `key` is None.

    `base` is the last count that the service answered, `hits` are the acknowledgements since then,
    in monotonic seconds, and `unknown` is how many requests were sent and never answered.
    """

    key: str | None
    base: int = 0
    hits: list[float] = field(default_factory=list)
    unknown: int = 0

    def ask(self, wire: Wire) -> bool:
        """Send a request and note it; return whether it was answered."""
        try:
            answer = wire.ask("GET", PATH)
        except ConnectionRefusedError:
            return False  # it was never sent
        except GONE:
            self.unknown += 1
            return False
        self.hits.append(answer.ended)
        return True

    def settle(self, answer: Answer, lost_since: float) -> str | None:
        """Compare with the service's count now, and go on from there; return a fault.

        `lost_since` is the time from which what was acknowledged may be lost; infinite where
        nothing may, and where what was sent and not answered may not be counted either.
        """
        counted = DAY_QUOTA - answer.left()["day"] - 1  # without the request that asked
        least = self.base + sum(hit < lost_since for hit in self.hits)
        most = self.base + len(self.hits) + (0 if isinf(lost_since) else self.unknown)
        self.base, self.hits, self.unknown = counted, [answer.ended], 0
        if least <= counted <= most:
            return None
        who = "a key" if self.key else "an address"
        return f"{who} has {counted} counted, not {least} to {most}"


@dataclass(frozen=True)
class Cut:
    """The outcome of one stop or kill: acknowledged requests that were not counted, and faults."""

    lost: int
    faults: list[str]


def prove(instance: Path, chance: random.Random, stops: int, kills: int) -> list[str]:
    """Stop and kill the service under load so many times; return the faults."""
    quotas = [(DAY_QUOTA, DAY_QUOTA), *[(1, PLENTY)] * (stops + kills)]
    # Addresses are on the free plan: it must not refuse them here.
    key, *to_ban = store.make(instance, quotas, free=DAY_QUOTA)
    tallies = [Tally(key), Tally(None)]
    cuts = []
    service = Service(instance)
    try:
        with progress("stops and kills", len(to_ban)) as done:
            for number, culprit in enumerate(to_ban):
                cut = Service.stop if number < stops else Service.kill
                service, outcome = _cut(service, tallies, culprit, chance.uniform(0.3, 3), cut)
                cuts.append(outcome)
                done(1)
    finally:
        service.stop()
    counted = sum(tally.base for tally in tallies)
    for name, some in (("stops", cuts[:stops]), ("kills", cuts[stops:])):
        lost = max((each.lost for each in some), default=0)
        print(f"{name:10} {len(some)}, each of which lost {lost} requests at most")
    print(f"requests   {counted:,} counted over all of them")
    return [fault for outcome in cuts for fault in outcome.faults]


def _cut(
    service: Service,
    tallies: Sequence[Tally],
    culprit: str,
    seconds: float,
    cut: Callable[[Service], object],
) -> tuple[Service, Cut]:
    """Load the service, ban a key, kill it and start it again; return it, and what came of it."""
    load = Load(service, tallies)
    time.sleep(seconds)
    _ban(service, culprit)
    banned = time.monotonic()
    lost_since = time.monotonic() - MAY_BE_LOST_SECONDS if cut is Service.kill else inf
    cut(service)
    load.wait()
    noted = sum(tally.base + len(tally.hits) for tally in tallies)
    again = Service(Path(service.environment["ORDERS_INSTANCE"]))
    faults = [tally.settle(_ask_once(again, tally.key), lost_since) for tally in tallies]
    faults.append(_fault_of_ban(again, culprit, banned))
    lost = noted - sum(tally.base for tally in tallies)
    return again, Cut(lost, [fault for fault in faults if fault])


class Load:
    """Clients of all identities that ask until nobody answers."""

    def __init__(self, service: Service, tallies: Sequence[Tally]) -> None:
        """Begin."""
        self._threads = [
            threading.Thread(target=self._ask, args=(service.address, tally))
            for tally in tallies
            for _ in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait until all have noticed."""
        for thread in self._threads:
            thread.join()

    def _ask(self, address: tuple[str, int], tally: Tally) -> None:
        wire = Wire(address, tally.key)
        while tally.ask(wire):
            pass
        wire.close()


def _ban(service: Service, key: str) -> None:
    wire = Wire(service.address, key)
    ends = time.monotonic() + _BANNED_SECONDS
    while wire.ask("GET", PATH).code != "api_key_banned":
        if time.monotonic() > ends:
            raise AssertionError("the key was not banned")
    wire.close()


def _fault_of_ban(service: Service, key: str, since: float) -> str | None:
    answer = _ask_once(service, key)
    least = BAN_SECONDS - (answer.ended - since) - 1
    if answer.code == "api_key_banned" and least <= answer.header("Retry-After") <= BAN_SECONDS:
        return None
    return f"a ban was lost: {answer.status} {answer.headers['Retry-After']}"


def _ask_once(service: Service, key: str | None) -> Answer:
    wire = Wire(service.address, key)
    answer = wire.ask("GET", PATH)
    wire.close()
    return answer
