"""The rate limits' counters: in memory with a journal on disk, or shared in Redis.

Others use `windows` (a Quota, its Usage), `memory` and `redis` (the two storages) and
CountersRefused; the journal is of this package only. `redis` needs the package of that name, and is
imported only where ORDERS_LIMITS_URL is set.
"""


class CountersRefused(Exception):
    """Redis can't be used as it is configured. The message is one line that says how to fix it."""
