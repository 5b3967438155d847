"""The limits' counters in Redis: a `limits` storage that several processes share.

Each request is one script in Redis, which counts it in all windows or in none. While Redis is away,
each process counts in windows of its own in memory. The first request that fails makes all others
count there at once; housekeeping probes Redis twice a second, and finds out when it is back. Counts
made meanwhile, or lost by Redis, are not put back.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar, cast

from limits.storage import RedisStorage
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from orders.clock import Clock
from orders.counters import CountersRefused
from orders.counters.memory import ADDRESS_PREFIX, TOGETHER_SECONDS, Counters, Quota, Usage
from orders.urls import place_of_redis

log = logging.getLogger(__name__)

T = TypeVar("T")

PREFIX = "store-orders"
# A request waits no longer than this for a connection, and no longer for the answer: Redis answers
# in less than a millisecond, or something is wrong.
TIMEOUT_SECONDS = 0.1
# After the last strike, all processes learn of the ban from Redis until this long after it has been
# written to the key's row, which none of them caches for longer; or for this long if it can't be.
_SETTLED_MS = 1_000
_UNSETTLED_MS = 10_000
# A window takes half a kilobyte.
_MOST_SEEN = 2_000
_PROBE = Quota("probe/second", 1_000_000_000, 1)
_ERRORS = (exceptions.RedisError, OSError)
_REFUSALS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
    exceptions.InvalidResponse,
)

# Counts a request in all windows if each has room for it (ARGV[1] is COUNT), or only reads them. A
# STRIKE is not counted shortly after the first one in its window.
# A window is a hash, KEYS[i], of its count and of the terms that it began on; of each, ARGV has the
# limit, the length in milliseconds and the terms. Lengths are times to live, so that no machine's
# clock but Redis' own counts; where that was set back, they are cut.
# Returns whether there was room, and then each window's count and milliseconds to its end.
_READ, _COUNT, _STRIKE = 0, 1, 2
_HIT = f"""
local answer, limit, length, terms = {{1}}, {{}}, {{}}, {{}}
for i, key in ipairs(KEYS) do
  limit, length, terms = tonumber(ARGV[i * 3 - 1]), tonumber(ARGV[i * 3]), ARGV[i * 3 + 1]
  local window = redis.call('HMGET', key, 'terms', 'count')
  local is_live = window[1] == terms
  answer[i * 2] = is_live and tonumber(window[2]) or 0
  answer[i * 2 + 1] = is_live and math.min(redis.call('PTTL', key), length) or length
  local is_second = answer[i * 2] == 1 and answer[i * 2 + 1] > length - {TOGETHER_SECONDS * 1000}
  if answer[i * 2] >= limit or ARGV[1] == '{_STRIKE}' and is_second then answer[1] = 0 end
end
if answer[1] == 1 and ARGV[1] ~= '{_READ}' then
  for i, key in ipairs(KEYS) do
    answer[i * 2] = answer[i * 2] + 1
    redis.call('HSET', key, 'terms', ARGV[i * 3 + 1], 'count', answer[i * 2])
    redis.call('PEXPIRE', key, answer[i * 2 + 1])
  end
end
return answer
"""


class RedisCounterStorage(RedisStorage):
    """Fixed windows in Redis, and in memory while it is away. Thread-safe."""

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
        """Set up the client. Opens nothing.

        The address is no part of `uri`, as it may have a password in it.
        """
        options |= {
            "socket_connect_timeout": TIMEOUT_SECONDS,
            "socket_timeout": TIMEOUT_SECONDS,
            "retry": Retry(NoBackoff(), 0),  # after a failure, counted in memory at once
            "protocol": 2,  # every Redis and Valkey speaks it, and nothing here needs more
        }
        super().__init__(url, wrap_exceptions=wrap_exceptions, **options)
        self._hit = self.storage.register_script(_HIT)
        self._place = place_of_redis(url)
        self._store_id = store_id
        self._clock = clock
        self._local = Counters(clock)
        # The last state of windows in Redis, and when: for the keys that came last.
        self._seen: OrderedDict[str, tuple[Usage, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._is_away = self._is_refusing = False

    def hit(self, quotas: Sequence[Quota]) -> tuple[bool, list[Usage]]:
        return self._ask(lambda: self._count(quotas, _COUNT)) or self._local.hit(quotas)

    def peek(self, quotas: Sequence[Quota]) -> list[Usage]:
        answer = self._ask(lambda: self._count(quotas, _READ))
        return answer[1] if answer else self._local.peek(quotas)

    def recall(self, quotas: Sequence[Quota]) -> list[Usage]:
        """Return the windows' state as Redis last had it for this process, asking nothing."""
        return self._local.peek(quotas) if self._is_away else list(map(self._recall, quotas))

    def _recall(self, quota: Quota) -> Usage:
        seen, as_of = self._seen.get(quota.key, (Usage(quota, quota.limit, quota.length), 0.0))
        ends_in = seen.ends_in - (self._clock.monotonic() - as_of)
        if seen.quota != quota or ends_in <= 0:
            return Usage(quota, quota.limit, quota.length)
        return Usage(quota, seen.remaining, ends_in)

    def strike(self, key: str, length: int, last: int) -> int:
        """Count a strike in a window of `length` seconds; return which one it is, 0 if not counted.

        In the second after the first, further ones don't count. After the last one, counting goes
        on until a second after `settle`, or for ten seconds without it; then it begins anew.
        """

        def strike() -> int:
            is_counted, count, _ = self._run([Quota(key, _PROBE.limit, length)], _STRIKE)
            if not is_counted:
                return 0
            if count == last:
                self.storage.pexpire(self.prefixed_key(key), _UNSETTLED_MS)
            return count

        count = self._ask(strike)
        return self._local.strike(key, length, last) if count is None else count

    def settle(self, key: str) -> None:
        """Let strikes begin anew, as all processes will know of the ban in a moment."""
        self._ask(lambda: self.storage.pexpire(self.prefixed_key(key), _SETTLED_MS))

    def load(self) -> None:
        """Find out at the start whether Redis counts; raise CountersRefused if it refuses to."""
        try:
            self._run([_PROBE], _COUNT)
        except _ERRORS as error:
            if _is_refusal(error):
                raise CountersRefused(
                    f"Redis at {self._place} refuses to count: {_message_of(error)}. "
                    "Fix that or ORDERS_LIMITS_URL, then start again."
                ) from None
            self._lose(error)
        else:
            log.info("Limits are counted in Redis at %s.", self._place)

    def flush(self) -> None:
        """Probe Redis, also in a process that has no requests. Called twice a second."""
        # A request's finding meanwhile is newer than the answer to this.
        was_away = self._is_away
        try:
            # Not a PING: a Redis that is full or a replica answers that, too.
            self._run([_PROBE], _COUNT)
        except _ERRORS as error:
            self._lose(error)
        else:
            if was_away:
                self._is_away = self._is_refusing = False
                log.warning("Redis at %s is back, and counts again.", self._place)

    def close(self) -> None:
        """Close all connections. What was counted is in Redis."""
        self.storage.close()

    def check(self) -> bool:
        """Return whether Redis counts, as far as requests and housekeeping have found out."""
        return not self._is_away

    @property
    def trouble(self) -> str:
        """Why the counters are not shared; empty if they are."""
        return "Redis is away, each process counts in memory" if self._is_away else ""

    # The rest of the interface of `limits` is RedisStorage's.

    def prefixed_key(self, key: str) -> str:
        """Return a key's name in Redis: the windows of one client are in one slot of a cluster."""
        client, _, window = key.rpartition("/")
        return f"{self._prefix}{{{client}}}/{window}"

    @cached_property
    def _prefix(self) -> str:
        return f"{PREFIX}:{self._store_id()}:"

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Return Redis' answer to a question, or None while it is away."""
        if self._is_away:
            return None
        try:
            return question()
        except _ERRORS as error:
            self._lose(error)
            return None

    def _count(self, quotas: Sequence[Quota], amount: int) -> tuple[bool, list[Usage]]:
        has_room, *answer = self._run(quotas, amount)
        windows = zip(quotas, answer[::2], answer[1::2], strict=True)
        usages = [
            Usage(quota, max(0, quota.limit - count), left / 1000) for quota, count, left in windows
        ]
        self._remember(usages)
        return has_room == 1, usages

    def _remember(self, usages: list[Usage]) -> None:
        now = self._clock.monotonic()
        for each in usages:
            if not each.quota.key.startswith(ADDRESS_PREFIX):
                self._seen.pop(each.quota.key, None)
                self._seen[each.quota.key] = each, now
        with suppress(KeyError):  # another thread was faster
            while len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)

    def _run(self, quotas: Sequence[Quota], amount: int) -> list[int]:
        arguments: list[str | int] = [amount]
        for quota in quotas:
            arguments += (quota.limit, quota.length * 1000, quota.terms)
        answer = self._hit([self.prefixed_key(quota.key) for quota in quotas], arguments)
        return cast("list[int]", answer)

    def _lose(self, error: Exception) -> None:
        is_refusal = _is_refusal(error)
        with self._lock:
            is_news = not self._is_away or (is_refusal and not self._is_refusing)
            self._is_away, self._is_refusing = True, is_refusal
        if is_news:
            log.warning(
                "Redis at %s %s (%s): each process counts in memory until it is back.",
                self._place,
                "refuses to count" if is_refusal else "is away",
                _message_of(error),
            )


def _is_refusal(error: Exception) -> bool:
    """Return whether Redis is there and refuses, which no waiting changes."""
    is_unknown_command = type(error) is exceptions.ResponseError and error.status_code == "ERR"
    return is_unknown_command or isinstance(error, _REFUSALS)


def _message_of(error: Exception) -> str:
    message = " ".join(f"{getattr(error, 'status_code', None) or ''} {error}".split())
    return message or type(error).__name__
