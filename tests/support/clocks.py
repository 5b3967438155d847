"""Clocks that stand still until a test moves them, and a real Redis that follows one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orders.clock import Clock

# Where limits are counted: for tests parametrized by `counting`.
WHERE_COUNTED = ["memory", pytest.param("redis", marks=pytest.mark.redis)]
# In Redis, time passes during a call.
ONLY_WHERE_TIME_STANDS_STILL = pytest.mark.parametrize("counting", ["memory"])

# Set each key's time to live by the test's clock (ARGV[1], in ms). When it ends by that clock is
# noted in another database. The time to live of a key that is new or was set again a moment ago is
# rounded up to the whole seconds that were meant.
HOLD = """
local now = tonumber(ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  local at, left = redis.call('PEXPIRETIME', key), redis.call('PTTL', key)
  redis.call('SELECT', 1)
  local noted = redis.call('HMGET', key, 'at', 'ends')
  redis.call('SELECT', 0)
  local ends = now + math.ceil(left / 1000) * 1000
  if noted[1] and tonumber(noted[1]) == at then ends = tonumber(noted[2]) end
  redis.call('PEXPIRE', key, ends - now)
  at = redis.call('PEXPIRETIME', key)
  redis.call('SELECT', 1)
  redis.call('HSET', key, 'at', at, 'ends', ends)
  redis.call('SELECT', 0)
end
"""


class SetClock(Clock):
    """A clock that stands still until a test moves it."""

    def __init__(self):
        self.wall = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()
        self.run = 1000.0

    def time(self):
        return self.wall

    def monotonic(self):
        return self.run

    def advance(self, seconds):
        """Advance the clock."""
        self.wall += seconds
        self.run += seconds

    def set_wall(self, seconds):
        """Set the wall clock forward or back, as a person or NTP does; no time passes."""
        self.wall += seconds


class ClockBesideRedis(SetClock):
    """A clock that Redis follows. Wall time that is set is this process' own."""

    def __init__(self, server):
        super().__init__()
        self._server = server
        server.command("FLUSHALL")

    def advance(self, seconds):
        self.monotonic()
        super().advance(seconds)
        self.monotonic()

    def monotonic(self):
        """Return the time, which is read before and after each call to Redis."""
        self._server.command("EVAL", HOLD, 0, round(self.run * 1000))
        return super().monotonic()
