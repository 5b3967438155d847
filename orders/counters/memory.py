"""The limits' counters in memory, as a `limits` storage with a journal in an SQLite file.

A hit that went to a file would release Python's lock and wait for it again, which costs more than
counting. So counters live in memory, and a background flush, every 0.5 s, writes what changed to
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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from limits.storage import Storage

from orders import system
from orders.clock import STEP_SECONDS, Clock
from orders.counters.windows import Counters, Row, Shelf, Window
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
        for suffix in ("-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


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
                    self._shelf(key, length).put(key, Window(terms, count, now + ends_in))

    def flush(self) -> None:
        """Write what changed since the last time, or everything where the journal lacks more.

        That is so where it was lost or could not be written, and where the clock was set, which
        moves all ends. What changed while it can't be written is not collected: of addresses that
        come and go, that would be all there ever were.
        """
        to_wall = self._clock.time() - self._clock.monotonic()
        is_intact = self._journal.is_intact()
        with self._lock:
            whole = self._is_behind or not is_intact or abs(to_wall - self._to_wall) > STEP_SECONDS
            if whole:
                self._to_wall = to_wall
            self._is_behind = False
            keys = [(shelf, shelf.drain(whole=whole)) for shelf in self._shelves.values()]
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

    # What else `limits` asks of a storage counts in one window at a time, which nothing here does.
    incr = get = get_expiry = clear = reset = cast("Any", _unused)

    def _rows_of(self, keys: Sequence[tuple[Shelf, list[str]]]) -> Iterator[Row]:
        # In slices, between which requests are counted: what that changes is written the next time.
        for shelf, some in keys:
            for begin in range(0, len(some), _SLICE):
                with self._lock:
                    rows = list(shelf.rows(some[begin : begin + _SLICE], self._to_wall))
                yield from rows
