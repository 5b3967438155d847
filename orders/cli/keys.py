"""`flask keys`: issue, list, revoke, unban, change the plan of, and rotate API keys."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
from sqlalchemy import Connection

from orders import apikeys
from orders.cli.common import (
    CommandGroup,
    Id,
    as_json,
    check_grace,
    force,
    open_shop,
    say,
    say_secret,
    show,
    time_text,
)
from orders.installation import command
from orders.settings import DEFAULT_PLANS, MAX_FIGURE, Settings
from orders.store import apikeys as key_store
from orders.store import audit
from orders.store.apikeys import ApiKey, NewKey

ALL_SCOPES = ("read", "write")
_LONGEST_DAYS = 36_500
_LONGEST_NAME = 100
_Figure = click.IntRange(1, MAX_FIGURE)
_per_minute = click.option(
    "--per-minute", type=_Figure, help="Requests a minute (enterprise only)."
)
_per_day = click.option("--per-day", type=_Figure, help="Requests a day (enterprise only).")
_key_id = click.argument("key_id", metavar="ID", type=Id)


@click.group("keys", cls=CommandGroup)
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
    shop = open_shop(make=True)
    _check_plan(shop.settings, plan, per_minute, per_day)
    now = shop.clock.now()
    new = NewKey(
        _checked_name(name),
        plan,
        (scope,) if scope else ALL_SCOPES,
        per_minute,
        per_day,
        now + timedelta(days=expires) if expires else None,
    )
    secret = apikeys.generate()
    with shop.database.write() as connection:
        key_id = key_store.issue(connection, new, secret, now)
        subject = f"key {key_id} ({new.name}): {plan}, {' '.join(new.scopes)}"
        audit.record(connection, now, "key.issued", subject)
    say_secret(f"Key {key_id} for {new.name} on the plan {plan}.", "It", secret)


@keys_group.command("list")
@as_json
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
    show(rows, nothing, as_json=as_json)


@keys_group.command("revoke")
@_key_id
def revoke(key_id: int) -> None:
    """Revoke key ID for good. It stops working within a second."""
    shop = open_shop()
    with shop.database.write() as connection:
        key = key_store.get(connection, key_id)
        if key.revoked_at is None:
            now = shop.clock.now()
            key_store.change(connection, key_id, revoked_at=now)
            _record(connection, now, "key.revoked", key_id)
    say(f"Key {key_id} ({key.name}) is revoked.")


@keys_group.command("unban")
@_key_id
def unban(key_id: int) -> None:
    """Lift the ban of key ID. Its windows stay as they are."""
    shop = open_shop()
    with shop.database.write() as connection:
        key = key_store.get(connection, key_id)
        if key.banned_until is None:
            raise click.ClickException(f"Key {key_id} ({key.name}) is not banned.")
        key_store.change(connection, key_id, banned_until=None)
        _record(connection, shop.clock.now(), "key.unbanned", key_id)
    say(f"Key {key_id} ({key.name}) is no longer banned.")


@keys_group.command("plan")
@_key_id
@click.argument("plan")
@_per_minute
@_per_day
def change_plan(key_id: int, plan: str, per_minute: int | None, per_day: int | None) -> None:
    """Put key ID on PLAN. New windows begin."""
    shop = open_shop()
    _check_plan(shop.settings, plan, per_minute, per_day)
    with shop.database.write() as connection:
        key_store.change_plan(connection, key_id, plan, per_minute, per_day)
        _record(connection, shop.clock.now(), "key.plan", key_id, f": {plan}")
        name = key_store.get(connection, key_id).name
    say(f"Key {key_id} ({name}) is on the plan {plan}.")


@keys_group.command("rotate")
@_key_id
@click.option(
    "--grace",
    type=click.IntRange(0, 24 * _LONGEST_DAYS),
    default=0,
    show_default=True,
    help="Hours for which the old secret keeps working.",
)
@force
def rotate(key_id: int, grace: int, *, force: bool) -> None:
    """Replace the secret of key ID; print the new one once, alone. All else about the key stays."""
    shop = open_shop()
    now = shop.clock.now()
    secret = apikeys.generate()
    with shop.database.write() as connection:
        key = key_store.get(connection, key_id)
        if not key.is_valid(now):
            raise click.ClickException(
                f"Key {key_id} is revoked or expired. "
                f"Issue a new one with `{command('keys issue')}`."
            )
        check_grace(f"key {key_id}", key_store.grace_until(connection, key_id), now, force=force)
        until = now + timedelta(hours=grace) if grace else None
        key_store.rotate(connection, key_id, secret, until)
        _record(connection, now, "key.rotated", key_id)
    say_secret(f"Key {key_id} ({key.name}) has a new secret.", "It", secret)


def _record(
    connection: Connection, now: datetime, action: str, key_id: int, details: str = ""
) -> None:
    name = key_store.get(connection, key_id).name
    audit.record(connection, now, action, f"key {key_id} ({name}){details}")


def _checked_name(name: str) -> str:
    name = name.strip()
    if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise click.ClickException(f"A key's name is 1 to {_LONGEST_NAME} printable characters.")
    if apikeys.PREFIX in name:
        raise click.ClickException("That looks like a key. Enter the name of its user instead.")
    return name


def _check_plan(settings: Settings, plan: str, per_minute: int | None, per_day: int | None) -> None:
    figures = settings.plans.get(plan)
    if figures is None:
        raise click.ClickException(
            f"There is no plan {plan}. The plans are {', '.join(settings.plans)}."
        )
    if figures.per_minute is None and (per_minute is None or per_day is None):
        raise click.ClickException(f"The plan {plan} needs --per-minute and --per-day.")
    if figures.per_minute is not None and (per_minute, per_day) != (None, None):
        raise click.ClickException(
            f"The plan {plan} has its own figures: leave out --per-minute and --per-day."
        )


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
