"""The care of a database on a PostgreSQL server: making it, upgrading it, checking it, holding it.

Making and upgrading are one transaction, which has the lock that all who write take: of several
processes that start at the same time one does it, and the others find it done.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from orders.store.care import opening, scratch
from orders.store.care.checks import NEWER, OLDER, AwayDatabase, UnfitDatabase, schema_version
from orders.store.care.upkeep import Hold, InUse, Upkeep
from orders.store.database.engine import BUSY_SECONDS
from orders.store.database.errors import StoreUnavailable, translate_driver_errors
from orders.store.postgres import checks, database
from orders.store.postgres.database import LOCKS, SERVING, PostgresDatabase

log = logging.getLogger(__name__)

# The first that tells which transactions a snapshot sees.
FIRST_SERVER = 130_000
# How long one that migrates waits for another that does.
_MIGRATION_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.1
# All that has to be known of a database before it is used, in one question.
_FACTS = text("""
    SELECT current_setting('server_version_num')::int AS server,
        current_setting('server_encoding') AS encoding,
        current_schema() AS schema,
        to_regclass('alembic_version') IS NOT NULL AS has_version,
        to_regclass('order_events') IS NOT NULL AS has_events,
        EXISTS (SELECT FROM pg_class WHERE relkind IN ('r', 'p')
            AND relnamespace = to_regnamespace(quote_ident(current_schema()))) AS has_tables
""")
_VERSION = text("SELECT version_num FROM alembic_version")
_NO_FILE = (
    "The database is on a PostgreSQL server, where it is not a file. Copy it with `pg_dump "
    "--format=custom`. To go back to a copy, stop the service, put it back with `pg_restore "
    "--clean --if-exists --single-transaction`, and run `flask db renew` before the service "
    "starts: it gives the store a new id, lets ids go on higher and revokes all keys, so that no "
    "client is misled and no revoked key comes back."
)


class PostgresUpkeep(Upkeep):
    """The care of a database on a PostgreSQL server."""

    def __init__(self, database: PostgresDatabase) -> None:
        """Take the database."""
        self._database = database

    def exists(self) -> bool:
        """Return whether the tables are there."""
        return self._version() > 0

    def create(self) -> None:
        """Make the tables, unless another process has made them meanwhile."""
        self._migrate()

    def prepare(self) -> None:
        """Before it is served: make the tables where there are none, or bring them up to date."""
        scratch.sweep(self._database.folder)
        version = self._version()
        if not version:
            self._migrate()  # nobody serves what is not there
        elif version < schema_version():
            self._migrate_alone()

    def check(self) -> None:
        """Check that it is ours, and of this schema."""
        if self._version() < schema_version():
            raise UnfitDatabase(OLDER.format(self._database.where))

    def check_whole(self) -> None:
        """Check that the tables say the same as the event log, and that ids go on above theirs."""
        self.check()
        with self._told(), self._database.snapshot() as connection:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            complaint = checks.complaint(connection)
        if complaint:
            raise UnfitDatabase(
                f"{self._database.where} is not consistent ({complaint}). Restore a backup."
            )

    def long_check(self) -> Callable[[], None] | None:
        """Return none: the server keeps its own pages."""
        return None

    def upgrade(self) -> str:
        """Bring the schema up to date."""
        if self._version() == schema_version():
            return "It is up to date."
        self._migrate()
        return "Upgraded."

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Return a transaction in which the tables are up to date, and that may take its time.

        Raises:
            UnfitDatabase: the database can't be used, or was lost meanwhile.
        """
        waiting = self._database.waiting(_MIGRATION_SECONDS)
        with self._told(), waiting, self._database.write() as connection:
            # It may take as long as it takes. Another process may have done it meanwhile.
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            self._bring_up_to_date(connection)
            yield connection

    def hold(self, *, alone: bool) -> Hold:
        """Begin to serve it: by a lock that the server keeps as long as a connection lasts."""
        hold = _HeldByConnection(self._database, alone=alone)
        with self._told():
            if not hold.keep():
                raise InUse
        return hold

    def file(self) -> Path:
        """Refuse: it is no file."""
        raise UnfitDatabase(_NO_FILE)

    def _version(self) -> int:
        with self._told(), self._database.read() as connection:
            return self._version_on(connection)

    def _version_on(self, connection: Connection) -> int:
        """Return the number of the schema, 0 where there are no tables yet."""
        facts = connection.execute(_FACTS).one()
        where = self._database.where
        if facts.server < FIRST_SERVER:
            raise UnfitDatabase(f"{where} is on a server before PostgreSQL 13. Take a newer one.")
        if facts.encoding != "UTF8":
            raise UnfitDatabase(
                f"{where} is encoded in {facts.encoding}. "
                "Make another with `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`."
            )
        if facts.has_version and facts.has_events:
            version = int(connection.execute(_VERSION).scalar_one())
            if version > schema_version():
                raise UnfitDatabase(NEWER.format(where, version, schema_version()))
            return version
        if facts.has_tables or facts.has_version:
            raise UnfitDatabase(
                f"{where} has tables, and they are not this program's. Give this program a "
                "database of its own."
            )
        if facts.schema is None:
            raise UnfitDatabase(f"{where} has no schema for this user to make tables in.")
        return 0

    def _migrate_alone(self) -> None:
        # An older version of this program may be serving it, and another process be migrating it.
        ends = time.monotonic() + BUSY_SECONDS
        while self._version() < schema_version():
            try:
                with self.hold(alone=True):
                    self._migrate()
            except InUse:
                if time.monotonic() > ends:
                    raise UnfitDatabase(
                        f"{self._database.where} was made by an older version of this program, and "
                        "a service uses it. Stop all of its services, then start again."
                    ) from None
                time.sleep(_LOOK_AGAIN_SECONDS)

    def _migrate(self) -> None:
        with self.write():
            pass

    def _bring_up_to_date(self, connection: Connection) -> None:
        version = self._version_on(connection)
        if version == schema_version():
            return
        if version:
            log.info(
                "The schema of %s is brought from %d to %d.",
                self._database.where,
                version,
                schema_version(),
            )
        opening.run_migrations(connection)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable as error:
            cause = error.__cause__
            details = str(getattr(cause, "orig", cause) or error).strip()
            raise AwayDatabase(
                f"{self._database.where}: {error}. {details} Mend that, then try again."
            ) from None
        except (SQLAlchemyError, psycopg.Error) as error:
            cause = getattr(error, "orig", error)
            raise UnfitDatabase(f"{self._database.where} can't be used: {cause}.") from error


class _HeldByConnection(Hold):
    """An advisory lock, which the server gives back when its connection ends."""

    def __init__(self, database: PostgresDatabase, *, alone: bool) -> None:
        self._database = database
        self._alone = alone
        self._driver: Any = None

    def keep(self) -> bool:
        """Take the lock where it is not held, be it again after the connection was lost."""
        if self._driver is not None and not database.has_ended(self._driver):
            return True
        self.release()
        with translate_driver_errors(), contextlib.ExitStack() as resources:
            driver = self._database.connect_apart()
            resources.callback(driver.close)
            shared = "" if self._alone else "_shared"
            found = driver.execute(f"SELECT pg_try_advisory_lock{shared}({LOCKS}, {SERVING})")
            (is_ours,) = found.fetchone()
            if is_ours:
                self._driver = driver
                resources.pop_all()
            return bool(is_ours)

    def release(self) -> None:
        """Close the connection."""
        if self._driver is not None:
            with contextlib.suppress(psycopg.Error):
                self._driver.close()
            self._driver = None
