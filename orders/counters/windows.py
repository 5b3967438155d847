"""Fixed windows in memory: a shelf of them for each length, in the order in which they end.

Windows of one length end in the order in which they began, so the first on a shelf is the first
that is over, and looking at that one is enough to keep the shelf swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

# Key, length in seconds, terms, count, and the wall time of the end.
Row = tuple[str, int, str, int, float]


@dataclass(slots=True)
class Window:
    """A fixed window of one key. `ends` is in monotonic seconds; `terms` are those it began on."""

    terms: str
    count: int
    ends: float


class Shelf:
    """Windows of one length. Not safe by itself: whoever calls holds a lock."""

    def __init__(self, length: int, most: int | None = None, *, is_journalled: bool) -> None:
        """Take the length in seconds, and how many windows there may be, if not any number.

        What changes is noted for the journal, where there is one.
        """
        self.length = length
        self._most = most
        self._windows: dict[str, Window] = {}
        self._changed: set[str] = set()
        self._is_journalled = is_journalled

    def __len__(self) -> int:
        return len(self._windows)

    def live(self, key: str, now: float) -> Window | None:
        """Return a key's window unless it is over."""
        window = self._windows.get(key)
        return window if window is not None and window.ends > now else None

    def live_on(self, terms: str, key: str, now: float) -> Window | None:
        """Return a key's window unless it is over, or belongs to figures no longer in force."""
        window = self._windows.get(key)
        if window is None or window.ends <= now or window.terms != terms:
            return None
        return window

    def count(self, terms: str, key: str, now: float, amount: int = 1) -> Window:
        """Add to a key's window, which begins with this if there is none; return the window."""
        window = self.live_on(terms, key, now)
        self._note(key)
        if window is not None:
            window.count += amount
            return window
        return self._begin(key, Window(terms, amount, now + self.length), now)

    def learn(self, key: str, told: Window, now: float) -> None:
        """Take over how a key's window stands with whoever counts for several processes.

        What is told may have been overtaken by what another thread was told: counts only rise.
        """
        window = self.live_on(told.terms, key, now)
        if window is None:
            self._begin(key, told, now)
        elif told.count >= window.count:
            window.count, window.ends = told.count, told.ends

    def put(self, key: str, window: Window) -> None:
        """Take over a window from an earlier process: those that end first, first."""
        self._windows[key] = window

    def remove(self, key: str) -> None:
        """Forget a key's window."""
        if self._windows.pop(key, None):
            self._note(key)

    def take_changed(self) -> list[str]:
        """Return the keys whose windows changed since the last time."""
        changed, self._changed = self._changed, set()
        return list(changed)

    def take_all(self) -> list[str]:
        """Return the keys of all windows; none counts as changed after that."""
        self._changed = set()
        return list(self._windows)

    def rows(self, keys: Iterable[str], to_wall: float) -> Iterator[Row]:
        """Return windows as rows; `to_wall` makes wall time of monotonic time.

        A window that was forgotten is told as one that ended long ago.
        """
        for key in keys:
            window = self._windows.get(key)
            if window is None:
                yield key, self.length, "", 0, 0.0
            else:
                yield key, self.length, window.terms, window.count, window.ends + to_wall

    def _begin(self, key: str, window: Window, now: float) -> Window:
        self._windows.pop(key, None)  # so that the new window goes to the end
        self._windows[key] = window
        self._sweep(now)
        return window

    def _note(self, key: str) -> None:
        if self._is_journalled:
            self._changed.add(key)

    def _sweep(self, now: float) -> None:
        # Two at a time: each new window pays for itself, and memory follows the live ones. Where
        # there is room for so many only, the one that began first is forgotten.
        for oldest in list(islice(self._windows, 2)):
            is_too_much = self._most is not None and len(self._windows) > self._most
            if self._windows[oldest].ends > now and not is_too_much:
                return
            del self._windows[oldest]
            self._note(oldest)
