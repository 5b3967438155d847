"""What the store asks of its database, whichever that is: transactions to write, reading.

Two engines. The writer has one connection, so that writers of this process queue for it in order;
and only one transaction writes at a time, of all processes. So one that reads first and writes
later finds that nobody wrote in between, and events get their ids in the order of commit. Readers
have a connection for each thread, which a thread that asks single questions keeps; they read in
autocommit, or, where several statements must see the same state, in a transaction of their own.

A commit is acknowledged once it is on the disk: it survives a power cut.

`sqlite` and `postgres` have what each database does in its own way.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, PoolProxiedConnection, Table

from orders.store.database.errors import discard_connection_on_error, translate_driver_errors
from orders.store.database.queries import Query

BUSY_SECONDS = 5
# How long a lock is waited for that has outlasted BUSY_SECONDS before.
STILL_BUSY_SECONDS = 0.05
# The name by which statements call what is not in the store itself.
BESIDE = "beside"


@dataclass(frozen=True, slots=True)
class Beside:
    """An SQLite file whose tables a transaction is to see beside the store's, as `beside.…`."""

    path: Path
    tables: Sequence[Table]


class Database(ABC):
    """The store's database. Opens nothing until it is used.

    `folder` is where files can be that are needed for a while.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        """Take that folder, and how many threads will read at the same time."""
        self.folder = folder
        self._threads = threads
        self._own = threading.local()
        # Weakly, so that a thread's connection goes back to the pool when the thread ends.
        self._kept: WeakSet[PoolProxiedConnection] = WeakSet()

    @property
    @abstractmethod
    def where(self) -> str:
        """What messages call it. Without a password."""

    @contextlib.contextmanager
    @abstractmethod
    def write(self, beside: Beside | None = None) -> Iterator[Connection]:
        """Return a connection in a transaction that may write; it commits unless left by raising.

        No other transaction writes until it has ended. The tables of another file, if given, are
        there as `beside.…`.

        Raises:
            StoreUnavailable: the database can't be written, or is away.
        """
        yield from ()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Return a connection to read with, each statement by itself.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        with translate_driver_errors():
            self._make_sure_of_it()
            with self._reader.connect() as connection, discard_connection_on_error(connection):
                yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Return a connection whose statements all see the store as it was at the first of them."""
        with self.read() as connection:
            self._begin_to_read(connection)
            yield connection

    @abstractmethod
    def ask(self, query: Query, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one query, on this thread's own connection.

        Raises:
            StoreUnavailable: the database can't be read.
        """

    @abstractmethod
    def version(self) -> Hashable:
        """Return a value that is another one after any commit, by this process or another.

        It can be compared with what the same thread was given before, and with nothing else.

        Raises:
            StoreUnavailable: the database can't be read.
        """

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
        return self._writing_engine()

    @cached_property
    def _reader(self) -> Engine:
        return self._reading_engine()

    @abstractmethod
    def _writing_engine(self) -> Engine:
        """Make the engine that has one connection."""

    @abstractmethod
    def _reading_engine(self) -> Engine:
        """Make the engine that has as many as are needed: readers wait for nobody."""

    @abstractmethod
    def _begin_to_read(self, connection: Connection) -> None:
        """Begin a transaction that sees one state."""

    def _make_sure_of_it(self) -> None:  # noqa: B027 - there may be nothing to be sure of
        """Refuse to go on with a database that is another one than before."""

    def _own_connection(self) -> PoolProxiedConnection:
        connection: PoolProxiedConnection | None = getattr(self._own, "connection", None)
        if connection is None or not connection.is_valid:
            self._own.connection = connection = self._reader.raw_connection()
            self._note_own()
            self._kept.add(connection)
        return connection

    def _note_own(self) -> None:  # noqa: B027 - there may be nothing to be noted
        """Note that this thread has another connection of its own than before."""


def driver_of(connection: Connection) -> Any:
    """Return the driver's connection below one of SQLAlchemy's."""
    return connection.connection.driver_connection
