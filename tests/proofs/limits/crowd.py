"""16 clients against one limit: as many are admitted as it allows, and the headers say so."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support import stores as store
from tests.support.service import running
from tests.support.wire import Answer, Wire

CLIENTS = 16
# Of each client; all together they ask for more than any of the limits, and go on to a ban.
REQUESTS = 25
PLENTY = 1_000_000
BAN_AFTER = 30
# Nothing that is there: it is counted like any other request.
PATH = "/v1/store/orders/1"
_REFUSED = 429
_TOGETHER_SECONDS = 1.1


@dataclass(frozen=True)
class Limit:
    """A limit to run into: a key's quota of the minute or of the day, or an address's."""

    name: str
    quotas: dict[str, int]
    key: str | None
    bans: bool = True

    @property
    def quota(self) -> int:
        """How many requests fit in."""
        return min(self.quotas.values())


def prove(instance: Path) -> list[str]:
    """Send the crowd against a key's minute, a key's day, and an address; return the faults."""
    by_minute, by_day = store.make(instance, [(300, PLENTY), (PLENTY, 200)])
    limits = [
        Limit("a key's minute", {"minute": 300, "day": PLENTY}, by_minute),
        Limit("a key's day", {"minute": PLENTY, "day": 200}, by_day),
        Limit("an address", {"minute": 60, "day": 1_000}, None, bans=False),
    ]
    faults = []
    with running(instance) as service:
        for limit in limits:
            answers = rush(service.address, limit.key)
            # In the second after the first refusal, no other counts.
            time.sleep(_TOGETHER_SECONDS)
            later = rush(service.address, limit.key)
            admitted = sum(answer.status != _REFUSED for answer in answers)
            print(f"crowd      {limit.name}: {admitted} of {len(answers)}, allowed {limit.quota}")
            faults += [f"{limit.name}: {fault}" for fault in faults_of(answers, limit)]
            faults += [f"{limit.name}: {fault}" for fault in faults_of_ban(later, limit)]
    return faults


def rush(address: tuple[str, int], key: str | None) -> list[Answer]:
    """Let all clients ask at once, each over a connection of its own; return the answers."""
    together = threading.Barrier(CLIENTS)

    def ask(_: int) -> list[Answer]:
        wire = Wire(address, key)
        together.wait()
        answers = [wire.ask("GET", PATH) for _ in range(REQUESTS)]
        wire.close()
        return answers

    with ThreadPoolExecutor(CLIENTS) as pool:
        return [answer for answers in pool.map(ask, range(CLIENTS)) for answer in answers]


def faults_of(answers: list[Answer], limit: Limit) -> list[str]:
    """Return what is wrong with the answers of a crowd."""
    admitted = [answer for answer in answers if answer.status != _REFUSED]
    refused = [answer for answer in answers if answer.status == _REFUSED]
    faults = [] if len(admitted) == limit.quota else [f"{len(admitted)} were admitted"]
    for window, quota in limit.quotas.items():
        left = sorted((answer.left()[window] for answer in admitted), reverse=True)
        if left != list(range(quota - 1, quota - len(admitted) - 1, -1)):
            faults.append(f"what was left of the {window} did not count down by one: {left}")
    faults += [
        f"X-RateLimit-Remaining is not the least of {answer.left()}"
        for answer in admitted
        if answer.header("X-RateLimit-Remaining") != min(answer.left().values())
    ]
    return faults + _faults_of_refused(refused) + _faults_of_ends(answers)


def faults_of_ban(answers: list[Answer], limit: Limit) -> list[str]:
    """Return what is wrong with the answers of a crowd that goes on after being refused."""
    plain = sum(answer.code == "rate_limit_exceeded" for answer in answers)
    most = BAN_AFTER - 2 if limit.bans else len(answers)
    if plain <= most and limit.bans == (plain < len(answers)):
        return []
    return [f"{plain} answers of {len(answers)} came without a ban"]


def _faults_of_refused(refused: list[Answer]) -> list[str]:
    return [
        f"an answer of 429 has {dict(answer.headers)}"
        for answer in refused
        if answer.header("X-RateLimit-Remaining") != 0
        or answer.header("Retry-After") < 1
        or 0 not in answer.left().values()
    ]


def _faults_of_ends(answers: list[Answer]) -> list[str]:
    # A ban ends later than the window; within each kind the end may differ by the rounding.
    ends: dict[tuple[int, int], set[int]] = {}
    for answer in answers:
        banned = answer.status == _REFUSED and answer.code == "api_key_banned"
        kind = (answer.header("X-RateLimit-Limit"), int(banned))
        ends.setdefault(kind, set()).add(answer.header("X-RateLimit-Reset"))
    return [
        f"the limit of {kind[0]} resets at {sorted(found)}"
        for kind, found in ends.items()
        if max(found) - min(found) > 1
    ]
