"""Identify the caller of a request, and authorize it.

A caller is identified before the rate limits, which depend on it, and authorized after them. Keys
are looked up by their hash. A valid key is cached for less than a second: revoking it, and any
other change, is in force within that.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from orders import keys
from orders.clock import STEP_SECONDS, Clock, instant
from orders.counters.windows import ADDRESS_PREFIX
from orders.settings import Network
from orders.store import clock_floor
from orders.store import keys as key_store
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.keys import ApiKey
from orders.web.refusals import InsufficientScope, InvalidKey, MissingKey

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
        cached = self._cache.get(keys.digest(token)) if token else None
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
                clock_floor.note(connection, instant(latest))
        except StoreUnavailable as error:
            log.debug("When keys were last used is written later: %s", error)
            with self._lock:
                self._unwritten = {**pending, **self._unwritten}
            return
        self._stored = latest
        if is_set_back:
            clock_floor.warn(instant(latest))
            # From here on, the store's own judgement: a command may end it.
            self._cache.clear()
            self._latest = self._stored = now

    def note_time(self) -> None:
        """Write the latest time that keys were judged by, if any were."""
        if self._latest > self._stored:
            with contextlib.suppress(StoreUnavailable), self._database.write() as connection:
                clock_floor.note(connection, instant(self._latest))
                self._stored = self._latest

    def _time(self) -> float:
        """Return the Unix time that keys are judged by: no earlier than any before."""
        self._latest = max(self._latest, self._clock.time())
        return self._latest

    def _find(self, token: str) -> _CachedKey | None:
        secret_hash = keys.digest(token)
        now = self._clock.monotonic()
        cached = self._cache.get(secret_hash)
        if cached is not None and now - cached.as_of < CACHED_SECONDS:
            return cached
        key = self._look_up(secret_hash) if keys.is_well_formed(token) else None
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
