"""The application: `python app.py` serves it, `flask …` finds `create_app` here.

Nothing imports this file.
"""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__":
    # Until it serves. Passes over all that is imported, of which next to nothing is garbage, would
    # be a tenth of the start.
    gc.disable()

from orders.cli import serve
from orders.cli.audit import audit
from orders.cli.database import db_group
from orders.cli.events import events_group
from orders.cli.files import orders_group, pets_group
from orders.cli.keys import keys_group
from orders.cli.status import status
from orders.cli.webhooks import webhooks_group
from orders.clock import Clock
from orders.server import EXTRA_THREADS
from orders.settings import Settings
from orders.shop import Shop, database_of
from orders.web import v1, v2
from orders.web.access import counters_of
from orders.web.api import Api, OrdersFlask
from orders.web.monitoring import health
from orders.web.pages import site


def create_app(settings: Settings | None = None, clock: Clock | None = None) -> OrdersFlask:
    """Make the application. Opens nothing until it is used.

    Without settings, they are read from config.toml and the environment.

    Raises:
        SettingsError: a setting can't be used.
    """
    if settings is None:
        settings = serve.settings_for_flask()
    app = make_routes(settings)
    app.shop = make_shop(settings, clock or Clock())
    if settings.metrics:
        from orders.web.monitoring import metrics  # with a library that only they need

        metrics.install(app)
    return app


def make_shop(settings: Settings, clock: Clock) -> Shop:
    """Make what serves requests. Opens nothing until it is used."""
    database, upkeep = database_of(settings, settings.threads + EXTRA_THREADS)
    return Shop(settings, clock, database, upkeep, counters_of(settings, database, clock))


def make_routes(settings: Settings) -> OrdersFlask:
    """Make a Flask application with its routes and commands, but without a shop."""
    app = OrdersFlask("app", static_folder=None)
    Api(app, settings, v1.blueprint, v1.VERSION)
    Api(app, settings, v2.blueprint, v2.VERSION)
    health.register(app)
    site.register(app)
    groups = (keys_group, orders_group, pets_group, events_group, webhooks_group, db_group)
    for command in (*groups, audit, status):
        app.cli.add_command(command)
    return app


def main() -> int:
    """Serve until a signal ends it; return the exit status."""
    return serve.main(create_app)


if __name__ == "__main__":
    sys.exit(main())
