"""What commands print: data on standard output; messages and progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import click

from orders import domain


def say(message: str) -> None:
    """Print a message for people on standard error: standard output is for data."""
    # The work is done, even if standard error is closed.
    with suppress(OSError):
        click.echo(message, err=True)


def say_secret(message: str, name: str, secret: str) -> None:
    """Print a new secret, alone on standard output, and what it is called."""
    say(f"{message} {name} is shown this once:")
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
    """Print one or more rows of the same columns."""
    cells = [list(rows[0])] + [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    text = ",".join(value) if isinstance(value, list) else str(value)
    # An endpoint's answer must not control the terminal.
    return "".join(each if each.isprintable() else " " for each in text)


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
    """Say on a terminal that work begins which takes a while."""
    if sys.stderr.isatty():
        say(f"{what} …")
