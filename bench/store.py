"""A store made ahead of a run, with the keys that it needs: faster than a command for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orders import keys
from orders.clock import Clock
from orders.settings import Settings
from orders.store import keys as key_store
from orders.store import opening
from orders.store.instance import make_private_folder
from orders.store.keys import NewKey
from orders.store.sqlite import SqliteDatabase


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
    secrets = [keys.generate() for _ in quotas]
    with database.write() as connection:
        for secret, (per_minute, per_day) in zip(secrets, quotas, strict=True):
            new = NewKey(
                "bench", "enterprise", ("read", "write"), per_minute=per_minute, per_day=per_day
            )
            prefix, digest = keys.shown_prefix(secret), keys.digest(secret)
            key_store.issue(connection, new, prefix, digest, Clock().now())
    database.close()
    return secrets
