"""The limits' counters: a `limits` storage in memory, journalled to an SQLite file.

A hit that went to a file would give Python's lock away and win it back, which costs more than
the counting. So the counters live in memory, and once a second what changed is written to the file
in one transaction. The file is loaded at the start and written whole at the stop: counters survive
a restart exactly, and `kill -9` but for the last second.

A window's end is kept in monotonic time while the process runs, so that a clock that is set
neither frees nor locks out anyone. The file holds it in wall time; an end that lies further off
than the window is long was written by a clock that has since been set back, and is cut.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from limits.storage import Storage

from orders.clock import Clock
from orders.store.journal import Journal, Row

# Whose windows may be forgotten, when an attacker comes from more addresses than there is room for.
ADDRESS_PREFIX = "address:"
MAX_ADDRESSES = 50_000
# Both clocks are read one after the other, and wall time is slewed to keep right: less than this
# is no step.
_CLOCK_STEP = 0.5


@dataclass(slots=True)
class Window:
    """A fixed window of one key. `ends` is in monotonic seconds; `terms` are those it began on."""

    length: int
    terms: str
    count: int
    ends: float


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


class CounterStorage(Storage):
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
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)
        self._clock = clock
        self._lock = threading.Lock()
        # A shelf for each length, and apart for addresses: on each, windows end in the order in
        # which they began.
        self._shelves: dict[tuple[int, bool], dict[str, Window]] = {}
        self._changed: set[tuple[int, str]] = set()
        self._journal = Journal(path)
        self._to_wall = clock.time() - clock.monotonic()

    # What the limits of a request need: all windows at once, or none.

    def take(self, asks: Sequence[Ask]) -> tuple[bool, list[Standing]]:
        """Count one request in all windows if it fits in each, in none otherwise.

        Gives whether it fitted, and how the windows stand after it.
        """
        now = self._clock.monotonic()
        with self._lock:
            windows = [self._live(ask.key, ask.length, ask.terms, now) for ask in asks]
            fits = all(
                window is None or window.count < ask.quota
                for ask, window in zip(asks, windows, strict=True)
            )
            if fits:
                windows = [self._count(ask.key, ask.length, ask.terms, now) for ask in asks]
            return fits, [
                _standing(window, ask, now) for ask, window in zip(asks, windows, strict=True)
            ]

    def peek(self, asks: Sequence[Ask]) -> list[Standing]:
        """Tell how windows stand, counting nothing."""
        now = self._clock.monotonic()
        with self._lock:
            return [
                _standing(self._live(ask.key, ask.length, ask.terms, now), ask, now) for ask in asks
            ]

    # The interface of `limits`.

    @property
    def base_exceptions(self) -> type[Exception]:
        """Give the errors that mean the storage is away: none, as it is in memory."""
        return MemoryError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add to a key's window of `expiry` seconds, which begins with this; give the count."""
        now = self._clock.monotonic()
        with self._lock:
            return self._count(key, expiry, "", now, amount).count

    def get(self, key: str) -> int:
        """Give the count of a key's window, 0 where it has none."""
        window = self._find(key)
        return window.count if window else 0

    def get_expiry(self, key: str) -> float:
        """Give the wall time at which a key's window ends, now where it has none."""
        window = self._find(key)
        ends_in = window.ends - self._clock.monotonic() if window else 0.0
        return self._clock.time() + ends_in

    def check(self) -> bool:
        """Tell whether the journal is being written."""
        return not self._journal.failed

    def reset(self) -> int:
        """Forget all windows; give how many there were."""
        with self._lock:
            forgotten = sum(len(windows) for windows in self._shelves.values())
            self._note_all_as_changed()
            self._shelves.clear()
            return forgotten

    def clear(self, key: str) -> None:
        """Forget a key's windows."""
        with self._lock:
            for (length, _), windows in self._shelves.items():
                if windows.pop(key, None):
                    self._changed.add((length, key))

    # The journal.

    def load(self) -> None:
        """Take over what the journal holds. A damaged journal is made anew."""
        wall, now = self._clock.time(), self._clock.monotonic()
        rows = self._journal.read()
        with self._lock:
            for key, length, terms, count, ends in sorted(rows, key=lambda row: float(row[4])):
                ends_in = min(ends - wall, length)
                if ends_in > 0:
                    windows = self._shelf(key, length)
                    windows[key] = Window(length, terms, count, now + ends_in)

    def flush(self) -> None:
        """Write what changed since the last time, or all where the file no longer holds the rest.

        That is so when the file was lost, and when the clock was set, which moves all ends.
        """
        to_wall = self._clock.time() - self._clock.monotonic()
        lost = self._journal.is_lost()
        with self._lock:
            if lost or abs(to_wall - self._to_wall) > _CLOCK_STEP:
                self._to_wall = to_wall
                self._note_all_as_changed()
            changed, self._changed = self._changed, set()
            rows, gone = self._rows_of(changed)
        if not self._journal.write(rows, gone, self._clock.time()):
            with self._lock:
                self._changed |= changed

    def close(self) -> None:
        """Write everything, and close the journal."""
        with self._lock:
            self._note_all_as_changed()
        self.flush()
        self._journal.close()

    def _rows_of(self, changed: Iterable[tuple[int, str]]) -> tuple[list[Row], list[tuple[str]]]:
        rows, gone = [], []
        for length, key in changed:
            window = self._shelf(key, length).get(key)
            if window is None:
                gone.append((key,))
            else:
                rows.append((key, length, window.terms, window.count, window.ends + self._to_wall))
        return rows, gone

    # Windows. All of these are called with the lock held.

    def _note_all_as_changed(self) -> None:
        for (length, _), windows in self._shelves.items():
            self._changed.update((length, key) for key in windows)

    def _shelf(self, key: str, length: int) -> dict[str, Window]:
        return self._shelves.setdefault((length, key.startswith(ADDRESS_PREFIX)), {})

    def _live(self, key: str, length: int, terms: str, now: float) -> Window | None:
        window = self._shelf(key, length).get(key)
        # A window that began on other terms belongs to figures that are no longer in force.
        if window is None or window.ends <= now or window.terms != terms:
            return None
        return window

    def _count(self, key: str, length: int, terms: str, now: float, amount: int = 1) -> Window:
        window = self._live(key, length, terms, now)
        self._changed.add((length, key))
        if window is not None:
            window.count += amount
            return window
        windows = self._shelf(key, length)
        windows.pop(key, None)  # so that the new window goes to the end
        windows[key] = window = Window(length, terms, amount, now + length)
        self._sweep(windows, now, MAX_ADDRESSES if key.startswith(ADDRESS_PREFIX) else None)
        return window

    def _sweep(self, windows: dict[str, Window], now: float, most: int | None) -> None:
        # Two at a time: each new window pays for itself, and memory follows the live ones. Of too
        # many addresses the one that began first is forgotten; those of keys never are.
        for _ in range(2):
            oldest = next(iter(windows))
            if windows[oldest].ends > now and (most is None or len(windows) <= most):
                return
            self._changed.add((windows[oldest].length, oldest))
            del windows[oldest]

    def _find(self, key: str) -> Window | None:
        now = self._clock.monotonic()
        with self._lock:
            for windows in self._shelves.values():
                window = windows.get(key)
                if window is not None and window.ends > now:
                    return window
        return None


def _standing(window: Window | None, ask: Ask, now: float) -> Standing:
    if window is None:
        return Standing(0, ask.length)
    # A sum of floats may be off by its last digit, and then be rounded up to a second more.
    return Standing(window.count, min(window.ends - now, window.length))
