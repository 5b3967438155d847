"""`flask orders` and `flask pets`: files of orders and pets, in and out."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click

from orders.cli.common import CommandGroup, opened_shop, say
from orders.cli.progress import progress
from orders.files import formats, rows_out
from orders.files.formats import Cells, Faults
from orders.store.care import scratch

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

    Columns: petId; and where present id, quantity (1), shipDate, status (pending), placedAt (now),
    updatedAt (placedAt), reference. The service may go on running.
    """
    services = opened_shop()
    count = _read(file, formats.ORDER_COLUMNS, services.orders.import_orders)
    say(f"Imported {count:,} orders.")


@pets_group.command("import")
@click.argument("file", type=_ExistingFile)
def import_pets(file: Path) -> None:
    """Import the pets of FILE (.csv or .jsonl): id, name, categoryId, status.

    A pet takes the place of one with the same id; others are kept.
    """
    services = opened_shop()
    count = _read(file, formats.PET_COLUMNS, services.orders.import_pets)
    say(f"Imported {count:,} pets.")


@orders_group.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
def export_orders(file: Path | None) -> None:
    """Export all orders to FILE (.csv or .jsonl), or as CSV to standard output."""
    services = opened_shop()
    ending = formats.ending_of(file) if file else ".csv"
    if ending not in {".csv", ".jsonl", ".ndjson"}:
        raise click.ClickException(f"{file} must end in .csv or .jsonl.")
    total = rows_out.count_all(services.database)
    with progress("Exporting", total) as advance, _target(file) as target:
        counted = _Counted(rows_out.batches_of_rows(services.database), advance)
        try:
            formats.write(target, ending, counted)
            target.flush()
        except BrokenPipeError:
            # Whoever reads has seen enough (`| head`). Python would complain of it at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
    say(f"Exported {counted.rows:,} orders, without their history and without keys and pets.")


def _read(
    file: Path, columns: Sequence[str], take: Callable[[Iterable[tuple[int, Cells]], Faults], int]
) -> int:
    faults = Faults()
    with (
        file.open("rb") as opened,
        progress("Checking", max(1, file.stat().st_size)) as advance,
        _Watched(opened, advance) as watched,
    ):
        buffered = io.BufferedReader(watched, 1024 * 1024)
        rows = formats.read(buffered, formats.ending_of(file), columns, faults)
        return take(rows, faults)


class _Watched(io.RawIOBase):
    """A file that tells how many bytes were read."""

    def __init__(self, file: io.BufferedReader, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self._advance(count)
        return count


class _Counted:
    """Batches of rows, counted as they pass."""

    def __init__(self, batches: Iterable[list[Any]], advance: Callable[[int], None]) -> None:
        self._batches = batches
        self._advance = advance
        self.rows = 0

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self._batches:
            yield batch
            self.rows += len(batch)
            self._advance(len(batch))


@contextmanager
def _target(file: Path | None) -> Iterator[TextIO]:
    # In another folder until it is whole: a file of the final name is never half of one.
    if file is None:
        wrapper = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
        try:
            yield wrapper
        finally:
            with suppress(BrokenPipeError):
                wrapper.detach()
        return
    with scratch.folder(file.parent, "export") as folder:
        unfinished = folder / file.name
        descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        unfinished.replace(file)
