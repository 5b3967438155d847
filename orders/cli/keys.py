"""`flask keys`: issue, list, revoke, unban, change the plan of, and rotate API keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import click

from orders.apikeys import SCOPES, USUAL_SCOPES, scopes_in_full
from orders.cli import common
from orders.cli.common import open_shop, say
from orders.installation import command
from orders.key_service import KeyService
from orders.settings import DEFAULT_PLANS, LONGEST_DAYS, MAX_FIGURE
from orders.store.apikeys import NewKey

_Figure = click.IntRange(1, MAX_FIGURE)
_per_minute = click.option(
    "--per-minute", type=_Figure, help="Requests a minute (enterprise only)."
)
_per_day = click.option("--per-day", type=_Figure, help="Requests a day (enterprise only).")
_key_id = click.argument("key_id", metavar="ID", type=common.Id)


@click.group("keys", cls=common.StoreGroup)
def keys_group() -> None:
    """Issue, list, revoke and change API keys."""


@keys_group.command("issue")
@click.argument("name")
@click.option("--plan", required=True, help=f"{', '.join(DEFAULT_PLANS)}, or your own.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it may do; may be repeated. Default: read and write. webhooks: manage the "
    "webhooks that it adds. admin: everything.",
)
@click.option("--expires", type=click.IntRange(1, LONGEST_DAYS), help="Days until the key expires.")
@_per_minute
@_per_day
def issue(  # noqa: PLR0913, PLR0917 - one for each option
    name: str,
    plan: str,
    scopes: tuple[str, ...],
    expires: int | None,
    per_minute: int | None,
    per_day: int | None,
) -> None:
    """Issue a key to NAME. It is printed once, alone; only its hash is stored."""
    with _key_service(make=True) as keys:
        ends = keys.now + timedelta(days=expires) if expires else None
        wanted = scopes_in_full(scopes or USUAL_SCOPES)
        new = NewKey(name.strip(), plan, wanted, per_minute, per_day, ends)
        key_id, secret = keys.issue(new)
    common.say_secret(f"Key {key_id} for {new.name} on the plan {plan}.", "It", secret)


@keys_group.command("list")
@common.as_json
def list_keys(*, as_json: bool) -> None:
    """List all keys, without their secrets."""
    shop = open_shop()
    with shop.database.read() as connection:
        rows = shop.keys(connection).show_all()
    nothing = f"There are no keys. `{command('keys issue NAME --plan business')}` issues one."
    common.show(rows, nothing, as_json=as_json)


@keys_group.command("revoke")
@_key_id
def revoke(key_id: int) -> None:
    """Revoke key ID for good. It stops working within a second."""
    with _key_service() as keys:
        key = keys.revoke(key_id)
    say(f"Key {key_id} ({key.name}) is revoked.")


@keys_group.command("unban")
@_key_id
def unban(key_id: int) -> None:
    """Lift the ban of key ID. Its windows stay as they are."""
    with _key_service() as keys:
        key = keys.unban(key_id)
    say(f"Key {key_id} ({key.name}) is no longer banned.")


@keys_group.command("plan")
@_key_id
@click.argument("plan")
@_per_minute
@_per_day
def change_plan(key_id: int, plan: str, per_minute: int | None, per_day: int | None) -> None:
    """Put key ID on PLAN. New windows begin."""
    with _key_service() as keys:
        key = keys.change_plan(key_id, plan, per_minute, per_day)
    say(f"Key {key_id} ({key.name}) is on the plan {plan}.")


@keys_group.command("rotate")
@_key_id
@click.option(
    "--grace",
    type=click.IntRange(0, 24 * LONGEST_DAYS),
    default=0,
    show_default=True,
    help="Hours for which the old secret keeps working.",
)
@common.force
def rotate(key_id: int, grace: int, *, force: bool) -> None:
    """Replace the secret of key ID; print the new one once, alone. Everything else stays."""
    with _key_service() as keys:
        key, secret = keys.rotate(key_id, timedelta(hours=grace), force=force)
    common.say_secret(f"Key {key_id} ({key.name}) has a new secret.", "It", secret)


@contextmanager
def _key_service(*, make: bool = False) -> Iterator[KeyService]:
    shop = open_shop(make=make)
    with shop.database.write() as connection:
        yield shop.keys(connection)
