"""The limits' counters in memory, as a `limits` storage with a journal in an SQLite file.

Fixed windows are counted all together or not at all. Windows of one length end in the order in
which they began: so each length has a queue of windows in that order, and sweeping is
reading its beginning.

A hit that went to a file would release Python's lock and wait for it again, which costs more than
counting. So counters live in memory, and a background flush, every 0.5 s, writes the changes to
the journal in one transaction. The journal is loaded at the start and written whole at the stop:
counters survive a restart exactly, and `kill -9` but for the last second.

A window's end is monotonic time while the process runs, so that setting the clock neither frees nor
locks out anyone. The journal has it in wall time; an end that lies further off than the window is
long was written by a clock that has since been set back, and is cut.

The journal may be lost without harm. After any fault the file is set aside as evidence, counting
goes on in memory, and the next flush writes everything to a new file. No fault reaches a request.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from limits.storage import Storage

from orders import system
from orders.clock import STEP_SECONDS, Clock
from orders.store.database import errors, sqlite

log = logging.getLogger(__name__)

# Rows that are made for the journal at a time, while requests wait: some tenths of a millisecond.
_SLICE = 256

_SCHEMA = """
CREATE TABLE IF NOT EXISTS windows (
    key TEXT PRIMARY KEY, length INTEGER NOT NULL, terms TEXT NOT NULL,
    count INTEGER NOT NULL, ends REAL NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS windows_by_end ON windows (ends)"
_UPSERT = "REPLACE INTO windows (key, length, terms, count, ends) VALUES (?, ?, ?, ?, ?)"
_ASIDE = ".damaged"
# Errors of these causes damage nothing.
_SOUND = {errors.FULL, errors.FAILING_DISK, errors.READ_ONLY, errors.LOCKED, errors.UNOPENABLE}

# The windows of addresses may be evicted when an attacker comes from more addresses than there is
# room for. That gains the attacker nothing: so many addresses, each with a plan's limit, already
# have more requests than enough.
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


class WindowQueue:
    """The windows of one length. Not thread-safe: callers must hold a lock."""

    def __init__(self, length: int, capacity: int | None, *, is_journalled: bool) -> None:
        """Make an empty queue for `capacity` windows, or for any number.

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
        self._queues: dict[tuple[int, bool], WindowQueue] = {}

    @property
    def size(self) -> int:
        return sum(map(len, self._queues.values()))

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
                self._queue(quota.key, quota.length).count(quota.terms, quota.key, now)
            return True, [Usage(quota, left - 1, ends_in) for quota, left, ends_in in usages]

    def peek(self, quotas: Sequence[Quota]) -> list[Usage]:
        """Return the windows' state, counting nothing."""
        now = self._clock.monotonic()
        with self._lock:
            return [self._usage(quota, now) for quota in quotas]

    # In memory, there is nothing else to ask.
    recall = peek

    def strike(self, key: str, length: int, last: int) -> int:
        """Count a strike in a window of `length` seconds; return which one it is, 0 if not counted.

        In the second after the first, further ones don't count: they were on their way together.
        After the last one the count begins anew.
        """
        now = self._clock.monotonic()
        with self._lock:
            queue = self._queue(key, length)
            first = queue.live("", key, now)
            if first and first.count == 1 and first.ends - now > length - TOGETHER_SECONDS:
                return 0
            count = queue.count("", key, now).count
            if count >= last:
                queue.remove(key)
            return count

    def settle(self, key: str) -> None:
        """Do nothing: here, strikes begin anew after the last one."""

    def _usage(self, quota: Quota, now: float) -> Usage:
        window = self._queue(quota.key, quota.length).live(quota.terms, quota.key, now)
        if window is None:
            return Usage(quota, quota.limit, quota.length)
        # A sum of floats may be off by its last digit, and then be rounded up to a second more.
        ends_in = min(window.ends - now, quota.length)
        return Usage(quota, max(0, quota.limit - window.count), ends_in)

    def _queue(self, key: str, length: int) -> WindowQueue:
        is_address = key.startswith(ADDRESS_PREFIX)
        queue = self._queues.get((length, is_address))
        if queue is None:
            capacity = MAX_ADDRESSES if is_address else None
            queue = WindowQueue(length, capacity, is_journalled=self._is_journalled)
            self._queues[length, is_address] = queue
        return queue


class Journal:
    """The SQLite file. A failure to write is logged once, and its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: Any = None
        self._left_as: tuple[int, ...] | None = None
        self.failed = False

    def read(self) -> list[Row]:
        """Return all rows; none where the file can't be read."""
        try:
            rows = self._open().execute("SELECT key, length, terms, count, ends FROM windows")
            return [
                (key, int(length), terms, int(count), float(ends))
                for key, length, terms, count, ends in rows
            ]
        except (sqlite.sqlite_module().Error, OSError, ValueError) as error:
            log.warning("The counters' journal can't be read%s: %s", self._give_up(error), error)
            return []

    def is_intact(self) -> bool:
        """Return whether the file is as this process left it, and can be added to."""
        if self._connection is None:
            return False
        if self._state() == self._left_as:
            return True
        # Nobody else writes to it. SQLite would not notice, and go on with the pages in its cache.
        if self._path.is_file():
            log.warning("Another program changed the counters' journal. It was set aside.")
        self._set_aside()
        return False

    def write(self, rows: Iterable[Row], wall: float, *, whole: bool) -> None:
        """Write rows in one transaction, in the place of all others if `whole`.

        Windows that ended before `wall` are removed.
        """
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            if whole:
                connection.execute("DELETE FROM windows")
            connection.executemany(_UPSERT, rows)
            connection.execute("DELETE FROM windows WHERE ends <= ?", (wall,))
            connection.execute("COMMIT")
            self._left_as = self._state()
        except (sqlite.sqlite_module().Error, OSError) as error:
            self._fail(error)
            return
        if self.failed:
            log.warning("The counters' journal can be written again.")
        self.failed = False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Any:
        if self._connection is None:
            with contextlib.suppress(FileExistsError):
                system.make_private_file(self._path)
            self._connection = connection = sqlite.connect(self._path)
            # The last counts, which a power cut may lose, are not worth waiting for the disk.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(_SCHEMA)
            connection.execute(_INDEX)
            self._left_as = self._state()
        return self._connection

    def _state(self) -> tuple[int, ...] | None:
        try:
            return system.state_of(self._path)
        except OSError:
            return None

    def _fail(self, error: Exception) -> None:
        # Only the first time: the file that is begun after that is evidence of nothing.
        if self.failed:
            self.close()
            return
        log.warning("The counters' journal can't be written%s: %s", self._give_up(error), error)
        self.failed = True

    def _give_up(self, error: Exception) -> str:
        """Close the file after an error, and set it aside unless it is sound; return if it was."""
        if errors.unavailable_cause(error) in _SOUND or isinstance(error, OSError):
            self.close()
            return ""
        self._set_aside()
        return " and was set aside"

    def _set_aside(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            if self._path.is_file():
                system.replace(self._path, Path(f"{self._path}{_ASIDE}"))
        for companion in sqlite.companions(self._path):
            with contextlib.suppress(OSError):
                companion.unlink(missing_ok=True)


def _unused(*_: object) -> NoReturn:
    raise NotImplementedError


class CounterStorage(Counters, Storage):
    """Fixed windows in memory, with a journal. Thread-safe."""

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
        Counters.__init__(self, clock, is_journalled=True)
        Storage.__init__(self, uri, wrap_exceptions=wrap_exceptions, **options)
        self._journal = Journal(path)
        self._to_wall = clock.time() - clock.monotonic()
        # Whether the journal lacks more than what has changed.
        self._is_behind = False

    def load(self) -> None:
        wall, now = self._clock.time(), self._clock.monotonic()
        rows = self._journal.read()
        with self._lock:
            for key, length, terms, count, ends in sorted(rows, key=lambda row: row[4]):
                ends_in = min(ends - wall, length)
                if ends_in > 0:
                    self._queue(key, length).put(key, Window(terms, count, now + ends_in))

    def flush(self) -> None:
        """Write the changes since the last time, or everything where the journal lacks more.

        That is so where it was lost or could not be written, and where the clock was set, which
        moves all ends. Changes while it can't be written are not collected: addresses come and go,
        and all that there ever were would be among them.
        """
        to_wall = self._clock.time() - self._clock.monotonic()
        is_intact = self._journal.is_intact()
        with self._lock:
            whole = self._is_behind or not is_intact or abs(to_wall - self._to_wall) > STEP_SECONDS
            if whole:
                self._to_wall = to_wall
            self._is_behind = False
            keys = [(queue, queue.drain(whole=whole)) for queue in self._queues.values()]
        if whole or any(some for _, some in keys):
            self._journal.write(self._rows_of(keys), self._clock.time(), whole=whole)

    def close(self) -> None:
        self._is_behind = True
        self.flush()
        if not self.check():
            self.flush()  # into a new file, where the old one was damaged
        self._journal.close()

    @property
    def trouble(self) -> str:
        """Why the counters would not survive a restart; empty if they would."""
        return "" if self.check() else "not written, counting in memory"

    def check(self) -> bool:
        return not self._journal.failed

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors that mean the storage is away: none, as it is in memory."""
        return MemoryError

    # A `limits` storage's other methods count in one window at a time, which nothing here does.
    incr = get = get_expiry = clear = reset = cast("Any", _unused)

    def _rows_of(self, keys: Sequence[tuple[WindowQueue, list[str]]]) -> Iterator[Row]:
        # In slices, between which requests are counted: those changes are written the next time.
        for queue, some in keys:
            for begin in range(0, len(some), _SLICE):
                with self._lock:
                    rows = list(queue.rows(some[begin : begin + _SLICE], self._to_wall))
                yield from rows
