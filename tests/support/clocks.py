"""Clocks that stand still until a test moves them, and a real Redis that goes by one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orders.clock import Clock

# Where limits are counted: tests that hold wherever that is say `counting` over.
WHERE_COUNTED = ["memory", pytest.param("redis", marks=pytest.mark.redis)]
# In Redis, it runs on for the moment that a question takes.
ONLY_WHERE_TIME_STANDS_STILL = pytest.mark.parametrize("counting", ["memory"])

# Each key gets the time to live that it has by the test's clock (ARGV[1], in ms). When each ends by
# that is noted in another database. A key that is new, or was given another time to live, was so a
# moment ago, with whole seconds: so much and no less was meant.
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
        """Let time pass."""
        self.wall += seconds
        self.run += seconds

    def set_wall(self, seconds):
        """Set the wall clock forward or back, as a person or NTP does; no time passes."""
        self.wall += seconds


class ClockBesideRedis(SetClock):
    """A clock that Redis goes by. Wall time that is set is this machine's own."""

    def __init__(self, server):
        super().__init__()
        self._server = server
        server.command("FLUSHALL")

    def advance(self, seconds):
        self.monotonic()
        super().advance(seconds)
        self.monotonic()

    def monotonic(self):
        """Return the time, which is looked at before and after each question to Redis."""
        self._server.command("EVAL", HOLD, 0, round(self.run * 1000))
        return super().monotonic()
