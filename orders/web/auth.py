"""Whose request it is, and whether they may.

The first question is asked before the limits, because it says which limits; the second is judged
after them. Keys are looked up by their hash. A key that was found is remembered for less than a
second: revoking it, and any other change, is in force within that.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from orders import keys
from orders.clock import Clock
from orders.counters.windows import ADDRESS_PREFIX
from orders.settings import Network
from orders.store import keys as key_store
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.keys import ApiKey
from orders.web.refusals import InsufficientScope, InvalidKey, MissingKey

log = logging.getLogger(__name__)

REMEMBERED_SECONDS = 0.8
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class Caller:
    """Who asks. Without a valid key it is an address, and `presented` tells if a key was sent.

    `key_as_of` is the monotonic time at which the database said so of the key.
    """

    address: str
    presented: bool = False
    key: ApiKey | None = None
    key_as_of: float = 0.0

    @property
    def identity(self) -> str:
        """Whose windows the request counts in. A change of plan begins new ones."""
        if self.key is None:
            return ADDRESS_PREFIX + _network_of(self.address)
        return f"key:{self.key.id}.{self.key.plan_revision}"

    @property
    def actor(self) -> str:
        """Who the event log says it was."""
        return f"key:{self.key.id}" if self.key else "nobody"


@dataclass(frozen=True, slots=True)
class _Found:
    """A key as the database had it at a monotonic time, and until when it opens anything."""

    key: ApiKey
    as_of: float
    valid_until: float


class KeyRing:
    """Finds keys by what clients send, and notes when they are used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Take the database that the keys are in, and the clock they expire by."""
        self._database = database
        self._clock = clock
        self._found: dict[bytes, _Found] = {}
        self._lock = threading.Lock()
        # Minutes since 1970 in which keys were used: what is to be written, and what was.
        self._used: dict[int, int] = {}
        self._written: dict[int, int] = {}

    def identify(self, authorization: str | None, address: str) -> Caller:
        """Say whose request it is.

        Raises:
            StoreUnavailable: the key can't be looked up.
        """
        token = _bearer_token(authorization)
        if token is None:
            return Caller(address)
        found = self._find(token)
        now = self._clock.time()
        if found is None or now >= found.valid_until:
            return Caller(address, presented=True)
        self._note_use(found.key.id, int(now // 60))
        return Caller(address, True, found.key, found.as_of)

    def flush(self) -> None:
        """Write down when keys were last used. A failure is put off to the next time."""
        with self._lock:
            pending, self._used = self._used, {}
        if not pending:
            return
        used = {key: datetime.fromtimestamp(minute * 60, UTC) for key, minute in pending.items()}
        try:
            with self._database.write() as connection:
                key_store.write_last_used(connection, used)
        except StoreUnavailable as error:
            log.debug("When keys were last used is written later: %s", error)
            with self._lock:
                self._used = {**pending, **self._used}

    def _find(self, token: str) -> _Found | None:
        secret_hash = keys.digest(token)
        now = self._clock.monotonic()
        found = self._found.get(secret_hash)
        if found is not None and now - found.as_of < REMEMBERED_SECONDS:
            return found
        key = self._look_up(secret_hash) if keys.is_well_formed(token) else None
        if key is None:
            # Only what opens something is remembered: a new key works at once, guesses take no
            # memory, and a revoked key, like one that never was, is looked up each time.
            self._found.pop(secret_hash, None)
            return None
        self._found[secret_hash] = found = _Found(key, now, key.valid_until())
        return found

    def _look_up(self, secret_hash: bytes) -> ApiKey | None:
        now = self._clock.now()
        if not self._database.ask(key_store.OPENS, secret_hash=secret_hash, now=now):
            return None
        with self._database.read() as connection:
            return key_store.find_by_secret(connection, secret_hash)

    def _note_use(self, key_id: int, minute: int) -> None:
        if self._written.get(key_id) != minute:
            with self._lock:
                self._written[key_id] = self._used[key_id] = minute


def authorize(caller: Caller, method: str) -> ApiKey:
    """Check that the caller has a valid key that may use this method; return the key.

    Raises:
        MissingKey, InvalidKey, InsufficientScope: it has not, or may not.
    """
    if caller.key is None:
        raise InvalidKey if caller.presented else MissingKey
    if method not in _READING and "write" not in caller.key.scopes:
        raise InsufficientScope
    return caller.key


def client_address(peer: str, forwarded_for: str | None, trusted: tuple[Network, ...]) -> str:
    """Return the address of the client.

    That is the peer, unless the peer is a trusted proxy: then it is the right-most entry of its
    X-Forwarded-For that is not one. Entries left of that one are whatever the client wrote.
    """
    if not trusted or forwarded_for is None:
        return peer
    address = peer
    for entry in reversed(forwarded_for.split(",")):
        if not _is_within(address, trusted):
            break
        candidate = entry.strip()
        # A zone (`%eth0`) means nothing on another machine, and can be any text.
        if "%" in candidate or _parse_address(candidate) is None:
            break
        address = candidate
    return address


def _bearer_token(authorization: str | None) -> str | None:
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
def _network_of(text: str) -> str:
    # A household has a whole /64 of IPv6 addresses, and can take a new one for each request.
    address = _parse_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address or text)
