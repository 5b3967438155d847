"""Stores of tests: an application over its own database, and clients with keys."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partialmethod
from pathlib import Path

import pytest
from sqlalchemy import text
from werkzeug.exceptions import HTTPException

from orders import apikeys
from orders.application import create_app
from orders.clock import Clock
from orders.domain import format_instant
from orders.settings import Settings
from orders.store import apikeys as key_store
from orders.store.apikeys import NewKey
from orders.store.care import opening
from orders.store.database.database import Database
from orders.store.database.sqlite import SqliteDatabase
from orders.system import make_private_folder
from orders.web import logs
from orders.web.api import OrdersFlask
from tests.support.clocks import SetClock
from tests.support.databases import DATABASES
from tests.support.service import app_with_shared_routes


@dataclass
class Store:
    """An application over its own database, and what tests do with it."""

    settings: Settings
    clock: SetClock
    app: OrdersFlask = field(init=False)

    def __post_init__(self):
        make = create_app if self.settings.metrics else app_with_shared_routes
        self.app = make(self.settings, self.clock)

    def own_app(self):
        """Make an application whose routes no other store shares, for a test that adds some."""
        shop, self.app = self.shop, create_app(self.settings, self.clock)
        self.app.shop = shop
        return self.app

    @property
    def shop(self):
        return self.app.shop

    @property
    def database(self):
        return self.shop.database

    def issue(self, plan="business", **key):
        """Issue a key; return its id and its secret."""
        with self.database.write() as connection:
            return _issue(connection, self.clock.now(), plan, **key)

    def client(self, **key):
        """Issue a key; return a client that sends it with each request."""
        return Client(self, *self.issue(**key))

    def test_client(self, plan="business", *options):
        """Issue a key of test mode by the command; return a client that sends it."""
        issue = ("keys", "issue", "test", "--plan", plan, *options, "--test")
        done = self.app.test_cli_runner().invoke(args=issue)
        assert done.exit_code == 0, done.stderr
        key_id = int(re.search(r"Key (\d+) for", done.stderr)[1])
        return Client(self, key_id, done.stdout.strip())

    def anonymous(self, address="127.0.0.1"):
        return Client(self, None, None, address)

    def restarted(self):
        """Stop in order, and start again over the same folder."""
        self.shop.end()
        again = Store(self.settings, self.clock)
        again.shop.begin()
        return again

    def events(self):
        """Return the rows of the event log as dictionaries, in order."""
        return self.rows("SELECT * FROM order_events ORDER BY id")

    def away(self):
        """Put the database out of reach."""
        return DATABASES.away(self.settings)

    def locked(self):
        """Lock the database, as another program that writes does."""
        return DATABASES.locked(self.settings)

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


# For tests of both versions of the API.
BOTH_VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])


class Client:
    """Sends requests through the application, without a network."""

    version = 1

    def __init__(self, store, key_id, secret, address="127.0.0.1"):
        self.store, self.key_id, self.secret, self.address = store, key_id, secret, address

    def speaking(self, version):
        """Return a client with the same key, for a version of the API."""
        other = Client(self.store, self.key_id, self.secret, self.address)
        other.version = version
        return other

    def request(self, method, path, **kwargs):
        headers = dict(kwargs.pop("headers", {}))
        if self.secret:
            headers.setdefault("Authorization", f"Bearer {self.secret}")
        own = kwargs.pop("environ_overrides", {})
        environ = {"REMOTE_ADDR": self.address, **own}
        response = self.store.app.test_client().open(
            path, method=method, headers=headers, environ_overrides=environ, **kwargs
        )
        if "REQUEST_URI" not in own:
            _assert_documented(self.store.app, response)
        return response

    def send(self, target, method="GET", **kwargs):
        """Send a request's target as servers pass it on: Flask's client would decode it first."""
        return self.request(method, "/", environ_overrides={"REQUEST_URI": target}, **kwargs)

    get = partialmethod(request, "GET")
    head = partialmethod(request, "HEAD")
    options = partialmethod(request, "OPTIONS")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")
    patch = partialmethod(request, "PATCH")
    delete = partialmethod(request, "DELETE")

    @property
    def orders(self):
        """The path of the orders in this client's version."""
        return f"/v{self.version}/store/orders"

    def place(self, pet_id=7, headers=None, **order):
        return self.post(self.orders, json={"petId": pet_id, **order}, headers=headers or {})

    def ship(self, order_id, **body):
        path = f"{self.orders}/{order_id}/ship"
        return self.post(path, json=body) if body else self.post(path)

    def cancel(self, order_id):
        return self.delete(f"{self.orders}/{order_id}")

    def order(self, order_id, **kwargs):
        return self.get(f"{self.orders}/{order_id}", **kwargs)


def _assert_documented(app, response):
    """Check that a refusal of an operation is one that its document has."""
    if response.status_code < 400 or response.content_type != "application/json":
        return
    request = response.request
    try:
        endpoint, _ = app.url_map.bind("shop").match(request.path, request.method)
    except HTTPException:
        return
    document = getattr(app.view_functions[endpoint], "_apidoc", None)
    if document and response.data:
        refusals = {*document["manual_doc"]["x-refusals"], "not_found", "validation_failed"}
        code = response.get_json()["code"]
        assert code in refusals, f"{code} is lacking in `refusals=` of {endpoint}"


def _issue(connection, now, plan, scopes=("read", "write"), name="test", **figures):
    secret = apikeys.generate()
    new = NewKey(name, plan, tuple(scopes), **figures)
    key_id = key_store.issue(connection, new, secret, now)
    return key_id, secret


def make(instance: Path, quotas: Iterable[tuple[int, int]], free: int | None = None) -> list[str]:
    """Make an instance folder with a key for each (per minute, per day); return their secrets.

    With `free`, addresses have that many requests.
    """
    make_private_folder(instance)
    if free is not None:
        plan = f"[plans.free]\nper_minute = {free}\nper_day = {free}\n"
        (instance / "config.toml").write_text(plan, encoding="utf-8")
    path = Settings(instance=instance).database_path
    opening.create(path)
    with closing(SqliteDatabase(path)) as database:
        return list(issue(database, quotas))


def issue(
    database: Database, quotas: Iterable[tuple[int, int]], scopes: Sequence[str] = ("read", "write")
) -> dict[str, int]:
    """Issue a key for each (per minute, per day); return their ids by their secrets."""
    with database.write() as connection:
        issued = [
            _issue(connection, Clock().now(), "enterprise", scopes, per_minute=minute, per_day=day)
            for minute, day in quotas
        ]
    return {secret: key_id for key_id, secret in issued}


class Log:
    """What a service would write to standard error."""

    def __init__(self, style):
        self._file = io.BytesIO()
        self._writer = logs.configure(style, self._file.write)

    def getvalue(self):
        """Write all lines that are queued; return the log so far."""
        while not logs.log_queue.queue.empty():
            self._writer.handle(self._writer.dequeue(block=False))
        self._writer.flush()
        return self._file.getvalue().decode()


@contextmanager
def logged(style="text"):
    """Collect the log as the service writes it."""
    # The loggers that the service configures.
    loggers = [logging.getLogger(name) for name in ("", "waitress.queue", "alembic")]
    handlers, levels = logging.getLogger().handlers[:], [each.level for each in loggers]
    log = Log(style)
    try:
        yield log
    finally:
        log.getvalue()
        logs.log_queue.is_configured = False
        logging.getLogger().handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def assert_error(response, status, code):
    """Check that a response is an Error body, exactly, with this status and code."""
    body = response.get_json()
    assert (response.status_code, body["code"]) == (status, code), body
    has_faults = "errors" in body and status in {400, 422}
    assert list(body) == ["code", "message", "status", *(["errors"] if has_faults else [])]
    assert all(each["code"] and each["message"] for each in body.get("errors", ()))
    assert body["status"] == status
    assert isinstance(body["message"], str)
    assert body["message"]
    assert response.content_type == "application/json"
