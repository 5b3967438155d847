"""Bans: a key that goes on sending requests after 429 is blocked for a while.

A ban is in two places. The key's row has it in wall time, so that it survives a restart, can be
seen and lifted, and reaches other processes over the same database. Memory has it in monotonic
time, so that setting the clock changes nothing, and so that it is in force even where the row could
not be written.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orders.clock import Clock
from orders.counters.windows import Counters
from orders.settings import Settings
from orders.store import keys as key_store
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.keys import ApiKey

if TYPE_CHECKING:
    from orders.counters.redis import RedisCounterStorage

log = logging.getLogger(__name__)


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
