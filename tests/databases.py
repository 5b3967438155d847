"""Where the stores of tests are: a file each, or a database each of one PostgreSQL server."""

from __future__ import annotations

import importlib
import secrets
import shutil
from contextlib import closing, contextmanager
from functools import cached_property

import real_faults

from orders.settings import Settings
from orders.store import opening, sqlite
from orders.store.sqlite import SqliteDatabase


def copy_database(empty, path):
    """Give a store its own copy of the empty database, and an id of its own."""
    shutil.copyfile(empty, path)
    path.chmod(0o600)
    database = SqliteDatabase(path)
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE store SET store_id = ?", (secrets.token_hex(8),))
    database.close()


class Databases:
    """Where the stores of tests are: a file each, or a database each of one PostgreSQL server."""

    are_on_postgres = False

    def __init__(self):
        self._names = {}

    @cached_property
    def server(self):
        """The server of this process, started when it is first needed."""
        from bench.postgres_server import Postgres  # which loads the driver

        server = Postgres()
        server.make_template(server.folder)
        return server

    def close(self):
        if server := self.__dict__.pop("server", None):
            server.remove()

    def settings(self, instance, **changes):
        """Give the settings of a store over an instance folder."""
        if self.are_on_postgres:
            if instance not in self._names:
                self._names[instance] = self.server.create_store()
            changes.setdefault("database_url", self.server.url(self._names[instance]))
        return Settings(instance=instance, **changes)

    def environment(self, instance):
        """Give what a process needs to know to use an instance folder's database."""
        url = self.settings(instance).database_url
        return {"ORDERS_DATABASE_URL": url} if url else {}

    def make(self, settings, empty_database=None):
        """Make a store's database, with its tables and an id of its own, where there is none.

        A file is copied from the empty one, if that is given.
        """
        settings.instance.mkdir(mode=0o700, parents=True, exist_ok=True)
        if settings.is_on_postgres or settings.database_path.exists():
            return
        if empty_database is None:
            opening.create(settings.database_path)
        else:
            copy_database(empty_database, settings.database_path)

    def empty(self, settings, empty_database):
        """Make a store's database an empty one, with an id of its own."""
        settings.instance.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.are_on_postgres:
            name = self._names[settings.instance]
            self.server.drop(name)
            self.server.create_store(name)
        else:
            copy_database(empty_database, settings.database_path)

    def is_being_written(self, settings):
        """Tell whether somebody has written something that is not committed yet."""
        if self.are_on_postgres:
            return self.server.is_being_written(self._names[settings.instance])
        log = settings.database_path.with_name("orders.db-wal")
        return log.exists() and log.stat().st_size > 2**20

    @property
    def module(self):
        """The module of the store that is about these databases."""
        return importlib.import_module(
            "orders.store.postgres" if self.are_on_postgres else "orders.store.sqlite"
        )

    @contextmanager
    def away(self, settings):
        if self.are_on_postgres:
            with self.server.away(self._names[settings.instance]):
                yield
        else:
            with real_faults.moved_away(settings.database_path):
                yield

    @contextmanager
    def locked(self, settings):
        if self.are_on_postgres:
            with self.server.locked(self._names[settings.instance]):
                yield
            return
        with closing(sqlite.connect(settings.database_path)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    def forget(self, folder):
        """Remove the databases of the instance folders below one."""
        for instance in [each for each in self._names if each.is_relative_to(folder)]:
            self.server.drop(self._names.pop(instance))


DATABASES = Databases()
