"""`flask orders show`, `flask events tail`: the history of orders; `flask orders forget`."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import click

from orders.cli.common import StoreGroup, counted, open_shop, progress, say, say_working
from orders.cli.files import orders_group
from orders.domain import MAX_INT64, Origin, Status, format_instant, parse_instant
from orders.installation import command
from orders.settings import Settings
from orders.shop import Shop
from orders.store import forgetting, lists
from orders.store import orders as order_store
from orders.store.database.database import Database
from orders.store.forgetting import Due

_BATCH = 200
_WHOLE_HISTORY = 1_000_000
_POLL_SECONDS = 0.5
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Of orders in a message.
_NAMED = 10


@click.group("events", cls=StoreGroup)
def events_group() -> None:
    """Read the event log."""


@orders_group.command("show")
@click.argument("order_id", metavar="ID", type=click.IntRange(1, 2**63 - 1))
def show(order_id: int) -> None:
    """Show the order ID and its history."""
    database = open_shop().database
    order = lists.one_order(database, order_id, 2)
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
    "--placed-before", metavar="DATE", callback=_moment, help="All settled orders placed before."
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
    may go on running.
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
        say(f"So have these, which nothing removes but you: {', '.join(copies)}.")
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
    help="How many of the last events.",
)
@click.option(
    "--after", type=click.IntRange(0), metavar="ID", help="All events after this one instead."
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new events, until Ctrl-C.")
@click.option(
    "--request",
    "request_id",
    metavar="ID",
    help="The events of one request (X-Request-Id) instead.",
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
            if follow:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _show_request(database: Database, request_id: str, *, as_json: bool) -> None:
    done = order_store.read_request(database, request_id, 0, _WHOLE_HISTORY).events
    if not done:
        raise click.ClickException(
            f"No event is of a request {request_id}: it changed no order, or is another store's."
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
