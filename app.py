"""The application, and its start: `python app.py` serves, `flask …` finds `create_app` here.

A start locks the instance folder, checks and, where there is none, makes the database, and serves.
Nothing imports this file.
"""

from __future__ import annotations

import argparse
import errno
import ipaddress
import logging
import os
import signal
import sys
from functools import partial

import click
from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from orders import demo, settings
from orders.cli.database import db_group
from orders.cli.events import events_group
from orders.cli.files import orders_group, pets_group
from orders.cli.keys import keys_group
from orders.cli.webhooks import webhooks_group
from orders.clock import Clock
from orders.counters.shared import CountersRefused
from orders.settings import Settings, SettingsError
from orders.store import keys
from orders.store.care import opening
from orders.store.care.databases import database_of
from orders.store.care.instance import InstanceLock, InstanceLocked, make_private_folder
from orders.store.care.upkeep import Hold, InUse
from orders.store.database import sqlite
from orders.store.database.errors import StoreUnavailable
from orders.web import health, logs, v1, v2
from orders.web.api import Api, Hooks, OrdersFlask
from orders.web.auth import KeyRing
from orders.web.housekeeping import Housekeeping
from orders.web.limits import Limits
from orders.web.logs import access_log
from orders.web.pages import site
from orders.web.server.long_answers import MAX_LENT
from orders.web.server.server import Server
from orders.web.services import Services, services_of

log = logging.getLogger("orders")

EXIT_CANNOT_START = 2


class CannotStart(Exception):
    """The start can't work. The message is one line that says what is wrong and how to mend it."""


def create_app(given: Settings | None = None, clock: Clock | None = None) -> Flask:
    """Make the application. Opens nothing until it is used.

    Reads the settings where none are given.

    Raises:
        SettingsError: a setting can't be used.
    """
    if given is None:
        given = _settings_for_flask()
    clock = clock or Clock()
    database, upkeep = database_of(given, given.threads + MAX_LENT)
    app = OrdersFlask("app", static_folder=None)
    limits = Limits(given, database, clock)
    services = Services(given, clock, database, upkeep, KeyRing(database, clock), limits)
    services.install(app)
    if given.metrics:
        from orders.web import metrics  # with a library that only they need

        metrics.install(app, services)
    Hooks(app, services)
    Api(app, given, v1.blueprint, v1.VERSION)
    Api(app, given, v2.blueprint, v2.VERSION)
    health.register(app, services)
    site.register(app)
    groups = (keys_group, orders_group, pets_group, events_group, webhooks_group, db_group)
    for group in groups:
        app.cli.add_command(group)
    return app


def main() -> int:
    """Serve until told to stop; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python app.py",
        description="Serves the orders of a pet store over HTTP. Settings come from "
        "instance/config.toml and the environment (ORDERS_…); README has them all.",
    )
    parser.add_argument(
        "--demo", action="store_true", help="first fill an empty database, and print a key to try"
    )
    arguments = parser.parse_args()
    os.umask(0o077)
    try:
        given = settings.load()
        settings.check_packages(given)
        logs.configure(given.log)
        _serve(given, with_demo=arguments.demo)
    except (CannotStart, SettingsError, opening.UnfitDatabase, CountersRefused) as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_CANNOT_START
    _let_go_of_the_log()
    return 0


def _let_go_of_the_log() -> None:
    # Where nobody can be told any more, Python would end with a status of its own.
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except AttributeError:
        pass  # it was closed from the start


def _serve(given: Settings, *, with_demo: bool) -> None:
    app = create_app(given)
    services = services_of(app)
    lock = _lock(given)
    try:
        _prepare_database(services)
        with _hold(services) as hold:
            _serve_shop(app, services, hold, with_demo=with_demo)
    finally:
        services.database.close()
        lock.release()


def _serve_shop(app: Flask, services: Services, hold: Hold, *, with_demo: bool) -> None:
    services.begin()
    services.check_behind()
    server = _bind(app, services)
    server.stop_on_signals()
    _welcome(services, server, with_demo=with_demo)
    housekeeping = Housekeeping(
        access_log.flush, services.write_counters, services.write_keys, partial(_keep, hold)
    )
    housekeeping.start()
    services.outbox.start(alone=services.is_alone)
    try:
        server.run()
    finally:
        services.outbox.stop()
        housekeeping.stop()
        services.end()
        access_log.flush()
    log.info("Stopped.")


def _hold(services: Services) -> Hold:
    try:
        return services.upkeep.hold(alone=services.is_alone)
    except InUse:
        raise CannotStart(
            f"Another service uses the database {services.database.where}. Stop that one, or let "
            "both count their limits together, in Redis, with ORDERS_LIMITS_URL."
        ) from None


def _keep(hold: Hold) -> None:
    try:
        is_ours = hold.keep()
    except StoreUnavailable:
        return  # which requests are told; it is tried again in a moment
    if not is_ours:
        log.error("While the database was away, another service took it. This one stops.")
        os.kill(os.getpid(), signal.SIGTERM)


def _lock(given: Settings) -> InstanceLock:
    try:
        make_private_folder(given.instance)
        lock = InstanceLock(given.instance)
        lock.acquire()
    except OSError as error:
        raise CannotStart(
            f"The folder {given.instance} can't be used: {error.strerror}. "
            "Give its rights to this user, or choose another with ORDERS_INSTANCE."
        ) from None
    except InstanceLocked:
        raise CannotStart(
            f"Another service uses the folder {given.instance}. "
            "Stop that one, or choose another folder with ORDERS_INSTANCE. "
            "docs/scaling.md says how several serve one store."
        ) from None
    return lock


def _prepare_database(services: Services) -> None:
    try:
        services.upkeep.prepare()
        with services.database.read() as connection:
            all_keys = keys.get_all(connection)
    except (OSError, StoreUnavailable, SQLAlchemyError) as error:
        raise CannotStart(
            f"The database {services.database.where} can't be used: {error}. "
            "Mend that, then start again."
        ) from None
    now = services.clock.now()
    homeless = [
        f"{key.id} ({key.name}, {key.plan})"
        for key in all_keys
        if key.plan not in services.settings.plans and key.is_valid(now)
    ]
    if homeless:
        raise CannotStart(
            f"Keys are on plans that are not in config.toml: {', '.join(homeless)}. "
            "Put the plans back, or revoke the keys with that version of config.toml."
        )


def _bind(app: Flask, services: Services) -> Server:
    given = services.settings
    try:
        server = Server(
            app,
            given,
            lambda: services.limits.full_free_quota().headers(services.clock.time()),
            services.tell,
        )
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            mend = "Choose an address of this machine with ORDERS_HOST."
        else:
            mend = "Stop what uses it, or choose another with ORDERS_PORT."
        raise CannotStart(
            f"Port {given.port} on {given.host} can't be listened on: "
            f"{os.strerror(error.errno or 0)}. {mend}"
        ) from None
    if services.metrics is not None:
        services.metrics.watch(server)
    return server


def _welcome(services: Services, server: Server, *, with_demo: bool) -> None:
    if not _is_loopback(services.settings.host):
        log.warning(
            "Listening on %s: keys cross the network. Put a server with TLS in front (README).",
            services.settings.host,
        )
    if (
        not services.settings.is_on_postgres
        and sqlite.sqlite_module().sqlite_version_info < sqlite.FIRST_SOUND_SQLITE
    ):
        log.warning(
            "SQLite here is %s: before 3.51.3, commands that write while the service runs can, "
            "very rarely, lose what was written at the same moment. Stop it for them.",
            sqlite.sqlite_module().sqlite_version,
        )
    if with_demo:
        _show_demo(services, server.addresses[0])
    if not _has_keys(services):
        log.info("There is no API key yet. Issue one: flask keys issue NAME --plan free")
    log.info("Serving on %s. Ctrl-C stops it.", " and ".join(server.addresses))


def _has_keys(services: Services) -> bool:
    with services.database.read() as connection:
        return bool(keys.get_all(connection))


def _show_demo(services: Services, address: str) -> None:
    prepared = demo.prepare(services.database, services.clock)
    words = (
        "This store has orders of its own: the demo leaves it as it is."
        if prepared is None
        else demo.introduction(prepared, address)
    )
    try:
        print(words, flush=True)
    except OSError as error:
        # The key is lost. A later start with --demo shows another.
        log.warning("What the demo tells can't be shown: %s.", error.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _settings_for_flask() -> Settings:
    context = click.get_current_context(silent=True)
    if context is None:
        return settings.load()
    if context.info_name == "run":
        raise click.ClickException(
            "`flask run` has neither the limits' memory nor a clean stop. Use: python app.py"
        )
    try:
        given = settings.load()
        settings.check_packages(given)
    except SettingsError as error:
        # Not an exception that Flask would show with a traceback.
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(EXIT_CANNOT_START) from None
    return given


if __name__ == "__main__":
    sys.exit(main())
