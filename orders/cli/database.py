"""`flask db`: upgrade, check, back up, restore and move the database. `flask test`: empty one."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from orders.cli import common
from orders.cli.common import counted, open_shop, print_table, say, time_text
from orders.installation import command
from orders.settings import Settings
from orders.store import apikeys as key_store
from orders.store import audit, forgetting
from orders.store import orders as order_store
from orders.store.care import checks, opening, restoring
from orders.store.care import salvage as salvaging
from orders.store.care.backups import Backups
from orders.store.database.database import Database

# Between batches of this many, the service may write.
_FIXED_AT_ONCE = 500
# How many unreadable ranges of a table are shown.
_SHOWN_RANGES = 5


@click.group("db", cls=common.CommandGroup)
def db_group() -> None:
    """Upgrade, check, back up, restore and move the database."""


@db_group.command("upgrade")
def upgrade() -> None:
    """Bring the database's schema up to date, keeping a copy. The service must be stopped."""
    settings = common.current_shop().settings
    if settings.is_on_postgres:
        _check_no_file(settings.instance)
    with common.stopped_shop(make=True) as shop:
        common.make_store(shop)
        common.say_working("Upgrading if needed: 1,000,000 orders can take half a minute")
        done = shop.upkeep.upgrade()
    say(done)


def _check_no_file(instance: Path) -> None:
    # A rehearsal on a copy, which was to leave the server alone.
    file = replace(Settings(), instance=instance).database_path
    if file.exists() and not checks.is_moved(file):
        raise click.ClickException(
            f"There is a database in {file}, but ORDERS_DATABASE_URL names one on a server: "
            "which is meant? Unset ORDERS_DATABASE_URL, or move the file away."
        )


@db_group.command("check")
@click.option(
    "--clock-is-right",
    is_flag=True,
    help="Let keys expire by the clock again, though the service has seen later times.",
)
@click.option("--fix-search", is_flag=True, help="Rebuild the search where it misses orders.")
def check(*, clock_is_right: bool, fix_search: bool) -> None:
    """Check every page and index of the database. The service may keep running."""
    shop = open_shop()
    common.say_working("Checking")
    shop.upkeep.check_whole()
    if misfound := order_store.misfound(shop.database):
        _fix_search(shop.database, misfound, wanted=fix_search)
    say(f"{shop.database.where} is sound.")
    if clock_is_right:
        with shop.database.write() as connection:
            key_store.trust_clock(connection)
            audit.record(connection, shop.clock.now(), "clock.trusted", "the store")
        say("Keys expire by the clock again.")


def _fix_search(database: Database, misfound: list[int], *, wanted: bool) -> None:
    if not wanted:
        raise click.ClickException(
            f"The search does not match the orders' words ({len(misfound):,}; order "
            f"{misfound[0]} first). Run `{command('db check --fix-search')}`."
        )
    for begin in range(0, len(misfound), _FIXED_AT_ONCE):
        with database.write() as connection:
            for order_id in misfound[begin : begin + _FIXED_AT_ONCE]:
                order_store.write_words(connection, order_id)
    say(f"The search is repaired ({len(misfound):,}).")


@db_group.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@common.overwrite
def back_up(file: Path, *, overwrite: bool) -> None:
    """Copy the database to the new FILE, checked. The service may keep running."""
    shop = open_shop()
    database = shop.upkeep.file()
    common.say_working("Copying")
    opening.copy(database, file, overwrite=overwrite)
    say(f"Copied to {file} and checked.")


@db_group.command("backups")
@click.option("--now", "make_now", is_flag=True, help="Make one now; remove none.")
@click.option(
    "--new-folder",
    is_flag=True,
    help="Begin anew in a folder without its marker, such as on a new disk.",
)
@click.option("--check", is_flag=True, help="Read each through, and test-restore the newest.")
def list_backups(*, make_now: bool, new_folder: bool, check: bool) -> None:
    """List the service's automatic backups. The service may keep running."""
    shop = open_shop()
    shop.upkeep.file()  # a server's database has none
    backups = shop.backups
    if backups is None:
        raise click.ClickException("No backups are made: ORDERS_BACKUPS is off.")
    if new_folder:
        backups.begin_anew()
    if make_now:
        common.say_working("Copying")
        say(f"Made {backups.make(is_manual=True).path}.")
    verdicts = {}
    if check:
        common.say_working("Checking")
        verdicts = {one.path: verdict for one, verdict in backups.check_all()}
    rows = [
        {
            "made": time_text(one.at),
            "bytes": f"{one.size:,}",
            "state": verdicts.get(one.path) or backups.verdict_on(one),
            "file": one.path.name,
        }
        for one in backups.all()
    ]
    common.show(rows, "There are no backups yet.", as_json=False)
    _say_standing(backups)
    if any(row["state"] != "sound" for row in rows):
        raise click.ClickException(
            f"A backup is damaged. Make another ({command('db backups --now')}), "
            "and move that one away."
        )


def _say_standing(backups: Backups) -> None:
    standing = backups.standing()
    if standing.failure:
        why = standing.failure.rstrip(".")
        say(f"The service can't make its backup ({why}). It retries every hour.")
    if standing.is_old:
        say("The newest is older than 48 hours, or there is none: see the log of the service.")
    if standing.is_on_same_disk:
        say(f"{backups.folder} is on the same disk as the store, and would be lost with it.")


@db_group.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--keep-keys",
    is_flag=True,
    help="Keep the backup's keys and webhooks if the replaced database can't be read.",
)
@click.option("--another-shop", is_flag=True, help="Restore even another shop's backup.")
@click.option("--yes", is_flag=True, help="Don't ask, on a terminal, before replacing anything.")
def restore(file: Path, keep_keys: bool, another_shop: bool, yes: bool) -> None:
    """Replace the database by the backup FILE. The service must be stopped.

    It says first what is in FILE, and how many of today's orders it lacks. The replaced database is
    kept beside it. Keys and webhooks stay as they are now, so that none that was revoked or removed
    comes back; new ids continue above all that were ever assigned.
    """

    def announce(contents: restoring.Contents) -> None:
        _say_contents(file, contents)
        if contents.is_anothers and not another_shop:
            raise click.ClickException(
                f"{file} is the backup of another shop than the store in {database}. If that is "
                "meant, restore it with --another-shop."
            )
        if sys.stdin.isatty() and not yes:
            click.confirm("Replace the store with it?", abort=True, err=True)

    with common.stopped_shop(make=True) as shop:
        common.say_working("Reading")
        database = shop.upkeep.file()
        done = restoring.restore(
            file, database, shop.clock.now(), keep_keys=keep_keys, announce=announce
        )
    say(f"Restored from {file}.")
    _say_restored(done, database, keep_keys=keep_keys)


def _say_restored(done: restoring.Restored, database: Path, *, keep_keys: bool) -> None:
    if done.replaced:
        say(f"The replaced database is kept in {done.replaced}.")
    else:
        say(f"There was no store yet: {database} is new.")
    if done.was_read:
        say(f"Kept {done.keys} keys as they were, {done.revoked} of them revoked since the backup.")
        if done.webhooks:
            say(f"Kept {done.webhooks} webhooks as they were.")
        _say_forgotten(done)
        return
    forget = command("orders forget")
    say(f"Personal data deleted since is in it again: `{forget}` deletes it.")
    say(
        f"It is unknown which ids were used, so new ones continue {restoring.SKIPPED_IDS:,} higher."
    )
    if not keep_keys:
        say(
            f"All keys are revoked, {done.revoked} of them just now: issue new ones, "
            f"or remove {database} and restore again with --keep-keys."
        )
    _say_paused(done.webhooks)


def _say_forgotten(done: restoring.Restored) -> None:
    if done.forgotten:
        say(f"Deleted the personal data of {counted(len(done.forgotten), 'order')} again.")
    if done.pending:
        forget = command(f"orders forget {' '.join(map(str, done.pending))}")
        say(
            "Some orders whose data was deleted are pending in the backup. Once settled, run "
            f"`{forget}`."
        )


def _say_contents(file: Path, contents: restoring.Contents) -> None:
    newest = f", the newest change of {time_text(contents.newest)}" if contents.newest else ""
    say(f"{file} has {contents.orders:,} orders{newest}.")
    if contents.lacking or contents.differing:
        say(
            f"It lacks {contents.lacking:,} orders of today's store, and {contents.differing:,} "
            "were shipped or cancelled since."
        )


@db_group.command("salvage")
@click.argument("file", type=click.Path(path_type=Path))
def salvage(file: Path) -> None:
    """Copy what can be read of a damaged store to a new file. The service may keep running.

    FILE is the damaged file, and the new one is made beside it; or FILE is the name of the new one,
    and the store of the settings is copied. Nothing is replaced: restore the new file for that.
    """
    if file.exists():
        source, target = file, _salvaged_name(file)
    else:
        source, target = common.shop_of_settings().upkeep.file(), file
    common.say_working("Reading")
    done = salvaging.salvage(source, target)
    print_table([{"table": table, "rows": f"{count:,}"} for table, count in done.rows.items()])
    _say_missing(done)
    say(f"Saved in {target}, and checked. Nothing was replaced: to do that, stop the service and")
    say(f"run `{command(f'db restore {target}')}`.")


def _salvaged_name(file: Path) -> Path:
    now = common.current_shop().clock.now()
    return file.with_name(f"{file.stem}-salvaged-{now:%Y%m%dT%H%M%S}.db")


def _say_missing(done: salvaging.Salvaged) -> None:
    if not done.is_schema_read:
        say("Its first page can't be read. Only orders, events and keys can be found without it.")
    for table, ranges in done.unread.items() if done.is_schema_read else ():
        shown = ", ".join(f"{max(low, 1):,} to {high:,}" for low, high in ranges[:_SHOWN_RANGES])
        left = len(ranges) - _SHOWN_RANGES
        more = f", and {left:,} more" if left > 0 else ""
        say(f"Can't be read: rows {shown}{more} of {table}.")
    for count, what in (
        (done.found, "rows of those were found page by page"),
        (done.remade, "orders were missing, and were made again from their last event"),
        (done.unexplained, "orders lack history, and got an event that says how they stand"),
        (done.dangling, "rows of other tables referred to lost ones, and were left out"),
        (done.lost, "orders of those rows are missing for good: a backup may have them"),
    ):
        if count:
            say(f"{count:,} {what}.")
    if not done.unread and not done.remade and not done.unexplained:
        say("Nothing is missing: orders and events agree.")


@db_group.command("renew")
@click.option("--keep-keys", is_flag=True, help="Keep all keys and webhooks as they are.")
def renew(keep_keys: bool) -> None:
    """Prepare a database that pg_restore restored. The service must be stopped.

    The store gets a new id, and new ids continue a million higher, so that nothing that clients
    remember matches; keys are revoked and webhooks paused, because nobody knows which were
    revoked or removed since the backup.
    """
    with common.stopped_shop() as shop:
        shop.upkeep.check()
        revoked, paused = restoring.renew(shop.database, shop.clock.now(), keep_keys=keep_keys)
        shop.upkeep.accept()
    say(f"The store has a new id, and new ids continue {restoring.SKIPPED_IDS:,} higher.")
    if revoked:
        say(f"All keys are revoked, {revoked} of them just now: issue new ones.")
    _say_paused(paused)


def _say_paused(webhooks: int) -> None:
    if webhooks:
        resume = command("webhooks resume ID")
        say(f"{webhooks} webhooks are paused: run `{resume}` or remove each.")


@db_group.command("copy")
def copy() -> None:
    """Move the shop from SQLite to PostgreSQL. The service must be stopped.

    Set ORDERS_COPY_TO to the address of an empty database, which keeps a password out of the
    command's arguments: postgresql+psycopg://USER@HOST/DATABASE. Everything is copied and then
    compared row by row: ids, events, keys, bans, webhooks. If anything differs or fails, nothing
    is left there, and the command can be run again. Afterwards set ORDERS_DATABASE_URL to serve
    the shop from there. The SQLite file is kept, and no longer served.
    """
    _check_copy(common.current_shop().settings)
    from orders.store.postgres import copying  # it loads the driver

    began = time.monotonic()
    with common.stopped_shop() as shop:
        shop.upkeep.check()
        common.say_working("Checking")
        shop.upkeep.check_whole()
        copied = copying.copy(shop.database, shop.settings, common.progress)
    print_table([{"table": table, "rows": f"{rows:,}"} for table, rows in copied.rows.items()])
    total, seconds = sum(copied.rows.values()), time.monotonic() - began
    say(f"Copied {total:,} rows to {copied.where} and compared each, in {seconds:.1f} s.")
    say("Now set ORDERS_DATABASE_URL to the value of ORDERS_COPY_TO, and start the service.")
    say(f"Keep {shop.database.where}: it is unchanged, but marked so that it is no longer served.")


def _check_copy(settings: Settings) -> None:
    if settings.is_on_postgres:
        raise click.ClickException(
            "The shop is on PostgreSQL already: ORDERS_DATABASE_URL says so. To move it to another "
            "server, use pg_dump and pg_restore."
        )
    if not settings.copy_to:
        raise click.ClickException(
            "ORDERS_COPY_TO is not set. Set it to the address of an empty database: "
            "postgresql+psycopg://USER@HOST/DATABASE."
        )


@click.group("test", cls=common.CommandGroup)
def test_group() -> None:
    """Empty test mode's store. Other commands use it with --test."""


@test_group.command("reset")
@click.pass_context
def reset(context: click.Context) -> None:
    """Delete all orders of test mode and their history; its keys and webhooks stay.

    The service may keep running. Ids continue: no client takes a new order for an old one.
    """
    common.choose_test_store(context)
    shop = open_shop()
    with shop.database.write() as connection:
        count = forgetting.empty(connection)
        audit.record(connection, shop.clock.now(), "store.emptied", f"{count} orders")
    say(f"Test mode is empty: {count:,} orders are gone. Its keys and webhooks stay.")
