"""The log: one line per request in text or JSON, and never a key, a query or a forged line."""

from __future__ import annotations

import ipaddress
import json
import logging
import re
from urllib.parse import quote, unquote

import pytest

from orders import apikeys
from orders.web import logs
from tests.support.machine import wait_until
from tests.support.stores import assert_error, logged
from tests.support.wire import exchange

LIST = "/v1/store/orders"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
BOTH_STYLES = pytest.mark.parametrize("style", ["text", "json"])


def lines_of(client, method, path, style="text", **kwargs):
    """Send a request; return the response and the lines that it wrote to the log."""
    with logged(style) as log:
        response = client.request(method, path, **kwargs)
        response.close()  # as a server does when the answer has been sent
    return response, log.getvalue().splitlines()


def line_of(client, method, path, style="text", **kwargs):
    """Send a request; return the response and its line in the log, which must be the only one."""
    response, (line,) = lines_of(client, method, path, style, **kwargs)
    return response, line


def facts_of(client, method, path, **kwargs):
    """Send a request; return its line of the JSON log as an object."""
    return json.loads(line_of(client, method, path, style="json", **kwargs)[1])


@pytest.fixture
def behind_proxy(make_store):
    """A client that is a trusted proxy."""
    store = make_store(trusted_proxy=(ipaddress.ip_network("10.0.0.0/8"),))
    return store.anonymous("10.0.0.1")


# One line per request; `test_every_response` reads the line of each kind of answer.


def test_a_line_of_text_shows_time_address_key_method_path_status_duration_and_id(store):
    client = store.client()
    client.address = "203.0.113.9"
    response, line = line_of(client, "POST", LIST, json={"petId": 7})
    request_id = response.headers["X-Request-Id"]
    assert re.fullmatch(
        rf"{TIME} 203\.0\.113\.9 key:{client.key_id} POST /v1/store/orders 201 0\.0ms {request_id}"
        r" waited=0\.0ms",
        line,
    )


def test_a_line_of_json_is_an_object_with_the_same_facts(store):
    client = store.client()
    response, line = line_of(client, "GET", f"{LIST}/1", style="json")
    facts = json.loads(line)
    assert re.fullmatch(TIME, facts.pop("time"))
    assert facts == {
        "address": "127.0.0.1",
        "key": f"key:{client.key_id}",
        "method": "GET",
        "path": "/v1/store/orders/1",
        "status": 404,
        "ms": 0.0,
        "requestId": response.headers["X-Request-Id"],
        "code": "order_not_found",
        "waitedMs": 0.0,
    }
    assert "code" not in facts_of(client, "GET", LIST)


def test_a_request_without_a_valid_key_shows_none_in_its_line(store):
    anonymous = store.anonymous()
    _, text = line_of(anonymous, "GET", LIST)
    assert re.match(rf"{TIME} 127\.0\.0\.1 - GET /v1/store/orders 401 ", text)
    unknown = {"Authorization": f"Bearer {apikeys.generate()}"}
    assert facts_of(anonymous, "GET", LIST, headers=unknown)["key"] is None


def test_a_line_shows_the_address_of_the_client_behind_a_trusted_proxy(behind_proxy):
    forwarded = {"X-Forwarded-For": "203.0.113.9"}
    assert facts_of(behind_proxy, "GET", LIST, headers=forwarded)["address"] == "203.0.113.9"


def test_the_log_of_a_service_goes_to_standard_error_as_text(service):
    line = one_line_of(service, "GET /nothing ", lambda: service.request("GET", "/nothing?hunter2"))
    duration = re.fullmatch(
        rf"{TIME} 127\.0\.0\.1 - GET /nothing 404 (\d+\.\d)ms [0-9a-f]+ not_found "
        r"waited=(\d+\.\d)ms\n",
        line,
    )
    assert 0 < float(duration[1]) < 60_000
    assert 0 < float(duration[2]) < 60_000


def test_input_that_the_server_itself_rejects_has_a_line(service):
    answers = []
    line = one_line_of(
        service,
        " - - - 400 ",
        lambda: answers.append(exchange(service.address, b"nonsense\x1b[31m hunter2\r\n\r\n")),
    )
    (request_id,) = re.findall(r"X-Request-Id: (\S+)", answers[0].decode())
    assert re.fullmatch(
        rf"{TIME} 127\.0\.0\.1 - - - 400 \d+\.\dms {request_id} malformed_request "
        r"waited=\d+\.\dms\n",
        line,
    )


def one_line_of(service, part, act):
    """Call a function; return the line with a text that a service then logs."""
    before = len(service.log)

    def lines():
        return [line for line in service.log[before:] if part in line]

    act()
    wait_until(lines)
    return lines()[0]


# Never a query, never a key.


QUERIES = (
    *(f"{LIST}?secret=hunter2", f"{LIST}?hunter2", "/nothing?hunter2", f"{LIST}/?hunter2"),
    *(f"http://shop.example{LIST}?hunter2", f"//{LIST}?hunter2", f"{LIST}#hunter2"),
)


@BOTH_STYLES
def test_a_query_is_not_logged_whatever_the_form_of_the_target(client, style):
    for target in QUERIES:
        for path, environ in ((target, {}), (LIST, {"REQUEST_URI": target})):
            _, line = line_of(client, "GET", path, style=style, environ_overrides=environ)
            assert "hunter2" not in line
            assert "?" not in line


def percent_encoded(text):
    """Return a text with every character percent-encoded."""
    return "".join(f"%{ord(character):02x}" for character in text)


@BOTH_STYLES
def test_a_key_in_the_target_is_not_logged(store, style):
    client = store.client()
    secret, encoded = client.secret, percent_encoded(client.secret)
    paths = [
        *(f"{LIST}/{secret}", f"/v1/pets/{secret}/x", f"/{secret}", f"/v1/{secret[:20]}"),
        *(f"/v1/x{secret}y", f"/v1/{secret}{secret}", f"/v1/{encoded}", f"/v1/%73{secret[1:]}"),
        f"/v1/{secret.replace('_', '%5F')}",
        *(f"/v1/{secret.replace('_', '%255F')}", f"/v1/{encoded.replace('%', '%2525')}"),
        f"/v1/{secret[:12]}{percent_encoded(secret[12:20])}{secret[20:]}",
    ]
    targets = [{"REQUEST_URI": each} for each in (f"{LIST}/{encoded}", f"http://x/v1/{secret}")]
    for path, environ in [(path, {}) for path in paths] + [(LIST, each) for each in targets]:
        _, line = line_of(client, "GET", path, style=style, environ_overrides=environ)
        assert secret[8:20] not in line, path
        assert percent_encoded(secret[8:20]) not in line, path
        assert "***" in line
        assert secret[8:20] not in unquote(unquote(unquote(unquote(line))))
    _, line = line_of(client, "GET", f"/{secret.upper()}", style=style)
    assert (secret[8:20].upper() in line, "/SOK_***" in line) == (False, True)


@BOTH_STYLES
def test_a_key_in_a_message_of_the_log_is_hidden(style):
    secret = apikeys.generate()
    with logged(style) as log:
        logging.getLogger("orders").warning("It was %s, and %r.", secret, {secret: 1})
        logging.getLogger("orders").error("It failed", exc_info=ValueError(secret))
    assert secret[8:20] not in log.getvalue()
    assert "sok_***" in log.getvalue()


# No client forges lines.


FORGED = "\r\n2026-12-01T12:00:00.000Z 203.0.113.9 key:1 GET /v1/store/orders 200 1.0ms 00"
# Methods, targets, and entries of X-Forwarded-For.
FORGERIES = [
    *(("GET", LIST, entry) for entry in ("{key}", "203.0.113.9%{key}", "fe80::1%{key}")),
    *(("GET", LIST, entry) for entry in ("{key}, 10.0.0.2", "fe80::1%\x1b[31m")),
    ("GET", LIST, "203.0.113.9 key:1 GET /v1 200"),
    ("GET", LIST, "203.0.113.9%0 key:1 GET /v1 200"),
    *(("{key}", LIST, ""), ("GET\n/v1 200 1.0ms 00", LIST, "")),
    ("GET", "/v1/x" + quote(FORGED), ""),
]


def test_a_forged_line_stays_within_its_own_line(behind_proxy):
    secret = apikeys.generate()
    for method, target, entry in FORGERIES:
        request = {
            "headers": {"X-Forwarded-For": entry.format(key=secret)},
            # Set directly, as Werkzeug's client would turn it into capitals.
            "environ_overrides": {"REQUEST_METHOD": method.format(key=secret)},
        }
        _, line = line_of(behind_proxy, "GET", target, **request)
        assert len(line.split(" ")) == 10
        assert line.isprintable()
        assert secret[8:20] not in line
        assert "key:1 GET /v1/store/orders" not in line
        facts = facts_of(behind_proxy, "GET", target, **request)
        assert secret[8:20] not in facts["address"] + facts["method"]


def test_characters_that_are_not_printable_ascii_are_shown_escaped(client):
    codes = [*range(0x21), 0x7F, *range(0x80, 0xA0)]
    others = ["/v1/caf%C3%A9", "/v1/%E2%80%AE", "/v1/%FF"]
    for path in [*(f"/v1/a%{code:02X}b" for code in codes), *others]:
        assert facts_of(client, "GET", path)["path"] == path
        _, line = line_of(client, "GET", path)
        assert line.isprintable()
        assert line.split(" ")[4] == path
    assert facts_of(client, "GET", "/v1/a%2Fb")["path"] != "/v1/a/b"


def test_a_long_path_does_not_fill_the_log(client):
    assert len(facts_of(client, "GET", "/v1/" + "%01" * 5_000)["path"]) == 4 + 496 * 3


def test_a_message_in_text_stays_on_its_line():
    with logged() as log:
        logging.getLogger("waitress").warning("Serving %s", "/x\r\n2026 forged\x1b[31m\u2028")
    (line,) = log.getvalue().splitlines()
    assert line.endswith(r"Serving /x\r\n2026 forged\x1b[31m\u2028")


def test_no_text_in_a_traceback_begins_a_line():
    with logged() as log:
        logging.getLogger("orders").error("It failed", exc_info=ValueError("x\n2026 forged\x1b"))
    first, *others = log.getvalue().splitlines()
    assert re.fullmatch(rf"{TIME} error: It failed", first)
    assert others
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_a_traceback_shows_nothing_that_clients_sent(store):
    client = store.client()
    store.execute("ALTER TABLE api_keys RENAME TO gone")
    with logged() as log:
        client.get(LIST, headers={"Authorization": f"Bearer {apikeys.generate()}"})
    assert re.search('no such table: api_keys|"api_keys" does not exist', log.getvalue())
    assert "[parameters: " not in log.getvalue()


# Other messages.


def test_a_message_in_text_is_a_line_with_its_level():
    with logged() as log:
        logging.getLogger("orders.store").warning("The disk is %s.", "full")
        logging.getLogger("orders").info("Serving.")
        logging.getLogger("orders").debug("Nobody needs this.")
    assert re.fullmatch(rf"{TIME} warning: The disk is full\.\n{TIME} Serving\.\n", log.getvalue())


def test_a_message_in_json_is_an_object_with_its_level_and_logger():
    with logged("json") as log:
        logging.getLogger("orders.store").warning("Two\nlines")
    (line,) = log.getvalue().splitlines()
    facts = json.loads(line)
    assert re.fullmatch(TIME, facts.pop("time"))
    assert facts == {"level": "warning", "logger": "orders.store", "message": "Two\nlines"}


@BOTH_STYLES
def test_lines_beyond_the_queue_are_dropped_and_reported_once(store, monkeypatch, style):
    monkeypatch.setattr(logs, "MAX_WAITING", 3)
    with logged(style) as log:
        for number in range(5):
            store.anonymous().get(f"/{number}").close()
        before = log.getvalue()
        store.anonymous().get("/5").close()
        logging.getLogger("orders").info("Serving.")
    first, second, third, report = before.splitlines()
    assert all(f"/{number}" in line for number, line in enumerate((first, second, third)))
    assert "2 lines of the log were dropped: they could not be written in time." in report
    assert "warning" in report
    after = log.getvalue().removeprefix(before).splitlines()
    assert ["/5" in after[0], "Serving." in after[1], len(after)] == [True, True, 2]


@BOTH_STYLES
def test_an_internal_error_is_logged_with_its_cause_and_request_id(store, style):
    client = store.client()
    store.execute("DROP TABLE pets")
    response, lines = lines_of(client, "GET", "/v1/pets/1", style=style)
    assert_error(response, 500, "internal_error")
    assert "pets" not in response.get_json()["message"]
    assert response.headers["X-Request-Id"] in lines[0]
    assert "Traceback" in "".join(lines)
    log = "".join(lines).replace("\\", "")
    assert "no such table: pets" in log or 'relation "pets" does not exist' in log
    if style == "json":
        error, access = map(json.loads, lines)
        assert (error["level"], access["status"]) == ("error", 500)


def test_a_full_log_file_is_rotated_and_replaces_the_previous_one(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 8)
    log, before = tmp_path / "log.txt", tmp_path / "log-before.txt"
    for number in range(5):
        assert logs.append(log, b"line%d\n" % number) == 6
    assert (before.read_bytes(), log.read_bytes()) == (b"line2\nline3\n", b"line4\n")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_service_with_a_log_file_logs_there_why_it_cannot_start(tmp_path, forks):
    options = {"ORDERS_LOG_FILE": "log.txt", "ORDERS_THREADS": "none"}
    done = forks.run("app.py", instance=tmp_path, **options)
    assert (done.returncode, done.stderr) == (2, "")
    assert "error: ORDERS_THREADS is 'none'" in (tmp_path / "log.txt").read_text(encoding="utf-8")
