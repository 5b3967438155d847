"""The limits' counters in Redis: a `limits` storage that several processes share.

Each request is one script in Redis, which counts it in all windows or in none. What it tells is
remembered in memory. While Redis is away, each process goes on from there by itself, and no request
waits for it: the first that fails says so for all. Housekeeping looks whether it is there, for a
process that nobody asks is to know it, too, and finds out when it is back.

Redis is then told again what is remembered, and the higher count holds. So a Redis that lost its
memory gives nobody new windows. What several processes counted meanwhile is not added up: of a
window, as much is carried over as the one of them saw that counted most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from limits.storage import RedisStorage

from orders.clock import Clock
from orders.counters.memory import Ask, Counters, Standing
from orders.counters.redis_link import RedisAway, RedisLink, RedisRefused, connection_options
from orders.counters.redis_scripts import SETTLE, STRIKE, TAKE
from orders.urls import place_of_redis

log = logging.getLogger(__name__)

PREFIX = "store-orders"
# Others learn of a ban from Redis until so long after its key's row tells of it, as a row is kept
# in mind for less than a second. Where the row can't be written they do for longer, and then count
# anew.
_KNOWN_MS = 1_000
_MARK_MS = 10_000
# The clocks of two machines drift apart by less than this part of a window. What is remembered of
# one that has no more left than that, or than a second, may be over already.
_DRIFT = 0.001
_PROBE = Ask("probe/second", 1_000_000_000, 1, "probe")


class CountersRefused(Exception):
    """Redis can't be used as it is set. The message is one line that says how to mend it."""


class SharedCounterStorage(RedisStorage):
    """Fixed windows in Redis, and in memory while it is away. Safe to use from any thread."""

    STORAGE_SCHEME = ["shared"]  # noqa: RUF012 - as `limits` declares it

    def __init__(
        self,
        uri: str,
        wrap_exceptions: bool = False,
        *,
        url: str,
        store_id: Callable[[], str],
        clock: Clock,
        **options: Any,
    ) -> None:
        """Take where Redis is, how to learn whose windows these are, and the time. Opens nothing.

        The address is no part of `uri`, as it may hold a password.
        """
        super().__init__(url, wrap_exceptions=wrap_exceptions, **connection_options(), **options)
        self._link = RedisLink(self.storage.connection_pool)
        self._take = self.storage.register_script(TAKE)
        self._strike = self.storage.register_script(STRIKE)
        self._settle = self.storage.register_script(SETTLE)
        self._place = place_of_redis(url)
        self._store_id = store_id
        self._prefix = ""
        self._local = Counters(clock)
        self._clock = clock
        self._is_away = False
        # Whether the log has it that Redis is there, and refuses.
        self._is_refusing = False
        self._turn = threading.Lock()

    # As `CounterStorage`.

    def take(self, asks: Sequence[Ask]) -> tuple[bool, list[Standing]]:
        """Count one request in all windows if it fits in each, in none otherwise.

        Gives whether it fitted, and how the windows stand after it.
        """
        told = self._ask(asks, 1)
        return self._local.take(asks) if told is None else told

    def peek(self, asks: Sequence[Ask]) -> list[Standing]:
        """Return how windows stand, counting nothing."""
        told = self._ask(asks, 0)
        return self._local.peek(asks) if told is None else told[1]

    def strike(self, key: str, window: int, after: int) -> float | None:
        """Count something in a key's window of so many seconds, until it happened `after` times.

        Gives None until then. With the last one it gives 0.0, and the count begins anew a second
        after `settle`, or ten later; until then it gives the seconds since the last one.
        """
        if not self._is_away:
            arguments = (after, window * 1000, _MARK_MS)
            try:
                (since,) = self._link.run(self._strike, [self.prefixed_key(key)], arguments)
            except RedisAway as error:
                self._lose(error)
            else:
                return None if since < 0 else since / 1000
        return self._local.strike(key, window, after)

    def settle(self, key: str) -> None:
        """Let a count that has come to its end begin anew: what it led to is known from now on."""
        if self._is_away:
            return
        try:
            self._link.run(self._settle, [self.prefixed_key(key)], (_KNOWN_MS,))
        except RedisAway as error:
            self._lose(error)

    def load(self) -> None:
        """See whether Redis counts, at the start. One that can't be reached may come later.

        Raises:
            CountersRefused: Redis is there and refuses.
        """
        try:
            self._probe()
        except RedisRefused as error:
            raise CountersRefused(
                f"Redis at {self._place} refuses to count: {error}. "
                "Mend that or ORDERS_LIMITS_URL, then start again."
            ) from None
        except RedisAway as error:
            self._lose(error)
        else:
            log.info("Limits are counted in Redis at %s.", self._place)

    def flush(self) -> None:
        """Find out whether Redis is there. Called twice a second, however few requests ask it."""
        # What a request finds out while this asks is newer than the answer to this.
        was_away = self._is_away
        try:
            self._probe()
        except RedisAway as error:
            if was_away:
                self._tell_refusal(error)
            else:
                self._lose(error)
            return
        if was_away:
            self._is_away = self._is_refusing = False
            log.warning("Redis at %s is back, and counts again.", self._place)

    def close(self) -> None:
        """Close all connections. What was counted is in Redis."""
        self._link.close()
        self.storage.close()

    def check(self) -> bool:
        """Return whether Redis counts, as far as requests and housekeeping have found out."""
        return not self._is_away

    @property
    def trouble(self) -> str:
        """Say in words what keeps the counters from being shared: nothing where all is well."""
        return "Redis is away, each process counts in memory" if self._is_away else ""

    def _ask(self, asks: Sequence[Ask], amount: int) -> tuple[bool, list[Standing]] | None:
        """Have so many requests counted in Redis, none or one; give None where it is away."""
        if self._is_away:
            return None
        # An end that is reckoned from before the question is never too late.
        as_of = self._clock.monotonic()
        arguments: list[str | int] = [amount]
        for ask, known in zip(asks, self._local.peek(asks), strict=True):
            arguments += (ask.quota, ask.length * 1000, ask.terms, *_remembered(ask, known))
        try:
            fits, *told = self._link.run(
                self._take, [self.prefixed_key(ask.key) for ask in asks], arguments
            )
        except RedisAway as error:
            self._lose(error)
            return None
        standings = [
            Standing(count, left / 1000) for count, left in zip(told[::2], told[1::2], strict=True)
        ]
        self._local.learn(asks, standings, as_of)
        return fits == 1, standings

    def _probe(self) -> None:
        # Not a PING: a Redis that is full or a replica answers that, too.
        arguments = (1, _PROBE.quota, _PROBE.length * 1000, _PROBE.terms, 0, 0)
        self._link.run(self._take, [self.prefixed_key(_PROBE.key)], arguments)

    def _lose(self, error: RedisAway) -> None:
        with self._turn:
            was_away, self._is_away = self._is_away, True
        self._link.close()
        if not was_away:
            self._is_refusing = isinstance(error, RedisRefused)
            log.warning(
                "Redis at %s is away (%s): each process counts in memory until it is back.",
                self._place,
                error,
            )

    def _tell_refusal(self, error: RedisAway) -> None:
        # It was not there at all, or was loading; what keeps it from counting now is another thing.
        if isinstance(error, RedisRefused) and not self._is_refusing:
            self._is_refusing = True
            log.warning("Redis at %s is there, and refuses to count: %s", self._place, error)

    # What `limits` offers beyond that is done by it, in Redis, as long as that is there.

    def prefixed_key(self, key: str) -> str:
        """Return a key's name in Redis: the windows of one client are in one slot of a cluster."""
        if not self._prefix:
            self._prefix = f"{PREFIX}:{self._store_id()}:"
        client, slash, window = key.rpartition("/")
        return f"{self._prefix}{{{client or window}}}{slash}{window if client else ''}"

    def reset(self) -> int:
        """Forget all windows of this store; give how many there were in Redis."""
        self._local.forget_all()
        return int(self.lua_clear_keys([self.prefixed_key("").removesuffix("{}") + "*"]))


def _remembered(ask: Ask, known: Standing) -> tuple[int, int]:
    """Return the count and the milliseconds left of a window that still lasts, or zeros."""
    if known.ends_in <= 1 + ask.length * _DRIFT:
        return 0, 0
    return known.count, int(known.ends_in * 1000)
