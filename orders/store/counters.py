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

import contextlib
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limits.storage import Storage

from orders.clock import Clock
from orders.store import engine

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS windows (
    key TEXT PRIMARY KEY, length INTEGER NOT NULL, quota INTEGER NOT NULL,
    count INTEGER NOT NULL, ends REAL NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS windows_by_end ON windows (ends)"
_UPSERT = "REPLACE INTO windows (key, length, quota, count, ends) VALUES (?, ?, ?, ?, ?)"
# Both clocks are read one after the other, and wall time is slewed to keep right: less than this
# is no step.
_CLOCK_STEP = 0.5


@dataclass(slots=True)
class Window:
    """A fixed window of one key. `ends` is in monotonic seconds."""

    length: int
    quota: int
    count: int
    ends: float


@dataclass(frozen=True, slots=True)
class Ask:
    """A window that a request must fit in: at most `quota` requests in `length` seconds."""

    key: str
    quota: int
    length: int


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
        # A dictionary for each length: in each, windows end in the order in which they began.
        self._windows: dict[int, dict[str, Window]] = {}
        self._changed: set[tuple[int, str]] = set()
        self._journal = _Journal(path)
        self._to_wall = clock.time() - clock.monotonic()

    # What the limits of a request need: all windows at once, or none.

    def take(self, asks: Sequence[Ask]) -> tuple[bool, list[Standing]]:
        """Count one request in all windows if it fits in each, in none otherwise.

        Gives whether it fitted, and how the windows stand after it.
        """
        now = self._clock.monotonic()
        with self._lock:
            windows = [self._live(ask.key, ask.length, ask.quota, now) for ask in asks]
            fits = all(
                window is None or window.count < ask.quota
                for ask, window in zip(asks, windows, strict=True)
            )
            if fits:
                windows = [self._count(ask.key, ask.length, ask.quota, now) for ask in asks]
            return fits, [
                _standing(window, ask, now) for ask, window in zip(asks, windows, strict=True)
            ]

    def peek(self, asks: Sequence[Ask]) -> list[Standing]:
        """Tell how windows stand, counting nothing."""
        now = self._clock.monotonic()
        with self._lock:
            return [
                _standing(self._live(ask.key, ask.length, ask.quota, now), ask, now) for ask in asks
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
            return self._count(key, expiry, 0, now, amount).count

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
            forgotten = sum(len(windows) for windows in self._windows.values())
            for length, windows in self._windows.items():
                self._changed.update((length, key) for key in windows)
            self._windows.clear()
            return forgotten

    def clear(self, key: str) -> None:
        """Forget a key's windows."""
        with self._lock:
            for length, windows in self._windows.items():
                if windows.pop(key, None):
                    self._changed.add((length, key))

    # The journal.

    def load(self) -> None:
        """Take over what the journal holds. A damaged journal is made anew."""
        wall, now = self._clock.time(), self._clock.monotonic()
        rows = self._journal.read()
        with self._lock:
            for key, length, quota, count, ends in sorted(rows, key=lambda row: float(row[4])):
                ends_in = min(ends - wall, length)
                if ends_in > 0:
                    windows = self._windows.setdefault(length, {})
                    windows[key] = Window(length, quota, count, now + ends_in)

    def flush(self) -> None:
        """Write what changed since the last time, or all where the file no longer holds the rest.

        That is so when the file was lost, and when the clock was set, which moves all ends.
        """
        to_wall = self._clock.time() - self._clock.monotonic()
        if self._journal.is_lost() or abs(to_wall - self._to_wall) > _CLOCK_STEP:
            self._to_wall = to_wall
            self._note_all_as_changed()
        with self._lock:
            changed, self._changed = self._changed, set()
            rows, gone = self._rows_of(changed)
        if not self._journal.write(rows, gone, self._clock.time()):
            with self._lock:
                self._changed |= changed

    def close(self) -> None:
        """Write everything, and close the journal."""
        self._note_all_as_changed()
        self.flush()
        self._journal.close()

    def _note_all_as_changed(self) -> None:
        with self._lock:
            for length, windows in self._windows.items():
                self._changed.update((length, key) for key in windows)

    def _rows_of(
        self, changed: Iterable[tuple[int, str]]
    ) -> tuple[list[tuple[str, int, int, int, float]], list[tuple[str]]]:
        rows, gone = [], []
        for length, key in changed:
            window = self._windows.get(length, {}).get(key)
            if window is None:
                gone.append((key,))
            else:
                rows.append((key, length, window.quota, window.count, window.ends + self._to_wall))
        return rows, gone

    # Windows. All of these are called with the lock held.

    def _live(self, key: str, length: int, quota: int, now: float) -> Window | None:
        window = self._windows.get(length, {}).get(key)
        # A window of another quota belongs to figures that are no longer in force.
        if window is None or window.ends <= now or window.quota != quota:
            return None
        return window

    def _count(self, key: str, length: int, quota: int, now: float, amount: int = 1) -> Window:
        window = self._live(key, length, quota, now)
        self._changed.add((length, key))
        if window is not None:
            window.count += amount
            return window
        windows = self._windows.setdefault(length, {})
        windows.pop(key, None)  # so that the new window goes to the end
        windows[key] = window = Window(length, quota, amount, now + length)
        self._sweep(windows, now)
        return window

    def _sweep(self, windows: dict[str, Window], now: float) -> None:
        # Two at a time: each new window pays for itself, and memory follows the live ones.
        for _ in range(2):
            oldest = next(iter(windows))
            if windows[oldest].ends > now:
                return
            self._changed.add((windows[oldest].length, oldest))
            del windows[oldest]

    def _find(self, key: str) -> Window | None:
        now = self._clock.monotonic()
        with self._lock:
            for windows in self._windows.values():
                window = windows.get(key)
                if window is not None and window.ends > now:
                    return window
        return None


def _standing(window: Window | None, ask: Ask, now: float) -> Standing:
    if window is None:
        return Standing(0, ask.length)
    # A sum of floats may be off by its last digit, and then be rounded up to a second more.
    return Standing(window.count, min(window.ends - now, window.length))


class _Journal:
    """The SQLite file. A failure is told once, and its end; none reaches a request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: Any = None
        self._inode = 0
        self.failed = False

    def read(self) -> list[tuple[str, int, int, int, float]]:
        """Give all rows; none where there is no sound file."""
        sqlite = engine.sqlite_module()
        try:
            rows: list[tuple[str, int, int, int, float]] = (
                self._open()
                .execute(
                    "SELECT key, length, quota, count, ends FROM windows "
                    "WHERE typeof(length) = 'integer' AND typeof(quota) = 'integer' "
                    "AND typeof(count) = 'integer' AND typeof(ends) = 'real'"
                )
                .fetchall()
            )
        except (sqlite.Error, OSError) as error:
            log.warning("The journal of the counters is damaged and made anew: %s", error)
            self._start_anew()
            return []
        return rows

    def is_lost(self) -> bool:
        """Tell whether the file is no longer the one that was opened, and give it up if so."""
        if self._connection is None:
            return True
        try:
            lost = self._path.stat().st_ino != self._inode
        except OSError:
            lost = True
        if lost:
            self.close()
        return lost

    def write(
        self,
        rows: Sequence[tuple[str, int, int, int, float]],
        gone: Sequence[tuple[str]],
        wall: float,
    ) -> bool:
        """Write rows and remove others, in one transaction; tell whether that worked."""
        if not (rows or gone or self.failed):
            return True
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_UPSERT, rows)
            connection.executemany("DELETE FROM windows WHERE key = ?", gone)
            connection.execute("DELETE FROM windows WHERE ends <= ?", (wall,))
            connection.execute("COMMIT")
        except (engine.sqlite_module().Error, OSError) as error:
            self._fail(error)
            return False
        if self.failed:
            log.warning("The journal of the counters is written again.")
        self.failed = False
        return True

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Any:
        if self._connection is None:
            engine.make_private_file(self._path)
            connection = engine.connect(self._path)
            try:
                # What a power cut may take of the last counts is not worth a wait for the disk.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(_SCHEMA)
                connection.execute(_INDEX)
                self._inode = self._path.stat().st_ino
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _fail(self, error: Exception) -> None:
        if not self.failed:
            log.warning("The journal of the counters can't be written: %s", error)
        self.failed = True
        # Closing also ends a transaction that was cut off. A damaged file is not mended by trying.
        self.close()
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            self._start_anew()

    def _start_anew(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
