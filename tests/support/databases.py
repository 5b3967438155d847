"""The databases of tests' stores: a file each, or a database each of one PostgreSQL server."""

from __future__ import annotations

import importlib
import secrets
from contextlib import closing
from functools import cache, cached_property

from orders.settings import Settings
from orders.store.care import opening
from orders.store.database import sqlite
from tests.support import faults as real_faults

EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}


def copy_database(empty, path):
    """Copy the empty database to a path, with a store id of its own."""
    content, store_id = _read(empty)
    path.write_bytes(content.replace(store_id, secrets.token_hex(8).encode()))
    path.chmod(0o600)


@cache
def _read(empty):
    with closing(sqlite.connect(empty)) as connection:
        ((store_id,),) = connection.execute("SELECT store_id FROM store")
    return empty.read_bytes(), store_id.encode()


def plan_of(database, query, **parameters):
    """Return the rows of the plan by which a database executes a query."""

    class Explaining:
        def execute(self, text, values):
            return driver.execute(f"{EXPLAIN[dialect.name]} {text}", values)

    with database.read() as connection:
        dialect, driver = connection.dialect, connection.connection.driver_connection
        return query.execute_on(Explaining(), dialect, parameters).fetchall()


class Explained:
    """A database that records the plan of each query."""

    def __init__(self, database):
        self._database = database
        self.plans = []

    def fetch_all(self, query, **parameters):
        self.plans.append(plan_of(self._database, query, **parameters))
        return self._database.fetch_all(query, **parameters)


class PostgresStores:
    """Databases of one server. Emptying a used one takes a tenth of the time of making one."""

    # If this differs, a test has changed the tables, not only rows.
    SHAPE = """
        SELECT (SELECT version_num FROM alembic_version), md5(string_agg(concat_ws(
            '/', c.oid, c.relname, c.relnatts, t.tgname, t.tgenabled
        ), ',' ORDER BY c.oid, t.tgname))
        FROM pg_class c LEFT JOIN pg_trigger t ON tgrelid = c.oid
        WHERE relnamespace = 'public'::regnamespace
    """
    TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    END_OTHERS = """
        SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """

    def __init__(self):
        from tests.support.postgres import Postgres  # which loads the driver

        self.server = Postgres()
        self.server.make_template(self.server.folder)
        self._free = []
        name = self.server.create_store()
        self._shape = self.server.execute(self.SHAPE, name)
        tables = {table for (table,) in self.server.execute(self.TABLES, name)}
        ((row,),) = self.server.execute("SELECT row_to_json(store)::text FROM store", name)
        self._empty = "; ".join(
            [
                # Triggers forbid deleting events.
                "SET session_replication_role = replica",
                *(f"DELETE FROM {table}" for table in sorted(tables - {"alembic_version"})),
                f"INSERT INTO store SELECT * FROM json_populate_record(NULL::store, '{row}')",
                "UPDATE store SET store_id = substr(md5(random()::text), 1, 16)",
                "SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'",
            ]
        )
        self._free.append(name)

    def take(self):
        """Return the name of an empty one."""
        while self._free:
            name = self._free.pop()
            if self.empty(name):
                return name
        return self.server.create_store()

    def give_back(self, name):
        """Keep a used one for another test."""
        self.server.execute(self.END_OTHERS, name)
        self._free.append(name)

    def empty(self, name):
        """Empty one, with an id of its own; drop it and return false if its tables changed."""
        if self.server.execute(self.SHAPE, name) == self._shape:
            self.server.execute(self._empty, name)
            self.server.execute("DROP SCHEMA IF EXISTS test CASCADE", name)
            return True
        self.server.drop(name)
        return False


class Databases:
    """The databases of tests' stores, by instance folder."""

    are_on_postgres = False

    def __init__(self):
        self._names = {}

    @cached_property
    def stores(self):
        """The databases of this process' server, which starts when first needed."""
        return PostgresStores()

    @property
    def server(self):
        """The server of this process."""
        return self.stores.server

    def close(self):
        if stores := self.__dict__.pop("stores", None):
            stores.server.remove()

    def settings(self, instance, **changes):
        """Return the settings of a store over an instance folder."""
        if self.are_on_postgres:
            if instance not in self._names:
                self._names[instance] = self.stores.take()
            changes.setdefault("database_url", self.server.url(self._names[instance]))
        return Settings(instance=instance, **changes)

    def environment(self, instance):
        """Return the environment of a process that uses an instance folder's database."""
        url = self.settings(instance).database_url
        return {"ORDERS_DATABASE_URL": url} if url else {}

    def make(self, settings, empty_database=None):
        """Make a store's database where there is none, by copying the empty one if given."""
        settings.instance.mkdir(mode=0o700, parents=True, exist_ok=True)
        if settings.is_on_postgres or settings.database_path.exists():
            return
        if empty_database is None:
            opening.create(settings.database_path)
        else:
            copy_database(empty_database, settings.database_path)

    def empty(self, settings, empty_database):
        """Empty a store's database; it has an id of its own."""
        settings.instance.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.are_on_postgres:
            name = self._names[settings.instance]
            if not self.stores.empty(name):
                self.server.create_store(name)
        else:
            copy_database(empty_database, settings.database_path)

    def is_being_written(self, settings):
        """Return whether there are uncommitted writes."""
        if self.are_on_postgres:
            return self.server.is_being_written(self._names[settings.instance])
        log = settings.database_path.with_name("orders.db-wal")
        return log.exists() and log.stat().st_size > 2**20

    @property
    def module(self):
        """The module of the store for these databases."""
        return importlib.import_module(
            "orders.store.postgres.database"
            if self.are_on_postgres
            else "orders.store.database.sqlite"
        )

    def away(self, settings):
        """Make a database unreachable, as a context."""
        if self.are_on_postgres:
            return self.server.away(self._names[settings.instance])
        return real_faults.moved_away(settings.database_path)

    def locked(self, settings):
        """Lock a database against writers, as a context."""
        if self.are_on_postgres:
            return self.server.locked(self._names[settings.instance])
        return real_faults.locked(settings.database_path)

    def forget(self, folder):
        """Forget the databases of the instance folders below a folder."""
        for instance in [each for each in self._names if each.is_relative_to(folder)]:
            self.stores.give_back(self._names.pop(instance))


DATABASES = Databases()
