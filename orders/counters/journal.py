"""The journal of the limits' counters: an SQLite file of their own.

It may be lost without harm. After any fault the file is set aside as evidence, counting goes on in
memory, and the next flush writes everything to a new file. No fault reaches a request.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orders.counters.windows import Row
from orders.store.care import instance
from orders.store.database import errors, sqlite

log = logging.getLogger(__name__)

# Inode, size, and time of the last change.
_State = tuple[int, int, int]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS windows (
    key TEXT PRIMARY KEY, length INTEGER NOT NULL, terms TEXT NOT NULL,
    count INTEGER NOT NULL, ends REAL NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS windows_by_end ON windows (ends)"
_UPSERT = "REPLACE INTO windows (key, length, terms, count, ends) VALUES (?, ?, ?, ?, ?)"
_ASIDE = ".damaged"
# After an error of these causes.
_SOUND = {errors.FULL, errors.FAILING_DISK, errors.READ_ONLY, errors.LOCKED, errors.UNOPENABLE}


class Journal:
    """The SQLite file. A failure to write is logged once, and its end."""

    def __init__(self, path: Path) -> None:
        """Note where the file is. Opens nothing."""
        self._path = path
        self._connection: Any = None
        self._left_as: _State | None = None
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
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Any:
        if self._connection is None:
            with contextlib.suppress(FileExistsError):
                instance.make_private_file(self._path)
            self._connection = connection = sqlite.connect(self._path)
            # What a power cut may take of the last counts is not worth a wait for the disk.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(_SCHEMA)
            connection.execute(_INDEX)
            self._left_as = self._state()
        return self._connection

    def _state(self) -> _State | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _fail(self, error: Exception) -> None:
        # Only the first time: the file that is begun after that is evidence of nothing.
        if self.failed:
            self.close()
            return
        log.warning("The counters' journal can't be written%s: %s", self._give_up(error), error)
        self.failed = True

    def _give_up(self, error: Exception) -> str:
        """Close the file after an error, and set it aside unless it is sound; return if it was."""
        # A full disk, or one that can't be written, damages nothing.
        if errors.unavailable_cause(error) in _SOUND or isinstance(error, OSError):
            self.close()
            return ""
        self._set_aside()
        return " and was set aside"

    def _set_aside(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            if self._path.is_file():
                self._path.replace(f"{self._path}{_ASIDE}")
        for suffix in ("-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
