"""`flask db`: upgrade, check and back up the database."""

from __future__ import annotations

from pathlib import Path

import click

from orders.cli.common import CommandGroup, opened_shop, say, stopped_shop
from orders.cli.progress import working
from orders.store import backup, opening


@click.group("db", cls=CommandGroup)
def db_group() -> None:
    """Upgrade, check and back up the database."""


@db_group.command("upgrade")
def upgrade() -> None:
    """Bring the database's schema up to date, keeping a copy. The service must be stopped."""
    with stopped_shop() as shop:
        kept = opening.upgrade(shop.database.path)
    say(f"Upgraded. The database as it was is in {kept}." if kept else "It is up to date.")


@db_group.command("check")
def check() -> None:
    """Check every page and index of the database. The service may go on running."""
    shop = opened_shop()
    with working("Checking"):
        opening.check_whole(shop.database.path)
    say(f"{shop.database.path} is sound.")


@db_group.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def back_up(file: Path) -> None:
    """Copy the database to the new FILE, checked. The service may go on running."""
    shop = opened_shop()
    with working("Copying") as alive:
        backup.copy(shop.database.path, file, alive)
    say(f"Copied to {file}, and checked.")
