"""Admission of requests: identify, rate-limit, authenticate, authorize.

A caller is identified before the rate limits, which depend on it, and authorized after them.

**Limits.** Plans to quotas, quotas to verdicts, verdicts to headers. Flask-Limiter makes the
storage from its name, and the `limits` notation makes a plan's two windows from its figures. Its
own check of each request is left out: it tries one window after the other, so that a request
refused by the second has already used up the first, and it writes neither our headers nor any on
404. Our storages count in both windows or in none.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from flask import Flask, Request, g
from flask_limiter import Limiter
from limits import parse_many

from orders import apikeys
from orders.apikeys import READ, WRITE
from orders.clock import Clock
from orders.counters.memory import ADDRESS_PREFIX, Quota, Usage
from orders.server import WHOLE_AT
from orders.settings import Network, Plan, Settings
from orders.shop import CountersStorage, Shop, TestMode
from orders.store import apikeys as key_store
from orders.store.apikeys import ApiKey
from orders.store.database.database import DEADLINE_SECONDS, Database
from orders.store.database.errors import StoreUnavailable
from orders.web.refusals import InsufficientScope, InvalidKey, KeyBanned, MissingKey, RateLimited

log = logging.getLogger(__name__)

# An address as proxies write it: some add brackets to one of IPv6, and the port.
_PORT = "(?::[0-9]{1,5})?"
_FORWARDED = re.compile(rf"\[([0-9A-Fa-f:.]+)\]{_PORT}|([0-9.]+){_PORT}|([0-9A-Fa-f:.]+)")
# The paths of the API: `/v1` or `/v2`, or below; leading slashes fold.
API_PATH = re.compile(r"/+v[12](/|$)")
# Request ids are names, not secrets: guessing one opens nothing.
_random_bits = random.Random().getrandbits  # noqa: S311 # nosec B311
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# The scope of operations that any valid key may use.
ANY = ""


@dataclass(slots=True)
class Caller:
    """The sender of a request: a valid key, or else an address, `presented` with a bad key or none.

    `banned_for` is for how many seconds the key is banned.
    """

    address: str
    presented: bool = False
    key: ApiKey | None = None
    banned_for: float = 0.0

    @property
    def identity(self) -> str:
        """The name of the windows that the request counts in. A change of plan begins new ones."""
        if self.key is None:
            return ADDRESS_PREFIX + network_of(self.address)
        return f"key:{self.key.id}.{self.key.plan_revision}"


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
        """Raise RateLimited or KeyBanned, if the request was not admitted."""
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


@dataclass(slots=True)
class Call:
    """One request. `began` is in monotonic seconds; `path` is decoded, as WSGI writes it.

    `waited` is for how many seconds its last byte had been received before that.

    `judged_at` is the wall time of the verdict, 0 without one. `endpoint` is Flask's name of the
    route, None where there is none; `refusal` is the error code of a response of 400 and above.
    """

    shop: Shop
    began: float
    is_api: bool
    address: str
    method: str
    path: str
    # Whether its key, valid or not, is of test mode.
    is_test: bool = False
    caller: Caller | None = None
    verdict: Verdict | None = None
    judged_at: float = 0.0
    waited: float = 0.0
    endpoint: str | None = None
    refusal: str | None = None
    # Whether its duration says nothing of the service: it waits for events.
    rests: bool = False
    # The name of the request's key in the log and in events; None without a valid key.
    key_name: str | None = None
    request_id: str = field(default_factory=lambda: f"{_random_bits(64):016x}")

    @property
    def version(self) -> int:
        """The version of the API, 0 elsewhere."""
        return int(self.path.lstrip("/")[1]) if self.is_api else 0

    def key(self) -> ApiKey:
        """Return the key, which every admitted request to the API has."""
        if self.caller is None or self.caller.key is None:
            raise MissingKey
        return self.caller.key


def current_call() -> Call:
    call: Call = g.call
    return call


def is_of_test_mode(authorization: str | None) -> bool:
    """Return whether the key that a header presents, valid or not, is of test mode."""
    # The most common case first, which costs least: nothing in it looks like one.
    if authorization is None or apikeys.TEST_PREFIX not in authorization:
        return False
    token = bearer_token(authorization)
    return token is not None and apikeys.is_of_test_mode(token)


def _scope_of(view: object, method: str) -> str:
    """Return the scope that a request takes, by its view (None where there is no such route)."""
    if method == "OPTIONS" or (view is None and method in READING):
        return ANY
    declared: str | None = getattr(view, "scope", None)
    return (READ if method in READING else WRITE) if declared is None else declared


def admit(shop: Shop, test_mode: TestMode, incoming: Request, view: object) -> None:
    """Begin the call of a request. One to the API is identified, rate-limited and authorized.

    StoreUnavailable, RateLimited, KeyBanned, MissingKey, InvalidKey or InsufficientScope is raised
    where it is not admitted.
    """
    environ = incoming.environ
    path, authorization = environ["PATH_INFO"], environ.get("HTTP_AUTHORIZATION")
    is_api = API_PATH.match(path) is not None
    g.call = call = Call(
        shop,
        shop.clock.monotonic(),
        is_api,
        client_address(
            environ.get("REMOTE_ADDR") or "unknown",
            environ.get("HTTP_X_FORWARDED_FOR"),
            shop.settings.trusted_proxy,
        ),
        incoming.method,
        path,
        is_test=is_api and is_of_test_mode(authorization),
        endpoint=incoming.endpoint,
    )
    if call.is_test:
        call.shop = shop = test_mode.find() or shop
    # The time in the server's queue counts, too.
    now = time.monotonic()
    whole_at = environ.get(WHOLE_AT) or now
    call.waited = now - whole_at
    shop.database.set_deadline(whole_at + DEADLINE_SECONDS)
    if is_api:
        _admit_to_api(call, authorization, _scope_of(view, call.method))


def _admit_to_api(call: Call, authorization: str | None, scope: str) -> None:
    shop = call.shop
    try:
        call.caller = identify(shop, authorization, call.address)
    except StoreUnavailable:
        # A key that memory knows sees its own figures, as on every refusal.
        call.verdict = recalled_verdict(shop, authorization)
        raise
    if (key := call.caller.key) is not None:
        call.key_name = f"key:{key.id}"
    call.judged_at = shop.clock.time()
    call.verdict = judge(shop, call.caller)
    call.verdict.raise_if_limited()
    authorize(call.caller, scope)


def identify(shop: Shop, authorization: str | None, address: str) -> Caller:
    """Return the caller identified by a header and an address; may raise StoreUnavailable."""
    token = bearer_token(authorization)
    if token is None:
        return Caller(address)
    found = shop.keyring.find(token)
    if found is None:
        return Caller(address, presented=True)
    return Caller(address, True, found.key, found.banned_for)


def judge(shop: Shop, caller: Caller) -> Verdict:
    """Count a request, unless it is refused: a refused one takes nothing from any window."""
    quotas = _quotas(caller.identity, *figures_in_force(caller, shop.settings.plans))
    if caller.banned_for > 0:
        return Verdict(shop.counters.peek(quotas), False, caller.banned_for)
    admitted, usages = shop.counters.hit(quotas)
    if admitted or caller.key is None:
        return Verdict(usages, admitted)
    return Verdict(usages, False, shop.bans.strike(caller.key))


def recalled_verdict(shop: Shop, authorization: str | None) -> Verdict:
    """Return the limits of a key as memory knows them, and count nothing. Must not block.

    Without a key that memory knows: the free plan's full figures.
    """
    token, plans = bearer_token(authorization), shop.settings.plans
    known = shop.keyring.recall(token) if token else None
    if known is None:
        quotas = _quotas("nobody", *_figures(plans["free"]))
        return Verdict([Usage(quota, quota.limit, quota.length) for quota in quotas])
    caller = Caller("-", True, known.key)
    quotas = _quotas(caller.identity, *figures_in_force(caller, plans))
    return Verdict(shop.counters.recall(quotas), known.banned_for == 0, known.banned_for)


def authorize(caller: Caller, scope: str) -> ApiKey:
    """Return the caller's key; raise a refusal if it is invalid or lacks the scope."""
    if caller.key is None:
        raise InvalidKey if caller.presented else MissingKey
    if scope != ANY and scope not in caller.key.scopes:
        raise InsufficientScope(scope)
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


def counters_of(settings: Settings, database: Database, clock: Clock) -> CountersStorage:
    """Return where the requests of a shop are counted, as Flask-Limiter makes it. Opens nothing."""
    uri, options = _storage(settings, database, clock)
    # Its hooks go to an application that serves nothing, as no setting leaves its check out. Even
    # the one that releases its context makes a GET of one order take 13.8 % longer (294 us instead
    # of 265, CPU time in the process, in turns).
    app = Flask("limits", static_folder=None)
    limiter = Limiter(lambda: "", app=app, storage_uri=uri, storage_options=options)
    return cast("CountersStorage", limiter.storage)


def _storage(settings: Settings, database: Database, clock: Clock) -> tuple[str, Any]:
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
    return cast("tuple[int, int]", (plan.per_minute, plan.per_day))


@lru_cache(maxsize=1024)
def _quotas(identity: str, per_minute: int, per_day: int) -> tuple[Quota, ...]:
    items = parse_many(f"{per_minute}/minute;{per_day}/day")
    # The items' own keys have the figures in them: a return to earlier figures would return to
    # their old windows.
    terms = ";".join(str(item) for item in items)
    return tuple(
        Quota(f"{identity}/{item.GRANULARITY.name}", item.amount, item.get_expiry(), terms)
        for item in items
    )
