"""Plans to limits, limits to verdicts, verdicts to headers.

Flask-Limiter makes the storage and the strategy from their names, and the `limits` notation makes
a plan's two windows from its figures. Its own check on each request is left out: it tries one
window after the other, so that a request refused by the second has already used up the first,
and it writes neither our headers nor any on 404. Our strategy counts in both windows or in none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from flask import Flask
from flask_limiter import Limiter
from limits import RateLimitItem, parse_many
from limits.strategies import STRATEGIES, FixedWindowRateLimiter

from orders.clock import Clock
from orders.counters.memory import Ask, CounterStorage, Standing
from orders.counters.shared import SharedCounterStorage
from orders.settings import Plan, Settings
from orders.store import keys as key_store
from orders.store.database.engine import Database
from orders.web.auth import Caller
from orders.web.bans import Bans
from orders.web.refusals import KeyBanned, RateLimited

log = logging.getLogger(__name__)

STRATEGY = "fixed-windows-together"


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one caller: what is asked of the storage, and how a client is told of them."""

    names: tuple[str, ...]
    asks: tuple[Ask, ...]
    policy: str


class FixedWindowsTogether(FixedWindowRateLimiter):
    """Fixed windows that take a request all together or not at all."""

    storage: CounterStorage | SharedCounterStorage

    def windows(self, items: Sequence[RateLimitItem], identity: str) -> Windows:
        """Return the windows in which a caller's requests are counted."""
        # Not `item.key_for`, whose keys hold the figures: going back to earlier figures would go
        # back to their old windows.
        terms = ";".join(str(item) for item in items)
        asks = tuple(
            Ask(f"{identity}/{item.GRANULARITY.name}", item.amount, item.get_expiry(), terms)
            for item in items
        )
        names = tuple(item.GRANULARITY.name for item in items)
        policy = ", ".join(
            f'"{name}";q={ask.quota};w={ask.length}' for name, ask in zip(names, asks, strict=True)
        )
        return Windows(names, asks, policy)

    def take(self, windows: Windows) -> tuple[bool, list[Standing]]:
        """Count a request in all windows if all have room; tell if so, and how they stand."""
        return self.storage.take(windows.asks)

    def peek(self, windows: Windows) -> list[Standing]:
        """Return how the windows stand, counting nothing."""
        return self.storage.peek(windows.asks)


# Where `limits`, and so Flask-Limiter, look strategies up by name.
STRATEGIES[STRATEGY] = FixedWindowsTogether


@dataclass(slots=True)
class WindowState:
    """A window as the client is told of it. `resets_in` is in seconds."""

    name: str
    quota: int
    remaining: int
    resets_in: float


@dataclass(slots=True)
class Verdict:
    """What the limits say of one request. `banned_for` is in seconds, 0 without a ban."""

    windows: list[WindowState]
    policy: str
    admitted: bool = True
    banned_for: float = 0.0

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least 1, to the end of the longest restriction in force."""
        return max(1, math.ceil(self._refused_for))

    def raise_if_refused(self) -> None:
        """Raise what refuses the request, if anything does.

        Raises:
            RateLimited, KeyBanned: with the seconds to wait.
        """
        if self.banned_for > 0:
            raise KeyBanned(self.retry_after)
        if not self.admitted:
            raise RateLimited(self.retry_after)

    def headers(self, wall: float) -> list[tuple[str, str]]:
        """Return the headers that tell this verdict. `wall` is the Unix time now.

        X-RateLimit-* are the specification's ("Limits"); RateLimit-Policy and RateLimit are those
        of draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4.
        """
        quota, remaining, reset = self._told(wall)
        standing = ", ".join(
            [
                f'"{window.name}";r={window.remaining};t={math.ceil(window.resets_in)}'
                for window in self.windows
            ]
        )
        return [
            ("X-RateLimit-Limit", str(quota)),
            ("X-RateLimit-Remaining", str(remaining)),
            ("X-RateLimit-Reset", str(reset)),
            ("RateLimit-Policy", self.policy),
            ("RateLimit", standing),
        ]

    def _told(self, wall: float) -> tuple[int, int, int]:
        # The window with the fewest requests left; when equal, the one that resets later.
        if self.admitted:
            told = min(self.windows, key=lambda window: (window.remaining, -window.resets_in))
            return told.quota, told.remaining, math.ceil(wall + told.resets_in)
        told = max(self._exhausted or self.windows[:1], key=lambda window: window.resets_in)
        return told.quota, 0, math.ceil(wall + self._refused_for)

    @property
    def _refused_for(self) -> float:
        return max([self.banned_for, *(window.resets_in for window in self._exhausted)])

    @property
    def _exhausted(self) -> list[WindowState]:
        return [window for window in self.windows if window.remaining == 0]


class Limits:
    """Judges requests against their plans."""

    def __init__(self, settings: Settings, database: Database, clock: Clock) -> None:
        """Set up the counters and the strategy. Opens nothing."""
        uri, options = _storage(settings, database, clock)
        limiter = Limiter(
            # Never asked, as the check is filtered out; who counts as whom is `Caller.identity`.
            key_func=lambda: "",
            # Its hooks go to an application that serves nothing.
            app=Flask("limits"),
            strategy=STRATEGY,
            storage_uri=uri,
            storage_options=cast("dict[str, str | int]", options),
        )
        self._strategy = cast("FixedWindowsTogether", limiter.limiter)
        self.storage = self._strategy.storage
        self.bans = Bans(settings, database, self.storage, clock)
        self._plans = settings.plans
        self._windows = lru_cache(maxsize=1024)(self._make_windows)

    def judge(self, caller: Caller) -> Verdict:
        """Count the request, unless it is refused: a refused one takes nothing from any window."""
        windows = self._windows(caller.identity, *figures_in_force(caller, self._plans))
        key = caller.key
        banned_for = self.bans.ends_in(key, caller.key_as_of) if key else 0.0
        if banned_for > 0:
            return _verdict(windows, self._strategy.peek(windows), False, banned_for)
        admitted, standings = self._strategy.take(windows)
        if not admitted and key is not None:
            banned_for = self.bans.strike(key)
        return _verdict(windows, standings, admitted, banned_for)

    def full_free_quota(self) -> Verdict:
        """Return the free plan's full figures, for an answer to nobody in particular."""
        windows = self._windows("nobody", *_figures(self._plans["free"]))
        untouched = [Standing(0, ask.length) for ask in windows.asks]
        return _verdict(windows, untouched, True, 0.0)

    def _make_windows(self, identity: str, per_minute: int, per_day: int) -> Windows:
        return self._strategy.windows(_items(per_minute, per_day), identity)


def _storage(settings: Settings, database: Database, clock: Clock) -> tuple[str, dict[str, object]]:
    """Return where to count, as Flask-Limiter names it: the scheme of a class, and its options.

    The address of Redis, which may hold a password, is no part of what Flask-Limiter keeps as URI.
    """
    if not settings.limits_url:
        return "journal://", {"path": settings.counters_path, "clock": clock}

    def store_id() -> str:
        with database.read() as connection:
            return key_store.store_id(connection)

    return "shared://", {"url": settings.limits_url, "store_id": store_id, "clock": clock}


def figures_in_force(caller: Caller, plans: Mapping[str, Plan]) -> tuple[int, int]:
    """Return the requests a minute and a day that a caller has."""
    key = caller.key
    if key is None:
        return _figures(plans["free"])
    if key.per_minute is not None and key.per_day is not None:
        return key.per_minute, key.per_day
    plan = plans.get(key.plan)
    if plan is None or plan.per_minute is None:
        # A plan that was added to config.toml after this service was started.
        log.warning("Key %d is on the plan %r, which needs a restart.", key.id, key.plan)
        plan = plans["free"]
    return _figures(plan)


def _figures(plan: Plan) -> tuple[int, int]:
    if plan.per_minute is None or plan.per_day is None:
        raise ValueError(f"the plan {plan.name} has no figures of its own")
    return plan.per_minute, plan.per_day


@lru_cache(maxsize=256)
def _items(per_minute: int, per_day: int) -> tuple[RateLimitItem, ...]:
    return tuple(parse_many(f"{per_minute}/minute;{per_day}/day"))


def _verdict(
    windows: Windows, standings: Sequence[Standing], admitted: bool, banned_for: float
) -> Verdict:
    states = [
        WindowState(name, ask.quota, max(0, ask.quota - each.count), each.ends_in)
        for name, ask, each in zip(windows.names, windows.asks, standings, strict=True)
    ]
    return Verdict(states, windows.policy, admitted, banned_for)
