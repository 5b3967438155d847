"""`flask orders` and `flask pets`: orders and pets imported from files, orders exported."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO

import click

from orders.cli.common import CommandGroup, open_shop, overwrite, progress, say
from orders.files import exporting, formats
from orders.files.rows import ORDERS, PETS, Cells, Faults, Sheet
from orders.store.care.files import complete_file

# Progress is shown after this many bytes.
_STEP = 64 * 1024

_ExistingFile = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.group("orders", cls=CommandGroup)
def orders_group() -> None:
    """Import and export orders."""


@click.group("pets", cls=CommandGroup)
def pets_group() -> None:
    """Import pets."""


@orders_group.command("import")
@click.argument("file", type=_ExistingFile)
def import_orders(file: Path) -> None:
    """Import the orders of FILE (.csv or .jsonl), all of them or none.

    Columns: petId, and any other that an export has; where they are absent, quantity is 1, status
    pending, placedAt now and updatedAt the same. The service may go on running.
    """
    shop = open_shop(make=True)
    count = _import(file, ORDERS, shop.orders.import_orders)
    say(f"Imported {count:,} orders.")


@pets_group.command("import")
@click.argument("file", type=_ExistingFile)
def import_pets(file: Path) -> None:
    """Import the pets of FILE (.csv or .jsonl): id, name, categoryId, status.

    A pet replaces one with the same id; others are kept.
    """
    shop = open_shop(make=True)
    count = _import(file, PETS, shop.orders.import_pets)
    say(f"Imported {count:,} pets.")


@orders_group.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@overwrite
def export_orders(file: Path | None, *, overwrite: bool) -> None:
    """Export all orders to FILE (.csv or .jsonl), or as CSV to standard output."""
    shop = open_shop()
    ending = formats.ending_of(file) if file else ".csv"
    if ending not in formats.ENDINGS:
        raise click.ClickException(f"{file} must end in .csv or .jsonl.")
    database = shop.database
    total, count = exporting.count_all(database), 0
    with (
        _target(file, database.folder, overwrite=overwrite) as target,
        progress("Exporting", total) as advance,
    ):
        target.write(exporting.HEADERS.get(ending, "").encode())
        for lines, number in exporting.lines(database, ending):
            target.write(lines.encode())
            count += number
            advance(number)
    say(f"Exported {count:,} orders, without their history and without keys and pets.")


def _import(
    path: Path, sheet: Sheet, store: Callable[[Iterable[tuple[int, Cells]], Faults], int]
) -> int:
    faults = Faults()
    with (
        path.open("rb", 1024 * 1024) as file,
        progress("Checking", max(1, path.stat().st_size)) as advance,
    ):
        lines = _watched(file, advance)
        return store(formats.read(lines, formats.ending_of(path), sheet, faults), faults)


def _watched(file: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    count = 0
    for line in file:
        yield line
        count += len(line)
        if count >= _STEP:
            advance(count)
            count = 0
    advance(count)


@contextmanager
def _target(file: Path | None, folder: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    if file is None:
        # A reader that takes its time would keep the database's log from being reused.
        with TemporaryFile(dir=folder if os.access(folder, os.W_OK) else None) as made:
            yield made
            made.seek(0)
            _copy_to_stdout(made)
        return
    with (
        complete_file(file, "export", overwrite=overwrite) as unfinished,
        unfinished.open("wb") as opened,
    ):
        yield opened


def _copy_to_stdout(file: IO[bytes]) -> None:
    try:
        shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python would complain at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
