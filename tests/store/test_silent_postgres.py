"""A PostgreSQL server that hangs: connections stay open, and nothing answers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from orders.settings import Settings
from orders.store.database.errors import StoreUnavailable
from orders.store.postgres import database
from orders.web import access
from orders.web.monitoring import health
from tests.api.test_metrics import Samples
from tests.support.machine import wait_until
from tests.support.stores import assert_error

pytestmark = pytest.mark.postgres

ORDERS = "/v1/store/orders"
# Waits as long as a client with nothing else to do.
PATIENCE = {"timeout": 40}


@pytest.fixture
def settings(tmp_path, server):
    name = server.create_store()
    yield Settings(instance=tmp_path / "instance", database_url=server.url(name))
    server.drop(name)


@pytest.fixture
def impatient(monkeypatch):
    """Shorten the timeouts of requests, as nothing here will answer them."""
    monkeypatch.setattr(access, "DEADLINE_SECONDS", 0.3)
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(database, "_LEAST_SECONDS", 0.2)
    monkeypatch.setattr(database, "_REST_SECONDS", 60)


def test_requests_time_out_then_fail_at_once_and_recover_when_the_server_answers(
    server, settings, start
):
    service = start(ORDERS_DATABASE_URL=settings.database_url, ORDERS_METRICS="on")
    key = service.issue()
    assert service.request("POST", ORDERS, key, json={"petId": 7}).status == 201
    assert Samples(service.request("GET", "/metrics").data.decode())("orders") == 1

    def timed(line):
        began = time.monotonic()
        body = {"json": {"petId": 7}} if line.startswith("POST") else {}
        answer = service.request(*line.split(), key, **body, **PATIENCE)
        return answer.status, time.monotonic() - began

    lines = [f"POST {ORDERS}", f"GET {ORDERS}/1", f"GET {ORDERS}", "GET /v2/store/stats"] * 4
    with server.standing_still(), ThreadPoolExecutor(len(lines)) as threads:
        asked = [threads.submit(timed, line) for line in lines]
        status, seconds = timed("GET /healthz")
        assert (status, seconds < 5) == (200, True)
        answers = [each.result() for each in asked]
        assert {status for status, _ in answers} == {503}
        assert max(seconds for _, seconds in answers) < 10
        # One of them may be the probe.
        assert sorted(seconds for _, seconds in map(timed, lines[:3]))[1] < 1
        status, seconds = timed("GET /readyz")
        assert (status, seconds < 5) == (503, True)
        samples = Samples(service.request("GET", "/metrics", **PATIENCE).data.decode())
        assert (samples("database_up"), samples("orders")) == (0, 1)
    wait_until(lambda: service.request("GET", "/readyz").status == 200)
    assert service.request("POST", ORDERS, key, json={"petId": 7}).status == 201
    stock = [line for line in service.log if "answer" in line and "database server" in line]
    assert [line.split()[-2:] for line in stock] == [["not", "answer."], ["answers", "again."]]


def test_an_unresponsive_server_is_logged_once_even_if_several_threads_notice(monkeypatch):
    breaker, logged = database.Breaker("shop", lambda: 5.0), []

    def warn(*arguments):
        logged.append(arguments)
        if len(logged) == 1:  # as another thread does while this one writes its line
            with pytest.raises(StoreUnavailable):
                breaker.give_up()

    monkeypatch.setattr(database.log, "warning", warn)
    with pytest.raises(StoreUnavailable):
        breaker.give_up()
    assert len(logged) == 1


def test_only_one_request_at_a_time_probes_a_server_that_is_silent(
    server, client, impatient, monkeypatch
):
    client.place()
    with server.standing_still():
        assert_error(client.get(f"{ORDERS}/1"), 503, "store_unavailable")
        asked = []
        monkeypatch.setattr(database.Breaker, "patience", lambda _: asked.append(1) or 0.2)
        for answer in (client.get(f"{ORDERS}/1"), client.place(), client.get("/readyz")):
            assert_error(answer, 503, "store_unavailable")
            assert answer.headers["Retry-After"] == "5"
        assert not asked
        monkeypatch.setattr(database.time, "monotonic", lambda: time.perf_counter() + 10**6)
        assert [client.get(f"{ORDERS}/1").status_code for _ in range(3)] == [503] * 3
        assert len(asked) <= 2  # for a connection, and for its answer
    monkeypatch.setattr(database.time, "monotonic", lambda: time.perf_counter() + 2 * 10**6)
    assert client.get(f"{ORDERS}/1").status_code == 200
    assert client.place().status_code == 201


def test_the_time_in_the_servers_queue_counts(store, client):
    long_ago = {"orders.whole_at": time.monotonic() - access.DEADLINE_SECONDS}
    answer = client.get(ORDERS, environ_overrides=long_ago)
    assert_error(answer, 503, "store_unavailable")
    assert not store.database.is_away  # nobody has asked it
    assert client.get(ORDERS).status_code == 200


def test_the_response_says_if_a_commit_may_have_been_made(server, client, impatient, monkeypatch):
    commit, key = database.EndingConnection.commit, {"Idempotency-Key": "one"}
    client.place()
    with ExitStack() as stack:

        def stop_and_commit(connection):
            stack.enter_context(server.standing_still())
            commit(connection)

        monkeypatch.setattr(database.EndingConnection, "commit", stop_and_commit)
        answer = client.place(headers=key)
    assert_error(answer, 503, "store_unavailable")
    assert "not known" in answer.get_json()["message"]
    assert "the same Idempotency-Key" in answer.get_json()["message"]
    monkeypatch.setattr(database.EndingConnection, "commit", commit)
    monkeypatch.setattr(database, "_REST_SECONDS", 0)
    client.store.database._breaker.answered()  # noqa: SLF001 - or a minute later
    assert client.place(headers=key).status_code == 201
    assert len(client.get(ORDERS).get_json()) == 2
