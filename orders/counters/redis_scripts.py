"""What Redis does for the limits' counters, in Lua: a script happens whole, alone, or not at all.

Lengths are Redis' own times to live, in milliseconds, so that no clock of a service's machine
counts. Where Redis' clock was set back, a key lives longer than its window is long: it is cut.
"""

from __future__ import annotations

# Takes one request in all windows, or in none (ARGV[1] is 1), or only looks (0).
# A window is a hash, KEYS[i], of the terms it began on and a count. Of each, ARGV has its quota,
# its length, its terms, and what the asking process remembers of it: a count, and the time to its
# end. So what Redis has lost, in a restart or by its clock, goes on where that process saw it last.
# Gives whether it fitted, and then for each window its count and the time to its end.
TAKE = """
local counts, lefts, is_new, fits = {}, {}, {}, 1
for i, key in ipairs(KEYS) do
  local at = i * 5 - 3
  local quota, length, terms = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2]
  local known, known_left = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local found = redis.call('HMGET', key, 'terms', 'count')
  local count, left = 0, length
  is_new[i] = found[1] ~= terms
  if not is_new[i] then
    count, left = tonumber(found[2]), redis.call('PTTL', key)
    if left < 0 or left > length then
      left = length
      redis.call('PEXPIRE', key, left)
    end
  end
  if known > count then
    count = known
    redis.call('HSET', key, 'terms', terms, 'count', count)
    if is_new[i] then
      left = known_left
      redis.call('PEXPIRE', key, left)
      is_new[i] = false
    end
  end
  if count >= quota then fits = 0 end
  counts[i], lefts[i] = count, left
end
local answer = {fits}
for i, key in ipairs(KEYS) do
  if fits == 1 and ARGV[1] == '1' then
    counts[i] = counts[i] + 1
    if is_new[i] then
      redis.call('HSET', key, 'terms', ARGV[i * 5 - 1], 'count', 1)
      redis.call('PEXPIRE', key, lefts[i])
    else
      redis.call('HINCRBY', key, 'count', 1)
    end
  end
  answer[i * 2], answer[i * 2 + 1] = counts[i], lefts[i]
end
return answer
"""

# Counts something, KEYS[1], until it happened ARGV[1] times in ARGV[2] ms. Then the count stays for
# ARGV[3] ms, or until some time after SETTLE, as a mark that others find, and is gone.
# Gives -1 until then, 0 with the last one, and while the mark stands how long it has stood.
STRIKE = """
local after, window, mark = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local count = redis.call('HINCRBY', KEYS[1], 'count', 1)
local left = redis.call('PTTL', KEYS[1])
if count == after then
  redis.call('HSET', KEYS[1], 'stood', 0, 'rest', mark)
  redis.call('PEXPIRE', KEYS[1], mark)
  return {0}
end
if count > after then
  local told = redis.call('HMGET', KEYS[1], 'stood', 'rest')
  local stood, rest = tonumber(told[1]), tonumber(told[2])
  if left < 0 or left > rest then
    left = rest
    redis.call('PEXPIRE', KEYS[1], rest)
  end
  return {math.max(1, stood + rest - left)}
end
if left < 0 or left > window then redis.call('PEXPIRE', KEYS[1], window) end
return {-1}
"""

# Lets the mark of KEYS[1], if there is one, stand for no more than ARGV[1] ms from now.
SETTLE = """
local rest, new = tonumber(redis.call('HGET', KEYS[1], 'rest') or 0), tonumber(ARGV[1])
if rest > new then
  local stood = math.max(0, rest - redis.call('PTTL', KEYS[1]))
  redis.call('HSET', KEYS[1], 'stood', stood, 'rest', new)
  redis.call('PEXPIRE', KEYS[1], new)
end
return {}
"""
