"""`flask orders show` and `flask events tail`: the history of orders."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from orders.cli.common import CommandGroup, open_shop
from orders.cli.files import orders_group
from orders.store import lists
from orders.store import orders as order_store
from orders.store.database.database import Database

_BATCH = 200
_WHOLE_HISTORY = 1_000_000
_POLL_SECONDS = 0.5


@click.group("events", cls=CommandGroup)
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
    "--request", "request_id", metavar="ID", help="What this request did (X-Request-Id) instead."
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
