"""Progress of long work: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error while the work goes on; return what tells it of steps done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


@contextmanager
def working(label: str) -> Iterator[Callable[[], None]]:
    """Show that work of unknown length goes on; return what tells of a sign of life."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    wheel = itertools.cycle("|/-\\")

    def alive() -> None:
        click.echo(f"\r{label} {next(wheel)}", nl=False, err=True)

    alive()
    yield alive
    click.echo(f"\r{label}: done.", err=True)
