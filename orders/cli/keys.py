"""`flask keys`: issue, list, revoke, unban, change the plan of, and rotate API keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import click

from orders.cli import common
from orders.cli.common import open_shop, say, time_text
from orders.installation import command
from orders.key_service import SCOPES, KeyService
from orders.settings import DEFAULT_PLANS, MAX_FIGURE, Settings
from orders.store import apikeys as key_store
from orders.store.apikeys import ApiKey, NewKey

_LONGEST_DAYS = 36_500
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
    "scope",
    type=click.Choice(["read"]),
    help="Issue a key that may only read. Without this, it may read and write.",
)
@click.option(
    "--expires", type=click.IntRange(1, _LONGEST_DAYS), help="Days until the key expires."
)
@_per_minute
@_per_day
def issue(  # noqa: PLR0913, PLR0917 - one for each option
    name: str,
    plan: str,
    scope: str | None,
    expires: int | None,
    per_minute: int | None,
    per_day: int | None,
) -> None:
    """Issue a key to NAME. It is printed once, alone; only its hash is kept."""
    with _key_service(make=True) as keys:
        ends = keys.now + timedelta(days=expires) if expires else None
        scopes = (scope,) if scope else SCOPES
        new = NewKey(name.strip(), plan, scopes, per_minute, per_day, ends)
        key_id, secret = keys.issue(new)
    common.say_secret(f"Key {key_id} for {new.name} on the plan {plan}.", "It", secret)


@keys_group.command("list")
@common.as_json
def list_keys(*, as_json: bool) -> None:
    """List all keys, without their secrets."""
    shop = open_shop()
    now = shop.clock.now()
    with shop.database.read() as connection:
        graces = key_store.graces(connection, now)
        rows = [
            _row(key, shop.settings, now) | {"graceUntil": time_text(graces.get(key.id))}
            for key in key_store.get_all(connection)
        ]
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
    type=click.IntRange(0, 24 * _LONGEST_DAYS),
    default=0,
    show_default=True,
    help="Hours for which the old secret keeps working.",
)
@common.force
def rotate(key_id: int, grace: int, *, force: bool) -> None:
    """Replace the secret of key ID; print the new one once, alone. All else about the key stays."""
    with _key_service() as keys:
        key, secret = keys.rotate(key_id, timedelta(hours=grace), force=force)
    common.say_secret(f"Key {key_id} ({key.name}) has a new secret.", "It", secret)


@contextmanager
def _key_service(*, make: bool = False) -> Iterator[KeyService]:
    shop = open_shop(make=make)
    with shop.database.write() as connection:
        yield shop.keys(connection)


def _row(key: ApiKey, settings: Settings, now: datetime) -> dict[str, object]:
    plan = settings.plans.get(key.plan)
    banned = key.banned_until if key.banned_until and key.banned_until > now else None
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "plan": key.plan,
        "perMinute": key.per_minute or (plan.per_minute if plan else None),
        "perDay": key.per_day or (plan.per_day if plan else None),
        "scopes": list(key.scopes),
        "created": time_text(key.created_at),
        "lastUsed": time_text(key.last_used_at),
        "expires": time_text(key.expires_at),
        "revoked": time_text(key.revoked_at),
        "bannedUntil": time_text(banned),
    }
