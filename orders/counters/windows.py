"""Fixed windows in memory, counted all together or not at all.

Windows of one length end in the order in which they began. So each length has a shelf of windows in
that order, and sweeping a shelf is reading its beginning.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from orders.clock import Clock

# The windows of addresses may be evicted when an attacker comes from more addresses than there is
# room for. That gives no attacker more requests: from as many addresses, each with a plan's limit,
# there are more than enough.
ADDRESS_PREFIX = "address:"
MAX_ADDRESSES = 50_000

# Strikes within this time after the first were on their way together.
TOGETHER_SECONDS = 1

# A window in the journal: key, length in seconds, terms, count, and the wall time of its end.
Row = tuple[str, int, str, int, float]


@dataclass(frozen=True)
class Quota:
    """At most `limit` requests in a window of `length` seconds. The key is `CLIENT/WINDOW`.

    `terms` are all figures of the client's plan: when one changes, all windows begin anew.
    """

    key: str
    limit: int
    length: int
    terms: str = ""

    @cached_property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


class Usage(NamedTuple):
    """The state of a quota's window: how many requests it has room for, and seconds to its end."""

    quota: Quota
    remaining: int
    ends_in: float


@dataclass(slots=True)
class Window:
    """A window of one key. `ends` is in monotonic seconds; `terms` are those it began on."""

    terms: str
    count: int
    ends: float


class Shelf:
    """The windows of one length. Not thread-safe: callers must hold a lock."""

    def __init__(self, length: int, capacity: int | None, *, is_journalled: bool) -> None:
        """Make an empty shelf for `capacity` windows, or for any number.

        With a journal, the keys of changed windows are collected for it.
        """
        self.length = length
        self._capacity = capacity
        self._is_journalled = is_journalled
        self._windows: dict[str, Window] = {}
        self._changed: set[str] = set()

    def __len__(self) -> int:
        return len(self._windows)

    def live(self, terms: str, key: str, now: float) -> Window | None:
        """Return a key's window, unless it is over or began on other terms."""
        window = self._windows.get(key)
        if window is None or window.ends <= now or window.terms != terms:
            return None
        return window

    def count(self, terms: str, key: str, now: float) -> Window:
        """Count one in a key's window, which begins now if there is none; return the window."""
        window = self.live(terms, key, now)
        self._mark_changed(key)
        if window is not None:
            window.count += 1
            return window
        self._windows.pop(key, None)  # so that the new window goes to the end
        self._windows[key] = window = Window(terms, 1, now + self.length)
        self._sweep(now)
        return window

    def put(self, key: str, window: Window) -> None:
        """Add a window of an earlier process. To be called in the order in which windows end."""
        self._windows[key] = window

    def remove(self, key: str) -> None:
        if self._windows.pop(key, None):
            self._mark_changed(key)

    def drain(self, *, whole: bool) -> list[str]:
        """Return the keys of windows that changed since the last call, or of all windows."""
        changed, self._changed = self._changed, set()
        return list(self._windows if whole else changed)

    def rows(self, keys: Iterable[str], to_wall: float) -> Iterator[Row]:
        """Yield windows as rows; `to_wall` is how far wall time is ahead of monotonic time.

        A window that was removed becomes one that ended long ago.
        """
        for key in keys:
            window = self._windows.get(key)
            if window is None:
                yield key, self.length, "", 0, 0.0
            else:
                yield key, self.length, window.terms, window.count, window.ends + to_wall

    def _mark_changed(self, key: str) -> None:
        if self._is_journalled:
            self._changed.add(key)

    def _sweep(self, now: float) -> None:
        # Two at a time: each new window pays for itself, and memory follows the live ones. Beyond
        # the capacity, the window that began first is evicted.
        for oldest in list(islice(self._windows, 2)):
            is_over_capacity = self._capacity is not None and len(self._windows) > self._capacity
            if self._windows[oldest].ends > now and not is_over_capacity:
                return
            del self._windows[oldest]
            self._mark_changed(oldest)


class Counters:
    """Fixed windows in memory. Thread-safe."""

    def __init__(self, clock: Clock, *, is_journalled: bool = False) -> None:
        self._clock = clock
        self._is_journalled = is_journalled
        self._lock = threading.Lock()
        # By length, and apart for addresses.
        self._shelves: dict[tuple[int, bool], Shelf] = {}

    @property
    def size(self) -> int:
        return sum(map(len, self._shelves.values()))

    def hit(self, quotas: Sequence[Quota]) -> tuple[bool, list[Usage]]:
        """Count a request in all windows if each has room for it, and in none otherwise.

        Returns whether it was counted, and the windows' state after it.
        """
        now = self._clock.monotonic()
        with self._lock:
            usages = [self._usage(quota, now) for quota in quotas]
            if any(usage.remaining == 0 for usage in usages):
                return False, usages
            for quota in quotas:
                self._shelf(quota.key, quota.length).count(quota.terms, quota.key, now)
            return True, [Usage(quota, left - 1, ends_in) for quota, left, ends_in in usages]

    def peek(self, quotas: Sequence[Quota]) -> list[Usage]:
        """Return the windows' state, counting nothing."""
        now = self._clock.monotonic()
        with self._lock:
            return [self._usage(quota, now) for quota in quotas]

    # In memory, nothing else has to be asked.
    recall = peek

    def strike(self, key: str, length: int, last: int) -> int:
        """Count a strike in a window of `length` seconds; return which one it is, 0 if not counted.

        In the second after the first, further ones don't count: they were on their way together.
        After the last one the count begins anew.
        """
        now = self._clock.monotonic()
        with self._lock:
            shelf = self._shelf(key, length)
            first = shelf.live("", key, now)
            if first and first.count == 1 and first.ends - now > length - TOGETHER_SECONDS:
                return 0
            count = shelf.count("", key, now).count
            if count >= last:
                shelf.remove(key)
            return count

    def settle(self, key: str) -> None:
        """Do nothing: here, strikes begin anew after the last one."""

    def _usage(self, quota: Quota, now: float) -> Usage:
        window = self._shelf(quota.key, quota.length).live(quota.terms, quota.key, now)
        if window is None:
            return Usage(quota, quota.limit, quota.length)
        # A sum of floats may be off by its last digit, and then be rounded up to a second more.
        ends_in = min(window.ends - now, quota.length)
        return Usage(quota, max(0, quota.limit - window.count), ends_in)

    def _shelf(self, key: str, length: int) -> Shelf:
        is_address = key.startswith(ADDRESS_PREFIX)
        shelf = self._shelves.get((length, is_address))
        if shelf is None:
            capacity = MAX_ADDRESSES if is_address else None
            shelf = Shelf(length, capacity, is_journalled=self._is_journalled)
            self._shelves[length, is_address] = shelf
        return shelf
