"""A running shop for tests of faults, which remembers the acknowledged orders."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from orders.clock import Clock
from orders.settings import Settings
from orders.store.database import sqlite
from tests.support.databases import copy_database
from tests.support.service import running
from tests.support.stores import Store

ORDERS = "/v1/store/orders"
PET = "/v1/pets/7"
LARGE = 1_000_000
FULL_HEADERS = {
    "X-RateLimit-Limit": str(LARGE),
    "X-RateLimit-Remaining": r"\d+",
    "X-RateLimit-Reset": r"\d+",
    "RateLimit-Policy": rf'"minute";q={LARGE};w=60, "day";q={LARGE};w=86400',
    "RateLimit": r'"minute";r=\d+;t=\d+, "day";r=\d+;t=\d+',
    "X-Request-Id": r"[0-9a-f]{16}",
    "Cache-Control": "no-store",
}
_ACCESS_LINE = re.compile(
    r"\S+Z \S+ \S+ [A-Z]+ /v1/\S* \d{3} [\d.]+ms [0-9a-f]{16}( [a-z_]+)? waited=[\d.]+ms\n"
)


class Shop:
    """A running service with a key, and the orders as they were acknowledged, by their ids."""

    def __init__(self, instance, service, secret, orders):
        self.instance, self.service, self.secret = instance, service, secret
        self.acknowledged = orders
        self.answers = []
        self._pet_ids = iter(range(1_000, LARGE))

    @property
    def database(self):
        return self.instance / "orders.db"

    def request(self, method, path, **kwargs):
        response = self.service.request(method, path, key=self.secret, **kwargs)
        self.answers.append(response.status)
        return response

    def place(self, _=None):
        """Place an order for another pet each time; note it if it is acknowledged."""
        response = self.request("POST", ORDERS, json={"petId": next(self._pet_ids)})
        if response.status == 201:
            self.acknowledged[response.json()["id"]] = response.json()
        return response

    def change(self, _=None):
        """Request one change of each kind; return the answers."""
        order_id = min(self.acknowledged)
        placed = self.place()
        cancelled = self.request("DELETE", f"{ORDERS}/{order_id}")
        if cancelled.status == 204:
            self.acknowledged.pop(order_id, None)
        shipped = self.request("POST", f"{ORDERS}/{order_id}/ship")
        if shipped.status == 200:
            self.acknowledged[order_id] = shipped.json()
        return [placed, cancelled, shipped]

    def read(self, path):
        return self.request("GET", path).status

    def listed(self):
        return {order["id"]: order for order in self.request("GET", ORDERS).json()}

    def ready(self):
        return self.service.request("GET", "/readyz").json()

    def have_many_orders(self, count):
        """Add orders to the database, beside the service."""
        with closing(sqlite.connect(self.database)) as connection:
            connection.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                "INSERT INTO orders (pet_id, quantity, status, placed_at, updated_at) "
                "SELECT i, 1, 'pending', placed_at, updated_at FROM n, orders WHERE id = 1",
                (count,),
            )

    @contextmanager
    def busy(self):
        """Have other clients place orders all the time."""
        ends = threading.Event()

        def place_until_the_end():
            while not ends.is_set():
                assert self.place().status in {201, 503}

        with ThreadPoolExecutor(2) as threads:
            others = [threads.submit(place_until_the_end) for _ in range(2)]
            try:
                yield
            finally:
                ends.set()
        for other in others:
            other.result()

    def assert_all_is_well(self):
        """Check that all works, and that exactly the acknowledged orders are stored."""
        with ThreadPoolExecutor(8) as threads:
            placed = threads.map(self.place, range(50))
            read = threads.map(self.read, [ORDERS, PET] * 25)
        assert {response.status for response in placed} == {201}
        assert set(read) == {200}
        assert self.listed() == self.acknowledged

    def assert_log_is_clean(self):
        """Check after the stop that each request has a line, and no line a secret."""
        log = "".join(self.service.log)
        lines = [line for line in self.service.log if _ACCESS_LINE.fullmatch(line)]
        assert len(lines) == len(self.answers)
        assert "Traceback" not in log
        assert "sok_" not in log


def fill(instance, empty_database, orders=20):
    """Make an instance folder with a pet and orders; return a key's secret, and the orders."""
    instance.mkdir(mode=0o700, exist_ok=True)
    store = Store(Settings(instance=instance), Clock())
    copy_database(empty_database, store.database.path)
    client = store.client(plan="enterprise", per_minute=LARGE, per_day=LARGE)
    with store.database.write() as connection:
        connection.exec_driver_sql("INSERT INTO pets VALUES (7, 'Rex', 1, 'available')")
    placed = [client.place(pet_id).get_json() for pet_id in range(1, orders + 1)]
    store.shop.end()
    return client.secret, {order["id"]: order for order in placed}


@contextmanager
def open_shop(instance, empty_database, **environment):
    """Run the service over a new folder with some orders."""
    secret, orders = fill(instance, empty_database)
    with running(instance, **environment) as service:
        yield Shop(instance, service, secret, orders)


def assert_unavailable(response):
    """Check that an answer is 503 with all headers."""
    body = response.json()
    assert (response.status, body["code"]) == (503, "store_unavailable"), body
    assert list(body) == ["code", "message", "status"]
    assert response.headers["Retry-After"] == "5"
    for name, pattern in FULL_HEADERS.items():
        assert re.fullmatch(pattern, response.headers[name]), (name, response.headers[name])
