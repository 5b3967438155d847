"""Who may send requests, and how many: identify, rate-limit, authenticate, authorize; bans.

**Keys.** A caller is identified before the rate limits, which depend on it, and authorized after
them. Keys are looked up by their hash. A valid key is cached for less than a second: revoking it,
and any other change, is in force within that.

**Limits.** Plans to quotas, quotas to verdicts, verdicts to headers. Flask-Limiter makes the
storage from its name, and the `limits` notation makes a plan's two windows from its figures. Its
own check of each request is left out: it tries one window after the other, so that a request
refused by the second has already used up the first, and it writes neither our headers nor any on
404. Our storages count in both windows or in none.

**Bans.** A key that goes on sending requests after 429 is blocked for a while. A ban is in two
places. The key's row has it in wall time, so that it survives a restart, can be seen and lifted,
and reaches other processes over the same database. Memory has it in monotonic time, so that setting
the clock changes nothing, and so that it is in force even where the row could not be written.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from flask import Flask
from flask_limiter import Limiter
from limits import parse_many

from orders import apikeys
from orders.clock import STEP_SECONDS, Clock, instant
from orders.counters.memory import CounterStorage
from orders.counters.windows import ADDRESS_PREFIX, Counters, Quota, Usage
from orders.settings import Network, Plan, Settings
from orders.store import apikeys as key_store
from orders.store.apikeys import ApiKey
from orders.store.database.database import Database
from orders.store.database.errors import StoreUnavailable
from orders.web.refusals import (
    InsufficientScope,
    InvalidKey,
    KeyBanned,
    MissingKey,
    RateLimited,
)

if TYPE_CHECKING:
    from orders.counters.redis import RedisCounterStorage

log = logging.getLogger(__name__)

CACHED_SECONDS = 0.8
# How often the time is noted of a service that nobody uses.
_NOTE_SECONDS = 3_600.0
# An address as proxies write it: some add brackets to one of IPv6, and the port.
_PORT = "(?::[0-9]{1,5})?"
_FORWARDED = re.compile(rf"\[([0-9A-Fa-f:.]+)\]{_PORT}|([0-9.]+){_PORT}|([0-9A-Fa-f:.]+)")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class Caller:
    """The sender of a request: a valid key, or else an address, `presented` with a bad key or none.

    `key_as_of` is the monotonic time at which the key was read from the database.
    """

    address: str
    presented: bool = False
    key: ApiKey | None = None
    key_as_of: float = 0.0

    @property
    def identity(self) -> str:
        """The name of the windows that the request counts in. A change of plan begins new ones."""
        if self.key is None:
            return ADDRESS_PREFIX + network_of(self.address)
        return f"key:{self.key.id}.{self.key.plan_revision}"


@dataclass(frozen=True, slots=True)
class _CachedKey:
    """A key as the database had it at a monotonic time, and the Unix time when it expires."""

    key: ApiKey
    as_of: float
    valid_until: float


class KeyRing:
    """Looks up keys, and records when they are used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Begin with nothing cached. Opens nothing."""
        self._database = database
        self._clock = clock
        self._cache: dict[bytes, _CachedKey] = {}
        self._lock = threading.Lock()
        # By id, the minutes since 1970 in which keys were last used: to be written, and noted.
        self._unwritten: dict[int, int] = {}
        self._noted: dict[int, int] = {}
        # The latest Unix time that the clock has shown, and that the store knows of.
        self._latest = 0.0
        self._stored = 0.0

    def identify(self, authorization: str | None, address: str) -> Caller:
        """Return the caller that a header and an address stand for.

        Raises:
            StoreUnavailable: the key can't be looked up.
        """
        token = bearer_token(authorization)
        if token is None:
            return Caller(address)
        cached = self._find(token)
        if cached is None or self._time() >= cached.valid_until:
            return Caller(address, presented=True)
        self._note_use(cached.key.id, int(self._clock.time() // 60))
        return Caller(address, True, cached.key, cached.as_of)

    def recall(self, authorization: str | None, address: str) -> Caller:
        """Return the caller as memory knows it, however long ago it was read. Asks nothing.

        For what a refusal shows, not for what a caller may do.
        """
        token = bearer_token(authorization)
        cached = self._cache.get(apikeys.digest(token)) if token else None
        if cached is None or self._time() >= cached.valid_until:
            return Caller(address, presented=token is not None)
        return Caller(address, True, cached.key, cached.as_of)

    def flush(self) -> None:
        """Write when keys were last used. What can't be written is retried the next time."""
        latest, now = self._time(), self._clock.time()
        is_set_back = latest - now > STEP_SECONDS
        with self._lock:
            pending, self._unwritten = self._unwritten, {}
        if not pending and not is_set_back and latest < self._stored + _NOTE_SECONDS:
            return
        used = {key: datetime.fromtimestamp(minute * 60, UTC) for key, minute in pending.items()}
        try:
            with self._database.write() as connection:
                key_store.write_last_used(connection, used)
                key_store.raise_clock_floor(connection, instant(latest))
        except StoreUnavailable as error:
            log.debug("When keys were last used is written later: %s", error)
            with self._lock:
                self._unwritten = {**pending, **self._unwritten}
            return
        self._stored = latest
        if is_set_back:
            key_store.warn_of_clock(instant(latest))
            # From here on, the store's own judgement: a command may end it.
            self._cache.clear()
            self._latest = self._stored = now

    def note_time(self) -> None:
        """Write the latest time that keys were judged by, if any were."""
        if self._latest > self._stored:
            with contextlib.suppress(StoreUnavailable), self._database.write() as connection:
                key_store.raise_clock_floor(connection, instant(self._latest))
                self._stored = self._latest

    def _time(self) -> float:
        """Return the Unix time that keys are judged by: no earlier than any before."""
        self._latest = max(self._latest, self._clock.time())
        return self._latest

    def _find(self, token: str) -> _CachedKey | None:
        secret_hash = apikeys.digest(token)
        now = self._clock.monotonic()
        cached = self._cache.get(secret_hash)
        if cached is not None and now - cached.as_of < CACHED_SECONDS:
            return cached
        key = self._look_up(secret_hash) if apikeys.is_well_formed(token) else None
        if key is None:
            # Only valid keys are cached: a new key works at once, guesses take no memory, and a
            # revoked key is looked up each time, like one that never was.
            self._cache.pop(secret_hash, None)
            return None
        self._cache[secret_hash] = cached = _CachedKey(key, now, key.valid_until())
        return cached

    def _look_up(self, secret_hash: bytes) -> ApiKey | None:
        now = instant(self._time())
        if not self._database.ask(key_store.IS_VALID, secret_hash=secret_hash, now=now):
            return None
        with self._database.read() as connection:
            return key_store.find_by_secret(connection, secret_hash)

    def _note_use(self, key_id: int, minute: int) -> None:
        if self._noted.get(key_id) != minute:
            with self._lock:
                self._noted[key_id] = self._unwritten[key_id] = minute


def authorize(caller: Caller, method: str) -> ApiKey:
    """Return the caller's key, which must be valid and have the scope for this method.

    Raises:
        MissingKey, InvalidKey, InsufficientScope: there is none, or it may not.
    """
    if caller.key is None:
        raise InvalidKey if caller.presented else MissingKey
    if method not in _READING and "write" not in caller.key.scopes:
        raise InsufficientScope
    return caller.key


def client_address(peer: str, forwarded_for: str | None, trusted: tuple[Network, ...]) -> str:
    """Return the address of the client.

    That is the peer, unless the peer is a trusted proxy: then it is the right-most entry of
    X-Forwarded-For that is no trusted proxy. Entries left of that one are the client's invention;
    empty ones are none (RFC 9110, section 5.6.1).
    """
    if not trusted or forwarded_for is None:
        return peer
    address = peer
    for entry in filter(None, map(str.strip, reversed(forwarded_for.split(",")))):
        if not _is_within(address, trusted):
            break
        # A zone (`%eth0`) means nothing on another machine, and can be any text.
        named = _FORWARDED.fullmatch(entry)
        candidate = named[named.lastindex or 0] if named else ""
        if _parse_address(candidate) is None:
            break
        address = candidate
    return address


def bearer_token(authorization: str | None) -> str | None:
    """Return the key that a header presents, if any."""
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip(" ")
    return token if scheme.lower() == "bearer" and token else None


@lru_cache(maxsize=1024)
def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_within(text: str, networks: tuple[Network, ...]) -> bool:
    address = _parse_address(text)
    return address is not None and any(
        address.version == network.version and address in network for network in networks
    )


@lru_cache(maxsize=1024)
def network_of(text: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 of an IPv6 one."""
    # A household has a whole /64 of IPv6 addresses, and can take a new one for each request.
    address = _parse_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address or text)


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


@dataclass(slots=True)
class _Ban:
    """`ends` is in monotonic seconds, and so is `seen`: when the row was read or written with it.

    `seen` is None for a ban that could not be written yet.
    """

    until: datetime
    ends: float
    seen: float | None


class Bans:
    """The keys that are banned, and until when."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        counters: Counters | RedisCounterStorage,
        clock: Clock,
    ) -> None:
        """Begin without any ban."""
        self._after = settings.ban_after
        self._window = settings.ban_window
        self._seconds = settings.ban_seconds
        self._database = database
        self._counters = counters
        self._clock = clock
        self._bans: dict[int, _Ban] = {}
        self._lock = threading.Lock()
        # How many bans this process has begun.
        self.begun = 0

    @property
    def in_force(self) -> int:
        """How many keys are banned now, as far as this process knows."""
        now = self._clock.monotonic()
        with self._lock:
            return sum(ban.ends > now for ban in self._bans.values())

    def load(self) -> None:
        """Read the bans from the keys' rows, at the start: later the clock may be set."""
        as_of = self._clock.monotonic()
        with self._database.read() as connection:
            banned = [key for key in key_store.get_all(connection) if key.banned_until]
        with self._lock:
            for key in banned:
                self._adopt(key, as_of)

    def ends_in(self, key: ApiKey, as_of: float) -> float:
        """Return for how many seconds the key is still banned: 0 if it is not.

        `as_of` is when its row was read: a ban of this process's own may be newer than that.
        """
        if key.banned_until is None and key.id not in self._bans:
            return 0.0
        with self._lock:
            ban = self._bans.get(key.id)
            row_is_newer = ban is None or (ban.seen is not None and as_of > ban.seen)
            if row_is_newer and (ban is None or ban.until != key.banned_until):
                ban = self._adopt(key, as_of)
            return self._left(ban)

    def strike(self, key: ApiKey) -> float:
        """Count an answer of 429; return for how many seconds the key is banned after it."""
        with self._lock:
            if left := self._left(self._bans.get(key.id)):
                return left
            count = self._counters.strike(_strikes(key.id), self._window, self._after)
            if count < self._after:
                return 0.0
            if count > self._after:
                # Another process has just banned the key; its row will say until when.
                return float(self._seconds)
            ban = self._begin(key.id)
        log.warning("Key %d is banned for %d s: it continued after 429.", key.id, self._seconds)
        self._write(key.id, ban)
        return float(self._seconds)

    def flush(self) -> None:
        """Write bans that could not be written when they began, and forget those that are over."""
        now = self._clock.monotonic()
        with self._lock:
            self._bans = {
                key_id: ban
                for key_id, ban in self._bans.items()
                if ban.ends > now or ban.seen is not None
            }
            unwritten = [item for item in self._bans.items() if item[1].seen is None]
        for key_id, ban in unwritten:
            self._write(key_id, ban)

    def _left(self, ban: _Ban | None) -> float:
        return max(0.0, ban.ends - self._clock.monotonic()) if ban else 0.0

    def _begin(self, key_id: int) -> _Ban:
        until = self._clock.now() + timedelta(seconds=self._seconds)
        ban = _Ban(until, self._clock.monotonic() + self._seconds, None)
        self._bans[key_id] = ban
        self.begun += 1
        return ban

    def _adopt(self, key: ApiKey, as_of: float) -> _Ban | None:
        """Have the ban of a key's row in force, or none where the row has none."""
        if key.banned_until is None:
            self._bans.pop(key.id, None)
            return None
        # Further off than a ban is long: the clock was set back since, or the setting made shorter.
        ends_in = min(key.banned_until.timestamp() - self._clock.time(), self._seconds)
        ban = _Ban(key.banned_until, self._clock.monotonic() + ends_in, as_of)
        self._bans[key.id] = ban
        return ban

    def _write(self, key_id: int, ban: _Ban) -> None:
        try:
            with self._database.write() as connection:
                key_store.change(connection, key_id, banned_until=ban.until)
        except StoreUnavailable as error:
            log.warning("The ban of key %d is kept in memory for now: %s", key_id, error)
        else:
            ban.seen = self._clock.monotonic()
            self._counters.settle(_strikes(key_id))


def _strikes(key_id: int) -> str:
    return f"key:{key_id}/strikes"
