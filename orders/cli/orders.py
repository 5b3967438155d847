"""`flask orders`, `flask pets`, `flask events`: files in and out, history, forgetting."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from zoneinfo import ZoneInfo

import click

from orders import domain
from orders.cli.common import (
    StoreGroup,
    counted,
    open_shop,
    overwrite,
    printable,
    progress,
    say,
    say_working,
)
from orders.domain import MAX_INT64, Origin, Status, format_instant, parse_instant
from orders.files import exporting, formats, shops
from orders.files.formats import AS_WE_WRITE, Reading
from orders.files.rows import ORDERS, PETS, REPORTED, Cells, Faults, Sheet
from orders.files.spreadsheets import DATE_ORDERS
from orders.installation import command
from orders.service import IfKnown, Imported
from orders.settings import Settings
from orders.shop import Shop
from orders.store import forgetting, orders_json
from orders.store import orders as order_store
from orders.store.care.files import complete_file
from orders.store.database.database import Database
from orders.store.forgetting import Due

# How much a dry run shows.
_SHOWN_ORDERS = 3
_SHOWN_FAULTS = 10_000
# Progress is shown after this many bytes.
_STEP = 64 * 1024
# How many events a query reads.
_BATCH = 200
_WHOLE_HISTORY = 1_000_000
_POLL_SECONDS = 0.5
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# How many orders a message names.
_NAMED = 10

_ExistingFile = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.group("orders", cls=StoreGroup)
def orders_group() -> None:
    """Import and export orders."""


@click.group("pets", cls=StoreGroup)
def pets_group() -> None:
    """Import pets."""


@click.group("events", cls=StoreGroup)
def events_group() -> None:
    """Read the event log."""


# Files


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


def _shop(_: object, __: object, name: str | None) -> shops.Shop | None:
    return shops.SHOPS[name] if name else None


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
    type=click.Choice([*shops.SHOPS]),
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
    help="What to do with rows without an id whose reference an order has. Default: refuse with "
    "--from, else import.",
)  # fmt: skip
@click.option(
    "--unique-references", is_flag=True,
    help="Refuse a reference that an order, or an earlier row, has already.",
)  # fmt: skip
def import_orders(
    file: Path, *, dry_run: bool, if_known: str | None, unique_references: bool, **reading: Any
) -> None:
    """Import the orders of FILE, all of them or none.

    FILE is .csv, .txt or .tsv, as spreadsheets save it, or .jsonl. Columns: petId, and any other
    that an export has; where they are absent, quantity is 1, status pending, placedAt now and
    updatedAt the same. The service may keep running.
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
        # The reader has closed its end (`| head`). Python would complain at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


# History, and forgetting


@orders_group.command("show")
@click.argument("order_id", metavar="ID", type=click.IntRange(1, 2**63 - 1))
def show(order_id: int) -> None:
    """Show the order ID and its history."""
    database = open_shop().database
    order = orders_json.one_order(database, order_id, 2)
    if order is None:
        raise click.ClickException(f"There is no order {order_id}.")
    for name, value in json.loads(order.body).items():
        click.echo(f"{name:<10} {value if isinstance(value, str) else json.dumps(value)}")
    click.echo()
    for event in order_store.read_history(database, order_id, 0, _WHOLE_HISTORY).events:
        click.echo(_line(json.loads(event)))


def _moment(_context: object, _option: object, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_instant(f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text)
    except ValueError:
        raise click.BadParameter(
            f"{text} is neither a day such as 2026-01-31, in UTC, nor 2026-01-31T00:00:00+01:00."
        ) from None


@orders_group.command("forget")
@click.argument("order_ids", metavar="[ID]...", nargs=-1, type=click.IntRange(1, MAX_INT64))
@click.option(
    "--placed-before", metavar="DATE", callback=_moment, help="All settled orders placed before it."
)
@click.option("--dry-run", is_flag=True, help="Only say how many orders that would affect.")
@click.option(
    "--compact", is_flag=True, help="Rewrite the database file afterwards; changes wait meanwhile."
)
@click.option("--yes", is_flag=True, help="Don't ask, on a terminal, before forgetting anything.")
def forget(
    order_ids: tuple[int, ...],
    placed_before: datetime | None,
    *,
    dry_run: bool,
    compact: bool,
    yes: bool,
) -> None:
    """Delete the personal data of orders, by ID or all placed before DATE.

    Settled orders lose reference, note, shipTo and tracking: in the order, its history, remembered
    answers and waiting messages. Webhooks that ask for it are sent order.forgotten. Only a backup
    can bring it back; the command lists those that can. Pending orders are refused. The service
    may keep running.
    """
    if bool(order_ids) == bool(placed_before) and not (compact and not order_ids):
        raise click.UsageError("Name orders by their ids, or by --placed-before DATE.")
    shop = open_shop()
    say_working("Looking")
    found = _to_forget(shop, order_ids, placed_before) if order_ids or placed_before else []
    if dry_run:
        say(f"{counted(len(found), 'order')} with personal data.")
        return
    if found and sys.stdin.isatty() and not yes:
        click.confirm(
            f"Delete the personal data of {counted(len(found), 'order')}?", abort=True, err=True
        )
    count = _forget(shop, found, _subject(found, placed_before))
    if compact:
        say_working("Rewriting the file")
    traces = shop.database.scrub(whole=compact)
    say(f"Deleted the personal data of {counted(count, 'order')}.")
    _say_where_it_remains(shop, traces)


def _to_forget(shop: Shop, order_ids: tuple[int, ...], placed_before: datetime | None) -> list[Due]:
    if placed_before is not None:
        return list(forgetting.due(shop.database, placed_before=placed_before))
    named = forgetting.named(shop.database, order_ids)
    if missing := {*order_ids} - {due.order_id for due in named}:
        raise click.ClickException(f"There is no order {_listed(missing)}. Nothing was deleted.")
    if pending := {due.order_id for due, status in named.items() if status is Status.PENDING}:
        raise click.ClickException(
            f"Order {_listed(pending)} is pending: ship or cancel it first. Nothing was deleted."
        )
    return list(named)


def _forget(shop: Shop, found: list[Due], subject: str) -> int:
    count = 0
    with progress("Forgetting", len(found)) as advance:
        for forgotten in shop.orders.forget(found, Origin("cli"), subject):
            count += len(forgotten)
            advance(len(forgotten))
    return count


def _subject(found: list[Due], placed_before: datetime | None) -> str:
    if placed_before is not None:
        return f"{len(found):,} orders placed before {format_instant(placed_before)}"
    return f"order {_listed(due.order_id for due in found)}" if found else ""


def _listed(order_ids: Iterable[int]) -> str:
    first, *others = sorted(order_ids)
    named = [str(each) for each in (first, *others[: _NAMED - 1])]
    more = len(others) - len(named) + 1
    return ", ".join(named) + (f" and {more:,} more" if more else "")


def _say_where_it_remains(shop: Shop, traces: str) -> None:
    if traces:
        say(
            f"Traces may remain in {traces}. At a quiet hour, when no long read is under way, run "
            f"`{command('orders forget --compact')}`: changes wait for it."
        )
    if shop.backups and shop.backups.all():
        daily, weekly = shop.settings.backups_keep
        say(
            f"Backups from before still have it, those in {shop.backups.folder} for up to "
            f"{max(daily, 7 * weekly)} days (ORDERS_BACKUPS_KEEP)."
        )
    if copies := _copies(shop.settings):
        say(f"These have it, too, until you remove them: {', '.join(copies)}.")
    say("So may copies elsewhere: exports, dumps, a continuous copy, what receivers have stored.")


def _copies(settings: Settings) -> list[str]:
    own = (settings.database_path.name, settings.counters_path.name)
    return sorted(
        path.name
        for path in settings.instance.glob("*.db*")
        if path.suffix in {".db", ".db-wal"} and not path.name.startswith(own)
    )


@events_group.command("tail")
@click.option(
    "--number",
    "-n",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="How many events to show.",
)
@click.option(
    "--after", type=click.IntRange(0), metavar="ID", help="Show all events after this one instead."
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new events, until Ctrl-C.")
@click.option(
    "--request",
    "request_id",
    metavar="ID",
    help="Show the events of one request (X-Request-Id) instead.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, as in the API.")
def tail(
    number: int, after: int | None, request_id: str | None, *, follow: bool, as_json: bool
) -> None:
    """Show the last events: id, time, type, order, actor, request."""
    database = open_shop().database
    if request_id is not None:
        _show_request(database, request_id, as_json=as_json)
        return
    start = order_store.id_before_last(database, number) if after is None else after
    try:
        for event in _events(database, start, follow=follow):
            click.echo(event if as_json else _line(json.loads(event)))
    except KeyboardInterrupt:
        return


def _show_request(database: Database, request_id: str, *, as_json: bool) -> None:
    done = order_store.read_request(database, request_id, _WHOLE_HISTORY)
    if not done:
        raise click.ClickException(
            f"No event belongs to request {request_id}: it changed no order, or is another store's."
        )
    for event in done:
        click.echo(event if as_json else _line(json.loads(event)))


def _events(database: Database, after: int, *, follow: bool) -> Iterator[str]:
    while True:
        page = order_store.read_events(database, after, _BATCH)
        yield from page.events
        after = page.next
        if not page.more:
            if not follow:
                return
            time.sleep(_POLL_SECONDS)


def _line(event: dict[str, Any]) -> str:
    columns = (event["at"], f"{event['type']:<15}", event["orderId"], event["actor"])
    return f"{event['id']:>6}  {'  '.join(map(str, columns))}  {event['requestId'] or '-'}"
