"""What the commands share: a store that is ready, errors in one line."""

from __future__ import annotations

from typing import Any

import click
from flask.cli import AppGroup

from orders.domain import Refusal
from orders.settings import SettingsError
from orders.store import opening
from orders.store.engine import (
    InstanceLock,
    InstanceLocked,
    StoreUnavailable,
    make_private_folder,
)
from orders.store.keys import KeyNotFound
from orders.web.shop import Shop, current_shop

_TOLD_IN_A_LINE = (
    KeyNotFound,
    OSError,
    Refusal,
    SettingsError,
    StoreUnavailable,
    opening.UnfitDatabase,
)


class CommandGroup(AppGroup):
    """A group of commands whose errors are one line on standard error."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except _TOLD_IN_A_LINE as error:
            raise click.ClickException(" ".join(str(error).split())) from None


def opened_shop() -> Shop:
    """Give the shop of this folder, with a database that can be used; a new one if there is none.

    Raises:
        UnfitDatabase: the database is not ours, damaged, or of another version.
        OSError: the folder can't be made.
    """
    shop = current_shop()
    make_private_folder(shop.settings.instance)
    if not shop.database.path.exists():
        _create_under_lock(shop)
    opening.check(shop.database.path)
    return shop


def _create_under_lock(shop: Shop) -> None:
    # A service that is just starting makes it, too.
    lock = InstanceLock(shop.settings.instance)
    try:
        lock.acquire()
    except InstanceLocked:
        raise click.ClickException("A service is starting here. Try again.") from None
    try:
        if not shop.database.path.exists():
            opening.create(shop.database.path)
    finally:
        lock.release()


def say(message: str) -> None:
    """Tell the person something: on standard error, so that standard output holds only data."""
    click.echo(message, err=True)
