"""Inspects a store whose service was killed and started again, before its clients go on."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import urllib3

from tests.proofs.core import checks
from tests.proofs.core.clients import MISSING, ORDERS, Connection, Key
from tests.proofs.core.history import UNSENT, Contents, History, Kind, Operation, read, shown

# More than customers send.
MINUTE_QUOTA, DAY_QUOTA = 1_000_000, 100_000_000
_SAMPLE = 20
_OK, _NOT_FOUND, _RATE_LIMITED = 200, 404, 429
# Retry-After is rounded up, and a ban's end is kept in milliseconds.
_ROUNDING_SECONDS = 2
_LEFT_OF_THE_DAY = re.compile(r'"day";r=(\d+)')


@dataclass(frozen=True, slots=True)
class Ban:
    """A ban that was reported to a client. `ends` is in monotonic seconds."""

    key: Key
    ends: float


def run_into_a_ban(url: str, history: History, key: Key) -> Ban | None:
    """Place orders with a key of few requests until it is banned; return None if cut off before."""
    with closing(Connection(url, history)) as connection:
        while True:
            placing = Operation(Kind.PLACE, key.actor, (201, 429), body=history.unique_order())
            response = connection.send(placing, key, "POST", ORDERS, json=placing.body)
            if response is None:
                return None
            if response.status == _RATE_LIMITED and response.json()["code"] == "api_key_banned":
                return Ban(key, placing.ended + int(response.headers["Retry-After"]))


class Inspector:
    """Compares a store with its clients' history, at each start.

    `behind` is the most that the counters were behind at a kill, in seconds; `bans_seen` is how
    often a ban was found in force after one.
    """

    def __init__(self, database: Path, history: History, key: Key, reader: Key, seed: int) -> None:
        self.bans: list[Ban] = []
        self.contents = Contents([], [], [])
        self.behind = 0.0
        self.bans_seen = 0
        self._database, self._history, self._key, self._reader = database, history, key, reader
        self._chance = random.Random(seed)
        # The length of the history, and the counter, at the last start.
        self._begins_at = 0
        self._counted_before = 0

    def inspect(self, url: str, killed_at: float | None, longest_behind: float) -> list[str]:
        """Return all complaints; nobody else may use the service meanwhile.

        `killed_at` is when it was killed, in monotonic seconds: None if it was not.
        """
        earlier, self.contents = self.contents, read(self._database)
        with closing(Connection(url, self._history)) as connection:
            return [
                *self._counters(connection, killed_at, longest_behind),
                *checks.rewritten(earlier, self.contents),
                *checks.complaints(self._history.operations, self.contents),
                *self._list(connection),
                *self._single_orders(connection),
                *self._standing_bans(connection),
            ]

    def _counters(
        self, connection: Connection, killed_at: float | None, longest_behind: float
    ) -> Iterator[str]:
        since = self._history.operations[self._begins_at :]
        self._begins_at = len(self._history.operations)
        mine = [
            each
            for each in since
            if each.actor == self._key.actor and each.status != UNSENT and not each.is_part
        ]
        answered = [each.ended for each in mine if each.status not in {None, _RATE_LIMITED}]
        counted = self._counted(connection)
        new, self._counted_before = counted - self._counted_before, counted
        if new > len(mine):
            yield f"{new} requests were counted, {len(mine)} were sent"
        if killed_at is None and new < len(answered):
            yield f"{new} requests were counted, {len(answered)} were answered, and none killed"
        if killed_at is not None:
            behind = checks.seconds_behind(answered, new, killed_at)
            self.behind = max(self.behind, behind)
            if behind > longest_behind:
                yield f"the counters are {behind:.2f} s behind"

    def _counted(self, connection: Connection) -> int:
        # The request that asks counts itself.
        missing = Operation(Kind.GET, self._key.actor, (_NOT_FOUND,), MISSING)
        response = _answered(connection, missing, self._key, f"{ORDERS}/{MISSING}")
        (left,) = _LEFT_OF_THE_DAY.findall(response.headers["RateLimit"])
        return DAY_QUOTA - int(left) - 1

    def _list(self, connection: Connection) -> list[str]:
        listing = Operation(Kind.GET, self._reader.actor, (_OK,))
        response = _answered(connection, listing, self._reader, ORDERS)
        if response.status != _OK:
            return [f"listOrders answered {response.status}"]
        return checks.listed_otherwise(response.json(), self.contents)

    def _single_orders(self, connection: Connection) -> Iterator[str]:
        orders = self.contents.orders
        for order in self._chance.sample(orders, min(_SAMPLE, len(orders))):
            getting = Operation(Kind.GET, self._reader.actor, (_OK, _NOT_FOUND), order.id)
            _answered(connection, getting, self._reader, f"{ORDERS}/{order.id}")
            expected = None if order.status == "cancelled" else shown(order)
            if getting.order != expected:
                yield f"getOrder shows {getting.order} for {order}"

    def _standing_bans(self, connection: Connection) -> Iterator[str]:
        for ban in self.bans:
            if ban.ends - time.monotonic() > _ROUNDING_SECONDS:
                yield from self._ban_in_force(connection, ban)

    def _ban_in_force(self, connection: Connection, ban: Ban) -> Iterator[str]:
        banned = Operation(Kind.GET, ban.key.actor, (_RATE_LIMITED,))
        response = _answered(connection, banned, ban.key, ORDERS)
        expected = ban.ends - time.monotonic()
        if response.status != _RATE_LIMITED or response.json()["code"] != "api_key_banned":
            yield f"the ban of {ban.key.actor} is not in force: {response.status}"
        elif abs(int(response.headers["Retry-After"]) - expected) > _ROUNDING_SECONDS:
            yield f"the ban of {ban.key.actor} ends in {expected:.0f} s: {response.headers}"
        else:
            self.bans_seen += 1


def _answered(
    connection: Connection, operation: Operation, key: Key, path: str
) -> urllib3.BaseHTTPResponse:
    response = connection.send(operation, key, "GET", path)
    if response is None:
        raise AssertionError(f"it serves, and did not answer {operation}")
    return response
