"""Rate limits: plans to quotas, quotas to verdicts, verdicts to headers.

Flask-Limiter makes the storage from its name, and the `limits` notation makes a plan's two windows
from its figures. Its own check of each request is left out: it tries one window after the other, so
that a request refused by the second has already used up the first, and it writes neither our
headers nor any on 404. Our storages count in both windows or in none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from flask import Flask
from flask_limiter import Limiter
from limits import parse_many

from orders.clock import Clock
from orders.counters.memory import CounterStorage
from orders.counters.windows import Quota, Usage
from orders.settings import Plan, Settings
from orders.store import keys as key_store
from orders.store.database.engine import Database
from orders.web.access.auth import Caller
from orders.web.access.bans import Bans
from orders.web.refusals import KeyBanned, RateLimited

if TYPE_CHECKING:
    from orders.counters.redis import RedisCounterStorage

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Verdict:
    """The limits' verdict on one request. `banned_for` is in seconds, 0 without a ban."""

    windows: list[Usage]
    admitted: bool = True
    banned_for: float = 0.0

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least 1, to the end of the longest restriction in force."""
        return max(1, math.ceil(self._limited_for))

    def raise_if_limited(self) -> None:
        """Raise the refusal of the request, if it was not admitted.

        Raises:
            RateLimited, KeyBanned: with the seconds to wait.
        """
        if self.banned_for > 0:
            raise KeyBanned(self.retry_after)
        if not self.admitted:
            raise RateLimited(self.retry_after)

    def headers(self, wall: float) -> list[tuple[str, str]]:
        """Return the headers of this verdict. `wall` is the Unix time now.

        X-RateLimit-* are the specification's ("Limits"); RateLimit-Policy and RateLimit are those
        of draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4.
        """
        limit, remaining, reset = self._summary(wall)
        quotas = [each.quota for each in self.windows]
        policy = [f'"{each.name}";q={each.limit};w={each.length}' for each in quotas]
        standing = [
            f'"{each.quota.name}";r={each.remaining};t={math.ceil(each.ends_in)}'
            for each in self.windows
        ]
        return [
            ("X-RateLimit-Limit", str(limit)),
            ("X-RateLimit-Remaining", str(remaining)),
            ("X-RateLimit-Reset", str(reset)),
            ("RateLimit-Policy", ", ".join(policy)),
            ("RateLimit", ", ".join(standing)),
        ]

    def _summary(self, wall: float) -> tuple[int, int, int]:
        # The window with the fewest requests left; when equal, the one that resets later.
        if self.admitted:
            window = min(self.windows, key=lambda window: (window.remaining, -window.ends_in))
            return window.quota.limit, window.remaining, math.ceil(wall + window.ends_in)
        window = max(self._exhausted or self.windows[:1], key=lambda window: window.ends_in)
        return window.quota.limit, 0, math.ceil(wall + self._limited_for)

    @property
    def _limited_for(self) -> float:
        return max([self.banned_for, *(window.ends_in for window in self._exhausted)])

    @property
    def _exhausted(self) -> list[Usage]:
        return [window for window in self.windows if window.remaining == 0]


class Limits:
    """Rate-limits requests by their callers' plans."""

    def __init__(self, settings: Settings, database: Database, clock: Clock) -> None:
        """Set up the counters. Opens nothing."""
        uri, options = _storage(settings, database, clock)
        limiter = Limiter(
            # Never called, as its check is left out; `Caller.identity` says who is counted.
            key_func=lambda: "",
            # Its hooks go to an application that serves nothing.
            app=Flask("limits", static_folder=None),
            storage_uri=uri,
            storage_options=cast("dict[str, str | int]", options),
        )
        self.storage = cast("CounterStorage | RedisCounterStorage", limiter.storage)
        self.bans = Bans(settings, database, self.storage, clock)
        self._plans = settings.plans
        self._quotas = lru_cache(maxsize=1024)(_make_quotas)

    def judge(self, caller: Caller) -> Verdict:
        """Count a request, unless it is refused: a refused one takes nothing from any window."""
        quotas = self._quotas(caller.identity, *figures_in_force(caller, self._plans))
        key = caller.key
        banned_for = self.bans.ends_in(key, caller.key_as_of) if key else 0.0
        if banned_for > 0:
            return Verdict(self.storage.peek(quotas), False, banned_for)
        admitted, usages = self.storage.hit(quotas)
        if not admitted and key is not None:
            banned_for = self.bans.strike(key)
        return Verdict(usages, admitted, banned_for)

    def standing(self, caller: Caller) -> Verdict:
        """Return what a key has left as memory knows it, and count nothing. Must not block.

        Without a key: the free plan's full figures.
        """
        if (key := caller.key) is None:
            return self._full_free_quota()
        quotas = self._quotas(caller.identity, *figures_in_force(caller, self._plans))
        banned_for = self.bans.ends_in(key, caller.key_as_of)
        return Verdict(self.storage.recall(quotas), banned_for == 0, banned_for)

    def _full_free_quota(self) -> Verdict:
        quotas = self._quotas("nobody", *_figures(self._plans["free"]))
        return Verdict([Usage(quota, 0, quota.length) for quota in quotas])


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


def _storage(settings: Settings, database: Database, clock: Clock) -> tuple[str, dict[str, object]]:
    """Return where to count, as Flask-Limiter has it: the scheme of a storage, and its options.

    The address of Redis, which may have a password in it, is no part of Flask-Limiter's URI.
    """
    if not settings.limits_url:
        return "journal://", {"path": settings.counters_path, "clock": clock}
    # The package that it needs is not installed by default.
    from orders.counters.redis import RedisCounterStorage

    def store_id() -> str:
        with database.read() as connection:
            return key_store.store_id(connection)

    (scheme,) = RedisCounterStorage.STORAGE_SCHEME
    options = {"url": settings.limits_url, "store_id": store_id, "clock": clock}
    return f"{scheme}://", options


def _figures(plan: Plan) -> tuple[int, int]:
    if plan.per_minute is None or plan.per_day is None:
        raise ValueError(f"the plan {plan.name} has no figures of its own")
    return plan.per_minute, plan.per_day


def _make_quotas(identity: str, per_minute: int, per_day: int) -> tuple[Quota, ...]:
    items = parse_many(f"{per_minute}/minute;{per_day}/day")
    # Not the items' own keys, which have the figures in them: going back to earlier figures would
    # go back to their old windows.
    terms = ";".join(str(item) for item in items)
    return tuple(
        Quota(f"{identity}/{item.GRANULARITY.name}", item.amount, item.get_expiry(), terms)
        for item in items
    )
