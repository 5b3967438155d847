"""What the commands share: a store that is ready, errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click
from flask.cli import AppGroup

from orders import keys
from orders.domain import Refusal
from orders.settings import SettingsError
from orders.store.care import checks
from orders.store.care.instance import InstanceLock, InstanceLocked, make_private_folder
from orders.store.care.upkeep import InUse
from orders.store.database.errors import StoreUnavailable, unavailable_cause
from orders.store.database.sqlite import sqlite_module
from orders.store.keys import KeyNotFound
from orders.web.services import Services, current_services
from orders.webhooks.endpoints import EndpointNotFound, EventNotFound, TooManyEndpoints

_TOLD_IN_A_LINE = (
    EndpointNotFound,
    EventNotFound,
    KeyNotFound,
    OSError,
    Refusal,
    SettingsError,
    StoreUnavailable,
    TooManyEndpoints,
    checks.UnfitDatabase,
)


class CommandGroup(AppGroup):
    """A group of commands whose errors are one line on standard error."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the group's own arguments."""
        with _errors_in_a_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _errors_in_a_line():
            # Python has none where it was closed (`>&-`). A key that nobody is shown would be lost.
            if sys.stdout is None:
                raise click.ClickException(
                    "Standard output is closed. Leave it open, or send it to a file."
                )
            return super().invoke(ctx)


@contextmanager
def _errors_in_a_line() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        command = f" See {error.ctx.command_path} --help." if error.ctx else ""
        raise click.ClickException(_in_a_line(error.format_message() + command)) from None
    except click.ClickException as error:
        raise click.ClickException(_in_a_line(error.message)) from None
    except (*_TOLD_IN_A_LINE, sqlite_module().Error) as error:
        raise click.ClickException(_in_a_line(error)) from None


def _in_a_line(error: Exception | str) -> str:
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}." if error.filename else error.strerror
    elif isinstance(error, sqlite_module().Error):
        message = unavailable_cause(error) or message
    message = " ".join(message.split())
    # A key that was given for something else is not repeated, nor what would steer a terminal.
    return keys.redact("".join(each if each.isprintable() else "?" for each in message))


def opened_shop() -> Services:
    """Return the shop of this folder, with a database that can be used; a new one if there is none.

    Raises:
        UnfitDatabase: the database is not ours, damaged, or of another version.
        OSError: the folder can't be made.
    """
    services = _shop_of_folder()
    if not services.upkeep.exists():
        with stopped_shop():
            pass  # which makes a new one
    services.upkeep.check()
    return services


@contextmanager
def stopped_shop(*, create: bool = True) -> Iterator[Services]:
    """Return the shop of this folder while no service runs on it, and none can start.

    A database is made where there is none, unless `create` is false.

    Raises:
        ClickException: a service runs.
    """
    services = _shop_of_folder()
    lock = InstanceLock(services.settings.instance)
    try:
        lock.acquire()
    except InstanceLocked:
        raise click.ClickException(
            "A service runs on this folder. Stop it first, then try again."
        ) from None
    try:
        with services.upkeep.hold(alone=True):
            if create and not services.upkeep.exists():
                services.upkeep.create()
            yield services
    except InUse:
        raise click.ClickException(
            f"A service uses {services.database.where}. Stop it first, then try again."
        ) from None
    finally:
        lock.release()


def _shop_of_folder() -> Services:
    services = current_services()
    make_private_folder(services.settings.instance)
    click.get_current_context().call_on_close(services.database.close)
    return services


def say(message: str) -> None:
    """Return the person something: on standard error, so that standard output holds only data."""
    # What was done is done, even where nobody can be told.
    with suppress(OSError):
        click.echo(message, err=True)
