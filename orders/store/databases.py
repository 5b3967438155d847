"""The database that the settings name: SQLite, or PostgreSQL, whose modules load only then."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import make_url

from orders.settings import Settings
from orders.store.care.opening import SqliteUpkeep
from orders.store.database.database import Database
from orders.store.database.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from orders.store.postgres.upkeep import PostgresUpkeep

Upkeep: TypeAlias = "SqliteUpkeep | PostgresUpkeep"


def database_of(settings: Settings, threads: int) -> tuple[Database, Upkeep]:
    """Return the database that the settings name, and its upkeep. Opens nothing.

    `threads` is how many will read at the same time.
    """
    if not settings.is_on_postgres:
        file = SqliteDatabase(settings.database_path, threads)
        return file, SqliteUpkeep(file, settings.instance)
    from orders.store.postgres.database import PostgresDatabase
    from orders.store.postgres.upkeep import PostgresUpkeep

    server = PostgresDatabase(make_url(settings.database_url), settings.instance, threads)
    return server, PostgresUpkeep(server)
