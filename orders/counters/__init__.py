"""The rate limits' counters: in memory with a journal on disk, or shared in Redis.

Others use `memory` (Counters, Quota, Usage, and a storage) and the storage `redis`; the start
handles CountersRefused. `redis` needs the package of that name, and is imported only where
ORDERS_LIMITS_URL is set.
"""


class CountersRefused(Exception):
    """Redis can't be used as it is configured. The message is one line that says how to fix it."""
