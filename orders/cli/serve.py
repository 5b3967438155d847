"""The service: lock the instance folder, prepare the database, serve, and stop in order.

Meanwhile chores run in the background, such as flushes every 0.5 s, and one that keeps the lock
on the database and compares this process with others that serve it. systemd is notified.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from enum import StrEnum
from functools import partial

import click
from sqlalchemy.exc import SQLAlchemyError

from orders import VERSION, demo, installation, system
from orders import settings as settings_of
from orders.cli import first_start
from orders.counters import CountersRefused
from orders.server import Server
from orders.settings import Settings, SettingsError
from orders.shop import LockWatchdog, Shop
from orders.store import apikeys as key_store
from orders.store.care import checks
from orders.store.care.files import LOCKED_SECONDS, MAKING_SECONDS, InstanceLocked, locked
from orders.store.care.opening import InUse, ServingLock
from orders.store.database import sqlite
from orders.store.database.errors import StoreUnavailable
from orders.urls import is_loopback
from orders.web import logs
from orders.web.api import OrdersFlask, ServingPolicy
from orders.web.monitoring.health import StatusFile
from orders.web.pages import site

log = logging.getLogger("orders")

EXIT_CANNOT_START = 2
# A supervisor starts it again.
EXIT_LOST = 1
# For 700, 10, 10. https://docs.python.org/3/library/gc.html#gc.set_threshold
COLLECTOR_THRESHOLDS = (10_000, 20, 50)


class CannotStart(Exception):
    """The service can't start. The message is one line that says why and how to fix it."""


class AlreadyServed(CannotStart):
    """Another service has locked the instance folder."""


def main(
    create_app: Callable[[Settings], OrdersFlask], *, with_demo: bool, opens: bool | None = False
) -> int:
    """Serve the application until a signal ends it; return the exit status.

    The console is opened in a browser if it `opens`; None means where that suits this start.
    """
    system.keep_new_files_private()
    # systemd would take an end by SIGHUP for intended, and log rotation sends that signal. But a
    # person who closes the terminal with the log wants the service to end.
    if sys.stderr is None or not sys.stderr.isatty():
        system.ignore_hangups()
    try:
        settings = settings_of.load()
        with logs.logging_to(settings.log, settings.log_path):
            if opens is None:
                opens = first_start.is_by_a_person(settings)
            try:
                return _serve_instance(create_app(settings), with_demo=with_demo, opens=opens)
            except AlreadyServed:
                # The second of two double-clicks opens the service that the first has started.
                if not (opens and first_start.open_running(settings)):
                    raise
                return 0
    except (CannotStart, SettingsError, checks.UnfitDatabase, CountersRefused) as error:
        _say_why(" ".join(str(error).split()))
        return EXIT_CANNOT_START


def _say_why(message: str) -> None:
    settings = settings_of.of_the_log()
    if settings.log == "json" or settings.log_file:
        with logs.logging_to(settings.log, settings.log_path):
            log.error("%s", message)
    else:
        click.echo(f"Error: {message}", err=True)
    if installation.IS_SINGLE_FILE and system.has_own_window():
        click.pause("Press any key to close this window.", err=True)


def settings_for_flask() -> Settings:
    """Return the settings for an application that `flask` loads: for a command, not to serve."""
    system.write_utf8()
    context = click.get_current_context(silent=True)
    if context is None:
        return settings_of.load()
    if context.info_name == "run":
        raise click.ClickException(
            "`flask run` neither keeps the limits' counters nor stops cleanly. Use: python app.py"
        )
    try:
        return settings_of.load()
    except SettingsError as error:
        # Flask would show an exception with a traceback.
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(EXIT_CANNOT_START) from None


def versions() -> str:
    """Return the versions of the service, Python and SQLite, for people."""
    module = sqlite.sqlite_module()
    return (
        f"Store Orders {VERSION}, Python {platform.python_version()}, "
        f"SQLite {module.sqlite_version} ({module.__name__.partition('.')[0]})"
    )


def _serve_instance(app: OrdersFlask, *, with_demo: bool, opens: bool) -> int:
    shop = app.shop
    with _locked(shop.settings), closing(shop.database):
        _prepare_database(shop)
        with _acquire(shop) as lock:
            return _serve(app, lock, with_demo=with_demo, opens=opens)


def _serve(app: OrdersFlask, lock: ServingLock, *, with_demo: bool, opens: bool) -> int:
    shop = app.shop
    with _database_needed(shop):
        watchdog = LockWatchdog(shop, lock)
        shop.begin()
        shop.check_behind()
        site.load(app)
        server = _bind(app)
        server.stop_on_signals()
        status = StatusFile(app, server.addresses)
        key = _welcome(shop, server, with_demo=with_demo, opens=opens)

    def keep() -> None:
        watchdog.check()
        app.test_mode.look()

    shop.start(keep, status.write)
    _spare_the_collector()
    try:
        with first_start.console(app, server.addresses, key) if opens else nullcontext():
            _run(server, shop.settings.notify_socket)
    finally:
        app.test_mode.stop()
        shop.stop()
        status.close()
        shop.end()
    log.info("Stopped.")
    return EXIT_LOST if watchdog.has_lost else 0


def _run(server: Server, supervisor: str) -> None:
    notify(supervisor, State.READY)
    try:
        server.run()
    finally:
        notify(supervisor, State.STOPPING)
        # A supervisor may send a second SIGTERM. While Python ends, it would put back the default
        # handlers, and such a signal would turn a clean stop into status -15.
        system.ignore_stop_signals()


def _spare_the_collector() -> None:
    # Passes over all that was imported, 70 MB, would be the longest waits of the first seconds; and
    # requests leave little behind that only the collector finds.
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    gc.enable()  # again: see __main__


@contextmanager
def _locked(settings: Settings) -> Iterator[None]:
    with ExitStack() as held:
        if folder := installation.unpacked_folder():
            # Or systemd would remove its files after ten days: it leaves locked folders alone.
            # https://www.freedesktop.org/software/systemd/man/latest/tmpfiles.d.html
            held.enter_context(system.locked_folder(folder, wait=True))
        try:
            is_new = not settings.is_on_postgres and not settings.database_path.exists()
            patience = MAKING_SECONDS if is_new else LOCKED_SECONDS
            held.enter_context(locked(settings.instance, patience))
        except OSError as error:
            raise CannotStart(
                f"The folder {settings.instance} can't be used: {error.strerror}. "
                "Let this user read and write it, or choose another with ORDERS_INSTANCE."
            ) from None
        except InstanceLocked:
            raise AlreadyServed(
                f"Another service uses the folder {settings.instance}. "
                "Stop that one, or choose another folder with ORDERS_INSTANCE. "
                "docs/growing.md says how several serve one store."
            ) from None
        yield


def _acquire(shop: Shop) -> ServingLock:
    try:
        return shop.upkeep.acquire(alone=shop.is_alone)
    except InUse:
        raise _in_use(shop) from None


def _in_use(shop: Shop) -> CannotStart:
    on_server = ", or let both count their limits together, in Redis, with ORDERS_LIMITS_URL"
    return CannotStart(
        f"Another service uses the database {shop.database.where}. "
        f"Stop that one{on_server if shop.settings.is_on_postgres else ''}."
    )


@contextmanager
def _database_needed(shop: Shop) -> Iterator[None]:
    try:
        yield
    except (OSError, StoreUnavailable, SQLAlchemyError) as error:
        raise CannotStart(
            f"The database {shop.database.where} can't be used: {error}. "
            "Fix that, then start again."
        ) from None


def _prepare_database(shop: Shop) -> None:
    with _database_needed(shop):
        try:
            shop.upkeep.prepare()
        except InUse:
            raise _in_use(shop) from None
        with shop.database.read() as connection:
            all_keys = key_store.get_all(connection)
    _check_plans(shop, all_keys)


def _check_plans(shop: Shop, all_keys: list[key_store.ApiKey]) -> None:
    now = shop.clock.now()
    without_plan = [
        f"{key.id} ({key.name}, {key.plan})"
        for key in all_keys
        if key.plan not in shop.settings.plans and key.is_valid(now)
    ]
    if without_plan:
        raise CannotStart(
            f"Keys are on plans that are not in config.toml: {', '.join(without_plan)}. "
            "Put the plans back, or revoke the keys with that version of config.toml."
        )


def _bind(app: OrdersFlask) -> Server:
    settings = app.shop.settings
    try:
        alive = partial(notify, settings.notify_socket, State.ALIVE)
        server = Server(
            app,
            ServingPolicy(app, alive),
            (settings.host, settings.port),
            settings.threads,
            (settings.head_seconds, settings.body_seconds),
        )
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            hint = "Choose an address of this machine with ORDERS_HOST."
        else:
            hint = "Stop what uses it, or choose another with ORDERS_PORT."
        raise CannotStart(
            f"Port {settings.port} on {settings.host} can't be listened on: "
            f"{os.strerror(error.errno or 0)}. {hint}"
        ) from None
    app.server = server
    return server


def _welcome(shop: Shop, server: Server, *, with_demo: bool, opens: bool) -> str | None:
    settings = shop.settings
    if not is_loopback(settings.host):
        log.warning(
            "Listening on %s: keys cross the network. Put TLS in front (docs/phone.md).",
            settings.host,
        )
    module = sqlite.sqlite_module()
    if not settings.is_on_postgres and module.sqlite_version_info < sqlite.FIRST_SOUND_SQLITE:
        log.warning(
            "SQLite here is %s: before 3.51.3, commands that write while the service runs can, "
            "very rarely, lose what was written at the same moment. Stop it first.",
            module.sqlite_version,
        )
    key = _show_demo(shop, server.addresses[0]) if with_demo else None
    if opens and key is None:
        key = first_start.issue_first_key(shop)
    with shop.database.read() as connection:
        if not key_store.get_all(connection):
            issue = first_start.issuing_command(settings)
            log.info("There is no API key yet. Issue one: %s", issue)
    log.info("Serving on %s. Ctrl-C stops it.", " and ".join(server.addresses))
    return key


def _show_demo(shop: Shop, address: str) -> str | None:
    prepared = demo.prepare(shop.database, shop.clock)
    text = (
        "This store has orders of its own: the demo leaves it alone."
        if prepared is None
        else demo.introduction(prepared, address)
    )
    try:
        click.echo(text)
    except OSError as error:
        # The key is lost. A later start with --demo shows another.
        log.warning("The demo's key can't be shown: %s.", error.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return None if prepared is None else prepared.secret


class State(StrEnum):
    """The states of which systemd can be notified."""

    READY = "READY=1"
    ALIVE = "WATCHDOG=1"
    STOPPING = "STOPPING=1"


def notify(address: str, state: State) -> None:
    """Send a state to systemd's socket, if there is one. Never blocks, and never fails.

    With WatchdogSec in its unit, a service that hangs is restarted:
    https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
    """
    if not address:
        return
    # Without a file, its name begins with a zero byte, which is written as an @.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), system.local_socket(socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), target)
