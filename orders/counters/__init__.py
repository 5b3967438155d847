"""The rate limits' counters: in memory with a journal on disk, or shared in Redis.

Others use `windows` (Counters, Quota, Usage) and the two storages, `memory` and `redis`; the start
handles CountersRefused. `redis` needs the package of that name, and is imported only where
ORDERS_LIMITS_URL is set.
"""


class CountersRefused(Exception):
    """Redis can't be used as it is configured. The message is one line that says how to fix it."""
