"""The limits' counters in memory, and a `limits` storage that journals them to an SQLite file.

A hit that went to a file would give Python's lock away and win it back, which costs more than
the counting. So the counters live in memory, and twice a second what changed is written to the file
in one transaction. The file is loaded at the start and written whole at the stop: counters survive
a restart exactly, and `kill -9` but for the last second.

A window's end is kept in monotonic time while the process runs, so that a clock that is set
neither frees nor locks out anyone. The file holds it in wall time; an end that lies further off
than the window is long was written by a clock that has since been set back, and is cut.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from limits.storage import Storage

from orders.clock import Clock
from orders.counters.journal import Journal
from orders.counters.windows import Row, Shelf, Window

# Whose windows may be forgotten, when an attacker comes from more addresses than there is room for.
# That frees no one who could not go on anyway: to be forgotten takes so many requests from as many
# other addresses, each of which may send a whole plan's.
ADDRESS_PREFIX = "address:"
MAX_ADDRESSES = 50_000
# So many rows are made for the journal while requests wait: some tenths of a millisecond.
_SLICE = 256
# Both clocks are read one after the other, and wall time is slewed to keep right: less than this
# is no step.
_CLOCK_STEP = 0.5


@dataclass(frozen=True, slots=True)
class Ask:
    """A window that a request must fit in: at most `quota` requests in `length` seconds.

    `terms` are all figures of the plan: when one changes, all windows begin anew.
    """

    key: str
    quota: int
    length: int
    terms: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How a window stands: requests counted, and seconds until it ends."""

    count: int
    ends_in: float


class Counters:
    """Fixed windows in memory. Safe to use from any thread."""

    def __init__(self, clock: Clock, *, is_journalled: bool = False) -> None:
        """Take what time it is, and whether somebody writes down what changes."""
        self._clock = clock
        self._is_journalled = is_journalled
        self._lock = threading.Lock()
        # A shelf for each length, and apart for addresses.
        self._shelves: dict[tuple[int, bool], Shelf] = {}

    # What the limits of a request need: all windows at once, or none.

    def take(self, asks: Sequence[Ask]) -> tuple[bool, list[Standing]]:
        """Count one request in all windows if it fits in each, in none otherwise.

        Gives whether it fitted, and how the windows stand after it.
        """
        now = self._clock.monotonic()
        with self._lock:
            shelves = [self._shelf(ask.key, ask.length) for ask in asks]
            windows = [
                shelf.live_on(ask.terms, ask.key, now)
                for ask, shelf in zip(asks, shelves, strict=True)
            ]
            fits = all(
                window is None or window.count < ask.quota
                for ask, window in zip(asks, windows, strict=True)
            )
            if fits:
                windows = [
                    shelf.count(ask.terms, ask.key, now)
                    for ask, shelf in zip(asks, shelves, strict=True)
                ]
            return fits, [
                _standing(window, ask, now) for ask, window in zip(asks, windows, strict=True)
            ]

    def peek(self, asks: Sequence[Ask]) -> list[Standing]:
        """Return how windows stand, counting nothing."""
        now = self._clock.monotonic()
        with self._lock:
            return [
                _standing(
                    self._shelf(ask.key, ask.length).live_on(ask.terms, ask.key, now), ask, now
                )
                for ask in asks
            ]

    def strike(self, key: str, window: int, after: int) -> float | None:
        """Count something in a key's window of so many seconds, until it happened `after` times.

        Gives None until then. With the last one it gives 0.0, and the count begins anew.
        """
        now = self._clock.monotonic()
        with self._lock:
            shelf = self._shelf(key, window)
            if shelf.count("", key, now).count < after:
                return None
            shelf.remove(key)
            return 0.0

    def settle(self, key: str) -> None:
        """Hear that what a count led to is known: here, it began anew at once."""

    def learn(self, asks: Sequence[Ask], told: Sequence[Standing], as_of: float) -> None:
        """Take over how windows stood at a monotonic time, from whoever counts for all."""
        now = self._clock.monotonic()
        with self._lock:
            for ask, standing in zip(asks, told, strict=True):
                if standing.count:
                    window = Window(ask.terms, standing.count, as_of + standing.ends_in)
                    self._shelf(ask.key, ask.length).learn(ask.key, window, now)

    def forget_all(self) -> int:
        """Forget all windows; give how many there were."""
        with self._lock:
            forgotten = sum(map(len, self._shelves.values()))
            self._shelves.clear()
            return forgotten

    def _shelf(self, key: str, length: int) -> Shelf:
        is_address = key.startswith(ADDRESS_PREFIX)
        shelf = self._shelves.get((length, is_address))
        if shelf is None:
            most = MAX_ADDRESSES if is_address else None
            shelf = Shelf(length, most, is_journalled=self._is_journalled)
            self._shelves[length, is_address] = shelf
        return shelf


class CounterStorage(Counters, Storage):
    """Fixed windows in memory, with a journal. Safe to use from any thread."""

    STORAGE_SCHEME = ["journal"]  # noqa: RUF012 - as `limits` declares it

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        path: Path,
        clock: Clock,
        **options: float | str | bool,
    ) -> None:
        """Take where the journal is and what time it is. Opens nothing."""
        Counters.__init__(self, clock, is_journalled=True)
        Storage.__init__(self, uri, wrap_exceptions=wrap_exceptions, **options)
        self._journal = Journal(path)
        self._to_wall = clock.time() - clock.monotonic()
        # Whether the journal is to be written whole, whatever has changed.
        self._is_behind = False

    # The interface of `limits`.

    @property
    def base_exceptions(self) -> type[Exception]:
        """Return the errors that mean the storage is away: none, as it is in memory."""
        return MemoryError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a key's window of `expiry` seconds, which begins with this; return the count."""
        now = self._clock.monotonic()
        with self._lock:
            return self._shelf(key, expiry).count("", key, now, amount).count

    def get(self, key: str) -> int:
        """Return the count of a key's window, 0 where it has none."""
        window = self._find(key)
        return window.count if window else 0

    def get_expiry(self, key: str) -> float:
        """Return the wall time at which a key's window ends, now where it has none."""
        window = self._find(key)
        ends_in = window.ends - self._clock.monotonic() if window else 0.0
        return self._clock.time() + ends_in

    def check(self) -> bool:
        """Return whether the journal is being written."""
        return not self._journal.failed

    @property
    def trouble(self) -> str:
        """Say in words what keeps the counters from being safe: nothing where all is well."""
        return "" if self.check() else "not written, counting in memory"

    def reset(self) -> int:
        """Forget all windows; give how many there were."""
        forgotten = self.forget_all()
        self._is_behind = True
        return forgotten

    def clear(self, key: str) -> None:
        """Forget a key's windows."""
        with self._lock:
            for shelf in self._shelves.values():
                shelf.remove(key)

    # The journal.

    def load(self) -> None:
        """Take over what the journal holds. A damaged journal is made anew."""
        wall, now = self._clock.time(), self._clock.monotonic()
        rows = self._journal.read()
        with self._lock:
            for key, length, terms, count, ends in sorted(rows, key=lambda row: float(row[4])):
                ends_in = min(ends - wall, length)
                if ends_in > 0:
                    self._shelf(key, length).put(key, Window(terms, count, now + ends_in))

    def flush(self) -> None:
        """Write what changed since the last time, or all where the file no longer holds the rest.

        That is so when the file was lost or could not be written, and when the clock was set, which
        moves all ends. What could not be written is not noted as such: of addresses that come and
        go while the disk is full, that would be all there ever were.
        """
        to_wall = self._clock.time() - self._clock.monotonic()
        lost = self._journal.is_lost()
        with self._lock:
            whole = self._is_behind or lost or abs(to_wall - self._to_wall) > _CLOCK_STEP
            if whole:
                self._to_wall = to_wall
            self._is_behind = False
            keys = [
                (shelf, shelf.take_all() if whole else shelf.take_changed())
                for shelf in self._shelves.values()
            ]
        if whole or any(some for _, some in keys):
            self._journal.write(self._rows_of(keys), self._clock.time(), whole)

    def close(self) -> None:
        """Write everything, and close the journal."""
        self._is_behind = True
        self.flush()
        self._journal.close()

    def _rows_of(self, keys: Sequence[tuple[Shelf, list[str]]]) -> Iterator[Row]:
        # In slices, between which requests are counted: what that changes is written the next time.
        for shelf, some in keys:
            for begin in range(0, len(some), _SLICE):
                with self._lock:
                    rows = list(shelf.rows(some[begin : begin + _SLICE], self._to_wall))
                yield from rows

    def _find(self, key: str) -> Window | None:
        now = self._clock.monotonic()
        with self._lock:
            found = (shelf.live(key, now) for shelf in self._shelves.values())
            return next((window for window in found if window), None)


def _standing(window: Window | None, ask: Ask, now: float) -> Standing:
    if window is None:
        return Standing(0, ask.length)
    # A sum of floats may be off by its last digit, and then be rounded up to a second more.
    return Standing(window.count, min(window.ends - now, ask.length))
