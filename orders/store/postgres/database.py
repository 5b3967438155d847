"""PostgreSQL through psycopg 3: connections that recover, one writer at a time, snapshots.

Every write transaction first takes an advisory lock, which the server releases at its commit. So
one process writes at a time, as on SQLite: events get their ids in the order of commit, and there
are no serialization failures and no deadlocks.

An idle connection that the server has closed is recognised by its socket, without a round trip. So
a restart of the server affects only the queries that were under way.

PostgreSQL's own time limits don't help against a server that stands still and keeps its connections
open: only the client's do. Each wait ends by its request's deadline. After one that ended so, the
next ones don't begin, but for one at a time that probes the server, until it answers again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import select as polling
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psycopg
from sqlalchemy import URL, Connection, Engine, MetaData, PoolProxiedConnection, Table, event, text
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.schema import CreateTable

from orders.store.database import errors, sqlite
from orders.store.database.database import (
    ATTACHED,
    BUSY_SECONDS,
    DEADLINE_SECONDS,
    STILL_BUSY_SECONDS,
    AttachedFile,
    Database,
    Query,
    driver_of,
)
from orders.store.database.errors import Part, StoreUnavailable, translated

log = logging.getLogger(__name__)

# "SOrd" in ASCII, as in the first page of an SQLite file: the first half of each lock's number.
LOCKS = 0x534F7264
WRITING, SERVING = 1, 2
# Added to those for a store in a schema of its own: locks belong to no schema.
_APART = 2
# The schema of the tables beside the store's, which lasts as long as a connection.
_TEMPORARY = "pg_temp"
# A snapshot names the transactions that it sees. Equal snapshots see the same.
# https://www.postgresql.org/docs/15/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
_SNAPSHOT = Query(text("SELECT CAST(pg_current_snapshot() AS text)"))
_IDENTITY = "SELECT version_num, store_id FROM alembic_version, store"
# Files grow by it, which a change of one row may not need.
_ROOM = (
    "CREATE TEMPORARY TABLE store_orders_room ON COMMIT DROP AS "
    "SELECT repeat('x', 500) AS filler FROM generate_series(1, 2000)"
)
_OPTIONS = {
    # Instants are formatted and split into days in UTC.
    "timezone": "UTC",
    # Acknowledged is on the disk, whatever the server's own default is.
    "synchronous_commit": "on",
    # Before this process' own limit, which a server that answers should not meet.
    "statement_timeout": f"{DEADLINE_SECONDS - 1:.0f}s",
    # Statements of requests are small: compiling them would take longer than running them.
    "jit": "off",
    # A stream waits for its reader.
    "idle_in_transaction_session_timeout": "600s",
}
# A process that stands still in a transaction keeps no other from writing for longer than that one
# waits for the lock.
_WRITER_IDLE = f"{BUSY_SECONDS - 1}s"
_CONNECT = {
    "connect_timeout": 3,
    "application_name": "store-orders",
    # A server that vanished is noticed in seconds, not in hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# A shorter silence says nothing about a server.
_LEAST_SECONDS = 1.0
# The least that psycopg waits for a connection.
_CONNECT_SECONDS = 2
# Between two probes.
_REST_SECONDS = 1.0
# Then one request waits for it again.
_LOCKED_SECONDS = 30.0
# The server's words, as such an error has no code.
_FULL = re.compile("too many (clients|connections)|remaining connection slots")
_SILENT = "the database server does not answer"
# The tables that forgetting overwrites.
_OVERWRITTEN = "orders, order_events, order_words, idempotency_keys, webhook_deliveries"


class PostgresDatabase(Database):
    def __init__(self, url: URL, folder: Path, threads: int = 4, schema: str | None = None) -> None:
        """Set up the database, with the tables in the server's schema or in one of their own."""
        super().__init__(folder, threads)
        self._url = url
        self.schema = schema
        self._options = _OPTIONS | ({"search_path": schema} if schema else {})
        self._patience: float | None = None
        self._identity: tuple[str, str] | None = None
        self._write_turns = threading.Lock()
        self._breaker = Breaker(self.where, self.seconds_left)

    @property
    def where(self) -> str:
        name = self._url.set(password=None, query={}).render_as_string()
        return f"{name}, schema {self.schema}" if self.schema else name

    def lock(self, purpose: int) -> str:
        """Return the numbers of the store's lock for WRITING or SERVING, as SQL has them."""
        return f"{LOCKS}, {purpose + (_APART if self.schema else 0)}"

    @contextlib.contextmanager
    def write(
        self, attached: AttachedFile | None = None, *, patience: float | None = None
    ) -> Iterator[Connection]:
        """Yield a connection in a write transaction; it commits unless left by an exception.

        The tables of another file, if given, are available as `attached.…`: they are copied before
        anything is locked. Such a transaction has no time limit. `patience` is how long to wait
        for the writers' lock, if that is longer than requests do.
        """
        with (
            self._turn_to_write(),
            self._connected(self._writer, Part.WRITING) as connection,
            _prepared(connection, attached) if attached or patience else contextlib.nullcontext(),
        ):
            self._patience = patience
            # Discarded inside of the transaction, too: a lost connection can't be rolled back.
            with connection.begin() as transaction, translated(connection):
                yield connection
                try:
                    transaction.commit()
                except Exception as error:
                    cause = errors.unavailable_cause(error)
                    if isinstance(error, StoreUnavailable) or cause == errors.LOST:
                        raise errors.OutcomeUnknown(cause or str(error)) from error
                    raise

    def _rows(self, query: Query, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        # Retried once if the connection was lost.
        self._check_usable()
        try:
            return super()._rows(query, parameters)
        except psycopg.Error as error:
            if not errors.is_retryable(error):
                raise
            return super()._rows(query, parameters)

    def version(self) -> str:
        ((snapshot,),) = self.fetch_all(_SNAPSHOT)
        return str(snapshot)

    def scrub(self, *, whole: bool = False) -> str:
        """Have the server reuse the space of rows that were overwritten, or write all anew."""
        with self.read() as connection, without_limits(connection) as driver:
            driver.execute(f"VACUUM {'(FULL)' if whole else ''} {_OVERWRITTEN}")
        return "" if whole else "space that the server reuses"

    def pin(self) -> None:
        """Let later connections refuse a database that was upgraded, or renewed, meanwhile.

        A lost connection is the only sign of that: both happen while nobody serves the database.
        """
        with self.read() as connection:
            self._identity = driver_of(connection).execute(_IDENTITY).fetchone()

    def connect_apart(self) -> Any:
        """Return a driver connection outside the pools. The caller closes it."""
        with translated():
            connection = self._reader.raw_connection()
            driver = connection.driver_connection
            connection.detach()
            return driver

    @property
    def is_away(self) -> bool:
        """Whether the server has stopped answering."""
        return self._breaker.is_open

    def is_read_only(self, connection: Connection) -> bool:
        """Return whether the server is a standby, or configured as read-only."""
        return bool(connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on")

    def _check_usable(self) -> None:
        self._breaker.check()

    @contextlib.contextmanager
    def _turn_to_write(self) -> Iterator[None]:
        # The pool would wait for its one connection as long for any request.
        if not self._write_turns.acquire(timeout=min(BUSY_SECONDS, self.seconds_left())):
            raise StoreUnavailable("the database is busy")
        try:
            yield
        finally:
            self._write_turns.release()

    def _own_connection(self) -> PoolProxiedConnection:
        connection = super()._own_connection()
        if has_ended(connection.driver_connection):
            connection.invalidate()
            connection = super()._own_connection()
        self._set_patience(connection.driver_connection)
        return connection

    def _set_patience(self, driver: Any, *_: object) -> None:
        # Once a request has waited for a lock in vain, the next ones don't.
        seconds = STILL_BUSY_SECONDS if self._breaker.is_locked else BUSY_SECONDS
        if driver.lock_seconds != seconds:
            driver.execute(f"SET lock_timeout = {round(seconds * 1000)}")
            driver.lock_seconds = seconds

    def _engine(self, **options: Any) -> Engine:
        defaults = {name: each for name, each in _CONNECT.items() if name not in self._url.query}
        engine = super()._engine(
            url=self._url,
            # Transactions begin only where this module says.
            connect_args={**defaults, "autocommit": True},
            # Positional parameters: see `queries`.
            paramstyle="format",
            use_native_hstore=False,
            **options,
        )
        event.listen(engine, "do_connect", self._connect)
        assignments = "; ".join(f"SET {name} = '{value}'" for name, value in self._options.items())
        event.listen(engine, "connect", lambda driver, _: driver.execute(assignments))
        event.listen(engine, "connect", self._check_identity)
        event.listen(engine, "checkout", _refuse_ended)
        event.listen(engine, "checkout", self._set_patience)
        return engine

    def _check_identity(self, driver: Any, _record: object) -> None:
        if self._identity and driver.execute(_IDENTITY).fetchone() != self._identity:
            driver.close()
            raise errors.Superseded("it was upgraded or renewed, and this process must restart")

    def _connect(self, _dialect: object, _record: object, arguments: Any, options: Any) -> Any:
        return connect(self._breaker, arguments, options)

    def _lock(self, driver: Any, seconds: float | None) -> None:
        # All in one message to the server.
        if seconds is None and self._breaker.is_locked:
            seconds = STILL_BUSY_SECONDS
        milliseconds = round((self._patience or seconds or BUSY_SECONDS) * 1000)
        idle = "600s" if self._patience else _WRITER_IDLE
        driver.execute(
            f"BEGIN; SET LOCAL lock_timeout = {milliseconds}; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{idle}'; "
            f"SELECT pg_advisory_xact_lock({self.lock(WRITING)})"
        )

    def _make_room(self, connection: Connection) -> None:
        connection.exec_driver_sql(_ROOM)

    def _begin_to_read(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def has_ended(driver: Any) -> bool:
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
def without_limits(connection: Connection) -> Iterator[Any]:
    """Lift the time limit of statements; yield the driver's connection, which is not reused."""
    driver = driver_of(connection)
    driver.breaker = None
    driver.execute("SET statement_timeout = 0")
    try:
        yield driver
    finally:
        connection.invalidate()


@contextlib.contextmanager
def _prepared(connection: Connection, attached: AttachedFile | None) -> Iterator[None]:
    with without_limits(connection) as driver:
        if attached:
            connection.execution_options(schema_translate_map={ATTACHED: _TEMPORARY})
            _copy_attached(connection, driver, attached)
        yield


def _copy_attached(connection: Connection, driver: Any, attached: AttachedFile) -> None:
    with contextlib.closing(sqlite.connect(attached.path)) as file:
        for table in attached.tables:
            temporary = table.to_metadata(MetaData(), schema=_TEMPORARY)
            driver.execute(str(CreateTable(temporary).compile(dialect=connection.dialect)))
            names = ", ".join(table.columns.keys())
            copy_into(driver, temporary, file.execute(f"SELECT {names} FROM {table.name}"))  # noqa: S608 # nosec B608 - our own names
            driver.execute(f"ANALYZE {temporary.fullname}")


def copy_into(driver: Any, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    columns = ", ".join(table.columns.keys())
    with driver.cursor().copy(f"COPY {table.fullname} ({columns}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


class Breaker:
    """Whether a server answers, as far as this process has found out. Thread-safe."""

    def __init__(self, where: str, seconds_left: Callable[[], float]) -> None:
        self._where = where
        self._seconds_left = seconds_left
        self._lock = threading.Lock()
        self._next_probe: float | None = None
        self._locked_until = 0.0

    @property
    def is_locked(self) -> bool:
        """Whether a statement has waited in vain for a lock a moment ago."""
        return time.monotonic() < self._locked_until

    def lock(self) -> None:
        self._locked_until = time.monotonic() + _LOCKED_SECONDS

    @property
    def is_open(self) -> bool:
        """Whether the server has left a wait without an answer, and none has had one since."""
        return self._next_probe is not None

    def check(self) -> None:
        """Raise StoreUnavailable unless this thread may ask the server."""
        if self._seconds_left() <= 0:
            raise StoreUnavailable("the database is busy")
        with self._lock:
            if self._next_probe is None:
                return
            now = time.monotonic()
            if now < self._next_probe:
                raise StoreUnavailable(_SILENT)
            self._next_probe = now + _CONNECT_SECONDS + _LEAST_SECONDS

    def patience(self) -> float:
        """Return how many seconds a wait that begins now may last."""
        return max(0.0 if self.is_open else self._seconds_left(), _LEAST_SECONDS)

    def answered(self) -> None:
        if self._next_probe is None:
            return
        with self._lock:
            was_silent, self._next_probe = self._next_probe is not None, None
        if was_silent:
            log.warning("The database server of %s answers again.", self._where)

    def give_up(self, cause: BaseException | None = None) -> NoReturn:
        """Record that the server does not answer, and raise StoreUnavailable."""
        with self._lock:
            was_answering = self._next_probe is None
            self._next_probe = time.monotonic() + _REST_SECONDS
        if was_answering:
            log.warning("The database server of %s does not answer.", self._where)
        raise StoreUnavailable(_SILENT) from cause


class EndingConnection(psycopg.Connection[Any]):
    """A connection whose waits end, unless it has no breaker."""

    breaker: Breaker | None = None
    # How long it waits for a lock, once that is set.
    lock_seconds: float | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait as psycopg does, which looks around ten times a second."""
        if self.breaker is not None:
            gen = self._bounded(gen, self.breaker)
        return super().wait(gen, *args, **options)

    def _bounded(self, waits: Any, breaker: Breaker) -> Generator[Any, Any, Any]:
        ends = time.monotonic() + breaker.patience()
        ready = None
        try:
            while True:
                ready = yield waits.send(ready)
                if not ready and time.monotonic() >= ends:
                    self.pgconn.finish()
                    breaker.give_up()
        except psycopg.errors.LockNotAvailable:
            breaker.lock()
            raise
        except StopIteration as done:
            breaker.answered()
            return done.value


def connect(breaker: Breaker, arguments: Any, options: Any) -> EndingConnection:
    """Return a new connection, or raise StoreUnavailable where the server leaves it unanswered."""
    seconds = min(int(options["connect_timeout"]), max(_CONNECT_SECONDS, int(breaker.patience())))
    try:
        connection = EndingConnection.connect(*arguments, **{**options, "connect_timeout": seconds})
    except psycopg.errors.ConnectionTimeout as error:
        breaker.give_up(error)
    except psycopg.OperationalError as error:
        breaker.answered()
        if _FULL.search(str(error)):
            raise psycopg.errors.TooManyConnections(str(error)) from error
        raise
    connection.breaker = breaker
    return connection
