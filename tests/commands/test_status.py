"""`flask status [--json]`: what needs attention, whether or not the service is running."""

from __future__ import annotations

import http.server
import json
import logging
import socketserver
import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest

from orders.store import apikeys as key_store
from orders.store.care.backups import ASKED_EVERY_SECONDS, SOCKET, ContinuousCopy
from orders.store.care.files import locked
from orders.web.monitoring import health
from orders.web.monitoring.health import StatusFile
from orders.webhooks import endpoints
from tests.support.commands import command, rejected
from tests.support.databases import DATABASES

LIST = "/v1/store/orders"
NAMES = ["service", "store", "disk", "backups", "copy", "webhooks", "keys", "failed", "queue"]


@pytest.fixture
def served(make_store, monkeypatch):
    """A store as a running service has it: locked, with its file of recent events."""
    monkeypatch.setattr(DATABASES.module, "BUSY_SECONDS", 0.05)
    store = make_store()
    store.shop.backups.make()
    with locked(store.settings.instance):
        file = StatusFile(store.app, ["http://127.0.0.1:8080"])
        store.seen, store.write_status = file.recent, file.write
        yield store
        file.close()


def status(store, expected):
    """Return what `flask status --json` prints, once it has exited as expected."""
    done = command(store, "status", "--json")
    assert done.exit_code == expected, done.output
    return json.loads(done.stdout)


def in_need(store):
    """Return the names of the lines that need attention, after comparing text and JSON."""
    done = command(store, "status")
    lines = done.stdout.splitlines()
    assert [line[2:].split()[0] for line in lines] == NAMES
    names = [line.split()[1] for line in lines if line.startswith("! ")]
    shown = status(store, 1 if names else 0)
    assert [name for name, facts in shown.items() if not facts["ok"]] == names
    assert done.exit_code == bool(names)
    return names


pytestmark = pytest.mark.sqlite_only("disks and backups")


def test_a_healthy_service_needs_no_attention(served):
    served.client().place().close()
    served.write_status()
    assert in_need(served) == []
    shown = status(served, 0)
    assert shown["service"]["addresses"] == ["http://127.0.0.1:8080"]
    assert shown["store"]["orders"]["pending"] == 1
    assert (shown["queue"]["requests"], shown["copy"]["secondsBehind"]) == (1, None)


def test_a_service_that_is_not_running_is_reported(store):
    assert "service" in in_need(store)
    assert "not running" in command(store, "status").stdout
    rejected_store = store.settings.database_path
    rejected_store.unlink()
    assert "There is no store" in rejected(store, "status")


def test_failures_of_the_last_hour_are_counted_with_their_cause(served, caplog):
    client = served.client()
    with served.locked():
        for _ in range(2):
            response = client.place()
            response.close()  # as a server does once it is sent
    assert response.status_code == 503
    served.write_status()
    assert in_need(served) == ["store", "failed"]
    assert "writing fails: the database is locked" in command(served, "status").stdout
    (failed,) = status(served, 1)["failed"]["lastHour"]
    assert (failed["what"], failed["count"]) == ("503 store_unavailable", 2)
    assert failed["request"] == response.headers["X-Request-Id"]
    served.clock.advance(5)
    served.shop.follow_outages()
    served.clock.advance(3_660)
    served.shop.follow_outages()
    served.shop.backups.make()
    served.write_status()
    assert in_need(served) == []


def test_warnings_are_shown_and_errors_need_attention(served):
    def emit(level, text):
        served.seen.emit(logging.LogRecord("x", level, "", 0, "%s", (text,), None))
        served.write_status()

    emit(logging.WARNING, "sok_" + "a" * 39)
    assert in_need(served) == []
    assert "sok_a" not in command(served, "status").stdout
    for number in range(100):
        emit(logging.WARNING, f"{number} " + "x" * 500)
    assert len(status(served, 0)["failed"]["lastHour"]) <= 25
    emit(logging.ERROR, "it broke")
    assert in_need(served) == ["failed"]


def test_each_problem_needs_attention(served, hooks):
    served.shop.soundness = "damaged"
    hooks.add("http://127.0.0.1:9/")
    hooks.change(endpoints.pause, 1, "it is down", served.clock.now())
    (served.settings.instance / ".orders.db-litestream").mkdir()
    served.clock.advance(400)
    served.write_status()
    assert in_need(served) == ["store", "copy", "webhooks"]
    served.clock.advance(60)  # the file becomes too old
    assert in_need(served) == ["service", "store", "copy", "webhooks"]


def test_banned_keys_are_named(served):
    key_id, _ = served.issue()
    until = served.clock.now() + timedelta(minutes=5)
    with served.database.write() as connection:
        key_store.change(connection, key_id, banned_until=until)
    (banned,) = status(served, 0)["keys"]["banned"]
    assert (banned["id"], banned["name"]) == (key_id, "test")


def test_a_truncated_status_file_is_ignored(store):
    (store.settings.instance / health.FILE).write_text('{"at"')
    assert health.read(store.settings.instance) == {}


@contextmanager
def litestream(path, answer):
    """Answer at Litestream's socket."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, body = answer[-1]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def address_string(self):
            return "a socket"

        def log_message(self, *_):
            pass

    asked = []
    with socketserver.UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield asked
        server.shutdown()
        thread.join()


def test_a_copy_lags_by_the_time_since_litestream_last_confirmed_it(clock, tmp_path):
    copy = ContinuousCopy(tmp_path / "orders.db", clock)
    assert copy.seconds_behind is None
    answer = [(200, b'{"status":"no_change"}')]
    with litestream(tmp_path / SOCKET, answer) as asked:
        clock.advance(60)
        assert copy.seconds_behind == 60
        assert copy.tend() == ASKED_EVERY_SECONDS
        assert copy.seconds_behind == 0
        assert asked == [{"path": str(tmp_path / "orders.db"), "wait": True, "timeout": 5}]
        for bad in ((500, b'{"error":"no route"}'), (200, b'{"error":"no route"}')):
            answer.append(bad)
            clock.advance(10)
            copy.tend()
        assert copy.seconds_behind == 20
    clock.advance(10)
    copy.tend()  # Litestream is not running
    assert copy.seconds_behind == 30
