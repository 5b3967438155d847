"""`flask status`: how the service and its store are, on one screen, for 3 a.m.; `flask audit`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

import click
from flask.cli import with_appcontext
from sqlalchemy import Connection

from orders import VERSION, domain
from orders.cli import common
from orders.cli.common import PlainCommand, current_shop, time_text
from orders.shop import Shop
from orders.store import apikeys as key_store
from orders.store import audit as audit_trail
from orders.store import stats
from orders.store.care import checks
from orders.store.care.backups import Backups
from orders.store.care.files import InstanceLocked, locked
from orders.store.database.errors import StoreUnavailable, duration_in_words
from orders.web.monitoring import health
from orders.webhooks import deliveries, endpoints

# The service writes its status every five seconds.
_SILENT_AFTER = timedelta(seconds=30)
# The limits of the alerts.
_LEAST_FREE_BYTES = 1_000_000_000
_LONGEST_LAG_SECONDS = 900
_LONGEST_BEHIND_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Item:
    """A line of the screen: its text, whether it needs a person, and its facts for --json."""

    name: str
    text: str
    needs_person: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@click.command("status", cls=PlainCommand)
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@with_appcontext
def status(*, as_json: bool) -> None:
    """Show the state of the service; exits with 1 if something needs attention (!)."""
    shop = current_shop()
    click.get_current_context().call_on_close(shop.database.close)
    if not shop.settings.is_on_postgres and not shop.upkeep.exists():
        raise click.ClickException(f"There is no store in {shop.database.where}.")
    items = list(_items(shop, health.read(shop.settings.instance)))
    if as_json:
        shown = {each.name: {"ok": not each.needs_person, **each.facts} for each in items}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        for each in items:
            click.echo(f"{'!' if each.needs_person else ' '} {each.name:<9} {each.text}")
    if any(each.needs_person for each in items):
        raise SystemExit(1)


def _items(shop: Shop, said: dict[str, Any]) -> Iterator[Item]:
    yield _service(shop, said)
    yield _store(shop, said)
    yield _disk(shop)
    if shop.backups is not None:
        yield _backups(shop.backups)
    yield _copy(said)
    for name, make in (("webhooks", _webhooks), ("keys", _keys)):
        yield _asked(shop, name, make)
    yield _failed(said)
    yield _queue(said)


def _asked(shop: Shop, name: str, make: Callable[[Shop, Connection], Item]) -> Item:
    try:
        with shop.database.read() as connection:
            return make(shop, connection)
    except StoreUnavailable as error:
        return Item(name, f"not known: {error}", needs_person=True)


def _is_running(shop: Shop) -> bool:
    try:
        with locked(shop.settings.instance, 0):
            return False
    except InstanceLocked:
        return True


def _service(shop: Shop, said: dict[str, Any]) -> Item:
    facts = {name: said.get(name) for name in ("version", "started", "at", "addresses")}
    facts |= {"running": _is_running(shop), "installed": VERSION}
    if not facts["running"]:
        last = f"; it was last seen at {said['at']}" if said else ""
        return Item("service", f"not running{last}", True, facts)
    if not said:
        return Item("service", "starting, or a command has locked its folder", True, facts)
    seen = shop.clock.now() - datetime.fromisoformat(said["at"])
    trouble = [
        *([f"it has been hanging since {said['at']}"] if seen > _SILENT_AFTER else []),
        *([f"restart it: {VERSION} is installed"] if said["version"] != VERSION else []),
        *([f"counters: {said['counters']}"] if said["counters"] else []),
        *said["differing"],
    ]
    text = f"{said['version']}, on {' and '.join(said['addresses'])} since {said['started']}"
    facts |= {"counters": said["counters"], "differing": said["differing"]}
    return Item("service", "; ".join([text, *trouble]), bool(trouble), facts)


def _store(shop: Shop, said: dict[str, Any]) -> Item:
    where = shop.database.where
    began = time.perf_counter()
    try:
        shop.upkeep.check()
        counts = stats.statistics(shop.database, shop.clock.now(), 1).by_status
    except (checks.UnfitDatabase, StoreUnavailable) as error:
        return Item("store", str(error), True, {"where": where, "fault": str(error)})
    seconds = round(time.perf_counter() - began, 3)
    faults = [f"{part} fails: {cause}" for part, cause in said.get("faults", {}).items()]
    if said.get("soundness") == "damaged":
        faults.append("the check at the start found damage")
    numbers = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    sound = "" if faults else "; sound"
    text = "; ".join([f"{where}: {numbers}{sound}, schema {checks.schema_version()}", *faults])
    facts = {"where": where, "orders": counts, "faults": faults, "checkSeconds": seconds}
    return Item("store", text, bool(faults), facts)


def _disk(shop: Shop) -> Item:
    folder = shop.settings.instance
    if not shop.settings.is_on_postgres:
        folder = shop.settings.database_path.parent
    usage = shutil.disk_usage(folder)
    size = sum(each.stat().st_size for each in folder.glob("orders.db*"))
    text = f"{_size(usage.free)} of {_size(usage.total)} free, where {folder} is"
    is_short = usage.free < max(_LEAST_FREE_BYTES, 2 * size)
    facts = {"freeBytes": usage.free, "sizeBytes": usage.total}
    return Item("disk", text + ("; make room" if is_short else ""), is_short, facts)


def _backups(backups: Backups) -> Item:
    standing = backups.standing()
    newest = time_text(standing.newest)
    trouble = [
        *([standing.failure] if standing.failure else []),
        *(["none yet" if newest is None else "older than 48 hours"] if standing.is_old else []),
        *(["not sound"] if newest and not standing.is_sound else []),
    ]
    where = "on the store's own disk" if standing.is_on_same_disk else "on another disk"
    text = [f"the newest of {newest}, {where}" if newest else f"in {backups.folder}", *trouble]
    facts = {
        "newest": newest,
        "sameDisk": standing.is_on_same_disk,
        "folder": str(backups.folder),
        "trouble": trouble,
    }
    return Item("backups", "; ".join(text), bool(trouble), facts)


def _copy(said: dict[str, Any]) -> Item:
    behind = said.get("copySecondsBehind")
    if behind is None:
        return Item("copy", "no continuous copy is set up", facts={"secondsBehind": None})
    facts = {"secondsBehind": round(behind)}
    text = f"whole {duration_in_words(behind)} ago, by Litestream"
    return Item("copy", text, behind > _LONGEST_BEHIND_SECONDS, facts)


def _webhooks(shop: Shop, connection: Connection) -> Item:
    now = shop.clock.now()
    hooks: list[dict[str, Any]] = []
    shown = []
    for hook in endpoints.get_all(connection):
        waiting, oldest = deliveries.backlog(connection, hook, hook.position)
        seconds = max((now - oldest).total_seconds(), 0) if oldest else 0
        paused = hook.paused_because if hook.paused_at else None
        hooks.append({"id": hook.id, "waiting": waiting, "seconds": seconds, "paused": paused})
        if paused:
            shown.append(f"{hook.id} is paused: {paused}")
        elif waiting:
            shown.append(
                f"{hook.id} has {waiting:,} events to send, of {duration_in_words(seconds)}"
            )
    needs = any(each["paused"] or each["seconds"] > _LONGEST_LAG_SECONDS for each in hooks)
    text = "; ".join(shown) or (f"{len(hooks)}, and none waits" if hooks else "none")
    return Item("webhooks", text, needs, {"webhooks": hooks})


def _keys(shop: Shop, connection: Connection) -> Item:
    now = shop.clock.now()
    all_keys = key_store.get_all(connection)
    banned = [
        {"id": key.id, "name": key.name, "until": domain.format_instant(key.banned_until)}
        for key in all_keys
        if key.banned_until and key.banned_until > now
    ]
    shown = ", ".join(f"{key['id']} ({key['name']}) until {key['until']}" for key in banned)
    text = f"banned: {shown}" if banned else f"{len(all_keys)}, none of them banned"
    return Item("keys", text, facts={"banned": banned})


def _failed(said: dict[str, Any]) -> Item:
    failed = said.get("failed", [])
    shown = [
        f"{each['count']} times {each['what']} (last {each['last'][11:19]})" for each in failed
    ]
    needs = any(each["source"] != "warning" for each in failed)
    text = "; ".join(shown) or ("nothing in the last hour" if said else "not known")
    return Item("failed", text, needs, {"lastHour": failed})


def _queue(said: dict[str, Any]) -> Item:
    if not said:
        return Item("queue", "not known")
    longest, count = said["longestWaitMs"], said["requests"]
    text = f"the longest wait was {longest} ms, of {count:,} requests in the last hour"
    return Item("queue", text, facts={"longestWaitMs": longest, "requests": count})


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


@common.on_test_store
@click.command("audit", cls=PlainCommand)
@common.as_json
@with_appcontext
def audit(*, as_json: bool) -> None:
    """List who did what to keys, webhooks and the store, and when, the oldest first."""
    with common.open_shop().database.read() as connection:
        acts = audit_trail.get_all(connection)
    rows = [asdict(act) | {"at": time_text(act.at)} for act in acts]
    nothing = "Nothing has been done to keys, webhooks or the store yet."
    common.show(rows, nothing, as_json=as_json)
