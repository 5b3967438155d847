"""The keys as a running shop knows them: looked up, used and banned. Database rows behind memory.

Keys are looked up by their hash. A valid key is cached for less than a second: revoking it, and any
other change, is in force within that.

A key that keeps sending requests after 429 is banned for a while. A ban is in two places. The
key's row has it in wall time, so that it survives a restart, can be seen and lifted, and reaches
other processes over the same database. Memory has it in monotonic time, so that setting the clock
changes nothing, and so that it is in force even where the row could not be written.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from orders import apikeys
from orders.clock import STEP_SECONDS, Clock, instant
from orders.counters.memory import Counters
from orders.settings import Settings
from orders.store import apikeys as key_store
from orders.store.apikeys import ApiKey
from orders.store.database.database import Database
from orders.store.database.errors import StoreUnavailable

if TYPE_CHECKING:
    from orders.counters.redis import RedisCounterStorage

log = logging.getLogger(__name__)

CACHED_SECONDS = 0.8
# How often an unused service records the time.
_RECORD_SECONDS = 3_600.0


class KnownKey(NamedTuple):
    """A valid key, and for how many seconds it is still banned: 0 if it is not."""

    key: ApiKey
    banned_for: float


@dataclass(frozen=True, slots=True)
class _CachedKey:
    """A key as the database had it at a monotonic time, and the Unix time when it expires."""

    key: ApiKey
    as_of: float
    valid_until: float


class KeyRing:
    """Looks up keys, and records when they are used."""

    def __init__(
        self, database: Database, bans: Bans, clock: Clock, *, is_test: bool = False
    ) -> None:
        """Set up the keys of a store: all of test mode or none, whatever the rows say."""
        self._database = database
        self._bans = bans
        self._clock = clock
        self._is_test = is_test
        self._cache: dict[bytes, _CachedKey] = {}
        self._lock = threading.Lock()
        # By id, the minutes since 1970 in which keys were last used: to be written, and recorded.
        self._unwritten: dict[int, int] = {}
        self._recorded: dict[int, int] = {}
        # The latest Unix time that the clock has shown, and that the store knows of.
        self._latest = 0.0
        self._stored = 0.0

    def find(self, token: str, since: float = -math.inf) -> KnownKey | None:
        """Return the valid key of a token, if there is one, and record its use.

        It is looked up again if it was read before `since`, in monotonic seconds.
        """
        cached = self._find(token, since)
        if cached is None or self._time() >= cached.valid_until:
            return None
        self._record_use(cached.key.id, int(self._clock.time() // 60))
        return self._known(cached)

    def recall(self, token: str) -> KnownKey | None:
        """Return the key as memory knows it, however long ago it was read. Asks nothing.

        Good for the contents of a refusal, not to decide what a caller may do.
        """
        cached = self._cache.get(apikeys.digest(token))
        if cached is None or self._time() >= cached.valid_until:
            return None
        return self._known(cached)

    def _known(self, cached: _CachedKey) -> KnownKey:
        return KnownKey(cached.key, self._bans.ends_in(cached.key, cached.as_of))

    def refresh(self) -> None:
        """Look keys up again: one has changed."""
        self._cache.clear()

    def flush(self) -> None:
        """Write when keys were last used. If that fails, it is retried the next time."""
        latest, now = self._time(), self._clock.time()
        is_set_back = latest - now > STEP_SECONDS
        with self._lock:
            pending, self._unwritten = self._unwritten, {}
        if not pending and not is_set_back and latest < self._stored + _RECORD_SECONDS:
            return
        used = {key: datetime.fromtimestamp(minute * 60, UTC) for key, minute in pending.items()}
        try:
            with self._database.write() as connection:
                key_store.write_last_used(connection, used)
                key_store.raise_clock_floor(connection, instant(latest))
        except StoreUnavailable as error:
            log.debug("The last uses of keys will be written later: %s", error)
            with self._lock:
                self._unwritten = {**pending, **self._unwritten}
            return
        self._stored = latest
        if is_set_back:
            key_store.warn_of_clock(instant(latest))
            # From here on, the store decides: a command may end it.
            self._cache.clear()
            self._latest = self._stored = now

    def record_time(self) -> None:
        """Write the latest time that keys were judged by, if any were."""
        if self._latest > self._stored:
            with contextlib.suppress(StoreUnavailable), self._database.write() as connection:
                key_store.raise_clock_floor(connection, instant(self._latest))
                self._stored = self._latest

    def _time(self) -> float:
        """Return the Unix time that keys are judged by: no earlier than any before."""
        self._latest = max(self._latest, self._clock.time())
        return self._latest

    def _find(self, token: str, since: float) -> _CachedKey | None:
        secret_hash = apikeys.digest(token)
        now = self._clock.monotonic()
        cached = self._cache.get(secret_hash)
        if cached is not None and cached.as_of >= since and now - cached.as_of < CACHED_SECONDS:
            return cached
        key = self._look_up(secret_hash) if self._may_be_ours(token) else None
        if key is None:
            # Only valid keys are cached: a new key works at once, guesses take no memory, and a
            # revoked key is looked up each time, like one that never was.
            self._cache.pop(secret_hash, None)
            return None
        self._cache[secret_hash] = cached = _CachedKey(key, now, key.valid_until())
        return cached

    def _may_be_ours(self, token: str) -> bool:
        return apikeys.is_of_test_mode(token) == self._is_test and apikeys.is_well_formed(token)

    def _look_up(self, secret_hash: bytes) -> ApiKey | None:
        now = instant(self._time())
        if not self._database.fetch_all(key_store.IS_VALID, secret_hash=secret_hash, now=now):
            return None
        with self._database.read() as connection:
            return key_store.find_by_secret(connection, secret_hash)

    def _record_use(self, key_id: int, minute: int) -> None:
        if self._recorded.get(key_id) != minute:
            with self._lock:
                self._recorded[key_id] = self._unwritten[key_id] = minute


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
        """Write bans that could not be written when they began, and remove those that are over."""
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
        """Put the ban of a key's row in force, or lift it if the row has none."""
        if key.banned_until is None:
            self._bans.pop(key.id, None)
            return None
        # Further off than a ban is long: the clock was set back, or the setting shortened.
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
