"""The clients that integrators copy from docs/clients, run as they stand against the real service.

Between them and the service stands a front that passes everything on, notes when, and can let a
connection break after the service has answered, as networks do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest
import urllib3

from orders import keys, settings
from orders.store.care import opening
from orders.store.care.instance import make_private_folder
from tests.support.clocks import SetClock
from tests.support.service import ROOT, running
from tests.support.stores import Store

LIST = "/v1/store/orders"
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
# What a client meets: the plan of its key, how many of its requests are used up, and how many
# connections break. A key without a plan was never issued.
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


# The front.


@dataclass
class Exchange:
    """A request that went through the front, and its answer. Times are monotonic seconds."""

    came: float
    method: str
    headers: dict[str, str]
    status: int
    retry_after: int
    body: bytes
    answered: float = 0.0


class Front(ThreadingHTTPServer):
    """Passes requests on to a service, and answers back; breaks the first connections if told."""

    def __init__(self, service_url, breaks):
        super().__init__(("127.0.0.1", 0), Passing)
        self.service_url = service_url
        self.breaks = breaks
        self.exchanges: list[Exchange] = []
        self.http = urllib3.PoolManager(retries=False)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Passing(BaseHTTPRequestHandler):
    """Passes one request on."""

    server: Front

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
            # Before the last bytes, which let the client go on.
            exchange.answered = time.monotonic()
            self.wfile.write(answer.data)

    do_GET = do_POST = pass_on  # noqa: N815 - as http.server looks them up

    def log_message(self, *_):
        pass


@contextmanager
def front_of(service, breaks=0) -> Iterator[Front]:
    """Return a front while it listens."""
    with Front(service.url, breaks) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield front
        finally:
            front.shutdown()
            thread.join()
            front.http.clear()


# The runs.


@dataclass
class Run:
    """A client's run: its key, its exchanges, and the process when it had ended."""

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

    The requests that used up the quotas were sent most of a minute ago, by the clock that was set
    then, and the service takes the windows over as they are. Where a client was so slow that its
    minute was over before it began, all is done again with more of the minute left.
    """
    for left in (3, 6, 12, 24):
        instance = make_instance(tmp_path_factory.mktemp("clients"))
        ends = time.monotonic() + left
        secrets = use_up_quotas(instance, time.time() + left - 60)
        # Those that wait begin first; the others are done by the time that they have waited.
        with running(instance) as service, ThreadPoolExecutor(5) as pool:
            begun = {which: pool.submit(run, *which, secrets[which], service) for which in secrets}
            found = {which: each.result() for which, each in begun.items()}
        waiting = [found[WAITING, client] for client in COMMANDS]
        if all(each.exchanges[0].came < ends - 0.5 for each in waiting if each.exchanges):
            return found
    raise AssertionError("the clients take too long to start")


def make_instance(folder):
    """Make an instance folder with small plans and an empty database; return it."""
    instance = folder / "instance"
    make_private_folder(instance)
    (instance / "config.toml").write_text(PLANS)
    opening.create(instance / "orders.db")
    return instance


def use_up_quotas(instance, began):
    """Use up the quotas of a key for each run, in windows that began at that Unix time."""
    clock = SetClock()
    clock.wall = began
    store = Store(settings.load({"ORDERS_INSTANCE": str(instance)}), clock)
    secrets = {}
    for situation, (plan, used, _) in SITUATIONS.items():
        for client in COMMANDS:
            user = store.client(plan=plan) if plan else store.anonymous()
            secrets[situation, client] = user.secret or keys.generate()
            for _ in range(used):
                assert user.get(LIST).status_code == 200
    store.services.end()
    return secrets


def run(situation, client, secret, service):
    """Run a client to its end; return its run, which is empty where its program is not here."""
    command = COMMANDS[client]
    if shutil.which(command[0]) is None:
        return Run(secret)
    *_, breaks = SITUATIONS[situation]
    with front_of(service, breaks) as front:
        done = subprocess.run(
            [*command, str(ROOT / "docs" / "clients" / client)],
            env={"PATH": os.environ["PATH"], "STORE_URL": front.url, "STORE_KEY": secret},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    return Run(secret, front.exchanges, done)


@pytest.fixture
def look(runs, client):
    """Return a client's run in a situation."""

    def look_at(situation):
        assert runs[situation, client].done, f"{COMMANDS[client][0]} is not on the PATH"
        return runs[situation, client]

    return look_at


# What they do.


@each_client
def test_a_client_that_is_told_to_wait_waits_and_then_succeeds(look):
    waited = look(WAITING)
    assert (waited.statuses, waited.done.returncode) == ([429, 201, 200], 0), waited.output
    assert [exchange.method for exchange in waited.exchanges] == ["POST", "POST", "GET"]


@each_client
def test_a_client_never_asks_before_retry_after_has_passed(look):
    waited = look(WAITING)
    refused = [pair for pair in pairwise(waited.exchanges) if pair[0].status == 429]
    assert refused
    for before, after in refused:
        assert before.retry_after >= 1
        assert after.came - before.answered >= before.retry_after


@each_client
def test_an_order_whose_answer_was_lost_is_sent_again_and_placed_once(look):
    unlucky = look("the connection breaks")
    lost, again, listed = unlucky.exchanges
    assert (unlucky.statuses, unlucky.done.returncode) == ([201, 201, 200], 0), unlucky.output
    assert lost.headers["Idempotency-Key"] == again.headers["Idempotency-Key"]
    assert lost.body == again.body
    order = json.loads(again.body)
    assert [each for each in json.loads(listed.body) if each["id"] == order["id"]] == [order]


@each_client
def test_each_order_has_an_idempotency_key_of_its_own(look):
    sent = {
        exchange.headers["Idempotency-Key"]
        for situation in SITUATIONS
        for exchange in look(situation).exchanges
        if exchange.method == "POST"
    }
    assert len(sent) == len(SITUATIONS)


@each_client
def test_a_client_gives_up_rather_than_wait_for_a_day_or_ask_early(look):
    refused = look("the day's quota is used up")
    assert (refused.statuses, refused.done.returncode != 0) == ([429], True), refused.output
    assert refused.exchanges[0].retry_after > 80_000
    assert "429" in refused.output


@each_client
def test_a_client_tells_what_was_refused_for_good_and_does_not_ask_again(look):
    refused = look("the key is unknown")
    assert (refused.statuses, refused.done.returncode != 0) == ([401], True), refused.output
    assert "invalid_api_key" in refused.done.stderr


@each_client
@pytest.mark.parametrize("situation", sorted(SITUATIONS))
def test_a_client_never_prints_its_key(look, situation):
    assert look(situation).secret not in look(situation).output
    assert look(situation).output


@each_client
def test_a_client_tells_the_order_that_it_placed(look):
    told = look("the connection breaks")
    order = json.loads(told.exchanges[0].body)
    assert str(order["id"]) in told.done.stdout
