"""SQLite: the driver, its settings, the database as a file.

Writers queue in this process instead of polling in SQLite's unfair 100 ms steps; each transaction
begins with BEGIN IMMEDIATE. A commit is on the disk when it is acknowledged (synchronous=FULL).

Commits append to the write-ahead log. Checkpoints copy its pages to the file, and once all are
copied and nobody reads the log, it begins anew. Long reads that overlap would let it grow without
end: beyond a size they are held back for a moment, until those that run have ended.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, text

from orders import system
from orders.store.database.database import (
    ATTACHED,
    BUSY_SECONDS,
    AttachedFile,
    Database,
    LongReads,
    Query,
    driver_of,
)
from orders.store.database.errors import FULL, Part, StoreUnavailable, translated

log = logging.getLogger(__name__)

IDENTITY_CHECK_SECONDS = 0.02
# With less, a disk is as good as full.
_ROOM_BYTES = 1024 * 1024
# SQLite before 3.51.3 can lose committed pages when two connections write or checkpoint at the
# same instant (the WAL-reset bug).
FIRST_SOUND_SQLITE = (3, 51, 3)
# In pages of 4 KiB, as SQLite makes them: 4, 16 and 64 MiB.
CHECKPOINT_PAGES, RESTART_PAGES, MOST_PAGES = 1_024, 4_096, 16_384
CLOSED_SECONDS = 0.05
# The gate is closed for a second at most. Where that was in vain, it stays open for a minute.
MOST_CLOSED_TURNS, OPEN_TURNS = 20, 120
# Long enough for short queries to end.
_RESTART_SECONDS = 0.02
# Writing a file of this size anew takes less than a second.
_SCRUBBED_BYTES = 48 * 1024 * 1024
_EMPTYING_TRIES = 50
# Numbers tell connections apart; addresses in memory are reused.
_numbers = itertools.count()
_DATA_VERSION = Query(text("PRAGMA data_version"))
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    # Otherwise REPLACE would delete rows without firing the triggers that forbid it.
    "recursive_triggers = ON",
    # What is deleted is overwritten in the file: a person may have asked to be forgotten.
    "secure_delete = ON",
    f"journal_size_limit = {64 * 1024 * 1024}",
)


@cache
def sqlite_module() -> Any:
    """Return the SQLite driver: one that brings a sound SQLite along, or else Python's own."""
    # Each has wheels where the other has none. Without a key, sqlcipher3 writes plain SQLite files.
    for name in ("pysqlite3.dbapi2", "sqlcipher3.dbapi2"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return importlib.import_module("sqlite3.dbapi2")


def connect(path: Path, *, create: bool = False) -> Any:
    """Open a driver connection to an SQLite file, with the settings that all connections share.

    The file must exist unless `create` is true: SQLite would otherwise create an empty database in
    place of a missing one.
    """
    is_frozen = not create and _is_frozen(path)
    mode = "ro&immutable=1" if is_frozen else "rwc" if create else "rw"
    connection = sqlite_module().connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions begin where this module says, not by themselves
        check_same_thread=False,  # the pool gives a connection to one thread at a time
    )
    try:
        for pragma in () if is_frozen else _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def log_of(path: Path) -> Path:
    """Return the path of a database's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def companions(path: Path) -> list[Path]:
    """Return the paths of the files that SQLite may have beside a database."""
    return [log_of(path), *(path.with_name(f"{path.name}{end}") for end in ("-shm", "-journal"))]


def _is_frozen(path: Path) -> bool:
    """Return whether the file is on a read-only mount, where nobody can be changing it.

    SQLite could not make its files beside it. StoreUnavailable where one of those has changes.
    """
    try:
        if not system.is_read_only(path):
            return False
        log = log_of(path)
        if log.exists() and log.stat().st_size:
            raise StoreUnavailable(
                f"the database is on a read-only disk, and {log.name} beside it has changes: copy "
                "both to another folder"
            )
    except OSError:  # such as a missing file, which SQLite reports
        return False
    return True


class SqliteDatabase(Database):
    def __init__(self, path: Path, threads: int = 4) -> None:
        super().__init__(path.parent, threads)
        self.path = path
        self._identity_checked_at = -math.inf

    @property
    def where(self) -> str:
        return str(self.path)

    @cached_property
    def _identity(self) -> tuple[int, int]:
        return _identity_of(self.path)

    @contextlib.contextmanager
    def write(self, attached: AttachedFile | None = None) -> Iterator[Connection]:
        with (
            self._connected(self._writer, Part.WRITING) as connection,
            _attach(connection, attached) if attached else contextlib.nullcontext(),
        ):
            # On the driver: SQLAlchemy's transactions cost as much as an order's statements.
            driver: Any = connection.connection.driver_connection
            try:
                self._begin_to_write(connection)
                # Now, because it may have waited for a restore to end.
                self._check_usable()
                yield connection
                driver.commit()
            finally:
                # SQLAlchemy has its own idea of a transaction where it executed a statement.
                connection.rollback()
                driver.rollback()

    def version(self) -> tuple[int, int]:
        # https://www.sqlite.org/pragma.html#pragma_data_version
        ((version,),) = self.fetch_all(_DATA_VERSION)
        return self._own.number, version

    @cached_property
    def long_reads(self) -> Checkpoints:
        """The gate of long reads, which keeps the write-ahead log short."""
        return Checkpoints(self.checkpoint)

    def checkpoint(self, kind: Checkpoint) -> tuple[bool, int, int]:
        """Make one; return whether it was blocked, the log's pages, and those copied so far."""
        is_sound = sqlite_module().sqlite_version_info >= FIRST_SOUND_SQLITE
        # On the writer's connection nobody in this process writes meanwhile.
        among_readers = is_sound and kind in {Checkpoint.MEASURE, Checkpoint.COPY}
        with self._driver(self._reader if among_readers else self._writer) as driver:
            driver.execute(_busy_timeout(_RESTART_SECONDS)).close()
            try:
                is_blocked, pages, copied = driver.execute(
                    f"PRAGMA wal_checkpoint({kind})"
                ).fetchone()
            finally:
                driver.execute(_busy_timeout(BUSY_SECONDS)).close()
            return bool(is_blocked), pages, copied

    @contextlib.contextmanager
    def _driver(self, engine: Engine) -> Iterator[Any]:
        """Yield a driver's connection outside of a transaction."""
        with translated(), engine.connect() as connection, translated(connection):
            self._check_usable()
            yield driver_of(connection)

    def scrub(self, *, whole: bool = False) -> str:
        """Empty the log; write the file anew where that takes a moment, or for the `whole`.

        SQLite overwrites what it deletes (secure_delete), but not all that it leaves in a page of
        rows that it moves to another.
        """
        is_whole = whole or self.path.stat().st_size <= _SCRUBBED_BYTES
        if is_whole:
            with self._driver(self._writer) as driver:
                driver.execute("VACUUM").close()
        else:
            self.checkpoint(Checkpoint.COPY)
        if not self._empty_log():
            return f"{log_of(self.path).name}, which something is reading"
        return "" if is_whole else f"unused parts of {self.path.name}"

    def _empty_log(self) -> bool:
        # Short reads end meanwhile. Writers are not to wait for long ones.
        for _ in range(_EMPTYING_TRIES):
            is_blocked, *_ = self.checkpoint(Checkpoint.EMPTY)
            if not is_blocked:
                return True
            time.sleep(_RESTART_SECONDS)
        return False

    def close(self) -> None:
        super().close()
        self.__dict__.pop("_identity", None)

    def _engine(self, **options: Any) -> Engine:
        return super()._engine(
            url="sqlite://", module=sqlite_module(), creator=self._connect, **options
        )

    def _connect(self) -> Any:
        # SQLite would apply the log that this file has left to another in its place, and lose it.
        self._check_usable()
        connection = connect(self.path)
        # Usually 1,000 pages. In the service they are copied in time, and not in a request: this is
        # for commands that write alone, and in case that fails.
        connection.execute(f"PRAGMA wal_autocheckpoint = {MOST_PAGES}").close()
        return connection

    def _begin_to_write(self, connection: Connection) -> None:
        # SQLAlchemy calls this again at the first statement that it executes.
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            super()._begin_to_write(connection)

    def _lock(self, driver: Any, seconds: float | None) -> None:
        if seconds is None:
            driver.execute("BEGIN IMMEDIATE").close()
            return
        driver.execute(_busy_timeout(seconds)).close()
        try:
            driver.execute("BEGIN IMMEDIATE").close()
        finally:
            driver.execute(_busy_timeout(BUSY_SECONDS)).close()

    def _make_room(self, connection: Connection) -> None:
        if shutil.disk_usage(self.folder).free < _ROOM_BYTES:
            raise StoreUnavailable(FULL)

    def _begin_to_read(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    def _check_now_and_then(self) -> None:
        # Not at each query: it would cost as much as most of them. A file that is gone or was
        # replaced still shows what was true a moment ago; only writes would be lost.
        if time.monotonic() - self._identity_checked_at > IDENTITY_CHECK_SECONDS:
            self._check_usable()
            self._identity_checked_at = time.monotonic()

    def _connection_changed(self) -> None:
        self._own.number = next(_numbers)

    def _check_usable(self) -> None:
        # A file that was moved away or replaced would accept writes that are then lost.
        if _identity_of(self.path) != self._identity:
            raise StoreUnavailable("the database file was replaced while the service ran")


@contextlib.contextmanager
def _attach(connection: Connection, attached: AttachedFile) -> Iterator[None]:
    # Neither works inside a transaction.
    driver = driver_of(connection)
    driver.execute(f"ATTACH ? AS {ATTACHED}", (str(attached.path),))
    try:
        yield
    finally:
        driver.execute(f"DETACH {ATTACHED}")


def _busy_timeout(seconds: float) -> str:
    return f"PRAGMA busy_timeout = {round(seconds * 1000)}"


def _identity_of(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        raise StoreUnavailable("the database file is gone") from None
    return status.st_dev, status.st_ino


class Checkpoint(StrEnum):
    """What a checkpoint does: https://www.sqlite.org/pragma.html#pragma_wal_checkpoint."""

    # Older versions of SQLite take this for PASSIVE.
    MEASURE = "NOOP"
    COPY = "PASSIVE"
    RESTART = "RESTART"
    EMPTY = "TRUNCATE"


class Checkpoints(LongReads):
    """Keep the write-ahead log of an SQLite file short. One thread calls it, twice a second."""

    def __init__(self, checkpoint: Callable[[Checkpoint], tuple[bool, int, int]]) -> None:
        """Take a function that makes a checkpoint and returns PRAGMA wal_checkpoint's row."""
        self._checkpoint = checkpoint
        # Since the gate was opened or closed.
        self._turns = OPEN_TURNS

    def tend(self) -> float | None:
        """Copy the log's pages; have it begin anew where it is long; close the gate for that."""
        pages = 0
        try:
            pages = self._shorten()
        except StoreUnavailable as error:
            log.debug("The write-ahead log is tended to later: %s", error)
        finally:
            self._open_or_close(pages)
        return None if self.is_open else CLOSED_SECONDS

    def _shorten(self) -> int:
        """Return the log's pages, 0 if it begins anew with the next commit."""
        _, pages, copied = self._checkpoint(Checkpoint.MEASURE)
        if copied == pages and self.is_open:
            return 0
        if pages - copied > CHECKPOINT_PAGES:
            _, pages, copied = self._checkpoint(Checkpoint.COPY)
        # Writers wait meanwhile, so this is only for few pages.
        if pages > RESTART_PAGES and pages - copied <= CHECKPOINT_PAGES:
            is_blocked, *_ = self._checkpoint(Checkpoint.RESTART)
            return pages if is_blocked else 0
        return pages

    def _open_or_close(self, pages: int) -> None:
        self._turns += 1
        is_long = pages > MOST_PAGES
        if self.is_open and is_long and self._turns > OPEN_TURNS:
            self.is_open, self._turns = False, 0
        elif not self.is_open and not is_long:
            self.is_open, self._turns = True, OPEN_TURNS
        elif not self.is_open and self._turns == MOST_CLOSED_TURNS:
            self.is_open, self._turns = True, 0
            log.warning(
                "The write-ahead log has grown to %d MB: something reads the database for long. "
                "End what it is, such as another program with a transaction open.",
                pages * 4_096 // 1_000_000,
            )
