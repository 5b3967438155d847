"""The log: one line per request in text or JSON, and never a key, a query or a forged line."""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import socket
import time
from urllib.parse import quote, urlsplit

import pytest

from orders import keys
from orders.web import logs
from tests.support.stores import assert_error, logged

LIST = "/v1/store/orders"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def lines_of(client, method, path, style="text", **kwargs):
    """Send a request; return the response and the lines that it wrote to the log."""
    with logged(style) as log:
        response = client.request(method, path, **kwargs)
        response.close()  # as a server does when the answer has been sent
    return response, log.getvalue().splitlines()


def line_of(client, method, path, style="text", **kwargs):
    """Send a request; return the response and its line in the log, which must be the only one."""
    response, lines = lines_of(client, method, path, style, **kwargs)
    (line,) = lines
    return response, line


def shown(client, path, **kwargs):
    """Return the path that the log shows for a request."""
    _, line = line_of(client, "GET", path, style="json", **kwargs)
    return json.loads(line)["path"]


# One line per request.


def test_a_line_of_text_shows_time_address_key_method_path_status_duration_and_id(store):
    client = store.client()
    client.address = "203.0.113.9"
    response, line = line_of(client, "POST", LIST, json={"petId": 7})
    request_id = response.headers["X-Request-Id"]
    assert re.fullmatch(
        rf"{TIME} 203\.0\.113\.9 key:{client.key_id} POST /v1/store/orders 201 0\.0ms {request_id}",
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
    }


def test_a_request_without_a_valid_key_has_none_in_its_line(store):
    anonymous = store.anonymous()
    _, text = line_of(anonymous, "GET", LIST)
    assert re.match(rf"{TIME} 127\.0\.0\.1 - GET /v1/store/orders 401 ", text)
    header = {"Authorization": f"Bearer {keys.generate()}"}
    _, line = line_of(anonymous, "GET", LIST, style="json", headers=header)
    assert json.loads(line)["key"] is None


def test_every_answer_has_its_line(store):
    client = store.client(plan="enterprise", per_minute=6, per_day=100)
    requests = (
        *(("HEAD", LIST, 200), ("OPTIONS", LIST, 204), ("GET", "/v1/nothing", 404)),
        *(("PUT", LIST, 405), ("POST", LIST, 415), ("GET", "/v1/pets/1", 404)),
        *(("GET", LIST, 429), ("GET", "/healthz", 200), ("GET", "/nothing", 404)),
    )
    for method, path, status in requests:
        _, line = line_of(client, method, path)
        assert f" {method} {path} {status} " in line


def test_a_line_shows_the_duration_of_the_request(service):
    line = one_line_of(service, "GET /healthz ", lambda: service.request("GET", "/healthz"))
    milliseconds = float(re.search(r" 200 (\d+\.\d)ms ", line)[1])
    assert 0 < milliseconds < 60_000


@pytest.fixture
def behind_proxy(make_store):
    """A client that is a trusted proxy."""
    store = make_store(trusted_proxy=(ipaddress.ip_network("10.0.0.0/8"),))
    return store.anonymous("10.0.0.1")


def test_a_line_shows_the_address_of_the_client_behind_a_trusted_proxy(behind_proxy):
    header = {"X-Forwarded-For": "203.0.113.9"}
    _, line = line_of(behind_proxy, "GET", LIST, style="json", headers=header)
    assert json.loads(line)["address"] == "203.0.113.9"


# Never a query, never a key.


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    "target",
    [
        *(f"{LIST}?secret=hunter2", f"{LIST}?hunter2", "/nothing?hunter2", f"{LIST}/?hunter2"),
        *(f"http://shop.example{LIST}?hunter2", f"//{LIST}?hunter2", f"{LIST}#hunter2"),
    ],
)
def test_a_query_is_not_logged_whatever_the_form_of_the_target(store, target, style):
    for path, environ in ((target, {}), (LIST, {"REQUEST_URI": target})):
        _, line = line_of(store.client(), "GET", path, style=style, environ_overrides=environ)
        assert "hunter2" not in line
        assert "?" not in line


def percent_encoded(text):
    """Return a text with each of its characters percent-encoded."""
    return "".join(f"%{ord(character):02x}" for character in text)


def paths_with(secret):
    """Return paths that hold a key, plain or encoded."""
    return [
        f"/v1/store/orders/{secret}",
        f"/v1/pets/{secret}/x",
        f"/{secret}",
        f"/v1/{secret[:20]}",
        f"/v1/x{secret}y",
        f"/v1/{secret}{secret}",
        f"/v1/{percent_encoded(secret)}",
        f"/v1/%73{secret[1:]}",
        f"/v1/{secret.replace('_', '%5F')}",
        f"/v1/{secret[:12]}{percent_encoded(secret[12:20])}{secret[20:]}",
    ]


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_key_in_the_path_is_not_logged(store, style):
    client = store.client()
    secret = client.secret
    targets = [f"{LIST}/{percent_encoded(secret)}", f"http://x/v1/{secret}"]
    requests = [(path, {}) for path in paths_with(secret)]
    requests += [(LIST, {"REQUEST_URI": target}) for target in targets]
    for path, environ in requests:
        _, line = line_of(client, "GET", path, style=style, environ_overrides=environ)
        assert secret[8:20] not in line, path
        assert percent_encoded(secret[8:20]) not in line, path
        assert "sok_***" in line


def test_a_key_in_the_method_is_not_logged(store):
    client = store.client()
    _, line = line_of(client, client.secret, LIST)
    assert client.secret[8:20] not in line


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    "entry", ["{key}", "203.0.113.9%{key}", "fe80::1%{key}", "{key}, 10.0.0.2"]
)
def test_a_key_in_a_forwarded_address_is_not_logged(behind_proxy, entry, style):
    secret = keys.generate()
    header = {"X-Forwarded-For": entry.format(key=secret)}
    _, line = line_of(behind_proxy, "GET", LIST, style=style, headers=header)
    assert secret[8:20] not in line


def test_a_key_in_a_body_or_a_header_is_neither_logged_nor_answered(store):
    client = store.client()
    secret = client.secret
    bodies = [
        {"petId": 7, secret: 1},
        {"petId": secret},
        {"petId": 7, "shipDate": secret},
        {"petId": 7, "x" * 40 + secret: 1},
        secret,
        [secret],
    ]
    answers = [line_of(client, "POST", LIST, json=body) for body in bodies]
    answers += [
        line_of(client, "POST", LIST, data=f'{{"{secret}"', content_type="application/json"),
        line_of(client, "POST", LIST, data="{}", content_type=f"text/{secret}"),
        line_of(client, "POST", LIST, json={"petId": 7}, headers={"Idempotency-Key": secret + ","}),
        line_of(client, "GET", LIST, headers={"Authorization": f"Basic {secret}"}),
        line_of(client, "GET", LIST, headers={"Authorization": secret}),
    ]
    for response, line in answers:
        assert response.status_code in {400, 401, 415, 422}
        assert secret[8:20] not in line
        assert secret[8:20] not in response.get_data(as_text=True)


def test_a_key_in_a_message_of_the_log_is_hidden():
    secret = keys.generate()
    for style in ("text", "json"):
        with logged(style) as log:
            logging.getLogger("orders").warning("It was %s, and %r.", secret, {secret: 1})
            logging.getLogger("orders").error("It failed", exc_info=ValueError(secret))
        assert secret[8:20] not in log.getvalue()
        assert "sok_***" in log.getvalue()


def test_the_log_of_a_ban_names_the_key_by_its_id(store):
    client = store.client(plan="enterprise", per_minute=1, per_day=100)
    with logged() as log:
        for _ in range(31):
            client.get(LIST).close()
    (warning,) = [line for line in log.getvalue().splitlines() if "banned" in line]
    assert re.fullmatch(rf"{TIME} warning: Key {client.key_id} is banned for 300 s: .*", warning)
    assert client.secret[8:20] not in log.getvalue()


# No client forges lines.


def test_control_characters_in_a_path_are_escaped(store):
    client = store.client()
    for code in [*range(0x20), 0x7F, *range(0x80, 0xA0)]:
        path = f"/v1/a%{code:02X}b"
        assert shown(client, path) == path
        _, line = line_of(client, "GET", path)
        assert line.isprintable()
        assert line.split(" ")[4] == path


def test_a_forged_line_stays_in_its_own(store):
    forged = "\r\n2026-12-01T12:00:00.000Z 203.0.113.9 key:1 GET /v1/store/orders 200 1.0ms 00"
    client = store.client()
    _, line = line_of(client, "GET", "/v1/x" + quote(forged))
    assert len(line.split(" ")) == 8
    assert "key:1 GET /v1/store/orders" not in line


def test_blanks_and_other_alphabets_are_escaped(store):
    client = store.client()
    assert shown(client, "/v1/a%20b") == "/v1/a%20b"
    assert shown(client, "/v1/caf%C3%A9") == "/v1/caf%C3%A9"
    assert shown(client, "/v1/%E2%80%AE") == "/v1/%E2%80%AE"
    assert shown(client, "/v1/%FF") == "/v1/%FF"
    assert shown(client, "/v1/a%2Fb") != shown(client, "/v1/a/b")


def test_a_method_cannot_forge_a_line(store):
    _, line = line_of(store.client(), "GET\n/v1 200 1.0ms 00", LIST)
    assert len(line.split(" ")) == 8


@pytest.mark.parametrize(
    "entry",
    ["203.0.113.9 key:1 GET /v1 200", "203.0.113.9%0 key:1 GET /v1 200", "fe80::1%\x1b[31m"],
)
def test_a_forwarded_address_cannot_forge_a_line(behind_proxy, entry):
    _, line = line_of(behind_proxy, "GET", LIST, headers={"X-Forwarded-For": entry})
    assert len(line.split(" ")) == 8
    assert line.isprintable()


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


def test_a_long_path_does_not_fill_the_log(store):
    assert len(shown(store.client(), "/v1/" + "%01" * 5_000)) == 4 + 496 * 3


def test_a_traceback_shows_nothing_that_clients_sent(store):
    client = store.client()
    with store.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE api_keys RENAME TO gone")
    with logged() as log:
        client.get(LIST, headers={"Authorization": f"Bearer {keys.generate()}"})
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


@pytest.mark.parametrize("style", ["text", "json"])
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


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_internal_error_is_logged_with_its_cause_and_answered_with_its_request_id(store, style):
    client = store.client()
    with store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE pets")
    response, lines = lines_of(client, "GET", "/v1/pets/1", style=style)
    request_id = response.headers["X-Request-Id"]
    assert_error(response, 500, "internal_error")
    assert request_id in response.get_json()["message"]
    assert "pets" not in response.get_json()["message"]
    assert request_id in lines[0]
    assert "Traceback" in "".join(lines)
    log = "".join(lines).replace("\\", "")
    assert "no such table: pets" in log or 'relation "pets" does not exist' in log
    if style == "json":
        error, access = map(json.loads, lines)
        assert (error["level"], access["status"]) == ("error", 500)


def test_the_log_of_a_service_goes_to_standard_error_as_text(service):
    line = one_line_of(service, "GET /nothing ", lambda: service.request("GET", "/nothing?hunter2"))
    assert re.fullmatch(rf"{TIME} 127\.0\.0\.1 - GET /nothing 404 \d+\.\dms [0-9a-f]+\n", line)


def test_input_that_the_server_itself_rejects_has_a_line(service):
    def send_nonsense():
        address = urlsplit(service.url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            connection.sendall(b"nonsense\x1b[31m hunter2\r\n\r\n")
            return connection.recv(65_536).decode()

    answers = []
    line = one_line_of(service, " - - - 400 ", lambda: answers.append(send_nonsense()))
    (request_id,) = re.findall(r"X-Request-Id: (\S+)", answers[0])
    assert re.fullmatch(rf"{TIME} 127\.0\.0\.1 - - - 400 \d+\.\dms {request_id}\n", line)


def one_line_of(service, part, act):
    """Do something; wait for the line of a service's log that then holds a text, and give it."""
    before = len(service.log)
    act()
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        found = [line for line in service.log[before:] if part in line]
        if found:
            return found[0]
        time.sleep(0.01)
    raise AssertionError(f"no line holds {part!r}: {service.log[before:]}")
