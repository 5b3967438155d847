"""The file that the limits' counters are journalled to: an SQLite database of their own.

It may be lost without harm. So what goes wrong with it is told in the log, and reaches no request.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orders.counters.windows import Row
from orders.store.care import instance
from orders.store.database import sqlite

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


class Journal:
    """The SQLite file. A failure is told once, and its end; none reaches a request."""

    def __init__(self, path: Path) -> None:
        """Take where the file is. Opens nothing."""
        self._path = path
        self._connection: Any = None
        self._left_as: _State | None = None
        # What could not be read at the start is still there for the next.
        self._was_read = False
        self.failed = False

    def read(self) -> list[Row]:
        """Return all rows; none where there is no sound file."""
        driver = sqlite.sqlite_module()
        try:
            rows: list[Row] = (
                self._open()
                .execute(
                    "SELECT key, length, terms, count, ends FROM windows "
                    "WHERE typeof(length) = 'integer' AND typeof(terms) = 'text' "
                    "AND typeof(count) = 'integer' AND typeof(ends) = 'real'"
                )
                .fetchall()
            )
        except (driver.Error, OSError) as error:
            if _is_damaged(error):
                log.warning("The journal of the counters is damaged and made anew: %s", error)
                self._start_anew()
            else:
                log.warning("The journal of the counters can't be read: %s", error)
                self.close()
            return []
        self._was_read = True
        return rows

    def is_lost(self) -> bool:
        """Return whether the file is no longer as it was left, and give it up if so."""
        if self._connection is None:
            return True
        found = self._state()
        if found == self._left_as:
            return False
        if found is None or self._left_as is None or found[0] != self._left_as[0]:
            self.close()
        else:
            # Nobody else writes to it. SQLite would not notice, and go on with the pages it knows.
            log.warning("The journal of the counters was changed by others, and is made anew.")
            self._start_anew()
        return True

    def write(self, rows: Iterable[Row], wall: float, whole: bool) -> None:
        """Write rows in one transaction, and remove those that are over.

        If `whole`, they take the place of all that there are. A file that can't be written is given
        up: the next time it is told to be lost.
        """
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            if whole and self._was_read:
                connection.execute("DELETE FROM windows")
            connection.executemany(_UPSERT, rows)
            connection.execute("DELETE FROM windows WHERE ends <= ?", (wall,))
            connection.execute("COMMIT")
            self._left_as = self._state()
        except (sqlite.sqlite_module().Error, OSError) as error:
            self._fail(error)
            return
        if self.failed:
            log.warning("The journal of the counters is written again.")
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
            connection = sqlite.connect(self._path)
            try:
                # What a power cut may take of the last counts is not worth a wait for the disk.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(_SCHEMA)
                connection.execute(_INDEX)
                self._left_as = self._state()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _state(self) -> _State | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _fail(self, error: Exception) -> None:
        if not self.failed:
            log.warning("The journal of the counters can't be written: %s", error)
        self.failed = True
        # Closing also ends a transaction that was cut off. A damaged file is not mended by trying.
        self.close()
        if _is_damaged(error):
            self._start_anew()

    def _start_anew(self) -> None:
        self.close()
        self._was_read = True  # there is nothing in it
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _is_damaged(error: Exception) -> bool:
    # SQLITE_ERROR alone means that the file has other tables than ours.
    name = getattr(error, "sqlite_errorname", "")
    return name == "SQLITE_ERROR" or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
