"""Engines, pragmas, transactions, and the instance lock. The only place that opens connections.

Two engines over one file. The writer has one connection, so that writers of this process queue for
it in order instead of waiting in SQLite's unfair 100 ms steps; each of its transactions begins
with BEGIN IMMEDIATE, because one that reads first and writes later may find that another wrote in
between. Readers have a connection for each thread, which a thread that asks single questions keeps;
they read in autocommit, or, where several statements must see the same state, in a transaction of
their own.

A commit is acknowledged once it is on the disk (synchronous=FULL): it survives a power cut.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import threading
import time
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from sqlalchemy import (
    Connection,
    Engine,
    PoolProxiedConnection,
    QueuePool,
    create_engine,
    event,
    text,
)

from orders.store.failures import (
    StoreUnavailable,
    given_up_when_spoilt,
    name_of,
    told_as_unavailable,
)
from orders.store.query import Query

BUSY_SECONDS = 5
LOOKED_AT_SECONDS = 0.02
# How long a lock is waited for that has outlasted BUSY_SECONDS before.
_STILL_BUSY_SECONDS = 0.05
# SQLite before 3.51.3 can lose committed pages when two connections write or checkpoint at the
# same instant (the WAL-reset bug).
FIRST_SOUND_SQLITE = (3, 51, 3)
# Each connection that a thread keeps is another one, whatever its address in memory.
_numbers = itertools.count()
_DATA_VERSION = Query(text("PRAGMA data_version"))
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    # Or REPLACE would remove rows past the triggers that forbid it.
    "recursive_triggers = ON",
    f"journal_size_limit = {64 * 1024 * 1024}",
)


@cache
def sqlite_module() -> Any:
    """Give the SQLite driver: pysqlite3, which has a newer SQLite, or else Python's own."""
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        return importlib.import_module("sqlite3")


def connect(path: Path, *, create: bool = False) -> Any:
    """Open a driver connection to an SQLite file, with the settings that all connections share.

    The file must exist unless `create` is true: SQLite would otherwise begin a new, empty
    database in the place of one that is gone.
    """
    connection = sqlite_module().connect(
        f"file:{quote(str(path))}?mode={'rwc' if create else 'rw'}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions begin where this module says, not by themselves
        check_same_thread=False,  # the pool gives a connection to one thread at a time
    )
    try:
        for pragma in (f"busy_timeout = {round(BUSY_SECONDS * 1000)}", *_PRAGMAS):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


class Database:
    """The store's SQLite database. Opens nothing until it is used."""

    def __init__(self, path: Path, threads: int = 4) -> None:
        """Take the file's path and how many threads will read at the same time."""
        self.path = path
        self._threads = threads
        self._looked_at = -math.inf
        self._own = threading.local()
        # Weakly, so that a thread's connection goes back to the pool when the thread ends.
        self._kept: WeakSet[PoolProxiedConnection] = WeakSet()
        self._long_locked = False

    @cached_property
    def _writer(self) -> Engine:
        engine = self._engine(pool_size=1, max_overflow=0)
        event.listen(engine, "begin", self._begin_to_write)
        return engine

    @cached_property
    def _reader(self) -> Engine:
        # For each thread one that it keeps and one to stream from. Readers wait for nobody: there
        # are as many as there are threads.
        return self._engine(pool_size=2 * self._threads, max_overflow=-1)

    @cached_property
    def _identity(self) -> tuple[int, int]:
        return _identity_of(self.path)

    @contextlib.contextmanager
    def write(
        self, beside: Path | None = None, *, foreign_keys: bool = True
    ) -> Iterator[Connection]:
        """Give a connection in a transaction that may write; it commits unless left by raising.

        The tables of another SQLite file, if given, are there as `beside.…`. Without
        `foreign_keys`, tables that others refer to can be made anew.

        Raises:
            StoreUnavailable: the database is locked, full, read-only, damaged or gone.
        """
        with told_as_unavailable():
            self._refuse_another_file()
            with (
                self._writer.connect() as connection,
                given_up_when_spoilt(connection),
                _prepared(connection, beside, foreign_keys=foreign_keys),
                connection.begin(),
            ):
                # It may have waited for a restore to end.
                self._refuse_another_file()
                yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection to read with, each statement by itself.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        with told_as_unavailable():
            self._refuse_another_file()
            with self._reader.connect() as connection, given_up_when_spoilt(connection):
                yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection whose statements all see the store as it was at the first of them."""
        with self.read() as connection:
            connection.exec_driver_sql("BEGIN")
            yield connection

    def ask(self, query: Query, **parameters: Any) -> list[tuple[Any, ...]]:
        """Give the rows of one query, on this thread's own connection.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        with told_as_unavailable():
            # Not at each question: it would cost as much as most of them. A file that is gone or
            # was replaced still shows what was true a moment ago; it is writes that it would lose.
            if time.monotonic() - self._looked_at > LOOKED_AT_SECONDS:
                self._refuse_another_file()
                self._looked_at = time.monotonic()
            connection = self._own_connection()
            with given_up_when_spoilt(connection):
                rows: list[tuple[Any, ...]] = query.execute_on(
                    connection.driver_connection, self._reader.dialect, parameters
                ).fetchall()
                return rows

    def version(self) -> tuple[int, int]:
        """Give a value that is another one after any commit, by this process or another.

        It can be compared with what the same thread was given before, and with nothing else.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        # https://www.sqlite.org/pragma.html#pragma_data_version
        ((version,),) = self.ask(_DATA_VERSION)
        return self._own.number, version

    def close(self) -> None:
        """Close all connections. Later use opens new ones."""
        for connection in list(self._kept):
            if connection.is_valid:
                connection.close()
        self._own = threading.local()
        for name in ("_writer", "_reader"):
            engine = self.__dict__.pop(name, None)
            if engine is not None:
                engine.dispose()
        self.__dict__.pop("_identity", None)

    def _engine(self, **pool: int) -> Engine:
        return create_engine(
            "sqlite://",
            module=sqlite_module(),
            creator=lambda: connect(self.path),
            # An error that goes to the log tells the statement, not what the clients sent.
            hide_parameters=True,
            poolclass=QueuePool,
            pool_timeout=BUSY_SECONDS,
            **pool,
        )

    def _begin_to_write(self, connection: Connection) -> None:
        # A lock that has outlasted one request's patience is not waited for by the next: they
        # would hold all threads, and nothing could be read.
        try:
            _driver_of(connection).execute("BEGIN IMMEDIATE").close()
        except sqlite_module().OperationalError as error:
            if name_of(error) == "SQLITE_BUSY":
                self._wait_for_locks(connection, long_locked=True)
            raise
        if self._long_locked:
            self._wait_for_locks(connection, long_locked=False)

    def _wait_for_locks(self, connection: Connection, *, long_locked: bool) -> None:
        self._long_locked = long_locked
        seconds = _STILL_BUSY_SECONDS if long_locked else BUSY_SECONDS
        _driver_of(connection).execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}").close()

    def _own_connection(self) -> PoolProxiedConnection:
        connection: PoolProxiedConnection | None = getattr(self._own, "connection", None)
        if connection is None or not connection.is_valid:
            self._own.connection = connection = self._reader.raw_connection()
            self._own.number = next(_numbers)
            self._kept.add(connection)
        return connection

    def _refuse_another_file(self) -> None:
        # A file that was moved away or replaced would go on taking writes that nobody finds again.
        if _identity_of(self.path) != self._identity:
            raise StoreUnavailable("the database file was replaced while the service ran")


@contextlib.contextmanager
def _prepared(connection: Connection, beside: Path | None, *, foreign_keys: bool) -> Iterator[None]:
    # Asked of the driver, before SQLAlchemy begins the transaction: none of this can be in one.
    driver = _driver_of(connection)
    with contextlib.ExitStack() as undo:
        if beside is not None:
            driver.execute("ATTACH ? AS beside", (str(beside),))
            undo.callback(driver.execute, "DETACH beside")
        if not foreign_keys:
            driver.execute("PRAGMA foreign_keys = OFF")
            undo.callback(driver.execute, "PRAGMA foreign_keys = ON")
        yield


def _driver_of(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _identity_of(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        raise StoreUnavailable("the database file is gone") from None
    return status.st_dev, status.st_ino
