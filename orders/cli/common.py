"""What the commands share: services that are ready to use, options, errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click
from flask.cli import AppGroup

from orders import domain, keys
from orders.domain import MAX_INT64, Refusal
from orders.settings import SettingsError
from orders.store.care import checks
from orders.store.care.instance import InstanceLock, InstanceLocked, make_private_folder
from orders.store.care.upkeep import InUse
from orders.store.database.errors import StoreUnavailable, unavailable_cause
from orders.store.database.sqlite import sqlite_module
from orders.store.keys import KeyNotFound
from orders.web.services import Services, current_services
from orders.webhooks.endpoints import EndpointNotFound, EventNotFound, TooManyEndpoints

as_json = click.option("--json", "as_json", is_flag=True, help="As a JSON array.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
force = click.option("--force", is_flag=True, help="Also if that ends an earlier secret's grace.")
Id = click.IntRange(0, MAX_INT64)

# Errors to be expected. Any other is a fault of the program, and is shown with its traceback.
_EXPECTED = (
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
        """Parse the group's own arguments."""
        with _errors_in_a_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _errors_in_a_line():
            # It was closed (`>&-`). A new key would be lost.
            if sys.stdout is None:
                raise click.ClickException(
                    "Standard output is closed. Leave it open, or send it to a file."
                )
            return super().invoke(ctx)


def check_grace(name: str, until: datetime | None, now: datetime, *, force: bool) -> None:
    """Check that no earlier secret has its grace still, which a rotation would end.

    Raises:
        ClickException: one has, and `force` is false.
    """
    if until is not None and now < until and not force:
        raise click.ClickException(
            f"The previous secret of {name} works until {domain.format_instant(until)}, and may "
            "be in use. Rotate again after that, or end it now with --force."
        )


@contextmanager
def _errors_in_a_line() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # the help of a group without a command
    except click.UsageError as error:
        command = f" See {error.ctx.command_path} --help." if error.ctx else ""
        raise click.ClickException(_in_a_line(error.format_message() + command)) from None
    except click.ClickException as error:
        raise click.ClickException(_in_a_line(error.message)) from None
    except (*_EXPECTED, sqlite_module().Error) as error:
        raise click.ClickException(_in_a_line(error)) from None


def _in_a_line(error: Exception | str) -> str:
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}." if error.filename else error.strerror
    elif isinstance(error, sqlite_module().Error):
        message = unavailable_cause(error) or message
    message = " ".join(message.split())
    # Keys that were passed by mistake are hidden, and control characters replaced.
    return keys.redact("".join(each if each.isprintable() else "?" for each in message))


def open_services() -> Services:
    """Return the services of this folder, with a database that is fit for use.

    A new database is made where there is none.

    Raises:
        UnfitDatabase: the database is not ours, damaged, or of another version.
        OSError: the folder can't be made.
    """
    services = _services_of_folder()
    if not services.upkeep.exists():
        with stopped_services():
            pass  # which makes one
    services.upkeep.check()
    return services


@contextmanager
def stopped_services(*, create: bool = True) -> Iterator[Services]:
    """Yield the services of this folder while no service runs on it, and none can start.

    A database is made where there is none, unless `create` is false.

    Raises:
        ClickException: a service runs.
    """
    services = _services_of_folder()
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


def _services_of_folder() -> Services:
    services = current_services()
    make_private_folder(services.settings.instance)
    click.get_current_context().call_on_close(services.database.close)
    return services
