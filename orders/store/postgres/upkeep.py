"""The care of a database on a PostgreSQL server: creating, upgrading, checking, locking it.

Creating and upgrading are one transaction that holds the writers' lock: of several processes that
start at the same time one does it, and the others find it done.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from orders.installation import command
from orders.settings import Settings
from orders.store.care import checks, files, opening
from orders.store.care.checks import AwayDatabase, UnfitDatabase, older, schema_version
from orders.store.care.opening import InUse, ServingLock
from orders.store.database.database import BUSY_SECONDS, Query
from orders.store.database.errors import StoreUnavailable, translated
from orders.store.postgres import database
from orders.store.postgres.database import LOCKS, SERVING, PostgresDatabase

log = logging.getLogger(__name__)

# The first with pg_current_snapshot().
FIRST_SERVER = 130_000
# How long a migration waits for another process' migration.
_MIGRATION_SECONDS = 60.0
_POLL_SECONDS = 0.1
# The server cuts longer names of connections.
_NAME_LENGTH = 63
# All that must be known about a database before it is used, in one query.
_FACTS = text("""
    SELECT current_setting('server_version_num')::int AS server,
        current_setting('server_encoding') AS encoding,
        current_schema() AS schema,
        (SELECT replace(reset_val, '"$user"', current_user) FROM pg_settings
            WHERE name = 'search_path') AS usual_schemas,
        to_regclass('alembic_version') IS NOT NULL AS has_version,
        to_regclass('order_events') IS NOT NULL AS has_events,
        EXISTS (SELECT FROM pg_class WHERE relkind IN ('r', 'p')
            AND relnamespace = to_regnamespace(quote_ident(current_schema()))) AS has_tables
""")
# The names of the connections that hold the lock: the processes that serve a database.
_SERVING = Query(
    text("""
        SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)
        WHERE datname = current_database() AND locktype = 'advisory' AND granted
            AND classid = CAST(:locks AS oid) AND objid = CAST(:serving AS oid)
    """).bindparams(locks=LOCKS, serving=SERVING)
)
# The store's table and server now, and those recorded last. A dump contains the record, and is
# restored to another table.
_ORIGIN = text("""
    SELECT concat_ws('/', 'Store Orders', system_identifier, store.oid) AS here,
        obj_description(store.oid, 'pg_class') AS noted
    FROM pg_control_system(), (SELECT to_regclass('store')::oid AS oid) AS store
""")
_HAS_BESIDE = text("SELECT to_regclass(:schema || '.store') IS NOT NULL")
_VERSION = text("SELECT version_num FROM alembic_version")
_NO_FILE = (
    "The database is on a PostgreSQL server, not in a file. Copy it with `pg_dump "
    "--format=custom --exclude-schema=test`. To restore a copy, stop the service, run `pg_restore "
    "--clean --if-exists --single-transaction`, then `{}` before the service starts: "
    "it gives the store a new id, continues ids above the highest and revokes all keys, so that "
    "no client is misled and no revoked key comes back."
)


class PostgresUpkeep:
    """The care of a database on a PostgreSQL server, with the methods of `SqliteUpkeep`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def exists(self) -> bool:
        return self._version() > 0

    def has_beside(self, settings: Settings) -> bool:
        """Return whether there is also a store for test mode, which has these settings."""
        folder = {"schema": settings.instance.name}
        with self._database.read() as connection:
            return bool(connection.execute(_HAS_BESIDE, folder).scalar_one())

    def create(self) -> None:
        self._migrate()

    def prepare(self) -> None:
        """Before serving: create the tables, or bring them up to date."""
        files.sweep(self._database.folder)
        version = self._version()
        if not version:
            self._migrate()  # nobody can be serving it
        elif version < schema_version():
            self._migrate_alone()
        self._check_origin()

    def _check_origin(self) -> None:
        with self._as_unfit(), self._database.read() as connection:
            here, noted = connection.execute(_ORIGIN).one()
        if noted is None:
            self.accept()
        elif noted != here:
            log.warning(
                "%s was restored from a dump, or moved, and not renewed: keys that were revoked "
                "since are valid again, and clients may see ids used twice. Stop all services, "
                "and run `%s` (with --keep-keys if none was revoked).",
                self._database.where,
                command("db renew"),
            )

    def accept(self) -> None:
        """Record that the tables are where they are meant to be served from."""
        with self._as_unfit(), self._database.write() as connection:
            here, _ = connection.execute(_ORIGIN).one()
            connection.exec_driver_sql(f"COMMENT ON TABLE store IS '{here}'")

    def check(self) -> None:
        if self._version() < schema_version():
            raise UnfitDatabase(older(self._database.where))

    def check_whole(self) -> None:
        """Check that the tables agree with the event log, and that ids continue above theirs."""
        self.check()
        with (
            self._as_unfit(),
            self._database.snapshot() as connection,
            database.without_limits(connection),
        ):
            complaint = checks.complaint(connection)
        if complaint:
            raise UnfitDatabase(
                f"{self._database.where} is not consistent ({complaint}). Restore a backup."
            )

    def long_check(self) -> Callable[[], None] | None:
        """Return None: the server looks after its own pages."""
        return None

    def upgrade(self) -> str:
        if self._version() == schema_version():
            return "It is up to date."
        self._migrate()
        return "Upgraded."

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection in a transaction without a time limit, with the tables up to date."""
        with self._as_unfit(), self._database.write(patience=_MIGRATION_SECONDS) as connection:
            # Another process may have migrated meanwhile.
            self._bring_up_to_date(connection)
            yield connection

    def acquire(self, *, alone: bool) -> ServingLock:
        lock = _ConnectionLock(self._database, alone=alone)
        with self._as_unfit():
            if not lock.ensure_held():
                raise InUse
        return lock

    def file(self) -> Path:
        raise UnfitDatabase(_NO_FILE.format(command("db renew")))

    def _version(self) -> int:
        with self._as_unfit(), self._database.read() as connection:
            return self._version_on(connection)

    def _version_on(self, connection: Connection) -> int:
        """Return the schema's version, 0 without tables."""
        facts = connection.execute(_FACTS).one()
        where = self._database.where
        # The shop's own tables would be there, or would be looked for there from now on.
        if self._database.schema in re.split(r'[, "]+', facts.usual_schemas):
            raise UnfitDatabase(
                f"{where} can't be of test mode alone: this user's search_path names it, or is "
                "$user, and the user has its name. Change that."
            )
        if facts.server < FIRST_SERVER:
            raise UnfitDatabase(
                f"{where} is on a server older than PostgreSQL 13. Use a newer one."
            )
        if facts.encoding != "UTF8":
            raise UnfitDatabase(
                f"{where} is encoded in {facts.encoding}. "
                "Create another with `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`."
            )
        if facts.has_version and facts.has_events:
            version = int(connection.execute(_VERSION).scalar_one())
            checks.check_version(version, where)
            return version
        if facts.has_tables or facts.has_version:
            raise UnfitDatabase(
                f"{where} has tables that are not this program's. Use a database of its "
                "own for this program."
            )
        if facts.schema is None and self._database.schema is None:
            raise UnfitDatabase(f"{where} has no schema in which this user can create tables.")
        return 0

    def _migrate_alone(self) -> None:
        # An older version of this program may be serving it, or another process migrating it.
        ends = time.monotonic() + BUSY_SECONDS
        while self._version() < schema_version():
            try:
                with self.acquire(alone=True):
                    self._migrate()
            except InUse:
                if time.monotonic() > ends:
                    raise UnfitDatabase(
                        f"{self._database.where} was made by an older version of this program, and "
                        "a service uses it. Stop all of its services, then start again."
                    ) from None
                time.sleep(_POLL_SECONDS)

    def _migrate(self) -> None:
        with self.write():
            pass

    def _bring_up_to_date(self, connection: Connection) -> None:
        version = self._version_on(connection)
        if version == schema_version():
            return
        if not version:
            if schema := self._database.schema:
                connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            opening.make_tables(connection)
            return
        log.info(
            "Upgrading the schema of %s from %d to %d.",
            self._database.where,
            version,
            schema_version(),
        )
        opening.run_migrations(connection)

    @contextlib.contextmanager
    def _as_unfit(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable as error:
            cause = error.__cause__
            details = str(getattr(cause, "orig", cause) or error).strip()
            raise AwayDatabase(
                f"{self._database.where}: {error}. {details} Fix that, then try again."
            ) from None
        except (SQLAlchemyError, psycopg.Error) as error:
            cause = getattr(error, "orig", error)
            raise UnfitDatabase(f"{self._database.where} can't be used: {cause}.") from error


class _ConnectionLock(ServingLock):
    """An advisory lock, which the server releases when its connection ends."""

    def __init__(self, database: PostgresDatabase, *, alone: bool) -> None:
        self._database = database
        self._alone = alone
        self._driver: Any = None
        self._name = ""

    def serve(self, name: str) -> None:
        self._name = name[:_NAME_LENGTH]
        self._database.pin()
        with translated():
            self._tell()

    def others(self) -> list[str]:
        """Return the names of the connections that hold the lock, without this process' own."""
        names = [name for (name,) in self._database.fetch_all(_SERVING)]
        with contextlib.suppress(ValueError):
            names.remove(self._name)
        return names

    def ensure_held(self) -> bool:
        """Acquire the lock, or re-acquire it after the connection was lost."""
        if self._driver is not None and not database.has_ended(self._driver):
            return True
        self.release()
        with translated(), contextlib.ExitStack() as resources:
            driver = self._database.connect_apart()
            resources.callback(driver.close)
            shared = "" if self._alone else "_shared"
            found = driver.execute(
                f"SELECT pg_try_advisory_lock{shared}({self._database.lock(SERVING)})"
            )
            (is_ours,) = found.fetchone()
            if is_ours:
                self._driver = driver
                self._tell()
                resources.pop_all()
            return bool(is_ours)

    def _tell(self) -> None:
        if self._name:
            self._driver.execute("SELECT set_config('application_name', %s, false)", [self._name])

    def release(self) -> None:
        if self._driver is not None:
            with contextlib.suppress(psycopg.Error):
                self._driver.close()
            self._driver = None
