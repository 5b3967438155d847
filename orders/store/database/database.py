"""The interface of a database, SQLite or PostgreSQL: write transactions and reading.

One transaction writes at a time, across all processes. So a transaction that reads first and writes
later can rely on what it read, and events get their ids in the order of commit. Each reading thread
keeps a connection for single queries; it reads in autocommit, or in a transaction of its own if
several statements must see the same state. A commit is acknowledged once it is on the disk.

Below it are the parts of statements on both: queries that are compiled once, instants, folded
texts, and the sequences of ids.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from orders import domain
from orders.store.database import errors
from orders.store.database.errors import Outages, Part, StoreUnavailable, unavailable_cause

log = logging.getLogger(__name__)

Stored = TypeVar("Stored")
Converted = TypeVar("Converted")
Element = TypeVar("Element", bound=FunctionElement[Any])

BUSY_SECONDS = 5
# How long a request waits for the database in all, once it is whole: it is answered within ten
# seconds, with the queue behind it.
DEADLINE_SECONDS = 7.0
# The wait for a lock that an earlier request has already waited BUSY_SECONDS for.
STILL_BUSY_SECONDS = 0.05
# The schema name of the tables of a file beside the store.
ATTACHED = "attached"
_PROBE_READING = "SELECT store_id FROM store"
_PROBE_WRITING = "UPDATE store SET store_id = store_id"
# The suffix of instants as texts.
_AFTER_ALL_TEXT = "~"
# No id is assigned twice, even after the newest rows are lost in a restore. SQLite records the
# highest id of each table, including imported ones; PostgreSQL has a sequence for each.
_HAS_SEQUENCES = "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'"
_INSERT_SEQUENCE = """
    INSERT INTO sqlite_sequence (name, seq) SELECT :table, 0
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = :table)
"""
_RAISE_SEQUENCE = "UPDATE sqlite_sequence SET seq = max(seq, :id) WHERE name = :table"
# The last value of an unused sequence is null.
_SEQUENCES = """
    SELECT t.relname, coalesce(pg_sequence_last_value(s.oid), 0)
    FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
    JOIN pg_class t ON t.oid = d.refobjid
    WHERE s.relkind = 'S' AND t.relnamespace = CAST(current_schema() AS regnamespace)
"""
_SET_SEQUENCE = "SELECT setval(pg_get_serial_sequence(:table, 'id'), :id)"


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """An SQLite file whose tables a transaction sees beside the store's, as `attached.…`."""

    path: Path
    tables: Sequence[sa.Table]


class Database(ABC):
    """The store's database. Opens nothing until it is used. `folder` is for temporary files.

    Methods raise StoreUnavailable where it can't be reached, read or written.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder = folder
        self._threads = threads
        self._own = threading.local()
        # Weakly, so that a thread's connection goes back to the pool when the thread ends.
        self._connections: WeakSet[sa.PoolProxiedConnection] = WeakSet()
        self._long_locked = False
        # How long a change waits for another's end, if that is not as long as usual.
        self.busy_seconds: float | None = None
        self.outages = Outages()

    def set_deadline(self, moment: float | None) -> None:
        """Limit this thread's waits for the database: until a monotonic time, or as usual."""
        self._own.deadline = moment

    def seconds_left(self) -> float:
        """Return how long this thread may wait for the database."""
        deadline: float | None = getattr(self._own, "deadline", None)
        return DEADLINE_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())

    @property
    def is_away(self) -> bool:
        """Whether the database is known not to answer, so that asking it is pointless."""
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
    def write(self, attached: AttachedFile | None = None) -> Iterator[Connection]:
        """Yield a connection in a write transaction; it commits unless left by an exception.

        No other transaction writes until it ends. The tables of another file, if given, are
        available as `attached.…`.
        """
        yield from ()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for reading, each statement by itself."""
        with self._connected(self._reader, Part.READING) as connection:
            yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection whose statements all see the store as of the first of them."""
        with self.read() as connection:
            self._begin_to_read(connection)
            yield connection

    def fetch_all(self, query: Query, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one query, on this thread's own connection."""
        try:
            return self._rows(query, parameters)
        except Exception as error:  # noqa: BLE001 - raised again
            self._raise(Part.READING, error)

    @contextlib.contextmanager
    def _connected(self, engine: sa.Engine, part: Part) -> Iterator[Connection]:
        try:
            self._check_usable()
            with engine.connect() as connection:
                try:
                    yield connection
                except Exception as error:
                    errors.invalidate_if_fatal(connection, error)
                    raise
        except Exception as error:  # noqa: BLE001 - raised again
            self._raise(part, error)

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

    def _raise(self, part: Part, error: Exception) -> NoReturn:
        """Raise StoreUnavailable, and record the outage, if an error means one; else the error."""
        is_translated = isinstance(error, StoreUnavailable)
        cause = str(error) if is_translated else unavailable_cause(error)
        # A silence is logged by the thread that waits for its end.
        if cause and not self.is_away:
            self.outages.record(part, cause)
        errors.translate(error)

    @abstractmethod
    def version(self) -> Hashable:
        """Return a value that changes with any commit, by this process or another.

        It can only be compared with values that the same thread got before.
        """

    @abstractmethod
    def scrub(self, *, whole: bool = False) -> str:
        """Erase overwritten data from the files; return where traces may remain, if anywhere.

        With `whole`, even if other writers have to wait for longer than a moment.
        """

    @cached_property
    def long_reads(self) -> LongReads:
        return LongReads()

    def close(self) -> None:
        """Close all connections. Later use opens new ones."""
        for connection in list(self._connections):
            if connection.is_valid:
                connection.close()
        self._own = threading.local()
        for name in ("_writer", "_reader"):
            engine = self.__dict__.pop(name, None)
            if engine is not None:
                engine.dispose()

    @cached_property
    def _writer(self) -> sa.Engine:
        engine = self._engine(pool_size=1, max_overflow=0)
        sa.event.listen(engine, "begin", self._begin_to_write)
        return engine

    @cached_property
    def _reader(self) -> sa.Engine:
        # For each thread, one that it keeps and one to stream from. Readers never wait.
        return self._engine(pool_size=2 * self._threads, max_overflow=-1)

    def _engine(self, **options: Any) -> sa.Engine:
        return sa.create_engine(
            # Errors in the log show the statement, not what clients sent.
            hide_parameters=True,
            poolclass=sa.QueuePool,
            pool_timeout=BUSY_SECONDS,
            **options,
        )

    def _begin_to_write(self, connection: Connection) -> None:
        # Once a request has waited in vain, the next ones don't wait: they would occupy all
        # threads, and nothing could be read.
        seconds = STILL_BUSY_SECONDS if self._long_locked else self.busy_seconds
        try:
            self._lock(driver_of(connection), seconds)
        except Exception as error:
            self._long_locked = unavailable_cause(error) == errors.LOCKED
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

    def _check_now_and_then(self) -> None:  # noqa: B027 - a hook
        """Check the same before a query, unless it was checked a moment ago."""

    def _rows(self, query: Query, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        self._check_now_and_then()
        connection = self._own_connection()
        try:
            rows: list[tuple[Any, ...]] = query.execute_on(
                connection.driver_connection, self._reader.dialect, parameters
            ).fetchall()
        except Exception as error:
            errors.invalidate_if_fatal(connection, error)
            raise
        return rows

    def _own_connection(self) -> sa.PoolProxiedConnection:
        connection: sa.PoolProxiedConnection | None = getattr(self._own, "connection", None)
        if connection is None or not connection.is_valid:
            self._own.connection = connection = self._reader.raw_connection()
            self._connection_changed()
            self._connections.add(connection)
        return connection

    def _connection_changed(self) -> None:  # noqa: B027 - a hook
        """Record that this thread has a new connection of its own."""


def driver_of(connection: Connection) -> Any:
    """Return the driver's connection below one of SQLAlchemy's."""
    return connection.connection.driver_connection


class LongReads:
    """Whether long reads of one moment may begin: always, unless a log must be kept short."""

    is_open = True

    def tend(self) -> float | None:
        """Do what is due; return after how many seconds to call this again, None if it is usual."""
        return None


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement for one database. A parameter without a name has a fixed value."""

    text: str
    parameters: tuple[tuple[str | None, Any], ...]
    # What the database's types make of values, by the parameters' names.
    processors: dict[str, Callable[[Any], Any]]

    def arguments(self, values: dict[str, Any]) -> list[Any]:
        for name, process in self.processors.items():
            values[name] = process(values[name])
        return [value if name is None else values[name] for name, value in self.parameters]


class Query:
    """A statement whose shape never changes. Its open parameters are `bindparam`s.

    SQLAlchemy prepares each execution for events, result metadata and a look-up in its cache. Such
    a statement needs none of that: it is compiled once, and executed on the driver's own
    connection, which costs 5 µs instead of 100. Parameters are positional, which both drivers
    support: `?` in SQLite's, `%s` in psycopg's.
    """

    def __init__(self, statement: ClauseElement, on_postgres: ClauseElement | None = None) -> None:
        """Take the statement, and another for PostgreSQL if that differs."""
        self._statement = statement
        self._on_postgres = on_postgres
        self._compiled: dict[str, _Compiled] = {}

    @classmethod
    def by_ids(cls, statement: Callable[[sa.Select[Any]], ClauseElement]) -> Query:
        """Return a query about some ids, which are its parameter `order_ids`, as a JSON array."""
        return cls(*(statement(ids) for ids in _json_ids()))

    def execute(self, connection: Connection, **parameters: Any) -> Any:
        """Execute it in a transaction; return the driver's cursor, with rows as it has them."""
        driver: Any = connection.connection.driver_connection
        return self.execute_on(driver, connection.dialect, parameters)

    def execute_each(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Execute it in a transaction for each of some rows of values, as the driver takes them."""
        driver: Any = connection.connection.driver_connection
        compiled = self._compiled_for(connection.dialect)
        driver.cursor().executemany(compiled.text, rows)

    def execute_on(self, driver: Any, dialect: sa.Dialect, parameters: dict[str, Any]) -> Any:
        """Execute it on a driver's connection; return the cursor."""
        compiled = self._compiled_for(dialect)
        return driver.execute(compiled.text, compiled.arguments(parameters))

    def _compiled_for(self, dialect: sa.Dialect) -> _Compiled:
        return self._compiled.get(dialect.name) or self._compile(dialect)

    def _compile(self, dialect: sa.Dialect) -> _Compiled:
        on_postgres = self._on_postgres if dialect.name == "postgresql" else None
        statement = self._statement if on_postgres is None else on_postgres
        compiled: Any = statement.compile(dialect=dialect)
        parameters: list[tuple[str | None, Any]] = []
        processors = {}
        for name in compiled.positiontup or ():
            bind = compiled.binds[name]
            process = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if bind.required:
                parameters.append((name, None))
                if process:
                    processors[name] = process
            else:
                value = bind.effective_value
                parameters.append((None, process(value) if process else value))
        made = _Compiled(compiled.string, tuple(parameters), processors)
        self._compiled[dialect.name] = made
        return made


def _json_ids() -> Iterator[sa.Select[Any]]:
    """Yield the ids in a JSON array, any number in one parameter, as each database reads them."""
    ids = sa.bindparam("order_ids", type_=sa.String)
    yield sa.select(sa.func.json_each(ids).table_valued("value").c.value)
    elements = sa.func.json_array_elements_text(sa.cast(ids, sa.JSON)).table_valued("value")
    yield sa.select(sa.cast(elements.c.value, sa.BigInteger))


def sql_function(**templates: str) -> Callable[[type[Element]], type[Element]]:
    """Make a class a function of SQL, by each database's template: {} is the argument."""

    def register(element: type[Element]) -> type[Element]:
        element.inherit_cache = True
        for dialect, template in templates.items():
            compiles(element, dialect)(partial(_write, template))
        return element

    return register


def _write(template: str, element: Any, compiler: SQLCompiler, **options: Any) -> str:
    return template.format(compiler.process(element.clauses, **options))


@sql_function(sqlite="+{}", postgresql="{}")
class Unindexed(FunctionElement[Any]):
    """A column by which SQLite chooses no index (https://www.sqlite.org/optoverview.html, 2)."""

    def __init__(self, column: Any) -> None:
        super().__init__(column)
        self.type = column.type


class Instant(sa.TypeDecorator[datetime]):
    """An aware datetime in UTC with milliseconds; finer digits are cut.

    SQLite has no such type. There it is stored as the API's text (`2026-12-01T08:00:00.000Z`),
    which sorts by time and goes into JSON as it is.
    """

    impl = sa.String(24)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.String(24))
        return dialect.type_descriptor(sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> object:
        if value is None:
            return None
        if dialect.name == "sqlite":
            return _AFTER_ALL_TEXT if value == domain.AFTER_ALL else domain.format_instant(value)
        if value == domain.AFTER_ALL:
            return value
        return value.replace(microsecond=value.microsecond // 1_000 * 1_000)

    def process_result_value(self, value: object, dialect: sa.Dialect) -> datetime | None:
        return instant_of(value)


# The connection's time zone is UTC.
@sql_function(sqlite="{}", postgresql="""to_char({}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')""")
class InstantText(FunctionElement[str]):
    """An instant as the API's text."""

    type = sa.String()


@sql_function(sqlite="{} COLLATE NOCASE", postgresql='lower({} COLLATE "C")')
class Folded(FunctionElement[str]):
    """A text with its ASCII letters in lower case, compared by its characters' numbers."""

    type = sa.String()


def instant_of(value: object) -> datetime | None:
    """Return the datetime of a driver's value. Raise StoreUnavailable where a text has none."""
    if isinstance(value, str):
        return converted(_instant, value)
    return value.astimezone(UTC) if isinstance(value, datetime) else None


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(text)
    return instant


def converted(convert: Callable[[Stored], Converted], value: Stored) -> Converted:
    """Convert a stored value; log it and raise StoreUnavailable if it is damaged."""
    try:
        return convert(value)
    except ValueError:
        # Without the traceback, which would show the value: it may be a customer's.
        log.error("The database has a value that is no %s.", convert.__name__.strip("_"))  # noqa: TRY400
        raise StoreUnavailable(errors.DAMAGED) from None


def highest_ids(connection: Connection) -> dict[str, int]:
    """Return the highest id assigned in each table, by the tables' names."""
    if connection.dialect.name == "sqlite":
        if not connection.execute(sa.text(_HAS_SEQUENCES)).first():
            return {}
        rows = connection.execute(sa.text("SELECT name, seq FROM sqlite_sequence"))
    else:
        rows = connection.execute(sa.text(_SEQUENCES))
    return dict(map(tuple, rows))


def count_of(connection: Connection, table: sa.Table) -> int:
    """Return how many rows a table has."""
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def highest_id(connection: Connection, table: str) -> int:
    """Return the highest id ever assigned in a table, or 0."""
    return highest_ids(connection).get(table, 0)


def continue_ids_above(connection: Connection, table: str, last_id: int) -> None:
    """Continue a table's ids above this one at least."""
    if connection.dialect.name == "sqlite":
        connection.execute(sa.text(_INSERT_SEQUENCE), {"table": table})
        connection.execute(sa.text(_RAISE_SEQUENCE), {"table": table, "id": last_id})
    elif last_id > highest_id(connection, table):
        connection.execute(sa.text(_SET_SEQUENCE), {"table": table, "id": last_id})
