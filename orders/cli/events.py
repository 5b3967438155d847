"""`flask orders show` and `flask events tail`: what happened to orders."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from orders.cli.common import CommandGroup, opened_shop
from orders.cli.files import orders_group
from orders.store import feed, listing
from orders.store.database.engine import Database

_BATCH = 200
_LOOK_EVERY_SECONDS = 0.5


@click.group("events", cls=CommandGroup)
def events_group() -> None:
    """Read the event log."""


@orders_group.command("show")
@click.argument("order_id", metavar="ID", type=click.IntRange(1, 2**63 - 1))
def show(order_id: int) -> None:
    """Show the order ID, and what happened to it."""
    database = opened_shop().database
    found = listing.one_order(database, order_id, 2)
    if found is None:
        raise click.ClickException(f"There is no order {order_id}.")
    for name, value in json.loads(found.body).items():
        click.echo(f"{name:<10} {value if isinstance(value, str) else json.dumps(value)}")
    click.echo()
    for event in feed.history(database, order_id):
        click.echo(_line(json.loads(event)))


@events_group.command("tail")
@click.option(
    "--number",
    "-n",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="The last so many.",
)
@click.option("--after", type=click.IntRange(0), metavar="ID", help="All after this event instead.")
@click.option("--follow", "-f", is_flag=True, help="Go on with those to come, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line, as the API has them.")
def tail(number: int, after: int | None, *, follow: bool, as_json: bool) -> None:
    """Show the last events: id, time, type, order, actor, request."""
    database = opened_shop().database
    start = feed.before_last(database, number) if after is None else after
    try:
        for event in _events(database, start, follow=follow):
            click.echo(event if as_json else _line(json.loads(event)))
            if follow:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _events(database: Database, after: int, *, follow: bool) -> Iterator[str]:
    while True:
        page = feed.read(database, after, _BATCH)
        yield from page.events
        after = page.last or after
        if not page.more:
            if not follow:
                return
            time.sleep(_LOOK_EVERY_SECONDS)


def _line(event: dict[str, Any]) -> str:
    told = (event["at"], f"{event['type']:<15}", event["orderId"], event["actor"])
    return f"{event['id']:>6}  {'  '.join(map(str, told))}  {event['requestId'] or '-'}"
