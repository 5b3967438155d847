"""A key with few requests a minute, used from all sides at once: it gets exactly those."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from tests.proofs.cluster.shoppers import UNKNOWN
from tests.proofs.core.clients import MISSING, ORDERS, Connection, Key
from tests.proofs.core.history import History, Kind, Operation

QUOTA = 200
CLIENTS = 4
# The service's own: so many answers of 429 ban a key, the last of them says so already.
BANNED_BY = 30
_RATE_LIMITED, _NOT_FOUND = 429, 404
_MINUTE = 60.0


@dataclass
class Attack:
    """How requests with one key were answered. `unanswered` may have been counted or not."""

    key: Key
    admitted: int = 0
    limited: int = 0
    banned: int = 0
    unanswered: int = 0
    request_ids: set[str | None] = field(default_factory=set)
    seconds: float = 0.0
    # Whether all processes counted in Redis meanwhile.
    is_exact: bool = True

    @property
    def counts(self) -> bool:
        """Whether it proves anything: all counted together, and within one window."""
        return self.is_exact and self.seconds < _MINUTE

    def complaints(self, sent_twice: int) -> list[str]:
        """Complain of too many or too few. nginx sent so many of its requests twice."""
        least, most = QUOTA - self.unanswered - sent_twice, QUOTA
        if not least <= self.admitted <= most:
            return [f"{self.key.actor} may send {QUOTA} a minute: {self}"]
        # More, where several came in the second after the first.
        if not self.banned or self.limited < BANNED_BY - 1 - self.unanswered - sent_twice:
            return [f"{self.key.actor} is banned by the {BANNED_BY}th refusal: {self}"]
        return []

    def __str__(self) -> str:
        """Say how it was answered."""
        return (
            f"{self.admitted} admitted, {self.limited} refused, {self.banned} banned, "
            f"{self.unanswered} not answered, in {self.seconds:.1f} s"
        )


def attack(url: str, ca_certs: str | None, key: Key) -> Attack:
    """Send requests until the key is banned."""
    found, began = Attack(key), time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        sending = [pool.submit(_send, url, ca_certs, key) for _ in range(CLIENTS)]
        counts: Counter[str] = Counter()
        for each in sending:
            counted, request_ids = each.result()
            counts += counted
            found.request_ids |= request_ids
    found.admitted, found.limited = counts["admitted"], counts["rate_limit_exceeded"]
    found.banned, found.unanswered = counts["api_key_banned"], counts["unanswered"]
    found.seconds = time.monotonic() - began
    return found


def _send(url: str, ca_certs: str | None, key: Key) -> tuple[Counter[str], set[str | None]]:
    history, counts = History(), Counter[str]()
    while not counts["api_key_banned"]:
        connection = Connection(url, history, unknown=UNKNOWN, ca_certs=ca_certs)
        with closing(connection):
            while not counts["api_key_banned"]:
                getting = Operation(Kind.GET, key.actor, (_NOT_FOUND, _RATE_LIMITED), MISSING)
                response = connection.send(getting, key, "GET", f"{ORDERS}/{MISSING}")
                if response is None:
                    counts["unanswered"] += 1
                    break
                is_refused = response.status == _RATE_LIMITED
                counts[response.json()["code"] if is_refused else "admitted"] += 1
    return counts, {each.request_id for each in history.operations}
