"""A store of a test's own, a clock that it sets, clients with keys, and the webhooks of a store."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random

import pytest
from sqlalchemy import text

from app import create_app, make_routes, make_services
from orders import keys
from orders.clock import Clock
from orders.domain import EventType, format_instant
from orders.settings import Settings
from orders.store import keys as key_store
from orders.store.keys import NewKey
from orders.web import logs
from orders.web.services import Services, services_of
from orders.webhooks import deliveries, endpoints, messages
from orders.webhooks.courier import Courier
from orders.webhooks.endpoints import NewEndpoint
from orders.webhooks.sender import Sender
from tests.support.databases import DATABASES
from tests.support.redis_time import RedisTime
from tests.support.service import INHERITED, ROOT


class SetClock(Clock):
    """A clock that stands still until a test moves it."""

    def __init__(self):
        self.wall = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()
        self.run = 1000.0

    def time(self):
        return self.wall

    def monotonic(self):
        return self.run

    def advance(self, seconds):
        """Let time pass."""
        self.wall += seconds
        self.run += seconds

    def set_wall(self, seconds):
        """Set the wall clock forward or back, as a person or NTP does; no time passes."""
        self.wall += seconds


class ClockBesideRedis(SetClock):
    """A clock that Redis goes by. Wall time that is set is this machine's own."""

    def __init__(self, server):
        super().__init__()
        self._redis_time = RedisTime(server)

    def advance(self, seconds):
        self.monotonic()
        super().advance(seconds)
        self.monotonic()

    def monotonic(self):
        """Return the time, which is looked at before and after each question to Redis."""
        self._redis_time.set(self.run)
        return super().monotonic()


_apps = {}


def _shared_app(settings):
    # Making one takes longer than most tests, and differs by settings, but not by where data are.
    shape = repr(replace(settings, instance=ROOT))
    if shape not in _apps:
        _apps[shape] = make_routes(settings)
    return _apps[shape]


@dataclass
class Store:
    """An application over a database of its own, and what tests do with it."""

    settings: Settings
    clock: SetClock
    services: Services = field(init=False)

    def __post_init__(self):
        if self.settings.metrics:
            self._app = create_app(self.settings, self.clock)
            self.services = services_of(self._app)
        else:
            self._app = _shared_app(self.settings)
            self.services = make_services(self.settings, self.clock)

    @property
    def app(self):
        """The application, for requests to this store until another store's is asked for."""
        self.services.install(self._app)
        return self._app

    def own_app(self):
        """Make an application that no other store shares, for a test that adds to it."""
        self._app = create_app(self.settings, self.clock)
        return self.app

    @property
    def database(self):
        return self.services.database

    def issue(self, plan="business", scopes=("read", "write"), name="test", **figures):
        """Issue a key; return its id and its secret."""
        secret = keys.generate()
        with self.database.write() as connection:
            key_id = key_store.issue(
                connection,
                NewKey(name, plan, tuple(scopes), **figures),
                keys.shown_prefix(secret),
                keys.digest(secret),
                self.clock.now(),
            )
        return key_id, secret

    def client(self, **key):
        """Return a client that sends a key of its own with each request."""
        return Client(self, *self.issue(**key))

    def anonymous(self, address="127.0.0.1"):
        """Return a client without a key."""
        return Client(self, None, None, address)

    def restarted(self):
        """Stop, writing everything as a stop does, and start again over the same folder."""
        self.services.end()
        again = Store(self.settings, self.clock)
        again.services.begin()
        return again

    def events(self):
        """Return the rows of the event log as dictionaries, in order."""
        return self.rows("SELECT * FROM order_events ORDER BY id")

    @contextmanager
    def away(self):
        """Have the database out of reach."""
        with DATABASES.away(self.settings):
            yield

    @contextmanager
    def locked(self):
        """Have another program write to the database, and not end."""
        with DATABASES.locked(self.settings):
            yield

    def execute(self, sql, **parameters):
        """Execute a statement, whose parameters are `:name`, and commit."""
        with self.database.write() as connection:
            connection.execute(text(sql), parameters)

    def rows(self, sql):
        """Return the rows of a query as dictionaries."""
        with self.database.read() as connection:
            return [_as_text(row._asdict()) for row in connection.exec_driver_sql(sql)]


def _as_text(row):
    # Instants as the API has them, whichever database the row is from.
    return {
        name: format_instant(value) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


class Client:
    """Sends requests through the application, without a network."""

    version = 1

    def __init__(self, store, key_id, secret, address="127.0.0.1"):
        self.store, self.key_id, self.secret, self.address = store, key_id, secret, address

    def request(self, method, path, **kwargs):
        headers = dict(kwargs.pop("headers", {}))
        if self.secret:
            headers.setdefault("Authorization", f"Bearer {self.secret}")
        environ = {"REMOTE_ADDR": self.address, **kwargs.pop("environ_overrides", {})}
        return self.store.app.test_client().open(
            path, method=method, headers=headers, environ_overrides=environ, **kwargs
        )

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def head(self, path, **kwargs):
        return self.request("HEAD", path, **kwargs)

    def options(self, path, **kwargs):
        return self.request("OPTIONS", path, **kwargs)

    def post(self, path, **kwargs):
        return self.request("POST", path, **kwargs)

    def put(self, path, **kwargs):
        return self.request("PUT", path, **kwargs)

    def delete(self, path, **kwargs):
        return self.request("DELETE", path, **kwargs)

    @property
    def orders(self):
        """The path of the orders, in the version that this client speaks."""
        return f"/v{self.version}/store/orders"

    def place(self, pet_id=7, headers=None, **order):
        """Place an order; return the response."""
        return self.post(self.orders, json={"petId": pet_id, **order}, headers=headers or {})

    def ship(self, order_id, **body):
        """Ship an order; return the response."""
        path = f"{self.orders}/{order_id}/ship"
        return self.post(path, json=body) if body else self.post(path)

    def cancel(self, order_id):
        """Cancel an order; return the response."""
        return self.delete(f"{self.orders}/{order_id}")


# Where limits are counted: tests that hold wherever that is say `counting` over.
WHERE_COUNTED = ["memory", pytest.param("redis", marks=pytest.mark.redis)]
# In Redis, it runs on for the moment that a question takes.
ONLY_WHERE_TIME_STANDS_STILL = pytest.mark.parametrize("counting", ["memory"])


class Hooks:
    """The webhooks of a store, whose deliveries a test makes happen itself, in its own thread."""

    def __init__(self, store, sender=None):
        self.store = store
        self.sender = sender or Sender(seconds=5)
        self.courier = self.another_courier()

    def another_courier(self, changes=None):
        """Return another process' courier, as far as the database knows."""
        shop = self.store.services
        return Courier(
            shop.database,
            changes or shop.changes,
            self.store.clock,
            self.sender,
            store_id=lambda: shop.store_id,
            stopped=threading.Event(),
            chance=Random(1),
        )

    def add(self, url, *events, allow_private=True, secret=None):
        """Add an endpoint; return its id."""
        new = NewEndpoint(
            url,
            events or (EventType.PLACED, EventType.SHIPPED, EventType.CANCELLED),
            secret or messages.generate_secret(),
            allow_private,
        )
        return self.change(endpoints.add, new, self.store.clock.now())

    def change(self, work, *arguments):
        """Have something done that changes the tables."""
        with self.store.database.write() as connection:
            return work(connection, *arguments)

    def ask(self, work, *arguments):
        """Have something asked of the tables."""
        with self.store.database.read() as connection:
            return work(connection, *arguments)

    def get(self, endpoint_id=1):
        """Return an endpoint."""
        return self.ask(endpoints.get, endpoint_id)

    def tries(self, endpoint_id=1):
        """Return what came of each try, from the first."""
        made = self.ask(endpoints.deliveries, endpoint_id, 1_000)
        return [(each.event_id, each.outcome, each.status) for each in reversed(made)]

    def refused(self, endpoint_id=1):
        """Return the event that was put aside and is tried again first."""
        return self.ask(deliveries.next_refused, endpoint_id)

    def deliver(self, after=0, endpoint_id=1):
        """Let time pass, and deliver what is due then."""
        self.store.clock.advance(after)
        return self.courier.deliver(endpoint_id)


# The loggers that the service sets up.
CONFIGURED = ("", "waitress.queue", "alembic")


@contextmanager
def logged(style="text"):
    """Send the log to a text, which is given, as the service sends it to standard error."""
    loggers = [logging.getLogger(name) for name in CONFIGURED]
    handlers, levels = logging.getLogger().handlers[:], [each.level for each in loggers]
    stream = io.StringIO()
    before = vars(logs.access_log).copy()
    logs.configure(style, stream)
    try:
        yield stream
    finally:
        logs.access_log.flush()
        vars(logs.access_log).update(before)
        logging.getLogger().handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def assert_error(response, status, code):
    """Check that a response is an Error body, exactly, with this status and code."""
    body = response.get_json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert list(body) == ["code", "message", "status"]
    assert body["status"] == status
    assert isinstance(body["message"], str)
    assert body["message"]
    assert response.content_type == "application/json"


def run_app(*arguments, **environment):
    """Run `python app.py` where it is expected to end by itself; return the completed process."""
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py"), *arguments],
        cwd=ROOT,
        env={
            **INHERITED,
            "PYTHONWARNINGS": "error",
            "ORDERS_PORT": "0",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
