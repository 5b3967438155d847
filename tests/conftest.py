"""What tests share: a store of their own, a clock they set, clients with keys, a real server."""

from __future__ import annotations

import io
import logging
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
import real_faults
from databases import DATABASES
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from redis_time import RedisTime
from sqlalchemy import text

from app import create_app
from bench.receiver import receiving
from bench.redis_server import redis_running
from bench.service import INHERITED, ROOT, Service, running
from orders import keys
from orders.clock import Clock
from orders.domain import EventType, format_instant
from orders.settings import Settings
from orders.store import deliveries, opening, redis_link, webhooks
from orders.store import keys as key_store
from orders.store.keys import NewKey
from orders.store.webhooks import NewEndpoint
from orders.web import logs
from orders.web.shop import shop_of
from orders.webhooks import signing
from orders.webhooks.courier import Courier
from orders.webhooks.sender import Sender

# The fixtures of tests with a browser.
pytest_plugins = ["real_browser"]

# Where files are in memory, a commit that waits for the disk waits for nothing.
MEMORY = Path("/dev/shm")
MANY_DATABASES = 4 * 2**30
if os.access(MEMORY, os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if shutil.disk_usage(MEMORY).free > MANY_DATABASES:
        os.environ.setdefault("PG_FOLDER", str(MEMORY))

# The files whose few tests take longest.
LONGEST = {
    "test_cluster",
    "test_deploy",
    "test_redis_service",
    "test_security",
    "test_state_machine",
    "test_v2_paging",
    "test_v2_schemathesis",
    "test_webhook_outbox",
}

hypothesis_settings.register_profile(
    "default",
    max_examples=100,
    deadline=None,  # nothing is asserted by the clock
    # A store lasts for all examples of a test: they are written not to mind.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
hypothesis_settings.load_profile("default")


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


def pytest_addoption(parser):
    parser.addoption(
        "--database",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="where the stores of tests are: files, or a PostgreSQL server of this run's own",
    )


def pytest_configure(config):
    DATABASES.are_on_postgres = config.getoption("--database") == "postgres"


def pytest_unconfigure():
    DATABASES.close()


def pytest_collection_modifyitems(config, items):
    # With --no-loadscope-reorder, these are begun first: at the end, other processes would wait.
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    if DATABASES.are_on_postgres:
        # What never asks for a store says the same wherever stores are.
        left_out = [
            item
            for item in items
            if item.get_closest_marker("sqlite_only") or "databases" not in item.fixturenames
        ]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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
        """Give the time, which is looked at before and after each question to Redis."""
        self._redis_time.set(self.run)
        return super().monotonic()


@dataclass
class Store:
    """An application over a database of its own, and what tests do with it."""

    settings: Settings
    clock: SetClock
    app: object = field(init=False)

    def __post_init__(self):
        self.app = create_app(self.settings, self.clock)

    @property
    def shop(self):
        return shop_of(self.app)

    @property
    def database(self):
        return self.shop.database

    def issue(self, plan="business", scopes=("read", "write"), name="test", **figures):
        """Issue a key; give its id and its secret."""
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
        """Give a client that sends a key of its own with each request."""
        return Client(self, *self.issue(**key))

    def anonymous(self, address="127.0.0.1"):
        """Give a client without a key."""
        return Client(self, None, None, address)

    def restarted(self):
        """Stop, writing everything as a stop does, and start again over the same folder."""
        self.shop.end()
        again = Store(self.settings, self.clock)
        again.shop.begin()
        return again

    def events(self):
        """Give the rows of the event log as dictionaries, in order."""
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
        """Give the rows of a query as dictionaries."""
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
        self._client = store.app.test_client()

    def request(self, method, path, **kwargs):
        headers = dict(kwargs.pop("headers", {}))
        if self.secret:
            headers.setdefault("Authorization", f"Bearer {self.secret}")
        environ = {"REMOTE_ADDR": self.address, **kwargs.pop("environ_overrides", {})}
        return self._client.open(
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
        """Place an order; give the response."""
        return self.post(self.orders, json={"petId": pet_id, **order}, headers=headers or {})

    def ship(self, order_id, **body):
        """Ship an order; give the response."""
        path = f"{self.orders}/{order_id}/ship"
        return self.post(path, json=body) if body else self.post(path)

    def cancel(self, order_id):
        """Cancel an order; give the response."""
        return self.delete(f"{self.orders}/{order_id}")


@pytest.fixture(scope="session")
def databases():
    """Where stores are. With --database=postgres, the tests that ask for this are run."""
    return DATABASES


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A PostgreSQL server that the tests of a file have to themselves."""
    from bench.postgres_server import running_postgres  # which loads the driver

    with running_postgres() as one:
        one.make_template(tmp_path_factory.mktemp("template"))
        yield one


# Where limits are counted: tests that hold wherever that is say `counting` over.
WHERE_COUNTED = ["memory", pytest.param("redis", marks=pytest.mark.redis)]
# In Redis, it runs on for the moment that a question takes.
ONLY_WHERE_TIME_STANDS_STILL = pytest.mark.parametrize("counting", ["memory"])


@pytest.fixture
def counting():
    return "memory"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    with redis_running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(redis_server, monkeypatch):
    """A real Redis with nothing in it, which is waited for however busy the machine is."""
    monkeypatch.setattr(redis_link, "TIMEOUT_SECONDS", 10)
    redis_server.command("FLUSHALL")
    return redis_server


@pytest.fixture
def limits_url(counting, request):
    return request.getfixturevalue("redis").url if counting == "redis" else ""


@pytest.fixture
def clock(counting, request):
    if counting == "redis":
        return ClockBesideRedis(request.getfixturevalue("redis"))
    return SetClock()


@pytest.fixture
def settings(tmp_path, limits_url, databases):
    yield databases.settings(tmp_path / "instance", limits_url=limits_url)
    databases.forget(tmp_path)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database as a first start makes it: copying it takes less time than making one."""
    path = tmp_path_factory.mktemp("empty") / "orders.db"
    opening.create(path)
    return path


@pytest.fixture
def make_store(settings, clock, empty_database):
    """Make stores over one instance folder, with settings that differ from the default."""
    made = []

    def make(**changes):
        if "instance" in changes:
            changes["database_url"] = DATABASES.settings(changes["instance"]).database_url
        given = replace(settings, **changes)
        DATABASES.make(given, empty_database)
        made.append(Store(given, clock))
        return made[-1]

    yield make
    for store in made:
        store.shop.limits.storage.close()
        store.shop.database.close()


@pytest.fixture
def store(make_store):
    return make_store()


@pytest.fixture
def client(store):
    """A client with a business key that may read and write."""
    return store.client()


@pytest.fixture
def client_v2(store):
    """A client of version 2 without limits to speak of."""
    client = store.client(plan="enterprise", per_minute=10**9, per_day=10**9)
    client.version = 2
    return client


class Hooks:
    """The webhooks of a store, whose deliveries a test makes happen itself, in its own thread."""

    def __init__(self, store, sender=None):
        self.store = store
        self.sender = sender or Sender(seconds=5)
        self.courier = self.another_courier()

    def another_courier(self, changes=None):
        """Give another process' courier, as far as the database knows."""
        shop = self.store.shop
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
        """Add an endpoint; give its id."""
        new = NewEndpoint(
            url,
            events or (EventType.PLACED, EventType.SHIPPED, EventType.CANCELLED),
            secret or signing.generate_secret(),
            allow_private,
        )
        return self.change(webhooks.add, new, self.store.clock.now())

    def change(self, work, *arguments):
        """Have something done that changes the tables."""
        with self.store.database.write() as connection:
            return work(connection, *arguments)

    def ask(self, work, *arguments):
        """Have something asked of the tables."""
        with self.store.database.read() as connection:
            return work(connection, *arguments)

    def get(self, endpoint_id=1):
        """Give an endpoint."""
        return self.ask(webhooks.get, endpoint_id)

    def tries(self, endpoint_id=1):
        """Give what came of each try, from the first."""
        made = self.ask(webhooks.deliveries, endpoint_id, 1_000)
        return [(each.event_id, each.outcome, each.status) for each in reversed(made)]

    def refused(self, endpoint_id=1):
        """Give the event that was put aside and is tried again first."""
        return self.ask(deliveries.next_refused, endpoint_id)

    def deliver(self, after=0, endpoint_id=1):
        """Let time pass, and deliver what is due then."""
        self.store.clock.advance(after)
        return self.courier.deliver(endpoint_id)


@pytest.fixture
def hooks(store):
    return Hooks(store)


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


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
    """Run `python app.py` where it is expected to end by itself; give the completed process."""
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


@pytest.fixture
def start(tmp_path, databases):
    """Start services over this test's instance folder; they are stopped at the end of it."""
    started = []

    def start_one(*arguments, instance=tmp_path / "instance", **environment):
        environment = databases.environment(instance) | environment
        started.append(Service(instance, *arguments, **environment))
        return started[-1]

    yield start_one
    for service in started:
        if service.process.poll() is None:
            service.stop()
    databases.forget(tmp_path)


@pytest.fixture(scope="session")
def service(tmp_path_factory, databases):
    """One running service that many tests share; each takes keys of its own."""
    instance = tmp_path_factory.mktemp("shared") / "instance"
    with running(instance, **databases.environment(instance)) as one:
        yield one


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few MB, where this process may have one."""
    if not real_faults.may_mount():
        pytest.skip("this process may not mount a disk: a limit to the size of files stands for it")
    with real_faults.small_disk(tmp_path / "disk", "8m") as folder:
        yield folder
