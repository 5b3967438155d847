"""/metrics: what Prometheus reads there, and what it never finds there."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from functools import partialmethod

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from orders.domain import EventType
from orders.store.database import sqlite
from orders.web.collector import BoundedQuery
from orders.web.refusals import SERVER_ANSWERS
from orders.webhooks import endpoints
from tests.support.receiver import answer_with
from tests.support.service import ROOT, environment_for
from tests.support.stores import assert_error

ORDERS = "/v1/store/orders"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Told:
    """What /metrics told: the samples of one reading."""

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
        """Return all values of a label."""
        return {sample.labels[label] for sample in self._samples if label in sample.labels}


@pytest.fixture(autouse=True)
def _answers_are_sent_whole(monkeypatch):
    # As by a server: an answer counts once it has been sent.
    monkeypatch.setattr(FlaskClient, "open", partialmethod(FlaskClient.open, buffered=True))


@pytest.fixture
def store(make_store):
    """The store of all tests here has its metrics on."""
    return make_store(metrics=True)


def read(store):
    """Read a store's metrics as Prometheus does: without a key."""
    response = store.anonymous().get("/metrics")
    assert response.status_code == 200
    return Told(response.text)


def requests_of(told, version, operation, status, method="GET"):
    return told(
        "http_requests_total",
        version=version,
        operation=operation,
        status=str(status),
        method=method,
    )


def test_where_metrics_are_off_there_are_none(make_store):
    assert_error(make_store().anonymous().get("/metrics"), 404, "not_found")


def test_where_metrics_are_off_their_library_is_not_loaded(tmp_path):
    lines = "import app, sys; app.create_app(); print('prometheus_client' in sys.modules)"
    for switch, loaded in (("off", "False"), ("on", "True")):
        done = subprocess.run(
            [sys.executable, "-c", lines],
            cwd=ROOT,
            env=environment_for(tmp_path, ORDERS_METRICS=switch),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == loaded


def test_metrics_need_no_key_and_are_no_part_of_the_api(store):
    response = store.anonymous().get("/metrics")
    assert response.status_code == 200
    assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert not [
        name for name, _ in response.headers if name.startswith(("X-Rate", "Rate", "X-Req"))
    ]
    assert_error(store.anonymous().post("/metrics"), 405, "method_not_allowed")


def test_requests_are_counted_by_version_operation_method_and_status(store):
    one, two = store.client(), store.client()
    two.version = 2
    for client in (one, one, two):
        assert client.place().status_code == 201
    assert one.get(ORDERS).status_code == 200
    assert one.head(ORDERS).status_code == 200
    assert one.get(f"{ORDERS}/99").status_code == 404
    assert one.delete(ORDERS).status_code == 405
    assert two.get("/v2/nothing").status_code == 404
    assert store.anonymous().get("/healthz").status_code == 200
    told = read(store)
    assert requests_of(told, "v1", "placeOrder", 201, "POST") == 2
    assert requests_of(told, "v2", "placeOrder", 201, "POST") == 1
    assert requests_of(told, "v1", "listOrders", 200) == 1
    assert requests_of(told, "v1", "listOrders", 200, "HEAD") == 1
    assert requests_of(told, "v1", "getOrder", 404) == 1
    assert requests_of(told, "v1", "unknown", 405, "DELETE") == 1
    assert requests_of(told, "v2", "unknown", 404) == 1
    assert requests_of(told, "none", "healthz", 200) == 1


def test_all_files_of_pages_are_counted_as_one(store):
    page = store.anonymous().get("/docs")
    (script,) = re.findall(r'src="(docs/page\.js)"', page.text)
    assert store.anonymous().get(f"/{script}").status_code == 200
    assert requests_of(read(store), "none", "file", 200) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_every_documented_operation_is_counted_under_its_own_name(store, version):
    client = store.client()
    document = client.get(f"/openapi/v{version}.json").get_json()
    for path, item in document["paths"].items():
        for method, each in item.items():
            if method in ("get", "post", "delete"):
                target = path.replace("{orderId}", "1").replace("{petId}", "1")
                client.request(method.upper(), f"/v{version}{target}")
                told = read(store)("http_requests_total", operation=each["operationId"])
                assert told == 1, each["operationId"]


def test_the_time_of_answers_is_counted_in_the_buckets_that_they_fit_in(store, monkeypatch):
    ticks = iter(range(1_000))
    # Each look at the clock takes a millisecond.
    monkeypatch.setattr(store.clock, "monotonic", lambda: next(ticks) / 1000)
    store.anonymous().get("/healthz")
    told = read(store)
    name = "http_request_duration_seconds"
    assert told(f"{name}_sum", operation="healthz") == pytest.approx(0.001)
    assert told(f"{name}_count", operation="healthz") == 1
    assert told(f"{name}_bucket", operation="healthz", le="0.0005") == 0
    assert told(f"{name}_bucket", operation="healthz", le="0.0025") == 1


def test_no_text_of_a_client_becomes_a_label(store):
    secret = store.issue()[1]
    client = store.client()
    client.request("PURGE", f"{ORDERS}/evil-order")
    client.request("GET", f"/v1/{secret}")
    client.request("EVIL", "/evil-path")
    client.get(f"{ORDERS}?evil=query")
    text = store.anonymous().get("/metrics").text
    assert "evil" not in text
    assert "sok_" not in text
    told = Told(text)
    assert told("http_requests_total", method="other") == 2
    assert told.values_of("method") <= {"GET", "other"}


def test_stores_in_one_process_count_apart(make_store, store):
    store.client().get(ORDERS)
    other = make_store(metrics=True)
    assert read(store)("http_requests_total", operation="listOrders") == 1
    assert read(other)("http_requests_total", operation="listOrders") is None


def test_refusals_are_counted_by_their_code(store):
    client = store.client()
    store.anonymous().get(ORDERS)
    client.post(ORDERS, data="{", content_type="application/json")
    client.post(ORDERS, json={"petId": "x"})
    client.post(ORDERS, json={"petId": "y"})
    told = read(store)
    codes = {"missing_api_key": 1, "malformed_request": 1, "validation_failed": 2}
    assert {code: told("http_refusals_total", code=code) for code in codes} == codes
    assert told("http_refusals_total") == 4


def test_whom_the_limits_refuse_is_counted_by_plan_and_bans_by_their_number(make_store):
    store = make_store(metrics=True, ban_after=3)
    client = store.client(plan="free")
    for _ in range(60):
        client.get("/v1/pets/1")
    assert read(store)("http_rate_limited_total") is None
    assert client.get("/v1/pets/1").status_code == 429
    told = read(store)
    assert told("http_rate_limited_total", plan="free") == 1
    assert (told("bans_total"), told("banned_keys")) == (0, 0)
    for _ in range(3):
        client.get("/v1/pets/1")
    told = read(store)
    assert told("http_rate_limited_total", plan="free") == 4
    assert told("http_refusals_total", code="api_key_banned") == 2
    assert (told("bans_total"), told("banned_keys")) == (1, 1)
    store.clock.advance(301)
    told = read(store)
    assert (told("bans_total"), told("banned_keys")) == (1, 0)


def test_whoever_has_no_key_is_limited_without_a_plan(store):
    for _ in range(61):
        store.anonymous().get(ORDERS)
    told = read(store)
    assert told("http_rate_limited_total", plan="none") == 1
    assert told("http_rate_limited_total") == 1


def test_the_store_is_measured(store):
    client = store.client()
    for _ in range(3):
        client.place()
    client.ship(1)
    client.cancel(2)
    told = read(store)
    assert told("database_up") == 1
    assert told("database_damaged") == 0
    assert told("last_event_id") == 5
    counted = {name: told("orders", status=name) for name in ("pending", "shipped", "cancelled")}
    assert counted == {"pending": 1, "shipped": 1, "cancelled": 1}
    assert 0 < told("disk_free_bytes") <= told("disk_size_bytes")
    assert told("database_answer_seconds") > 0


@pytest.mark.sqlite_only("a file's size")
def test_the_file_is_measured(store):
    told = read(store)
    size = store.settings.database_path.stat().st_size
    assert told("file_size_bytes", file="database") == size
    assert told("build_info", sqlite=sqlite.sqlite_module().sqlite_version) == 1


def test_damage_that_the_check_found_is_told(store):
    store.services.soundness = "damaged"
    assert read(store)("database_damaged") == 1


def test_a_database_that_is_gone_is_told_and_the_rest_is_told_as_ever(store):
    store.client().place()
    with store.away():
        told = read(store)
        assert told("database_up") == 0
        assert told("orders") is None
        assert told("http_requests_total", operation="placeOrder") == 1
        assert told("limits_store_up") == 1
    assert read(store)("database_up") == 1


@pytest.mark.sqlite_only("the file is in it")
def test_a_folder_that_is_gone_leaves_out_its_sizes(store):
    instance = store.settings.instance
    moved = instance.rename(instance.with_name("moved"))
    told = read(store)
    assert (told("database_up"), told("disk_free_bytes")) == (0, None)
    moved.rename(instance)


@pytest.mark.sqlite_only("locks the file")
def test_a_database_that_is_locked_is_not_waited_for(store):
    path = store.settings.database_path
    with closing(sqlite.sqlite_module().connect(str(path), isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        # A request would wait for five seconds. Nothing has read the database so far.
        assert read(store)("database_up") == 0


def test_one_question_at_a_time_is_asked_of_a_store_that_hangs():
    answers, asked = threading.Event(), []

    def ask():
        asked.append(1)
        answers.wait()
        return "it is well"

    question = BoundedQuery(ask)
    assert [question.result(patience=0.01) for _ in range(3)] == [None, None, None]
    assert len(asked) == 1
    answers.set()
    assert question.result(patience=10) == "it is well"


def test_counters_that_can_not_be_kept_are_told(store):
    store.client().place()
    assert read(store)("limits_store_up") == 1
    store.settings.counters_path.mkdir()
    store.services.write_counters()
    assert read(store)("limits_store_up") == 0


def test_what_waits_for_a_webhook_is_told_by_number_and_age(hooks, store):
    hooks.add("http://127.0.0.1:1/", EventType.PLACED)
    client = store.client()
    client.place()
    store.clock.advance(90)
    client.place()
    client.cancel(2)
    told = read(store)
    assert told("webhook_lag_events", endpoint="1") == 2
    assert told("webhook_lag_seconds", endpoint="1") == 90
    assert told("webhook_paused", endpoint="1") == 0
    hooks.change(endpoints.pause, 1, "a test", datetime.now(UTC))
    assert read(store)("webhook_paused", endpoint="1") == 1


def test_what_came_of_deliveries_is_counted_by_webhook(hooks, store, receiver):
    hooks.add(receiver.url, EventType.PLACED)
    courier = store.services.outbox.courier
    client = store.client()
    client.place()
    assert courier.deliver(1)
    receiver.answering = answer_with(422)
    client.place()
    for _ in range(2):
        assert courier.deliver(1)
        store.clock.advance(10)
    told = read(store)
    assert told("webhook_deliveries_total", endpoint="1", outcome="delivered") == 1
    assert told("webhook_deliveries_total", endpoint="1", outcome="refused") == 2
    assert told("webhook_lag_events", endpoint="1") == 0
    assert told("webhook_lag_seconds", endpoint="1") == 0
    assert told("webhook_refused_events", endpoint="1") == 1


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (OPENMETRICS, OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1", OPENMETRICS),
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=x.y", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain; version=1e9; evil", "text/plain; version=0.0.4; charset=utf-8"),
        (",;=,text/plain;version=\x7f", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_the_format_is_what_the_reader_accepts(store, accept, content_type):
    response = store.anonymous().get("/metrics", headers={"Accept": accept})
    assert response.status_code == 200
    assert response.content_type.startswith(content_type)
    assert response.text.endswith("# EOF\n") == content_type.startswith(OPENMETRICS)


def test_what_the_server_itself_refuses_is_counted_too(start):
    service = start(ORDERS_METRICS="on")
    for bad in (b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"):
        with socket.create_connection(service.address, 10) as connection:
            connection.sendall(bad)
            assert connection.recv(1_000).startswith(b"HTTP/1.")
    for status in (400, 431):
        # It is counted when it has been sent.
        for _ in range(100):
            told = Told(service.request("GET", "/metrics").data.decode())
            if requests_of(told, "none", "unreadable", status, "other"):
                break
        assert requests_of(told, "none", "unreadable", status, "other") == 1
        assert told("http_refusals_total", code=SERVER_ANSWERS[status]) == 1
    # The reader's own connection is open, and its request is being answered.
    assert told("http_connections") >= 1
    assert told("http_requests_waiting") == 0
    assert told("threads") > 4
    assert {"process_resident_memory_bytes", "process_open_fds"} <= told.names


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
