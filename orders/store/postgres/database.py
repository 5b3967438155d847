"""PostgreSQL through psycopg 3: connections that recover, one writer at a time, snapshots.

Loaded only if a setting says so: a plain install has no psycopg.

Every write transaction first takes an advisory lock, which the server releases at its commit. So
one process writes at a time, as on SQLite: events get their ids in the order of commit, and there
are no serialization failures and no deadlocks. Changes that arrive together share a transaction
(`group_commit`), and so a wait for the lock and for the disk.

An idle connection that the server has closed is recognised by its socket, without a round trip. So
a restart of the server affects only the queries that were under way.
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
    commit_outcome_unknown,
    discard_connection_on_error,
    is_retryable,
    sqlstate_of,
    translate_driver_errors,
)
from orders.store.database.queries import Query

# "SOrd" in ASCII, as in the first page of an SQLite file: the first half of each lock's number.
LOCKS = 0x534F7264
WRITING, SERVING = 1, 2
LOCK_NOT_AVAILABLE = "55P03"
# The schema of the tables beside the store's, for the time of a connection.
_TEMPORARY = "pg_temp"
_COPY_BATCH = 10_000
# A snapshot names the transactions that it sees. Equal snapshots see the same.
# https://www.postgresql.org/docs/15/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
_SNAPSHOT = Query(text("SELECT CAST(pg_current_snapshot() AS text)"))
_OPTIONS = {
    # Instants are formatted and split into days in UTC.
    "timezone": "UTC",
    # Acknowledged is on the disk, whatever the server's own default is.
    "synchronous_commit": "on",
    # By then the request has long timed out.
    "statement_timeout": "30s",
    "lock_timeout": f"{BUSY_SECONDS}s",
    # Statements of requests are small: compiling them would take longer than running them.
    "jit": "off",
}
# A stalled process must not keep others from writing. A stream waits for its reader.
_WRITER_IDLE, _READER_IDLE = "30s", "600s"
_CONNECT = {
    "connect_timeout": 3,
    "application_name": "store-orders",
    # A server that vanished is noticed in seconds, not in hours.
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
        """Yield a connection in a write transaction; it commits unless left by an exception.

        The tables of another file, if given, are available as `beside.…`: they are copied before
        anything is locked. Such a transaction has no time limit.

        Raises:
            StoreUnavailable: the database is locked, full, read-only or unreachable.
        """
        with (
            translate_driver_errors(),
            self._writer.connect() as connection,
            discard_connection_on_error(connection),
            _prepared(connection, beside),
            connection.begin() as transaction,
            # Again, or a lost connection would be told to roll back.
            discard_connection_on_error(connection),
        ):
            yield connection
            with commit_outcome_unknown():
                transaction.commit()

    @contextlib.contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Wait longer for the writers' lock than requests do: for one-off work."""
        self._patience = seconds
        try:
            yield
        finally:
            self._patience = None

    def ask(self, query: Query, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one query, on this thread's own connection.

        It is retried once if the connection was lost.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        with translate_driver_errors():
            try:
                return self._ask(query, parameters)
            except psycopg.Error as error:
                if not is_retryable(error):
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
        """Return a value that changes with any commit, by this process or another."""
        ((snapshot,),) = self.ask(_SNAPSHOT)
        return str(snapshot)

    def connect_apart(self) -> Any:
        """Return a driver connection outside the pools. The caller closes it."""
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
            # Transactions begin only where this module says.
            connect_args={**defaults, "autocommit": True},
            # Positional parameters: see `queries`.
            paramstyle="format",
            use_native_hstore=False,
            hide_parameters=True,
            poolclass=QueuePool,
            pool_timeout=BUSY_SECONDS,
            **pool,
        )
        settings = {**_OPTIONS, "idle_in_transaction_session_timeout": idle}
        assignments = "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())
        event.listen(engine, "connect", lambda driver, _: driver.execute(assignments))
        event.listen(engine, "checkout", _refuse_ended)
        return engine

    def _begin_to_write(self, connection: Connection) -> None:
        # As on SQLite: once a request has waited in vain, the next ones don't wait. All in one
        # message to the server.
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
    """Return whether the server has closed an idle connection."""
    if driver.closed:
        return True
    # No query is under way, so anything to read is the end, or its announcement.
    poll = polling.poll()
    poll.register(driver.fileno(), polling.POLLIN)
    return bool(poll.poll(0))


def _refuse_ended(driver: Any, *_: object) -> None:
    if has_ended(driver):
        raise DisconnectionError  # the pool then opens another one


@contextlib.contextmanager
def _prepared(connection: Connection, beside: Beside | None) -> Iterator[None]:
    if beside is None:
        yield
        return
    connection.execution_options(schema_translate_map={BESIDE: _TEMPORARY})
    driver = driver_of(connection)
    with contextlib.ExitStack() as undo:
        driver.execute("SET statement_timeout = 0")
        # The connection must not be reused with these settings.
        undo.callback(connection.invalidate)
        _copy(driver, beside, connection)
        yield


def _copy(driver: Any, beside: Beside, connection: Connection) -> None:
    with contextlib.closing(sqlite.connect(beside.path)) as file:
        for table in beside.tables:
            temporary = sql.Identifier(_TEMPORARY, table.name)
            driver.execute(str(_create_temporary(table, connection)))
            names = [column.name for column in table.columns]
            rows = file.execute(f"SELECT {', '.join(names)} FROM {table.name}")  # noqa: S608 # nosec B608 - our own names
            into = sql.SQL("COPY {} ({}) FROM STDIN").format(
                temporary, sql.SQL(", ").join(map(sql.Identifier, names))
            )
            with driver.cursor().copy(into) as copy:
                while batch := rows.fetchmany(_COPY_BATCH):
                    for row in batch:
                        copy.write_row(row)
            driver.execute(sql.SQL("ANALYZE {}").format(temporary))


def _create_temporary(table: Table, connection: Connection) -> Compiled:
    return CreateTable(table).compile(
        dialect=connection.dialect,
        schema_translate_map={BESIDE: _TEMPORARY},
        render_schema_translate=True,
    )
