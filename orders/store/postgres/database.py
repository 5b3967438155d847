"""PostgreSQL, by psycopg 3: connections that heal, one writer at a time, snapshots.

Loaded only where a setting says so: a plain install has no psycopg.

Every transaction that writes takes an advisory lock first, which the server gives back with its
commit. So of all processes one writes at a time, as on SQLite: events get their ids in the order of
commit, no transaction fails because another was faster, and none waits for another in a circle.
Changes that come together share a transaction (`group_commit`), and so a wait for the lock and for
the disk.

A connection that the server has closed while nobody used it is found by looking at its socket,
which costs no question to the server. So a restart of the server is noticed by those who were
waiting for an answer from it, and by nobody later.
"""

from __future__ import annotations

import contextlib
import select as polling
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import (
    URL,
    Compiled,
    Connection,
    Engine,
    QueuePool,
    Table,
    create_engine,
    event,
    text,
)
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.schema import CreateTable

from orders.store.database import sqlite
from orders.store.database.engine import (
    BESIDE,
    BUSY_SECONDS,
    STILL_BUSY_SECONDS,
    Beside,
    Database,
    driver_of,
)
from orders.store.database.errors import (
    discard_connection_on_error,
    may_be_tried_again,
    sqlstate_of,
    told_as_unknown,
    translate_driver_errors,
)
from orders.store.database.queries import Query

# "SOrd" in ASCII, as in the first page of an SQLite file: the first half of each lock's number.
LOCKS = 0x534F7264
WRITING, SERVING = 1, 2
LOCK_NOT_AVAILABLE = "55P03"
# Where the tables that stand beside the store's are for as long as a connection has them.
_TEMPORARY = "pg_temp"
_COPIED_AT_ONCE = 10_000
# A snapshot tells which transactions it sees. Two that are equal see the same.
# https://www.postgresql.org/docs/15/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
_SNAPSHOT = Query(text("SELECT CAST(pg_current_snapshot() AS text)"))
_OPTIONS = {
    # Instants are shown and cut into days in UTC.
    "timezone": "UTC",
    # Acknowledged is on the disk, whatever the server's own default is.
    "synchronous_commit": "on",
    # A request has been given up long before.
    "statement_timeout": "30s",
    "lock_timeout": f"{BUSY_SECONDS}s",
    # Statements of requests are small: compiling them takes longer than they do.
    "jit": "off",
}
# A process that stands still must not keep others from writing. A stream waits for its reader.
_WRITER_IDLE, _READER_IDLE = "30s", "600s"
_CONNECT = {
    "connect_timeout": 3,
    "application_name": "store-orders",
    # A server that vanished without a word is noticed in seconds, not in hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class PostgresDatabase(Database):
    """The store's database on a PostgreSQL server."""

    def __init__(self, url: URL, folder: Path, threads: int = 4) -> None:
        """Take its address, a folder for files, and how many threads will read at the same time."""
        super().__init__(folder, threads)
        self._url = url
        self._long_locked = False
        self._patience: float | None = None

    @property
    def where(self) -> str:
        """The address, without the password."""
        return self._url.set(password=None, query={}).render_as_string()

    @contextlib.contextmanager
    def write(self, beside: Beside | None = None) -> Iterator[Connection]:
        """Return a connection in a transaction that may write; it commits unless left by raising.

        The tables of another file, if given, are there as `beside.…`: they are copied before
        anything is locked. Then it may take as long as it takes.

        Raises:
            StoreUnavailable: the database is locked, full, read-only or away.
        """
        with (
            translate_driver_errors(),
            self._writer.connect() as connection,
            discard_connection_on_error(connection),
            _prepared(connection, beside),
            connection.begin() as transaction,
            # Once more, or a lost connection would be asked to roll back.
            discard_connection_on_error(connection),
        ):
            yield connection
            with told_as_unknown():
                transaction.commit()

    @contextlib.contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Have those who write waited for longer than requests wait: by what happens once."""
        self._patience = seconds
        try:
            yield
        finally:
            self._patience = None

    def ask(self, query: Query, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one query, on this thread's own connection.

        It is asked once more where the connection was lost meanwhile.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        with translate_driver_errors():
            try:
                return self._ask(query, parameters)
            except psycopg.Error as error:
                if not may_be_tried_again(error):
                    raise
                return self._ask(query, parameters)

    def _ask(self, query: Query, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        connection = self._own_connection()
        if has_ended(connection.driver_connection):
            connection.invalidate()
            connection = self._own_connection()
        with discard_connection_on_error(connection):
            rows: list[tuple[Any, ...]] = query.execute_on(
                connection.driver_connection, self._reader.dialect, parameters
            ).fetchall()
            return rows

    def version(self) -> str:
        """Return a value that is another one after any commit, by this process or another."""
        ((snapshot,),) = self.ask(_SNAPSHOT)
        return str(snapshot)

    def connect_apart(self) -> Any:
        """Return a driver's connection that is no part of any pool, and must be closed."""
        with translate_driver_errors():
            connection = self._reader.raw_connection()
            driver = connection.driver_connection
            connection.detach()
            return driver

    def _writing_engine(self) -> Engine:
        engine = self._engine(_WRITER_IDLE, pool_size=1, max_overflow=0)
        event.listen(engine, "begin", self._begin_to_write)
        return engine

    def _reading_engine(self) -> Engine:
        return self._engine(_READER_IDLE, pool_size=self._threads, max_overflow=-1)

    def _engine(self, idle: str, **pool: int) -> Engine:
        defaults = {name: each for name, each in _CONNECT.items() if name not in self._url.query}
        engine = create_engine(
            self._url,
            # Transactions begin where this module says, not by themselves.
            connect_args={**defaults, "autocommit": True},
            # By place, not by name: see `query`.
            paramstyle="format",
            use_native_hstore=False,
            hide_parameters=True,
            poolclass=QueuePool,
            pool_timeout=BUSY_SECONDS,
            **pool,
        )
        settings = {**_OPTIONS, "idle_in_transaction_session_timeout": idle}
        settled = "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())
        event.listen(engine, "connect", lambda driver, _: driver.execute(settled))
        event.listen(engine, "checkout", _refuse_ended)
        return engine

    def _begin_to_write(self, connection: Connection) -> None:
        # As on SQLite: a lock that has outlasted one request's patience is not waited for by the
        # next. All in one message to the server.
        patience = self._patience or BUSY_SECONDS
        seconds = STILL_BUSY_SECONDS if self._long_locked else patience
        try:
            driver_of(connection).execute(
                f"BEGIN; SET LOCAL lock_timeout = {round(seconds * 1000)}; "
                f"SELECT pg_advisory_xact_lock({LOCKS}, {WRITING})"
            )
        except psycopg.Error as error:
            self._long_locked = sqlstate_of(error) == LOCK_NOT_AVAILABLE
            raise
        self._long_locked = False

    def _begin_to_read(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def has_ended(driver: Any) -> bool:
    """Return whether the server has closed a connection that nobody uses just now."""
    if driver.closed:
        return True
    # Nothing was asked, so whatever there is to be read is the end, or an announcement of it.
    poll = polling.poll()
    poll.register(driver.fileno(), polling.POLLIN)
    return bool(poll.poll(0))


def _refuse_ended(driver: Any, *_: object) -> None:
    if has_ended(driver):
        raise DisconnectionError  # upon which the pool makes another one


@contextlib.contextmanager
def _prepared(connection: Connection, beside: Beside | None) -> Iterator[None]:
    if beside is None:
        yield
        return
    connection.execution_options(schema_translate_map={BESIDE: _TEMPORARY})
    driver = driver_of(connection)
    with contextlib.ExitStack() as undo:
        driver.execute("SET statement_timeout = 0")
        # Nobody else is to have a connection that was left like this.
        undo.callback(connection.invalidate)
        _copy(driver, beside, connection)
        yield


def _copy(driver: Any, beside: Beside, connection: Connection) -> None:
    with contextlib.closing(sqlite.connect(beside.path)) as file:
        for table in beside.tables:
            temporary = sql.Identifier(_TEMPORARY, table.name)
            driver.execute(str(_made_temporary(table, connection)))
            names = [column.name for column in table.columns]
            rows = file.execute(f"SELECT {', '.join(names)} FROM {table.name}")  # noqa: S608 # nosec B608 - names of ours
            into = sql.SQL("COPY {} ({}) FROM STDIN").format(
                temporary, sql.SQL(", ").join(map(sql.Identifier, names))
            )
            with driver.cursor().copy(into) as copy:
                while batch := rows.fetchmany(_COPIED_AT_ONCE):
                    for row in batch:
                        copy.write_row(row)
            driver.execute(sql.SQL("ANALYZE {}").format(temporary))


def _made_temporary(table: Table, connection: Connection) -> Compiled:
    return CreateTable(table).compile(
        dialect=connection.dialect,
        schema_translate_map={BESIDE: _TEMPORARY},
        render_schema_translate=True,
    )
