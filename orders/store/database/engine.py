"""The interface of a database, SQLite or PostgreSQL: write transactions and reading.

Two engines. The writer has one connection, for which this process' writers queue in order, and only
one transaction writes at a time, across all processes. So a transaction that reads first and writes
later can rely on what it read, and events get their ids in the order of commit. Each reading thread
keeps a connection for single queries; it reads in autocommit, or in a transaction of its own if
several statements must see the same state.

A commit is acknowledged once it is on the disk: it survives a power cut.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import (
    Connection,
    Engine,
    PoolProxiedConnection,
    QueuePool,
    Table,
    create_engine,
    event,
)

from orders.store.database.errors import (
    LOCKED,
    StoreUnavailable,
    Watch,
    discard_connection_on_error,
    translate,
    unavailable_cause,
)
from orders.store.database.faults import Faults, Part
from orders.store.database.long_reads import LongReads
from orders.store.database.queries import Query

BUSY_SECONDS = 5
# How long a request waits for the database in all, once it is whole: it is answered within ten
# seconds, with the queue behind it.
WAIT_SECONDS = 7.0
# The wait for a lock that an earlier request has already waited BUSY_SECONDS for.
STILL_BUSY_SECONDS = 0.05
# The schema name of the tables of a file beside the store.
BESIDE = "beside"
_PROBE_READING = "SELECT store_id FROM store"
_PROBE_WRITING = "UPDATE store SET store_id = store_id"


@dataclass(frozen=True, slots=True)
class Beside:
    """An SQLite file whose tables a transaction sees beside the store's, as `beside.…`."""

    path: Path
    tables: Sequence[Table]


class Database(ABC):
    """The store's database. Opens nothing until it is used. `folder` is for temporary files.

    Whatever asks it raises StoreUnavailable where it can't be reached, read or written.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        """Take the folder, and how many threads will read at the same time."""
        self.folder = folder
        self._threads = threads
        self._own = threading.local()
        # Weakly, so that a thread's connection goes back to the pool when the thread ends.
        self._kept: WeakSet[PoolProxiedConnection] = WeakSet()
        self._long_locked = False
        self.faults = Faults()
        self._reading = Watch(partial(self._note, Part.READING))
        self._writing = Watch(partial(self._note, Part.WRITING))

    def answer_by(self, moment: float | None) -> None:
        """Have this thread wait for the database until a monotonic time, or None, as usual."""
        self._own.deadline = moment

    def seconds_left(self) -> float:
        """Return how long this thread may wait for the database."""
        deadline: float | None = getattr(self._own, "deadline", None)
        return WAIT_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())

    @property
    def is_away(self) -> bool:
        """Whether the database is known not to answer, so that nobody need ask it."""
        return False

    def is_read_only(self, connection: Connection) -> bool:
        """Return whether the server takes no changes."""
        return False

    @property
    @abstractmethod
    def where(self) -> str:
        """The name of the database in messages, without a password."""

    @contextlib.contextmanager
    @abstractmethod
    def write(self, beside: Beside | None = None) -> Iterator[Connection]:
        """Yield a connection in a write transaction; it commits unless left by an exception.

        No other transaction writes until it ends. The tables of another file, if given, are
        available as `beside.…`.
        """
        yield from ()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for reading, each statement by itself."""
        with self._reading:
            self._check_usable()
            with self._reader.connect() as connection, discard_connection_on_error(connection):
                yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection whose statements all see the store as of the first of them."""
        with self.read() as connection:
            self._begin_to_read(connection)
            yield connection

    @abstractmethod
    def ask(self, query: Query, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one query, on this thread's own connection."""

    def probe(self, part: Part) -> None:
        """Raise StoreUnavailable if the database can't be read, or written."""
        if part is Part.READING:
            with self.read() as connection:
                connection.exec_driver_sql(_PROBE_READING).fetchall()
        else:
            with self.write() as connection:
                self._make_room(connection)
                connection.exec_driver_sql(_PROBE_WRITING)

    @abstractmethod
    def _make_room(self, connection: Connection) -> None:
        """Raise an error if there is no room for more rows: a change of one may need none."""

    def _note(self, part: Part, error: Exception) -> None:
        is_translated = isinstance(error, StoreUnavailable)
        cause = str(error) if is_translated else unavailable_cause(error)
        # A silence is logged by who waits for its end.
        if cause and not self.is_away:
            self.faults.note(part, cause)
        translate(error)

    @abstractmethod
    def version(self) -> Hashable:
        """Return a value that changes with any commit, by this process or another.

        It can only be compared with values that the same thread got before.
        """

    @cached_property
    def long_reads(self) -> LongReads:
        """The gate of long reads."""
        return LongReads()

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

    @cached_property
    def _writer(self) -> Engine:
        engine = self._engine(pool_size=1, max_overflow=0)
        event.listen(engine, "begin", self._begin_to_write)
        return engine

    @cached_property
    def _reader(self) -> Engine:
        # For each thread, one that it keeps and one to stream from. Readers wait for nobody.
        return self._engine(pool_size=2 * self._threads, max_overflow=-1)

    def _engine(self, **options: Any) -> Engine:
        return create_engine(
            # Errors in the log show the statement, not what clients sent.
            hide_parameters=True,
            poolclass=QueuePool,
            pool_timeout=BUSY_SECONDS,
            **options,
        )

    def _begin_to_write(self, connection: Connection) -> None:
        # Once a request has waited in vain, the next ones don't wait: they would occupy all
        # threads, and nothing could be read.
        try:
            self._lock(driver_of(connection), STILL_BUSY_SECONDS if self._long_locked else None)
        except Exception as error:
            self._long_locked = unavailable_cause(error) == LOCKED
            raise
        self._long_locked = False

    @abstractmethod
    def _lock(self, driver: Any, seconds: float | None) -> None:
        """Begin a write transaction; wait for another's end this long, or as long as usual."""

    @abstractmethod
    def _begin_to_read(self, connection: Connection) -> None:
        """Begin a transaction that sees one state of the store."""

    def _check_usable(self) -> None:  # noqa: B027 - a hook
        """Raise StoreUnavailable if the database can't be the one to ask now."""

    def _rows(self, query: Query, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        connection = self._own_connection()
        with discard_connection_on_error(connection):
            rows: list[tuple[Any, ...]] = query.execute_on(
                connection.driver_connection, self._reader.dialect, parameters
            ).fetchall()
            return rows

    def _own_connection(self) -> PoolProxiedConnection:
        connection: PoolProxiedConnection | None = getattr(self._own, "connection", None)
        if connection is None or not connection.is_valid:
            self._own.connection = connection = self._reader.raw_connection()
            self._connection_changed()
            self._kept.add(connection)
        return connection

    def _connection_changed(self) -> None:  # noqa: B027 - a hook
        """Note that this thread has a new connection of its own."""


def driver_of(connection: Connection) -> Any:
    """Return the driver's connection below one of SQLAlchemy's."""
    return connection.connection.driver_connection
