"""Time in a real Redis, made to stand still like a test's clock."""

from __future__ import annotations

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


class RedisTime:
    """Holds the hands of a Redis."""

    def __init__(self, server):
        self._server = server
        server.command("FLUSHALL")

    def set(self, seconds):
        """Make it this many seconds by the test's clock, which only runs forward."""
        self._server.command("EVAL", HOLD, 0, round(seconds * 1000))
