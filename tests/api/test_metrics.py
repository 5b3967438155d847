"""/metrics, as Prometheus reads it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from functools import partialmethod

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from orders.domain import EventType
from orders.settings import DEFAULT_PLANS, Plan
from orders.store.database import sqlite
from orders.web.monitoring.metrics import BoundedQuery
from orders.web.refusals import SERVER_ANSWERS
from orders.webhooks import endpoints
from tests.support.machine import wait_until
from tests.support.receiver import answer_with
from tests.support.stores import assert_error, logged
from tests.support.wire import exchange

ORDERS = "/v1/store/orders"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Samples:
    """The samples of one scrape of /metrics."""

    def __init__(self, text):
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]
        self.names = {sample.name for sample in self._samples}

    def __call__(self, name, **labels):
        """Return the sum of a name's samples that have these labels; None where there is none."""
        found = [
            sample.value
            for sample in self._samples
            if sample.name == f"store_orders_{name}" and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def values_of(self, label):
        """Return every value of a label."""
        return {sample.labels[label] for sample in self._samples if label in sample.labels}


@pytest.fixture(autouse=True)
def _answers_are_sent_whole(monkeypatch):
    # As a server would: an answer is counted once it has been sent.
    monkeypatch.setattr(FlaskClient, "open", partialmethod(FlaskClient.open, buffered=True))


@pytest.fixture
def store(make_store):
    """A store with its metrics on, which all tests here use."""
    return make_store(metrics=True)


def read(store):
    """Read a store's metrics as Prometheus does, without a key."""
    response = store.anonymous().get("/metrics")
    assert response.status_code == 200
    return Samples(response.text)


def requests_of(samples, version, operation, status, method="GET"):
    labels = {"version": version, "operation": operation, "status": str(status), "method": method}
    return samples("http_requests_total", **labels)


def test_with_metrics_off_the_page_is_missing_and_the_library_is_not_imported(forks, tmp_path):
    lines = (
        "import sys; from orders.application import create_app; "
        "answer = create_app().test_client().get('/metrics'); "
        "sys.exit('prometheus_client' in sys.modules or answer.status_code != 404)"
    )
    done = forks.run("app.py", instance=tmp_path, first=lines, ORDERS_METRICS="off")
    assert done.returncode == 0, done.stderr


def test_metrics_are_served_only_under_the_services_own_host_names(make_store):
    store = make_store(metrics=True, host="orders.lan", base_url="https://shop.example/v1")
    own = ("localhost:8080", "127.0.0.1", "[::1]:8080", "10.1.2.3:80", "orders.lan", "Shop.Example")
    for host in own:
        response = store.anonymous().get("/metrics", headers={"Host": host})
        assert response.status_code == 200, host
    # DNS rebinding: another site's name, which is then resolved to this computer.
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "[x"):
        response = store.anonymous().get("/metrics", headers={"Host": host})
        assert_error(response, 404, "not_found")
        assert "ORDERS_BASE_URL" in response.get_json()["message"]


def test_requests_are_counted_by_version_operation_method_and_status(store):
    one, two = store.client(), store.client()
    two.version = 2
    requests = [
        *[("v1", "placeOrder", 201, "POST", one, ORDERS)] * 2,
        ("v2", "placeOrder", 201, "POST", two, two.orders),
        ("v1", "listOrders", 200, "GET", one, ORDERS),
        ("v1", "listOrders", 200, "HEAD", one, ORDERS),
        ("v1", "getOrder", 404, "GET", one, f"{ORDERS}/99"),
        ("v2", "getUsage", 200, "GET", two, "/v2/usage"),
        # These belong to other blueprints than the one named after the version.
        ("v2", "listKeys", 403, "GET", two, "/v2/keys"),
        ("v2", "importOrders", 403, "POST", two, "/v2/imports"),
        ("v1", "unknown", 405, "DELETE", one, ORDERS),
        ("v2", "unknown", 404, "GET", two, "/v2/nothing"),
        ("none", "healthz", 200, "GET", store.anonymous(), "/healthz"),
    ]
    for _, _, status, method, client, path in requests:
        body = {"json": {"petId": 7}} if method == "POST" else {}
        assert client.request(method, path, **body).status_code == status
    samples = read(store)
    for (*labels, _, _), count in Counter(requests).items():
        assert requests_of(samples, *labels) == count, labels


def test_all_files_of_pages_are_counted_as_one_operation(store):
    page = store.anonymous().get("/docs")
    (script,) = re.findall(r'src="(docs/page\.js)"', page.text)
    assert store.anonymous().get(f"/{script}").status_code == 200
    assert requests_of(read(store), "none", "file", 200) == 2


def test_the_duration_of_answers_is_counted_in_the_right_buckets(store, monkeypatch):
    ticks = iter(range(1_000))  # each reading of the clock takes a millisecond
    monkeypatch.setattr(store.clock, "monotonic", lambda: next(ticks) / 1000)
    store.anonymous().get("/healthz")
    samples = read(store)
    name = "http_request_duration_seconds"
    assert samples(f"{name}_sum", operation="healthz") == pytest.approx(0.001)
    assert samples(f"{name}_count", operation="healthz") == 1
    assert samples(f"{name}_bucket", operation="healthz", le="0.0005") == 0
    assert samples(f"{name}_bucket", operation="healthz", le="0.0025") == 1


def test_the_wait_for_an_answer_counts_in_its_time_and_is_logged(store):
    two_seconds_ago = {"orders.whole_at": time.monotonic() - 2}
    with logged("json") as log:
        store.anonymous().get("/healthz", environ_overrides=two_seconds_ago).close()
    samples = read(store)
    assert 2 <= samples("http_request_wait_seconds_sum") < 3
    assert samples("http_request_wait_seconds_bucket", le="1.0") == 0
    assert samples("http_request_wait_seconds_bucket", le="2.5") == 1
    assert 2 <= samples("http_request_duration_seconds_sum", operation="healthz") < 3
    facts = json.loads(log.getvalue())
    assert 2_000 <= facts["waitedMs"] < 3_000
    assert facts["ms"] == 0.0


def test_no_text_sent_by_a_client_becomes_a_label(store):
    secret = store.issue()[1]
    client = store.client()
    client.request("PURGE", f"{ORDERS}/evil-order")
    client.request("GET", f"/v1/{secret}")
    client.request("EVIL", "/evil-path")
    client.get(f"{ORDERS}?evil=query")
    text = store.anonymous().get("/metrics").text
    assert "evil" not in text
    assert "sok_" not in text
    samples = Samples(text)
    assert samples("http_requests_total", method="other") == 2
    assert samples.values_of("method") <= {"GET", "other"}


def test_refusals_are_counted_by_their_code(store):
    client = store.client()
    store.anonymous().get(ORDERS)
    client.post(ORDERS, data="{", content_type="application/json")
    client.post(ORDERS, json={"petId": "x"})
    client.post(ORDERS, json={"petId": "y"})
    samples = read(store)
    codes = {"missing_api_key": 1, "malformed_request": 1, "validation_failed": 2}
    assert {code: samples("http_refusals_total", code=code) for code in codes} == codes
    assert samples("http_refusals_total") == 4


def test_rate_limited_answers_are_counted_by_plan_and_bans_by_their_number(make_store):
    plans = {**DEFAULT_PLANS, "free": Plan("free", 3, 30)}
    store = make_store(metrics=True, ban_after=3, plans=plans)
    client = store.client(plan="free")
    for _ in range(3):
        client.get("/v1/pets/1")
    assert read(store)("http_rate_limited_total") is None
    assert client.get("/v1/pets/1").status_code == 429
    samples = read(store)
    assert samples("http_rate_limited_total", plan="free") == 1
    assert (samples("bans_total"), samples("banned_keys")) == (0, 0)
    store.clock.advance(1)
    for _ in range(3):
        client.get("/v1/pets/1")
    for _ in range(4):
        store.anonymous().get(ORDERS)
    samples = read(store)
    assert samples("http_rate_limited_total", plan="none") == 1
    assert samples("http_rate_limited_total", plan="free") == 4
    assert samples("http_refusals_total", code="api_key_banned") == 2
    assert (samples("bans_total"), samples("banned_keys")) == (1, 1)
    store.clock.advance(301)
    samples = read(store)
    assert (samples("bans_total"), samples("banned_keys")) == (1, 0)


def test_requests_refusals_and_time_are_counted_by_the_ids_of_keys(store, monkeypatch):
    client, other = store.client(), store.client()
    store.anonymous().get(ORDERS)
    ticks = iter(range(1_000))  # each reading of the clock takes a second
    monkeypatch.setattr(store.clock, "monotonic", lambda: float(next(ticks)))
    client.place()
    assert client.get(f"{ORDERS}/99").status_code == 404
    other.get(ORDERS)
    samples = read(store)
    for key, requests, refusals in ((client.key_id, 2, 1), (other.key_id, 1, 0)):
        assert samples("http_key_requests_total", key=str(key)) == requests
        assert samples("http_key_refusals_total", key=str(key)) == refusals
        assert samples("http_key_seconds_total", key=str(key)) >= requests
    assert samples.values_of("key") == {str(client.key_id), str(other.key_id)}


def test_the_metrics_of_the_store_are_reported(store):
    client = store.client()
    for _ in range(3):
        client.place()
    client.ship(1)
    client.cancel(2)
    samples = read(store)
    assert (samples("database_up"), samples("database_damaged")) == (1, 0)
    assert samples("last_event_id") == 5
    for status in ("pending", "shipped", "cancelled"):
        assert samples("orders", status=status) == 1
    assert 0 < samples("disk_free_bytes") <= samples("disk_size_bytes")
    assert samples("database_answer_seconds") > 0
    store.shop.soundness = "damaged"  # as the check at a start sets it
    assert read(store)("database_damaged") == 1


@pytest.mark.sqlite_only("a file's size")
def test_the_metrics_of_the_database_file_are_reported(store):
    samples = read(store)
    size = store.settings.database_path.stat().st_size
    assert samples("file_size_bytes", file="database") == size
    assert samples("build_info", sqlite=sqlite.sqlite_module().sqlite_version) == 1


def test_a_missing_database_is_reported_and_other_metrics_stay(store):
    store.client().place()
    with store.away():
        samples = read(store)
        assert samples("database_up") == 0
        assert samples("orders") is None
        assert samples("http_requests_total", operation="placeOrder") == 1
        assert samples("limits_store_up") == 1
    assert read(store)("database_up") == 1


@pytest.mark.sqlite_only("the file is in it")
def test_a_missing_instance_folder_has_no_sizes(store):
    instance = store.settings.instance
    moved = instance.rename(instance.with_name("moved"))
    samples = read(store)
    assert (samples("database_up"), samples("disk_free_bytes")) == (0, None)
    moved.rename(instance)


@pytest.mark.sqlite_only("locks the file")
def test_metrics_do_not_wait_for_a_locked_database(store):
    path = store.settings.database_path
    with closing(sqlite.sqlite_module().connect(str(path), isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        # A request would wait for five seconds, and nothing has read the database yet.
        assert read(store)("database_up") == 0


def test_a_store_that_hangs_gets_one_query_at_a_time():
    answers, begun = threading.Event(), []

    def query():
        begun.append(1)
        answers.wait()
        return "sound"

    bounded = BoundedQuery(query)
    assert [bounded.result(patience=0.01) for _ in range(3)] == [None, None, None]
    assert len(begun) == 1
    answers.set()
    assert bounded.result(patience=10) == "sound"


def test_limit_counters_that_cannot_be_kept_are_reported(store):
    store.client().place()
    assert read(store)("limits_store_up") == 1
    store.settings.counters_path.mkdir()
    store.shop.counters.flush()
    assert read(store)("limits_store_up") == 0


def test_the_metrics_of_webhooks_are_reported(hooks, store, receiver):
    hooks.add(receiver.url, EventType.PLACED)
    courier, client = store.shop.outbox.courier, store.client()
    client.place()
    store.clock.advance(90)
    client.place()
    client.cancel(2)
    samples = read(store)
    assert samples("webhook_lag_events", endpoint="1") == 2
    assert samples("webhook_lag_seconds", endpoint="1") == 90
    assert samples("webhook_paused", endpoint="1") == 0
    assert courier.deliver(1) == 0
    receiver.answering = answer_with(422)
    client.place()
    for _ in range(2):
        assert courier.deliver(1) == 0
        store.clock.advance(10)
    samples = read(store)
    assert samples("webhook_deliveries_total", endpoint="1", outcome="delivered") == 2
    assert samples("webhook_deliveries_total", endpoint="1", outcome="refused") == 2
    assert samples("webhook_lag_events", endpoint="1") == 0
    assert samples("webhook_lag_seconds", endpoint="1") == 0
    assert samples("webhook_refused_events", endpoint="1") == 1
    hooks.change(endpoints.pause, 1, "a test", datetime.now(UTC))
    assert read(store)("webhook_paused", endpoint="1") == 1


FORMATS = {
    OPENMETRICS: OPENMETRICS,
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1": OPENMETRICS,
    **dict.fromkeys(("text/plain", "*/*", "text/plain; version=1e9; evil"), TEXT),
    "application/openmetrics-text; version=x.y": TEXT,
    ",;=,text/plain;version=\x7f": TEXT,
}


def test_the_format_is_the_one_that_the_reader_accepts(store):
    for accept, content_type in FORMATS.items():
        response = store.anonymous().get("/metrics", headers={"Accept": accept})
        assert response.status_code == 200
        assert response.content_type.startswith(content_type)
        assert response.text.endswith("# EOF\n") == content_type.startswith(OPENMETRICS)


def test_input_that_the_server_itself_rejects_is_counted_too(start):
    service = start(ORDERS_METRICS="on")
    for status, bad in ((400, b"NONSENSE"), (431, b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000)):
        expected = f"HTTP/1.0 {status} ", f"HTTP/1.1 {status} "
        assert exchange(service.address, bad + b"\r\n\r\n").decode().startswith(expected)

    def scrape():
        return Samples(service.request("GET", "/metrics").data.decode())

    wait_until(lambda: scrape()("http_refusals_total") == 2)  # counted once they are sent
    samples = scrape()
    for status in (400, 431):
        assert requests_of(samples, "none", "unreadable", status, "other") == 1
        assert samples("http_refusals_total", code=SERVER_ANSWERS[status].code) == 1
    # The connection of this request is open, and its answer is being made.
    assert samples("http_connections") >= 1
    assert samples("http_requests_waiting") == 0
    assert samples("threads") > 4
    assert {"process_resident_memory_bytes", "process_open_fds"} <= samples.names


@pytest.mark.prometheus
def test_prometheus_finds_no_fault_with_the_metrics(store):
    store.client().get(ORDERS)
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing: apt-get install prometheus"
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=store.anonymous().get("/metrics").data,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
