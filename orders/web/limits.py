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
from orders.settings import Plan, Settings
from orders.store.counters import Ask, CounterStorage, Standing
from orders.store.engine import Database
from orders.web.auth import Caller
from orders.web.bans import Bans
from orders.web.refusals import KeyBanned, RateLimited

log = logging.getLogger(__name__)

STRATEGY = "fixed-windows-together"


class FixedWindowsTogether(FixedWindowRateLimiter):
    """Fixed windows that take a request all together or not at all."""

    storage: CounterStorage

    def take(self, items: Sequence[RateLimitItem], identity: str) -> tuple[bool, list[Standing]]:
        """Count a request in all windows if all have room; tell if so, and how they stand."""
        return self.storage.take(_asks(tuple(items), identity))

    def peek(self, items: Sequence[RateLimitItem], identity: str) -> list[Standing]:
        """Tell how the windows stand, counting nothing."""
        return self.storage.peek(_asks(tuple(items), identity))


# Where `limits`, and so Flask-Limiter, look strategies up by name.
STRATEGIES[STRATEGY] = FixedWindowsTogether


@lru_cache(maxsize=1024)
def _asks(items: tuple[RateLimitItem, ...], identity: str) -> tuple[Ask, ...]:
    # Not `item.key_for`, whose keys hold the figures: going back to earlier figures would go back
    # to their old windows.
    terms = ";".join(str(item) for item in items)
    return tuple(
        Ask(f"{identity}/{item.GRANULARITY.name}", item.amount, item.get_expiry(), terms)
        for item in items
    )


@lru_cache(maxsize=1024)
def windows_of(per_minute: int, per_day: int) -> tuple[RateLimitItem, ...]:
    """Give a plan's windows: the minute's and the day's."""
    return tuple(parse_many(f"{per_minute}/minute;{per_day}/day"))


@dataclass(frozen=True, slots=True)
class WindowState:
    """A window as the client is told of it. `resets_in` is in seconds."""

    name: str
    quota: int
    length: int
    remaining: int
    resets_in: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the limits say of one request. `banned_for` is in seconds, 0 without a ban."""

    windows: tuple[WindowState, ...]
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

    def headers(self, wall: float) -> dict[str, str]:
        """Give the headers that tell this verdict. `wall` is the Unix time now.

        X-RateLimit-* are the specification's ("Limits"); RateLimit-Policy and RateLimit are those
        of draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4.
        """
        if self.admitted:
            told = min(self.windows, key=lambda window: (window.remaining, -window.resets_in))
            remaining, reset = told.remaining, math.ceil(wall + told.resets_in)
        else:
            told = max(self._exhausted or self.windows[:1], key=lambda window: window.resets_in)
            remaining, reset = 0, math.ceil(wall + self._refused_for)
        headers = {
            "X-RateLimit-Limit": str(told.quota),
            "X-RateLimit-Remaining": str(remaining),
            "X-RateLimit-Reset": str(reset),
            "RateLimit-Policy": ", ".join(
                f'"{window.name}";q={window.quota};w={window.length}' for window in self.windows
            ),
            "RateLimit": ", ".join(
                f'"{window.name}";r={window.remaining};t={math.ceil(window.resets_in)}'
                for window in self.windows
            ),
        }
        if not self.admitted:
            headers["Retry-After"] = str(self.retry_after)
        return headers

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
        limiter = Limiter(
            # Never asked, as the check is filtered out; who counts as whom is `Caller.identity`.
            key_func=lambda: "",
            # Its hooks go to an application that serves nothing.
            app=Flask("limits"),
            strategy=STRATEGY,
            storage_uri="journal://",
            storage_options=cast(
                "dict[str, str | int]", {"path": settings.counters_path, "clock": clock}
            ),
        )
        self._strategy = cast("FixedWindowsTogether", limiter.limiter)
        self.storage = self._strategy.storage
        self.bans = Bans(settings, database, self.storage, clock)
        self._plans = settings.plans

    def judge(self, caller: Caller) -> Verdict:
        """Count the request, unless it is refused: a refused one takes nothing from any window."""
        items = self._windows_for(caller)
        key = caller.key
        banned_for = self.bans.ends_in(key, caller.key_as_of) if key else 0.0
        if banned_for > 0:
            standings = self._strategy.peek(items, caller.identity)
            return Verdict(_states(items, standings), False, banned_for)
        admitted, standings = self._strategy.take(items, caller.identity)
        if not admitted and key is not None:
            banned_for = self.bans.strike(key)
        return Verdict(_states(items, standings), admitted, banned_for)

    def uncounted(self) -> Verdict:
        """Give the free plan's full figures, for an answer to nobody in particular."""
        items = windows_of(*_figures(self._plans["free"]))
        return Verdict(_states(items, [Standing(0, item.get_expiry()) for item in items]))

    def _windows_for(self, caller: Caller) -> tuple[RateLimitItem, ...]:
        return windows_of(*figures_in_force(caller, self._plans))


def figures_in_force(caller: Caller, plans: Mapping[str, Plan]) -> tuple[int, int]:
    """Give the requests a minute and a day that a caller has."""
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


def _states(
    items: Sequence[RateLimitItem], standings: Sequence[Standing]
) -> tuple[WindowState, ...]:
    return tuple(
        WindowState(
            item.GRANULARITY.name,
            item.amount,
            item.get_expiry(),
            max(0, item.amount - standing.count),
            standing.ends_in,
        )
        for item, standing in zip(items, standings, strict=True)
    )
