"""Bans: a key that goes on sending after being told to wait is shut out for a while.

A ban is in two places. The key's row holds it in wall time, so that it survives a restart, can be
seen and can be lifted, and so that other processes over the same database learn of it. Memory holds
it in monotonic time, so that setting the clock changes nothing, and so that it is in force even
where the row could not be written.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta

from orders.clock import Clock
from orders.counters.memory import CounterStorage
from orders.counters.shared import SharedCounterStorage
from orders.settings import Settings
from orders.store import keys as key_store
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.keys import ApiKey

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Ban:
    """`ends` and `known` are in monotonic seconds; `known` is when the row was seen to hold it."""

    until: datetime
    ends: float
    known: float | None


class Bans:
    """Which keys are banned, and for how long."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        storage: CounterStorage | SharedCounterStorage,
        clock: Clock,
    ) -> None:
        """Take the figures of bans, where keys are, where refusals are counted, and the time."""
        self._after = settings.ban_after
        self._window = settings.ban_window
        self._seconds = settings.ban_seconds
        self._database = database
        self._storage = storage
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
        """Take over the bans that keys' rows hold, at the start: later the clock may be set."""
        as_of = self._clock.monotonic()
        with self._database.read() as connection:
            banned = [key for key in key_store.get_all(connection) if key.banned_until]
        with self._lock:
            for key in banned:
                self._take_over(key, as_of)

    def ends_in(self, key: ApiKey, as_of: float) -> float:
        """Return for how many seconds the key is still banned: 0 if it is not.

        `as_of` is when its row was read: a ban of this process's own may be newer than that.
        """
        ban = self._bans.get(key.id)
        if ban is None and key.banned_until is None:
            return 0.0
        with self._lock:
            ban = self._bans.get(key.id)
            row_is_newer = ban is None or (ban.known is not None and as_of > ban.known)
            if row_is_newer and (ban is None or ban.until != key.banned_until):
                ban = self._take_over(key, as_of)
            return max(0.0, ban.ends - self._clock.monotonic()) if ban else 0.0

    def strike(self, key: ApiKey) -> float:
        """Count an answer of 429; give for how many seconds the key is banned after it."""
        with self._lock:
            standing = self._bans.get(key.id)
            if standing is not None and standing.ends > self._clock.monotonic():
                return standing.ends - self._clock.monotonic()
            since = self._storage.strike(_strikes(key.id), self._window, self._after)
            if since is None:
                return 0.0
            if since > 0:
                # Another process has banned the key, whose row will tell.
                return max(0.0, self._seconds - since)
            self._bans[key.id] = ban = _Ban(
                self._clock.now() + timedelta(seconds=self._seconds),
                self._clock.monotonic() + self._seconds,
                None,
            )
            self.begun += 1
        log.warning("Key %d is banned for %d s: it went on after 429.", key.id, self._seconds)
        self._write(key.id, ban)
        return float(self._seconds)

    def flush(self) -> None:
        """Write bans that could not be written when they began, and forget those that are over."""
        now = self._clock.monotonic()
        with self._lock:
            self._bans = {
                key_id: ban
                for key_id, ban in self._bans.items()
                if ban.ends > now or ban.known is not None
            }
            unwritten = [item for item in self._bans.items() if item[1].known is None]
        for key_id, ban in unwritten:
            self._write(key_id, ban)

    def _take_over(self, key: ApiKey, as_of: float) -> _Ban | None:
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
            ban.known = self._clock.monotonic()
            self._storage.settle(_strikes(key_id))


def _strikes(key_id: int) -> str:
    return f"strikes:{key_id}"
