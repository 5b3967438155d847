"""The database that the settings name, and its upkeep. A server's modules load only when needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import make_url

from orders.settings import Settings
from orders.store.care import checks, opening, scratch
from orders.store.care.upkeep import Hold, Upkeep
from orders.store.database.engine import Database
from orders.store.database.sqlite import SqliteDatabase


def database_of(settings: Settings, threads: int) -> tuple[Database, Upkeep]:
    """Return the database that the settings name, and its upkeep. Opens nothing.

    `threads` is how many will read at the same time.
    """
    if not settings.is_on_postgres:
        file = SqliteDatabase(settings.database_path, threads)
        return file, SqliteUpkeep(file)
    from orders.store.postgres.database import PostgresDatabase
    from orders.store.postgres.upkeep import PostgresUpkeep

    server = PostgresDatabase(make_url(settings.database_url), settings.instance, threads)
    return server, PostgresUpkeep(server)


class _HeldByFolder(Hold):
    """No lock of its own: the file is in the instance folder, which the service has locked."""

    def keep(self) -> bool:
        return True

    def release(self) -> None:
        pass


class SqliteUpkeep(Upkeep):
    """The care of an SQLite file."""

    def __init__(self, database: SqliteDatabase) -> None:
        """Care for this database."""
        self._path = database.path

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self._path.exists()

    def create(self) -> None:
        """Make a new, empty file."""
        opening.create(self._path)

    def prepare(self) -> None:
        """Before serving: make the file where there is none, upgrade it, check it."""
        scratch.sweep(self._path.parent)
        if not self.exists():
            self.create()
        opening.keep_private(self._path)
        opening.upgrade(self._path)
        checks.check(self._path)

    def check(self) -> None:
        """Check that the file is ours, sound, and of this schema."""
        checks.check(self._path)

    def check_whole(self) -> None:
        """Check every page and index."""
        checks.check_whole(self._path)

    def long_check(self) -> Callable[[], None] | None:
        """Return the check of a large file."""
        if not checks.is_large(self._path):
            return None
        return lambda: checks.check_quickly(self._path)

    def upgrade(self) -> str:
        """Bring the schema up to date, keeping a copy of the file."""
        kept = opening.upgrade(self._path)
        if kept is None:
            return "It is up to date."
        return f"Upgraded. The database as it was is in {kept}."

    def hold(self, *, alone: bool) -> Hold:
        """Return a hold at once: the instance folder's lock keeps others away."""
        return _HeldByFolder()

    def file(self) -> Path:
        """Return the file's path."""
        return self._path
