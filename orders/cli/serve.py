"""`python app.py`: lock the instance folder, prepare the database, serve, and stop in order.

Meanwhile chores run in the background, such as flushes every 0.5 s, and one that keeps the database
for this process and compares it with the others that serve it. systemd is notified.
"""

from __future__ import annotations

import argparse
import errno
import gc
import hashlib
import ipaddress
import logging
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import StrEnum
from functools import partial

import click
from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from orders import VERSION, demo, system
from orders import settings as settings_of
from orders.counters import CountersRefused
from orders.server import Server
from orders.settings import Settings, SettingsError
from orders.store import apikeys
from orders.store.care import checks
from orders.store.care.files import (
    LOCKED_SECONDS,
    MAKING_SECONDS,
    InstanceLocked,
    locked,
)
from orders.store.care.opening import Hold, InUse
from orders.store.database import sqlite
from orders.store.database.errors import StoreUnavailable, Superseded
from orders.urls import place_of_redis
from orders.web import logs
from orders.web.call import Call
from orders.web.dispatch import Dispatch
from orders.web.monitoring.health import Recent, StatusFile
from orders.web.pages import site
from orders.web.services import Services, services_of

log = logging.getLogger("orders")

EXIT_CANNOT_START = 2
# A supervisor starts it again.
EXIT_LOST = 1
# For 700, 10, 10. https://docs.python.org/3/library/gc.html#gc.set_threshold
COLLECTOR_THRESHOLDS = (10_000, 20, 50)
# A killed process loses what was counted since the last flush: less than a second's requests.
INTERVAL_SECONDS = 0.5
_COMPARED_EVERY_SECONDS = 10.0
_PROGRAM = "store-orders"
# What must be the same in all processes, in the order of their digests.
_SHARED = ("other plans", "other ban figures", "another Redis, or another database of it")


class CannotStart(Exception):
    """The service can't start. The message is one line that says why and how to fix it."""


def main(create_app: Callable[[Settings], Flask]) -> int:
    """Serve the application until a signal ends it; return the exit status."""
    arguments = _parser().parse_args()
    system.keep_new_files_private()
    # systemd would count that end as meant, and programs that rotate logs ask for it. A person who
    # closes the terminal that shows the log means the service to end.
    if sys.stderr is None or not sys.stderr.isatty():
        system.ignore_hangups()
    try:
        settings = settings_of.load()
        with logs.logging_to_stderr(settings.log):
            return _serve_instance(create_app(settings), with_demo=arguments.demo)
    except (CannotStart, SettingsError, checks.UnfitDatabase, CountersRefused) as error:
        _say_why(" ".join(str(error).split()))
        return EXIT_CANNOT_START


def _say_why(message: str) -> None:
    if settings_of.log_style() == "json":
        with logs.logging_to_stderr("json"):
            log.error("%s", message)
    else:
        click.echo(f"Error: {message}", err=True)


def settings_for_flask() -> Settings:
    """Return the settings for an application that `flask` loads, which is not to serve it."""
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python app.py",
        description="Serves the orders of a pet store over HTTP. Settings come from "
        "instance/config.toml and the environment (ORDERS_…); docs/settings.md has them all.",
    )
    parser.add_argument(
        "--demo", action="store_true", help="first fill an empty database, and print a key to try"
    )
    parser.add_argument("--version", action="version", version=_versions())
    return parser


def _versions() -> str:
    module = sqlite.sqlite_module()
    return (
        f"Store Orders {VERSION}, Python {platform.python_version()}, "
        f"SQLite {module.sqlite_version} ({module.__name__.partition('.')[0]})"
    )


def _serve_instance(app: Flask, *, with_demo: bool) -> int:
    services = services_of(app)
    with _locked(services.settings), closing(services.database):
        _prepare_database(services)
        with _hold(services) as hold:
            return _serve(app, services, hold, with_demo=with_demo)


def _serve(app: Flask, services: Services, hold: Hold, *, with_demo: bool) -> int:
    with _database_needed(services):
        keeper = Keeper(services, hold)
        services.begin()
        services.check_behind()
        site.load(app)
        server = _bind(app, services)
        server.stop_on_signals()
        recent, status = _begin_status(services, server)
        _welcome(services, server, with_demo=with_demo)
    housekeeping = Housekeeping(
        services.write_counters,
        services.write_keys,
        services.follow_faults,
        services.long_reads.tend,
        keeper.keep,
        status.write,
        *([services.backups.tend] if services.backups else []),
        *([services.continuous_copy.tend] if services.continuous_copy else []),
    )
    housekeeping.start()
    services.outbox.start(alone=services.is_alone)
    _spare_the_collector()
    supervisor = services.settings.notify_socket
    notify(supervisor, State.READY)
    try:
        server.run()
    finally:
        notify(supervisor, State.STOPPING)
        # A supervisor may send a second SIGTERM. While Python ends, it would put back the default
        # handlers, and such a signal would turn a clean stop into status -15.
        system.ignore_stop_signals()
        if services.backups:
            services.backups.stop()
        services.outbox.stop()
        housekeeping.stop()
        logging.getLogger().removeHandler(recent)
        status.close()
        services.end()
    log.info("Stopped.")
    return EXIT_LOST if keeper.has_lost else 0


def _begin_status(services: Services, server: Server) -> tuple[Recent, StatusFile]:
    recent, note = Recent(services.clock), services.note_answer

    def note_both(call: Call, status: int, ended: float) -> None:
        note(call, status, ended)
        recent.note_answer(call, status, ended)

    services.note_answer = note_both
    logging.getLogger().addHandler(recent)
    return recent, StatusFile(services, recent, server.addresses)


def _spare_the_collector() -> None:
    # Passes over all that was imported, 70 MB, would be the longest waits of the first seconds; and
    # requests leave little behind that only the collector finds.
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    gc.enable()  # again: see app.py


@contextmanager
def _locked(settings: Settings) -> Iterator[None]:
    with ExitStack() as held:
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
            raise CannotStart(
                f"Another service uses the folder {settings.instance}. "
                "Stop that one, or choose another folder with ORDERS_INSTANCE. "
                "docs/growing.md says how several serve one store."
            ) from None
        yield


def _hold(services: Services) -> Hold:
    try:
        return services.upkeep.hold(alone=services.is_alone)
    except InUse:
        raise _in_use(services) from None


def _in_use(services: Services) -> CannotStart:
    on_server = ", or let both count their limits together, in Redis, with ORDERS_LIMITS_URL"
    return CannotStart(
        f"Another service uses the database {services.database.where}. "
        f"Stop that one{on_server if services.settings.is_on_postgres else ''}."
    )


@contextmanager
def _database_needed(services: Services) -> Iterator[None]:
    try:
        yield
    except (OSError, StoreUnavailable, SQLAlchemyError) as error:
        raise CannotStart(
            f"The database {services.database.where} can't be used: {error}. "
            "Fix that, then start again."
        ) from None


def _prepare_database(services: Services) -> None:
    with _database_needed(services):
        try:
            services.upkeep.prepare()
        except InUse:
            raise _in_use(services) from None
        with services.database.read() as connection:
            all_keys = apikeys.get_all(connection)
    _check_plans(services, all_keys)


def _check_plans(services: Services, all_keys: list[apikeys.ApiKey]) -> None:
    now = services.clock.now()
    without_plan = [
        f"{key.id} ({key.name}, {key.plan})"
        for key in all_keys
        if key.plan not in services.settings.plans and key.is_valid(now)
    ]
    if without_plan:
        raise CannotStart(
            f"Keys are on plans that are not in config.toml: {', '.join(without_plan)}. "
            "Put the plans back, or revoke the keys with that version of config.toml."
        )


def _bind(app: Flask, services: Services) -> Server:
    settings = services.settings
    try:
        alive = partial(notify, settings.notify_socket, State.ALIVE)
        server = Server(
            app,
            Dispatch(services, alive),
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
    services.server = server
    return server


def _welcome(services: Services, server: Server, *, with_demo: bool) -> None:
    settings = services.settings
    if not _is_loopback(settings.host):
        log.warning(
            "Listening on %s: keys cross the network. Put a server with TLS in front (README).",
            settings.host,
        )
    module = sqlite.sqlite_module()
    if not settings.is_on_postgres and module.sqlite_version_info < sqlite.FIRST_SOUND_SQLITE:
        log.warning(
            "SQLite here is %s: before 3.51.3, commands that write while the service runs can, "
            "very rarely, lose what was written at the same moment. Stop it first.",
            module.sqlite_version,
        )
    if with_demo:
        _show_demo(services, server.addresses[0])
    with services.database.read() as connection:
        if not apikeys.get_all(connection):
            log.info("There is no API key yet. Issue one: flask keys issue NAME --plan business")
    log.info("Serving on %s. Ctrl-C stops it.", " and ".join(server.addresses))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _show_demo(services: Services, address: str) -> None:
    prepared = demo.prepare(services.database, services.clock)
    text = (
        "This store has orders of its own: the demo leaves it as it is."
        if prepared is None
        else demo.introduction(prepared, address)
    )
    try:
        click.echo(text)
    except OSError as error:
        # The key is lost. A later start with --demo shows another.
        log.warning("The demo's key can't be shown: %s.", error.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Housekeeping:
    """Repeats chores until it is stopped, each in a thread of its own.

    The limits' counters are therefore written in time while an import locks the database.
    """

    def __init__(self, *chores: Callable[[], float | None]) -> None:
        """Prepare the threads. A chore that fails is logged, and retried the next time.

        One that returns seconds is repeated after them.
        """
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(chore,), name="housekeeping", daemon=True)
            for chore in chores
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for the chores that are under way."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, chore: Callable[[], float | None]) -> None:
        seconds: float | None = None
        while not self._stopped.wait(seconds or INTERVAL_SECONDS):
            seconds = None
            try:
                seconds = chore()
            except Exception:
                log.exception("Housekeeping failed; it is retried in a moment.")


class Keeper:
    """Keeps the hold on the database, and ends the service that lost it."""

    def __init__(self, services: Services, hold: Hold) -> None:
        """Begin to serve, where the other processes see it."""
        self._services, self._hold = services, hold
        self.has_lost = False
        self._compared = -_COMPARED_EVERY_SECONDS
        self._kind = f"{VERSION} {digests(services.settings)}"
        address = f"{socket.gethostname()}:{services.settings.port}"
        hold.serve(f"{_PROGRAM} {self._kind} {address}")

    def keep(self) -> None:
        """Re-acquire the lock if it was lost, and compare now and then. Called twice a second."""
        try:
            if self._hold.keep():
                self._compare()
            else:
                self._stop("Another service took over the database during an outage.")
        except Superseded:
            self._stop("The database was upgraded, or renewed, by another program.")
        except StoreUnavailable:
            pass  # requests report it; the lock is tried again in a moment

    def _stop(self, why: str) -> None:
        if not self.has_lost:
            self.has_lost = True
            log.error("%s This service stops.", why)
            system.stop_this_process()

    def _compare(self) -> None:
        now = time.monotonic()
        if now - self._compared < _COMPARED_EVERY_SECONDS:
            return
        self._compared = now
        others = (difference(self._kind, name) for name in self._hold.others())
        differing = sorted(filter(None, others))
        if differing != self._services.differing and differing:
            log.warning(
                "Other processes on this database differ from this one, and so treat the same "
                "request in another way: %s.",
                "; ".join(differing),
            )
        self._services.differing = differing


def digests(settings: Settings) -> str:
    """Return digests of what must be the same in all processes over a database, see `_SHARED`."""
    redis = place_of_redis(settings.limits_url) if settings.limits_url else ""
    bans = (settings.ban_after, settings.ban_window, settings.ban_seconds)
    shared = (sorted(map(repr, settings.plans.values())), bans, redis)
    return ".".join(hashlib.sha256(repr(part).encode()).hexdigest()[:5] for part in shared)


def difference(kind: str, name: str) -> str:
    """Return how a process differs from one of this kind, by its name; empty if it does not."""
    version, own = kind.split()
    match name.split():
        case [program, its_version, digests, address] if program == _PROGRAM:
            parts = zip(_SHARED, own.split("."), digests.split("."), strict=False)
            differing = [words for words, here, there in parts if here != there]
            if its_version != version:
                differing.insert(0, f"version {its_version}")
            return f"{address} has {', '.join(differing)}" if differing else ""
    return f"{name} is another program"


class State(StrEnum):
    """The states that systemd can be notified of."""

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
