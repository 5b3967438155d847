"""The parts that commands share: a shop ready to use, options, errors in one line, output.

Data goes to standard output; messages and progress to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, cast

import click
from flask import current_app
from flask.cli import AppGroup

from orders import apikeys, domain, installation
from orders.domain import MAX_INT64, Expected
from orders.settings import Settings
from orders.shop import Shop
from orders.store.care.files import LOCKED_SECONDS, MAKING_SECONDS, InstanceLocked, locked
from orders.store.care.opening import InUse
from orders.store.database.errors import unavailable_cause
from orders.store.database.sqlite import sqlite_module
from orders.web.api import OrdersFlask

as_json = click.option("--json", "as_json", is_flag=True, help="As a JSON array.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
force = click.option(
    "--force", is_flag=True, help="Rotate even if an earlier secret's grace period ends by it."
)
Id = click.IntRange(0, MAX_INT64)
# The name, in click's context, under which a command finds whether it is on test mode's store.
_IS_TEST = "orders.is_test"


class PlainCommand(click.Command):
    """A command whose errors are one line on standard error."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _errors_in_a_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _errors_in_a_line():
            # It was closed (`>&-`). A new key would be lost.
            if sys.stdout is None:
                raise click.ClickException(
                    "Standard output is closed. Leave it open, or send it to a file."
                )
            return super().invoke(ctx)


class CommandGroup(PlainCommand, AppGroup):
    """A group of plain commands."""


class StoreGroup(CommandGroup):
    """A group of commands on a store: the shop's own or, with --test, test mode's."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(on_test_store(cmd), name)


def choose_test_store(context: click.Context) -> None:
    """Make a command use test mode's shop."""
    context.meta[_IS_TEST] = True


def on_test_store(command: click.Command) -> click.Command:
    """Add the option --test to a command, which makes it use test mode's shop."""
    option = click.Option(
        ["--test"],
        is_flag=True,
        expose_value=False,
        callback=lambda context, _, is_given: choose_test_store(context) if is_given else None,
        help="Use test mode's store.",
    )
    command.params.append(option)
    return command


class Program(CommandGroup):
    """The program itself, which serves if there is no command."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        named = {"prog_name": installation.program(), "complete_var": "_STORE_ORDERS_COMPLETE"}
        return super().main(*args, **kwargs | named)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        with _errors_in_a_line():
            return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Serve, or run the command, which reports its own errors."""
        # A service needs no standard output, and an error that ends it shows where it came from.
        return click.Group.invoke(self, ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where the data is."""
        formatter.write_paragraph()
        formatter.write_text(
            f"The data folder is {installation.instance_folder()}, unless ORDERS_INSTANCE "
            "names another."
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
    except (Expected, OSError, sqlite_module().Error) as error:
        raise click.ClickException(_in_a_line(error)) from None


def _in_a_line(error: Exception | str) -> str:
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}." if error.filename else error.strerror
    elif isinstance(error, sqlite_module().Error):
        message = unavailable_cause(error) or message
    message = " ".join(message.split())
    # Keys that were passed by mistake are hidden, and control characters replaced.
    return apikeys.redact("".join(each if each.isprintable() else "?" for each in message))


def open_shop(*, make: bool = False) -> Shop:
    """Return the shop that the settings name, with a database fit for use.

    Where there is no store, it is made (`make`), or the command is refused.
    """
    shop = shop_of_settings()
    if not shop.upkeep.exists():
        if not make:
            raise _no_store(shop)
        _make_unless_another_does(shop)
    shop.upkeep.check()
    return shop


def _make_unless_another_does(shop: Shop) -> None:
    exists = shop.upkeep.exists
    try:
        with locked(shop.settings.instance, MAKING_SECONDS, unless=exists):
            make_store(shop)
    except InstanceLocked:
        if not exists():
            raise


@contextmanager
def stopped_shop(*, make: bool = False) -> Iterator[Shop]:
    """Yield the shop while no service runs on the store, and none can start.

    With `make`, there need be no store: `make_store` makes it.
    """
    shop = shop_of_settings()
    exists = shop.upkeep.exists()
    if not exists and not make:
        raise _no_store(shop)
    try:
        with (
            locked(shop.settings.instance, LOCKED_SECONDS if exists else MAKING_SECONDS),
            shop.upkeep.acquire(alone=True),
        ):
            yield shop
    except InUse:
        raise click.ClickException(
            f"A service uses {shop.database.where}. Stop it first, then try again."
        ) from None


def make_store(shop: Shop) -> None:
    """Make the store where there is none, and say so. The instance folder must be locked."""
    if not shop.upkeep.exists():
        shop.upkeep.create()
        say(f"There was no store yet: {shop.database.where} is new.")


def _no_store(shop: Shop) -> click.ClickException:
    if shop.is_test:
        return click.ClickException(
            f"There is no store for test mode yet ({shop.database.where}). "
            f"`{installation.command('keys issue NAME --plan PLAN --test')}` makes it."
        )
    return click.ClickException(
        f"There is no store in {shop.database.where}. If it is elsewhere, run the command with "
        "the service's own settings (ORDERS_INSTANCE, ORDERS_DATABASE_URL). If it is to be new, "
        "start the service, or issue a key."
    )


def current_shop() -> Shop:
    app = cast("OrdersFlask", current_app)
    is_test = click.get_current_context().meta.get(_IS_TEST, False)
    return app.test_mode.made() if is_test else app.shop


def shop_of_settings() -> Shop:
    """Return the shop of the settings, even if its store is missing or damaged."""
    shop = current_shop()
    click.get_current_context().call_on_close(shop.database.close)
    if shop.database.where != str(Settings().database_path):
        say(f"Store: {shop.database.where}")
    return shop


def counted(count: int, word: str) -> str:
    """Return a number of things: `1 order`, `2 orders`."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def say(message: str) -> None:
    """Print a message for people on standard error: standard output is for data."""
    # The work is done, even if standard error is closed.
    with suppress(OSError):
        click.echo(message, err=True)


def say_secret(message: str, name: str, secret: str) -> None:
    """Print a new secret, alone on standard output, after a message and its name."""
    say(f"{message} {name} is shown only now:")
    click.echo(secret)


def show(rows: list[dict[str, Any]], if_none: str, *, as_json: bool) -> None:
    """Print rows as a table or a JSON array; `if_none` is said in place of an empty table."""
    if as_json:
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif rows:
        print_table(rows)
    else:
        say(if_none)


def print_table(rows: list[dict[str, Any]]) -> None:
    cells = [list(rows[0])] + [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return printable(",".join(value) if isinstance(value, list) else value)


def printable(value: object) -> str:
    """Return a value as text that can't control the terminal."""
    return "".join(each if each.isprintable() else " " for each in str(value))


def time_text(instant: datetime | None) -> str | None:
    """Return an instant as the API writes it, or None."""
    return None if instant is None else domain.format_instant(instant)


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield a function that advances it by a number of steps."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


def say_working(what: str) -> None:
    if sys.stderr.isatty():
        say(f"{what} …")
