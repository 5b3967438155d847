"""The application, which serves requests, and the program, which serves it or runs a command.

Only `orders.__main__` and app.py import it.
"""

from __future__ import annotations

import gc

import click
from flask.cli import ScriptInfo

from orders.cli import serve
from orders.cli.common import Program
from orders.cli.database import db_group, test_group
from orders.cli.first_start import at_boot
from orders.cli.keys import keys_group
from orders.cli.orders import events_group, orders_group, pets_group
from orders.cli.status import audit, status
from orders.cli.webhooks import webhooks_group
from orders.clock import Clock
from orders.server import EXTRA_THREADS
from orders.settings import Settings
from orders.shop import Shop, TestMode, database_of
from orders.web import administration, imports, v1, v2
from orders.web.access import counters_of
from orders.web.api import Api, OrdersFlask
from orders.web.monitoring import health
from orders.web.pages import site

COMMANDS = (
    *(keys_group, orders_group, pets_group, events_group, webhooks_group, db_group),
    *(test_group, audit, status, at_boot),
)


def create_app(settings: Settings | None = None, clock: Clock | None = None) -> OrdersFlask:
    """Make the application. Opens nothing until it is used.

    By default, settings are read from config.toml and the environment; SettingsError may be raised.
    """
    if settings is None:
        settings = serve.settings_for_flask()
    app = make_routes(settings)
    give_shops(app, settings, clock or Clock())
    if settings.metrics:
        from orders.web.monitoring import metrics  # with a library that only they need

        metrics.install(app)
    return app


def give_shops(app: OrdersFlask, settings: Settings, clock: Clock) -> None:
    """Have an application serve a shop, and beside it the one of test keys. Opens nothing."""
    app.shop = make_shop(settings, clock)
    app.test_mode = TestMode(app.shop, lambda settings: make_shop(settings, clock))


def make_shop(settings: Settings, clock: Clock) -> Shop:
    """Make the parts that serve requests. Opens nothing until it is used."""
    database, upkeep = database_of(settings, settings.threads + EXTRA_THREADS)
    return Shop(settings, clock, database, upkeep, counters_of(settings, database, clock))


def make_routes(settings: Settings) -> OrdersFlask:
    """Make a Flask application with its routes and commands, but without a shop."""
    app = OrdersFlask("app", static_folder=None)
    Api(app, settings, v1.VERSION, v1.blueprint)
    Api(app, settings, v2.VERSION, v2.blueprint, administration.blueprint, imports.blueprint)
    health.register(app)
    site.register(app)
    for command in COMMANDS:
        app.cli.add_command(command)
    return app


@click.group(
    cls=Program,
    commands=COMMANDS,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]",
    context_settings={"obj": ScriptInfo(create_app=create_app)},
)
@click.option("--demo", is_flag=True, help="First fill an empty database, and print a key to try.")
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Open the console in your browser, with the first key where there is none yet.",
)
@click.version_option(serve.versions(), message="%(version)s")
@click.pass_context
def program(context: click.Context, *, demo: bool, opens: bool | None) -> None:
    """Serve the orders of a pet store over HTTP, or run a command.

    Settings come from config.toml in the data folder and the environment (ORDERS_…); see
    docs/settings.md.
    """
    if context.invoked_subcommand is None:
        context.exit(serve.main(create_app, with_demo=demo, opens=opens))
    if demo or opens is not None:
        option = "--demo" if demo else "--open"
        raise click.ClickException(f"{option} is an option of the service, not of a command.")
    gc.enable()  # again: see __main__
