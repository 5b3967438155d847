"""apsw as a driver for the store, in the place of pysqlite3: so its files can be on a disk of ours.

A file system layer (VFS) belongs to the copy of SQLite that it is registered with, and the one in
pysqlite3 can't be reached from Python. apsw brings its own copy, of the same version, with layers
in Python. This module has of PEP 249 what `orders.store.database.sqlite` and SQLAlchemy's dialect
ask for; everything above it, each pragma, statement and transaction, is the project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apsw

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"
Binary = memoryview
sqlite_version = apsw.sqlite_lib_version()
sqlite_version_info = tuple(map(int, sqlite_version.split(".")))

# The file system layer that new connections use; None is SQLite's own.
layer: str | None = None


class Error(Exception):
    """An error of SQLite, with the name of its code, as in Python's own driver."""

    sqlite_errorname = ""


class DatabaseError(Error):
    """The one kind of error that is distinguished here: by its name."""


class InterfaceError(Error):
    """Asked for by SQLAlchemy, never raised."""


class ProgrammingError(DatabaseError):
    """Asked for by SQLAlchemy, never raised."""


def connect(database: str, *, timeout: float = 5.0, **_: object) -> Connection:
    return Connection(_translated(lambda: _open(database)), timeout)


def _open(uri: str) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    return apsw.Connection(uri, flags=flags, vfs=layer)


def _translated(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except apsw.Error as error:
        failure = DatabaseError(str(error))
        names = apsw.mapping_extended_result_codes, apsw.mapping_result_codes
        failure.sqlite_errorname = names[0].get(error.extendedresult) or names[1][error.result]
        raise failure from error


class Connection:
    """A connection that begins no transaction by itself."""

    isolation_level = None

    def __init__(self, connection: apsw.Connection, timeout: float) -> None:
        self._connection = connection
        connection.set_busy_timeout(int(timeout * 1000))

    def cursor(self) -> Cursor:
        return Cursor(self._connection)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        return self.cursor().execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        return self.cursor().executemany(statement, rows)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def commit(self) -> None:
        if self._connection.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def create_function(
        self, name: str, count: int, function: Any, *, deterministic: bool = False
    ) -> None:
        self._connection.create_scalar_function(name, function, count, deterministic=deterministic)

    def set_progress_handler(self, handler: Callable[[], object], steps: int) -> None:
        self._connection.set_progress_handler(lambda: bool(handler()), steps)

    def close(self) -> None:
        _translated(self._connection.close)


class Cursor:
    """The rows of a statement, all read at once."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []
        self.arraysize = 1
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.description: tuple[tuple[Any, ...], ...] | None = None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        return self._run(lambda cursor: cursor.execute(statement, values))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        return self._run(lambda cursor: cursor.executemany(statement, rows))

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        size = size or self.arraysize
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows, []
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def close(self) -> None:
        self._rows = []

    def _run(self, ask: Callable[[apsw.Cursor], Iterable[tuple[Any, ...]]]) -> Cursor:
        cursor, before = self._connection.cursor(), self._connection.total_changes()
        # Of a statement without rows, the columns are known before it runs only.
        cursor.exec_trace = self._keep_columns
        self._rows = _translated(lambda: list(ask(cursor)))
        self.rowcount = self._connection.total_changes() - before
        self.lastrowid = self._connection.last_insert_rowid()
        return self

    def _keep_columns(self, cursor: apsw.Cursor, _statement: str, _values: object) -> bool:
        columns = cursor.get_description()
        self.description = tuple((name, *[None] * 6) for name, _ in columns) or None
        return True
