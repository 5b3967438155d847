"""A store made ahead of a run, with the keys that it needs: faster than a command for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orders import keys
from orders.clock import Clock
from orders.settings import Settings
from orders.store import keys as key_store
from orders.store.care import opening
from orders.store.care.instance import make_private_folder
from orders.store.database.engine import Database
from orders.store.database.sqlite import SqliteDatabase
from orders.store.keys import NewKey


def make(instance: Path, quotas: Sequence[tuple[int, int]], free: int | None = None) -> list[str]:
    """Make an instance folder with a store, and a key for each (per minute, per day).

    With `free`, the free plan, which addresses are on, has that many requests. Gives the keys'
    secrets.
    """
    make_private_folder(instance)
    if free is not None:
        plan = f"[plans.free]\nper_minute = {free}\nper_day = {free}\n"
        (instance / "config.toml").write_text(plan, encoding="utf-8")
    path = Settings(instance=instance).database_path
    opening.create(path)
    database = SqliteDatabase(path)
    made = issue(database, quotas)
    database.close()
    return list(made)


def issue(
    database: Database, quotas: Sequence[tuple[int, int]], scopes: Sequence[str] = ("read", "write")
) -> dict[str, int]:
    """Issue a key for each (per minute, per day); return their ids by their secrets."""
    made = {}
    with database.write() as connection:
        for per_minute, per_day in quotas:
            secret = keys.generate()
            new = NewKey(
                "bench", "enterprise", tuple(scopes), per_minute=per_minute, per_day=per_day
            )
            prefix, digest = keys.shown_prefix(secret), keys.digest(secret)
            made[secret] = key_store.issue(connection, new, prefix, digest, Clock().now())
    return made
