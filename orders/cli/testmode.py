"""`flask test reset`: empties test mode's store. Other commands are on it by `--test`."""

from __future__ import annotations

import click

from orders.cli import common
from orders.cli.common import open_shop, say
from orders.store import audit, forgetting


@click.group("test", cls=common.CommandGroup)
def test_group() -> None:
    """Empty test mode's store. Other commands use it with --test."""


@test_group.command("reset")
@click.pass_context
def reset(context: click.Context) -> None:
    """Delete all orders of test mode, with what came of them; its keys and webhooks stay.

    The service may go on running. Ids continue: no client takes a new order for an old one.
    """
    common.choose_test_store(context)
    shop = open_shop()
    with shop.database.write() as connection:
        count = forgetting.empty(connection)
        audit.record(connection, shop.clock.now(), "store.emptied", f"{count} orders")
    say(f"Test mode is empty: {count:,} orders are gone. Its keys and webhooks stay.")
