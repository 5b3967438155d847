"""`flask orders` and `flask pets`: orders and pets imported from files, orders exported."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from zoneinfo import ZoneInfo

import click

from orders import domain
from orders.cli.common import StoreGroup, counted, open_shop, overwrite, printable, progress, say
from orders.files import exporting, formats
from orders.files.formats import AS_WE_WRITE, Reading
from orders.files.rows import ORDERS, PETS, REPORTED, Cells, Faults, Sheet
from orders.files.shops import SHOPS, Shop
from orders.files.spreadsheets import DATE_ORDERS
from orders.service import IfKnown, Imported
from orders.store.care.files import complete_file

# By a dry run.
_SHOWN_ORDERS = 3
_SHOWN_FAULTS = 10_000
# Progress is shown after this many bytes.
_STEP = 64 * 1024

_ExistingFile = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.group("orders", cls=StoreGroup)
def orders_group() -> None:
    """Import and export orders."""


@click.group("pets", cls=StoreGroup)
def pets_group() -> None:
    """Import pets."""


def _columns(_: object, __: object, given: Sequence[str]) -> dict[str, str]:
    columns = dict(each.partition("=")[::2] for each in given)
    for name, heading in columns.items():
        if name not in ORDERS.kinds or not heading:
            raise click.BadParameter(
                f"{name}={heading} is not ours=theirs, such as petId=SKU. Ours are "
                f"{', '.join(ORDERS.kinds)}."
            )
    return columns


def _zone(_: object, __: object, name: str | None) -> ZoneInfo | None:
    if name is not None and not domain.is_time_zone(name):
        raise click.BadParameter(
            f"{name} is not the IANA name of a time zone, such as Europe/Berlin."
        )
    return ZoneInfo(name) if name else None


def _shop(_: object, __: object, name: str | None) -> Shop | None:
    return SHOPS[name] if name else None


def _pets(_: object, __: object, file: Path | None) -> dict[str, str] | None:
    return formats.read_pets(_pieces(file), file.name) if file else None


@orders_group.command("import")
@click.argument("file", type=_ExistingFile)
@click.option(
    "--dry-run", is_flag=True, help="Import nothing; show the first orders and all errors."
)
@click.option(
    "--from",
    "shop",
    type=click.Choice([*SHOPS]),
    callback=_shop,
    help="The shop system that exported FILE.",
)
@click.option(
    "--pets", type=_ExistingFile, callback=_pets, help="A table with petId by SKU, or name."
)
@click.option(
    "--column", "columns", multiple=True, callback=_columns, metavar="OURS=THEIRS",
    help="A column's name in FILE, such as petId=SKU. May be repeated.",
)  # fmt: skip
@click.option("--ignore-others", is_flag=True, help="Ignore unknown columns.")
@click.option(
    "--dates", type=click.Choice([*DATE_ORDERS]), help="The order of day, month and year."
)
@click.option("--zone", callback=_zone, help="The time zone of times, such as Europe/Berlin.")
@click.option(
    "--if-known", type=click.Choice([each.value for each in IfKnown]),
    help="What to do with rows without id whose reference an order has: with --from refuse, else "
    "import, unless given.",
)  # fmt: skip
@click.option(
    "--unique-references", is_flag=True,
    help="Refuse a reference that an order, or an earlier row, has already.",
)  # fmt: skip
def import_orders(
    file: Path, *, dry_run: bool, if_known: str | None, unique_references: bool, **reading: Any
) -> None:
    """Import the orders of FILE, all of them or none.

    It is .csv, .txt or .tsv, as spreadsheets save it, or .jsonl. Columns: petId, and any other that
    an export has; where they are absent, quantity is 1, status pending, placedAt now and updatedAt
    the same. The service may go on running.
    """
    shop = open_shop(make=not dry_run)
    faults = Faults(_SHOWN_FAULTS if dry_run else REPORTED)
    with _rows(file, ORDERS, faults, Reading(**reading)) as rows:
        shown = _SHOWN_ORDERS if dry_run else None
        # References are not unique, but those of another shop's export name its orders.
        known = if_known or (IfKnown.REFUSE if reading["shop"] else IfKnown.IMPORT)
        imported = shop.orders.import_orders(
            rows, faults, IfKnown(known), shown, unique_references=unique_references
        )
    if dry_run:
        _show(imported, faults)
    for remark, count in faults.remarks.items():
        say(f"{remark}." if remark[0].isupper() else f"{counted(count, 'row')} {remark}.")
    if dry_run and faults.count:
        raise click.ClickException(f"Nothing would be imported: {counted(faults.count, 'fault')}.")
    done = "A dry run: would import" if dry_run else "Imported"
    say(f"{done} {counted(imported.count, 'order')}.")


def _show(imported: Imported, faults: Faults) -> None:
    for order in imported.first:
        for name, value in order.items():
            text = printable(" / ".join(str(value).splitlines()))
            click.echo(f"line {text}" if name == "line" else f"  {name:9}  {text}")
    for fault in faults.first:
        click.echo(printable(fault))
    if faults.count > len(faults.first):
        click.echo(f"and {faults.count - len(faults.first):,} more")


@pets_group.command("import")
@click.argument("file", type=_ExistingFile)
def import_pets(file: Path) -> None:
    """Import the pets of FILE (.csv or .jsonl): id, name, categoryId, status.

    A pet replaces one with the same id; others stay.
    """
    shop = open_shop(make=True)
    faults = Faults()
    with _rows(file, PETS, faults) as rows:
        count = shop.orders.import_pets(rows, faults)
    say(f"Imported {counted(count, 'pet')}.")


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
    say(f"Exported {counted(count, 'order')}, without their history and without keys and pets.")


@contextmanager
def _rows(
    path: Path, sheet: Sheet, faults: Faults, reading: Reading = AS_WE_WRITE
) -> Iterator[Iterator[tuple[int, Cells]]]:
    with progress("Checking", max(1, path.stat().st_size)) as advance:
        yield formats.read(_pieces(path, advance), formats.ending_of(path), sheet, faults, reading)


def _pieces(path: Path, advance: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    count = 0
    with path.open("rb", 1024 * 1024) as file:
        for line in formats.pieces(file):
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
