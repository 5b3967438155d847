"""The clients that integrators copy from docs/clients, run as they stand against the real service.

A proxy between them records the exchanges, and can break a connection after the service answered.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3

from orders import apikeys, settings
from orders.feed import MOST_OF_A_KEY
from orders.store.care import opening
from tests.support.clocks import SetClock
from tests.support.live import Stream
from tests.support.machine import free_port, in_thread
from tests.support.service import ROOT, running
from tests.support.stores import Store

LIST = "/v1/store/orders"
# The most events of a page.
A_PAGE = 200
PLANS = """
[plans.small]
per_minute = 3
per_day = 1000

[plans.tiny]
per_minute = 3
per_day = 1
"""
COMMANDS = {
    "client.py": [sys.executable, "-W", "error"],
    "client.js": ["node", "--throw-deprecation"],
    "client.sh": ["sh"],
}
WAITING = "the minute's quota is used up"
# The plan of a client's key, how many requests are used up, and how many connections break. A key
# without a plan was never issued.
SITUATIONS = {
    WAITING: ("small", 3, 0),
    "the day's quota is used up": ("tiny", 1, 0),
    "the connection breaks": ("small", 0, 1),
    "the key is unknown": (None, 0, 0),
}
pytestmark = pytest.mark.slow

each_client = pytest.mark.parametrize(
    "client",
    ["client.py", pytest.param("client.js", marks=pytest.mark.node), "client.sh"],
)


@dataclass
class Exchange:
    """A request through the proxy, and its answer. Times are monotonic seconds."""

    came: float
    method: str
    headers: dict[str, str]
    status: int
    retry_after: int
    body: bytes
    answered: float = 0.0


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a service, and answers back, but for those of the first `breaks`."""

    def __init__(self, service_url, breaks):
        super().__init__(("127.0.0.1", 0), Handler)
        self.service_url = service_url
        self.breaks = breaks
        self.exchanges: list[Exchange] = []
        self.http = urllib3.PoolManager(retries=False)


class Handler(BaseHTTPRequestHandler):
    def pass_on(self):
        came = time.monotonic()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        answer = self.server.http.request(
            self.command, self.server.service_url + self.path, body=body, headers=headers
        )
        wait = int(answer.headers.get("Retry-After", 0))
        exchange = Exchange(came, self.command, headers, answer.status, wait, answer.data)
        self.server.exchanges.append(exchange)
        if len(self.server.exchanges) > self.server.breaks:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            # Noted before the last bytes, at which the client goes on.
            exchange.answered = time.monotonic()
            self.wfile.write(answer.data)

    do_GET = do_POST = pass_on  # noqa: N815 - as http.server looks them up

    def log_message(self, *_):
        pass


@contextmanager
def proxy_of(service, breaks):
    """Run a proxy of a service."""
    proxy = Proxy(service.url, breaks)
    with in_thread(proxy):
        yield proxy
    proxy.http.clear()


@dataclass
class Run:
    """A client's run: its key, its exchanges, and its process, which has ended."""

    secret: str
    exchanges: list[Exchange] = field(default_factory=list)
    done: subprocess.CompletedProcess[str] | None = None

    @property
    def statuses(self):
        return [exchange.status for exchange in self.exchanges]

    @property
    def output(self):
        return self.done.stdout + self.done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run each client in each situation; return the runs by situation and client.

    Quotas are used up by a clock that is most of a minute late, and the service takes over the
    windows. If a client starts too late for its minute, all is repeated with more time left.
    """
    for left in (3, 9, 27, 55):
        instance = tmp_path_factory.mktemp("clients")
        (instance / "config.toml").write_text(PLANS)
        opening.create(instance / "orders.db")
        ends = time.monotonic() + left
        secrets = use_up_quotas(instance, time.time() + left - 60)
        # The first to begin are those that wait.
        with running(instance) as service, ThreadPoolExecutor(5) as pool:
            begun = {which: pool.submit(run, *which, secrets[which], service) for which in secrets}
            ended = {which: each.result() for which, each in begun.items()}
        waiting = [ended[WAITING, client] for client in COMMANDS]
        if all(each.exchanges[0].came < ends - 0.5 for each in waiting if each.exchanges):
            return ended
    raise AssertionError("the clients take too long to start")


def use_up_quotas(instance, began):
    """Use up the quotas of a key for each run, in windows that began at that Unix time."""
    clock = SetClock()
    clock.wall = began
    store = Store(settings.load({"ORDERS_INSTANCE": str(instance)}), clock)
    secrets = {}
    for situation, (plan, used, _) in SITUATIONS.items():
        for client in COMMANDS:
            user = store.client(plan=plan) if plan else store.anonymous()
            secrets[situation, client] = user.secret or apikeys.generate()
            for _ in range(used):
                assert user.get(LIST).status_code == 200
    store.shop.end()
    return secrets


def run(situation, client, secret, service):
    """Run a client to its end; return its run, which is empty where its program is missing."""
    command = COMMANDS[client]
    if shutil.which(command[0]) is None:
        return Run(secret)
    *_, breaks = SITUATIONS[situation]
    with proxy_of(service, breaks) as proxy:
        done = subprocess.run(
            [*command, str(ROOT / "docs" / "clients" / client)],
            env={
                "PATH": os.environ["PATH"],
                "STORE_URL": f"http://127.0.0.1:{proxy.server_port}",
                "STORE_KEY": secret,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    return Run(secret, proxy.exchanges, done)


@pytest.fixture
def run_in(runs, client):
    """Return a client's run in a situation."""

    def run_of_client(situation):
        assert runs[situation, client].done, f"{COMMANDS[client][0]} is not on the PATH"
        return runs[situation, client]

    return run_of_client


@each_client
def test_a_client_waits_as_long_as_retry_after_says_and_then_succeeds(run_in):
    waited = run_in(WAITING)
    assert (waited.statuses, waited.done.returncode) == ([429, 201, 200], 0), waited.output
    assert [exchange.method for exchange in waited.exchanges] == ["POST", "POST", "GET"]
    rejected, placed, _ = waited.exchanges
    assert rejected.retry_after >= 1
    assert placed.came - rejected.answered >= rejected.retry_after


@each_client
def test_an_order_whose_answer_was_lost_is_sent_again_placed_once_and_printed(run_in):
    unlucky = run_in("the connection breaks")
    lost, again, listed = unlucky.exchanges
    assert (unlucky.statuses, unlucky.done.returncode) == ([201, 201, 200], 0), unlucky.output
    assert lost.headers["Idempotency-Key"] == again.headers["Idempotency-Key"]
    assert lost.body == again.body
    order = json.loads(again.body)
    assert [each for each in json.loads(listed.body) if each["id"] == order["id"]] == [order]
    assert str(order["id"]) in unlucky.done.stdout


@each_client
def test_each_order_has_an_idempotency_key_of_its_own(run_in):
    sent = {
        exchange.headers["Idempotency-Key"]
        for situation in SITUATIONS
        for exchange in run_in(situation).exchanges
        if exchange.method == "POST"
    }
    assert len(sent) == len(SITUATIONS)


@each_client
def test_a_client_stops_rather_than_wait_for_a_day_or_retry_early(run_in):
    rejected = run_in("the day's quota is used up")
    assert (rejected.statuses, rejected.done.returncode != 0) == ([429], True), rejected.output
    assert rejected.exchanges[0].retry_after > 80_000
    assert "429" in rejected.output


@each_client
def test_a_client_reports_a_final_rejection_and_does_not_retry(run_in):
    rejected = run_in("the key is unknown")
    assert (rejected.statuses, rejected.done.returncode != 0) == ([401], True), rejected.output
    assert "invalid_api_key" in rejected.done.stderr


@each_client
def test_a_client_never_prints_its_key(run_in):
    for situation in SITUATIONS:
        assert run_in(situation).secret not in run_in(situation).output
        assert run_in(situation).output


@each_client
def test_a_client_follows_the_events_from_page_to_page(client, tmp_path):
    (tmp_path / "orders.csv").write_text("petId\n" + "7\n" * (A_PAGE + 1))
    with running(tmp_path) as service:
        secret = service.issue()
        service.output("orders", "import", str(tmp_path / "orders.csv"))
        following = subprocess.Popen(
            [*COMMANDS[client], str(ROOT / "docs" / "clients" / client), "follow"],
            env={"PATH": os.environ["PATH"], "STORE_URL": service.url, "STORE_KEY": secret},
            stdout=subprocess.PIPE,
            text=True,
        )
        with following:
            seen = []
            while len(seen) <= A_PAGE:
                seen += events_of(following.stdout.readline())
            following.terminate()
    assert seen == [(number, "order.imported", number) for number in range(1, A_PAGE + 2)]


@contextmanager
def live_follower(client, service, secret):
    """Run a client that follows live; yield what returns so many events that it prints."""
    following = subprocess.Popen(
        [*COMMANDS[client], str(ROOT / "docs" / "clients" / client), "follow", "--live"],
        env={"PATH": os.environ["PATH"], "STORE_URL": service.url, "STORE_KEY": secret},
        stdout=subprocess.PIPE,
        text=True,
    )

    def see(count):
        seen = []
        while len(seen) < count:
            seen += events_of(following.stdout.readline())
        return [number for number, _, _ in seen]

    with following:
        yield see
        following.terminate()


@each_client
def test_a_client_follows_live_even_over_a_restart(client, tmp_path):
    (tmp_path / "orders.csv").write_text("petId\n" + "7\n" * 5)
    order = ["orders", "import", str(tmp_path / "orders.csv")]
    port = str(free_port())
    with running(tmp_path, ORDERS_PORT=port) as service:
        secret = service.issue()
        service.output(*order)
        with live_follower(client, service, secret) as see:
            assert see(5) == [1, 2, 3, 4, 5]
            service.output(*order)
            assert see(5) == [6, 7, 8, 9, 10]
            service.kill()
            with running(tmp_path, ORDERS_PORT=port) as again:
                again.output(*order)
                assert see(5) == [11, 12, 13, 14, 15]


@each_client
def test_a_client_whose_stream_is_refused_asks_for_pages(client, tmp_path):
    (tmp_path / "orders.csv").write_text("petId\n" + "7\n" * 5)
    with running(tmp_path) as service, ExitStack() as stack:
        secret = service.issue()
        for _ in range(MOST_OF_A_KEY):
            stack.enter_context(Stream(service.address, secret))
        with live_follower(client, service, secret) as see:
            service.output("orders", "import", str(tmp_path / "orders.csv"))
            assert see(5) == [1, 2, 3, 4, 5]


def events_of(line):
    """Return the events of a line: one, as JSON too, or a page of them."""
    if line.startswith("{"):
        found = json.loads(line)
        events = found.get("events", [found])
        return [(each["id"], each["type"], each["orderId"]) for each in events]
    number, name, order = line.split()
    return [(int(number), name, int(order))]
