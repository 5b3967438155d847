"""What all responses share: their headers, the format of errors, and the order of the checks."""

from __future__ import annotations

import gc
import http.client
import json
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import pytest
from sqlalchemy import insert
from werkzeug.exceptions import NotFound

from orders import apikeys
from orders.store import tables
from orders.web.api import PROTECTION
from orders.web.replies import Reply
from tests.support.databases import DATABASES
from tests.support.stores import Client, assert_error, logged

ORDERS, ORDERS_V2 = "/v1/store/orders", "/v2/store/orders"
# Orders and lists of orders have an ETag.
TAGGED = re.compile(r"/store/orders(?!/batch|/\d+/events)")
JSON = "application/json"
API_HEADERS = (
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit",
    "RateLimit-Policy",
    "X-Request-Id",
)
# Requests a minute and a day of the business plan, and of the free one, which addresses have.
BUSINESS, FREE = (1_000, 100_000), (60, 1_000)
REALM = 'Bearer realm="store-orders"'
CHALLENGES = {
    "missing_api_key": REALM,
    "invalid_api_key": f'{REALM}, error="invalid_token"',
    "insufficient_scope": f'{REALM}, error="insufficient_scope"',
}


@dataclass
class Case:
    """A request and its expected answer. `code` is None where the answer is no Error."""

    who: str
    method: str
    target: str
    status: int
    code: str | None = None
    sent: dict = field(default_factory=dict)

    def __str__(self):
        words = f"{self.who} {self.method} {self.target[:50]} {self.status}"
        return f"{words} {self.code}" if self.code else words


def body(text, content_type=JSON, **headers):
    """Return the arguments of a request that has a body."""
    return {"data": text, "content_type": content_type, "headers": headers}


NEW = body(b'{"petId":7}')
HUGE_TEXT = body(b" " * 65_537, "text/plain")
BAD_KEY = {"headers": {"Idempotency-Key": "a,b"}}
ANY_TAG = {"headers": {"If-None-Match": "*"}}
OTHER_TAG = {"headers": {"If-Match": '"another"'}}
LIST, ORDER = "/{v}/store/orders", "/{v}/store/orders/1"
# With a valid key that has the scope write.
WRITER = [
    *((method, LIST, 200) for method in ("GET", "HEAD")),
    ("GET", "http://shop.example/{v}/store/orders", 200),
    ("GET", "HTTPS://shop.example:8080/{v}/store/orders?#y", 200),
    ("GET", "/%76{v[1]}/%73tore/orders", 200),
    *((method, ORDER, 200) for method in ("GET", "HEAD")),
    *(("GET", target, 304, None, ANY_TAG) for target in (LIST, ORDER)),
    *(("OPTIONS", target, 204) for target in (LIST, LIST + "/abc", ORDER + "/ship")),
    ("POST", LIST, 201, None, NEW),
    # The body.
    ("POST", LIST, 415, "unsupported_media_type", body(b"{", "text/plain")),
    ("POST", LIST, 415, "unsupported_media_type"),
    ("POST", LIST, 400, "malformed_request", body(b"{")),
    ("POST", LIST, 400, "malformed_request", body(b'{"petId":7}', **{"Idempotency-Key": "a,b"})),
    ("POST", LIST, 422, "validation_failed", body(b"{}")),
    *((method, LIST, 412, "precondition_failed", OTHER_TAG) for method in ("GET", "HEAD")),
    ("POST", LIST, 412, "precondition_failed", body(b'{"petId":7}', **OTHER_TAG["headers"])),
    ("DELETE", ORDER, 412, "precondition_failed", OTHER_TAG),
    ("POST", ORDER + "/ship", 412, "precondition_failed", OTHER_TAG),
    ("POST", LIST, 413, "payload_too_large", body(b" " * 65_537)),
    # The order.
    *((method, LIST + "/99", 404, "order_not_found") for method in ("GET", "HEAD", "DELETE")),
    *(("DELETE", LIST + end, 404, "order_not_found") for end in ("/abc", "/1%2F1")),
    ("POST", LIST + "/99/ship", 404, "order_not_found"),
    ("DELETE", LIST + "/2", 409, "order_already_shipped"),
    ("POST", LIST + "/2/ship", 409, "order_already_shipped"),
    # The route.
    *(
        ("GET", target, 404, "not_found")
        for target in (
            *("/{v}", "/{v}/", "/{v}?x", "//{v}", "http://shop.example/{v}"),
            *("//{v}/store/orders", "http://shop.example//{v}/store/orders"),
            *("/{v}//store/orders", "/{v}/store//orders", LIST + "/", LIST + "//1"),
            *("/{v}/store%2Forders", "/{v}/store%2forders/1", "/{v}/Store/orders"),
            *(LIST + ";x", "/{v}/%ff%00"),
        )
    ),
    *((method, "/{v}/nothing", 404, "not_found") for method in ("HEAD", "OPTIONS")),
    ("POST", "/{v}/nothing/here", 404, "not_found"),
    ("OPTIONS", "//{v}/store/orders", 404, "not_found"),
    ("POST", "///{v}/store/orders", 404, "not_found", NEW),
    ("DELETE", ORDER + "/", 404, "not_found"),
    ("POST", ORDER + "/ship/", 404, "not_found"),
    # The method.
    *((method, LIST, 405, "method_not_allowed") for method in ("PUT", "DELETE", "BREW")),
    ("PUT", LIST + "/abc", 405, "method_not_allowed"),
    *((method, ORDER + "/ship", 405, "method_not_allowed") for method in ("GET", "HEAD", "PATCH")),
    # The route and the method are checked before the body.
    ("POST", "/{v}/nothing", 404, "not_found", HUGE_TEXT),
    ("PUT", LIST, 405, "method_not_allowed", HUGE_TEXT),
]
# The key's scopes are checked before the route, the method and the body.
READER = [
    *(("GET", LIST, 200), ("HEAD", ORDER, 200), ("OPTIONS", LIST, 204)),
    *((method, "/{v}/nothing", 404, "not_found") for method in ("GET", "OPTIONS")),
    ("HEAD", ORDER + "/ship", 405, "method_not_allowed"),
    *(
        (*request, 403, "insufficient_scope", sent)
        for *request, sent in (
            *(("POST", LIST, NEW), ("POST", LIST, HUGE_TEXT), ("POST", "/{v}/nothing", {})),
            *(("POST", ORDER + "/ship", {}), ("DELETE", LIST + "/abc", {}), ("PATCH", "/{v}", {})),
            *(("DELETE", LIST + end, {}) for end in ("/1", "/99")),
            *(("PUT", LIST, {}), ("BREW", LIST, {}), ("DELETE", "//{v}/store/orders/1", {})),
        )
    ),
]
# The key is checked before everything else.
KEYLESS = [
    *((method, LIST, {}) for method in ("GET", "HEAD", "OPTIONS", "PUT")),
    ("POST", LIST, HUGE_TEXT),
    ("DELETE", LIST + "/99", {}),
    ("GET", "/{v}/nothing", {}),
    ("GET", "//{v}/store/orders", {}),
    ("GET", "http://shop.example/{v}", {}),
]
IN_BOTH = [
    *(("writer", *row) for row in WRITER),
    *(("reader", *row) for row in READER),
    *(
        (who, method, target, 401, code, sent)
        for who, code in (("nobody", "missing_api_key"), ("stranger", "invalid_api_key"))
        for method, target, sent in KEYLESS
    ),
]
ANSWERS = [
    *(
        Case(who, method, target.format(v=version), *rest)
        for version in ("v1", "v2")
        for who, method, target, *rest in IN_BOTH
    ),
    # Version 1 ignores queries, has pets, and shows no cancelled orders.
    Case("writer", "GET", f"{ORDERS}?limit=%ff", 200),
    Case("writer", "GET", "HTTPS://shop.example:8080/v1/store/orders?x#y", 200),
    Case("writer", "GET", "/v1/pets/7", 200),
    Case("writer", "HEAD", "/v1/pets/7", 200),
    Case("writer", "OPTIONS", "/v1/pets/Rex", 204),
    Case("writer", "GET", "/v1/pets/9", 404, "pet_not_found"),
    Case("writer", "POST", "/v1/pets/7", 405, "method_not_allowed"),
    Case("nobody", "GET", "/v1/pets/7", 401, "missing_api_key"),
    Case("stranger", "GET", "/v1/pets/7", 401, "invalid_api_key"),
    Case("writer", "DELETE", f"{ORDERS}/3", 404, "order_not_found"),
    # Version 2 checks queries, shows cancelled orders, and has events and reports.
    Case("writer", "GET", ORDERS_V2, 422, "validation_failed", {"query_string": "limit=201"}),
    Case("writer", "GET", ORDERS_V2, 422, "validation_failed", {"query_string": "%ff"}),
    Case("writer", "POST", ORDERS_V2, 201, None, body(b'{"petId":7,"reference":"R"}')),
    Case("writer", "POST", ORDERS_V2, 422, "validation_failed", body(b'{"reference":""}')),
    Case("writer", "GET", f"{ORDERS_V2}/3", 200),
    Case("writer", "DELETE", f"{ORDERS_V2}/3", 409, "order_already_cancelled"),
    Case("writer", "POST", f"{ORDERS_V2}/3/ship", 409, "order_already_cancelled"),
    *(
        Case("writer", method, f"{ORDERS_V2}{path}", 400, "malformed_request", BAD_KEY)
        for method, path in (("DELETE", "/1"), ("POST", "/1/ship"))
    ),
    Case(
        "writer",
        "PATCH",
        f"{ORDERS_V2}/1",
        400,
        "malformed_request",
        body(b"{}", **BAD_KEY["headers"]),
    ),
    Case(
        "writer",
        "POST",
        "/v2/store/shipments",
        400,
        "malformed_request",
        body(b'{"orderIds":[9]}', **BAD_KEY["headers"]),
    ),
    Case(
        "writer",
        "POST",
        "/v2/store/shipments",
        412,
        "precondition_failed",
        body(b'{"orderIds":[9]}', **OTHER_TAG["headers"]),
    ),
    Case("writer", "POST", "/v2/store/shipments", 200, None, body(b'{"orderIds":[9]}')),
    Case(
        "writer",
        "POST",
        f"{ORDERS_V2}/batch",
        400,
        "malformed_request",
        body(b'{"orders":[{"petId":7}]}', **BAD_KEY["headers"]),
    ),
    Case(
        "writer",
        "POST",
        f"{ORDERS_V2}/batch",
        412,
        "precondition_failed",
        body(b'{"orders":[{"petId":7}]}', **OTHER_TAG["headers"]),
    ),
    Case("writer", "POST", f"{ORDERS_V2}/batch", 200, None, body(b'{"orders":[{"petId":7}]}')),
    Case("writer", "POST", f"{ORDERS_V2}/batch", 422, "validation_failed", body(b"{}")),
    Case(
        "writer",
        "POST",
        ORDERS_V2,
        409,
        "reference_exists",
        body(b'{"petId":7,"reference":"taken","uniqueReference":true}'),
    ),
    Case("writer", "GET", f"{ORDERS_V2}/1/events", 200),
    Case("writer", "GET", f"{ORDERS_V2}/99/events", 404, "order_not_found"),
    Case("writer", "GET", f"{ORDERS_V2}/events", 404, "order_not_found"),
    Case("writer", "GET", "/v2/store/events", 200),
    Case("writer", "HEAD", "/v2/store/events", 200),
    Case("writer", "POST", "/v2/store/events", 405, "method_not_allowed"),
    Case("stranger", "GET", "/v2/store/events", 401, "invalid_api_key"),
    Case("writer", "GET", "/v2/store/stats", 200),
    Case("writer", "GET", "/v2/usage", 200),
    Case("reader", "GET", "/v2/usage", 200),
    Case("nobody", "GET", "/v2/usage", 401, "missing_api_key"),
    Case("writer", "GET", "/v2/pets/7", 404, "not_found"),
]

# Outside of the API, with a key or without one.
ELSEWHERE = [
    Case(who, method, target, status, code)
    for who in ("writer", "nobody")
    for method, target, status, code in (
        *(
            ("GET", target, 200, None)
            for target in ("/healthz", "http://shop.example/healthz", "/readyz", "/openapi/v1.json")
        ),
        ("HEAD", "/healthz", 200, None),
        *(("POST", target, 405, "method_not_allowed") for target in ("/healthz", "/docs")),
        ("DELETE", "/openapi/v1.json", 405, "method_not_allowed"),
        *(
            ("GET", target, 404, "not_found")
            for target in (
                *("/docs/", "/docs/nothing.js", "/V1/store/orders", "/V2", "/v1x/store/orders"),
                *("/v11", "/v3/store/orders", "/v1%2Fstore/orders", "/api/v1/store/orders"),
                *("/healthz/", "//healthz", "http://shop.example//healthz"),
            )
        ),
        *((method, "/nothing", 404, "not_found") for method in ("HEAD", "POST")),
        ("OPTIONS", "*", 404, "not_found"),
    )
]


@pytest.fixture(scope="module")
def shared(shared_store):
    """A store that all cases share: 1 is pending, 2 has shipped, 3 was cancelled; pet 7 is Rex."""
    store = shared_store
    writer = store.client()
    with store.database.write() as connection:
        connection.execute(insert(tables.pets).values(id=7, name="Rex", status="sold"))
    writer.speaking(2).place(reference="taken")
    for _ in range(2):
        writer.place()
    writer.ship(2)
    writer.cancel(3)
    store.clients = {
        "writer": writer,
        "reader": store.client(scopes=("read",)),
        "nobody": store.anonymous(),
        "stranger": Client(store, None, apikeys.generate(), "127.0.0.2"),
    }
    return store


@pytest.fixture
def send(shared):
    """Send each case's request in a minute of its own; return the response."""

    def send_case(case):
        shared.clock.advance(61)
        return shared.clients[case.who].send(case.target, case.method, **case.sent)

    return send_case


def assert_answer(response, case):
    """Check the status, and that answers of 400 and above, and only those, are Errors."""
    assert response.status_code == case.status
    if case.code is None:
        assert case.status < 400
    elif case.method == "HEAD":
        assert response.content_type == JSON
    else:
        assert_error(response, case.status, case.code)
        has_faults = case.status in {400, 422} and "/v2/" in unquote(case.target)
        assert ("errors" in response.get_json()) == has_faults
    if case.method == "HEAD" or case.status in {204, 304}:
        assert response.data == b""
    assert response.headers.get("WWW-Authenticate") == CHALLENGES.get(case.code)
    assert ("Allow" in response.headers) == (
        case.status == 405 or (case.method == "OPTIONS" and case.status == 204)
    )
    assert ("Retry-After" in response.headers) == (case.status in {429, 503})
    assert not [name for name, _ in response.headers if name.startswith("Access-Control")]
    for name in ("Content-Security-Policy", "X-Content-Type-Options"):
        assert response.headers.getlist(name) == [PROTECTION[name]]
    assert "Cache-Control" in response.headers


def assert_headed(response, plan, remaining, now):
    """Check the headers of an API response to the first request of its minute.

    `plan` is the limits a minute and a day, `remaining` what is left of both; None matches any.
    """
    (per_minute, per_day), (minute_left, day_left) = plan, remaining
    assert response.headers["RateLimit-Policy"] == (
        f'"minute";q={per_minute};w=60, "day";q={per_day};w=86400'
    )
    left = re.fullmatch(
        r'"minute";r=(\d+);t=(\d+), "day";r=(\d+);t=(\d+)', response.headers["RateLimit"]
    )
    minute_shown, minute_ends, day_shown, day_ends = map(int, left.groups())
    assert (minute_shown, minute_ends) == (minute_left, 60)
    assert day_left in {day_shown, None}
    assert 0 < day_ends <= 86_400
    shown = (per_minute, minute_shown, minute_ends)
    if day_shown < minute_shown:
        shown = (per_day, day_shown, day_ends)
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
    assert tuple(int(response.headers[name]) for name in names) == (*shown[:2], now + shown[2])
    assert re.fullmatch(r"[!-~]{8,64}", response.headers["X-Request-Id"])
    has_tag = "ETag" in response.headers
    assert response.headers["Cache-Control"] == ("private, no-cache" if has_tag else "no-store")
    assert has_tag == ("Authorization" in response.headers.get("Vary", "").split(", "))


# The tables.


@pytest.mark.parametrize("case", ANSWERS, ids=str)
def test_every_api_answer_has_the_api_headers_and_every_refusal_is_an_error(shared, send, case):
    with logged("json") as stream:
        response = send(case)
        response.get_data()
        response.close()
    assert_answer(response, case)
    line = json.loads(stream.getvalue())
    facts = (case.status, case.method, response.headers["X-Request-Id"])
    assert (line["status"], line["method"], line["requestId"]) == facts
    if case.status >= 400:
        own = f"SELECT id FROM order_events WHERE request_id = '{facts[2]}'"
        assert shared.rows(own) == []
    plan = BUSINESS if case.who in {"writer", "reader"} else FREE
    assert_headed(response, plan, (plan[0] - 1, None), shared.clock.time())
    is_tagged = "%73" in case.target or TAGGED.search(case.target)
    tagged = {200, 201, 304} if case.target.startswith("/v2") else {200, 304}
    # A 409 of a reference has the ETag of the order with that reference.
    has_tag = case.code == "reference_exists" or (case.status in tagged and bool(is_tagged))
    assert ("ETag" in response.headers) == has_tag


def test_the_document_has_every_status_that_an_operation_returned(client):
    seen = {}
    for version in (1, 2):
        document = client.get(f"/openapi/v{version}.json").get_json()
        for path, item in document["paths"].items():
            shape = f"/v{version}" + re.sub(r"{\w+}", "[^/?]+", path)
            for method, operation in item.items():
                for case in ANSWERS:
                    # An unknown route, or one without that method, is no operation.
                    if case.method.lower() == method and re.fullmatch(shape, case.target):
                        assert str(case.status) in operation["responses"], (case, operation)
                        seen.setdefault(operation["operationId"], set()).add(case.status)
    assert len(seen) == 13
    assert {200, 304, 401, 412} <= seen["listOrders"]
    assert {204, 400, 401, 403, 404, 409, 412} <= seen["cancelOrder"] | {204}


@pytest.mark.parametrize("case", ELSEWHERE, ids=str)
def test_no_other_answer_has_the_api_headers_and_every_refusal_is_an_error(send, case):
    response = send(case)
    assert_answer(response, case)
    assert not [name for name in API_HEADERS if name in response.headers]
    is_document = case.status == 200 and case.target.startswith("/openapi")
    assert response.headers["Cache-Control"] == ("no-cache" if is_document else "no-store")


def test_a_page_may_set_its_own_content_security_policy(make_store):
    store = make_store()
    policy = [("Content-Security-Policy", "default-src 'self'"), ("Cache-Control", "no-cache")]
    store.own_app().add_url_rule("/page", "page", lambda: Reply(b"a page", headers=policy))
    response = store.anonymous().get("/page")
    assert response.headers.getlist("Content-Security-Policy") == ["default-src 'self'"]
    assert response.headers.getlist("Cache-Control") == ["no-cache"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("target", ["/", "/docs", "/docs/", "/metrics", "/openapi/v2.json"])
def test_pages_and_metrics_have_no_api_headers(send, target):
    response = send(Case("nobody", "GET", target, 200))
    assert response.status_code < 500
    assert not [name for name in API_HEADERS if name in response.headers]


ALLOWED = {
    ORDERS: {"GET", "HEAD", "OPTIONS", "POST"},
    f"{ORDERS}/1": {"GET", "HEAD", "OPTIONS", "DELETE"},
    f"{ORDERS}/abc": {"GET", "HEAD", "OPTIONS", "DELETE"},
    f"{ORDERS}/1/ship": {"OPTIONS", "POST"},
    "/v1/pets/7": {"GET", "HEAD", "OPTIONS"},
    "/healthz": {"GET", "HEAD", "OPTIONS"},
}


@pytest.mark.parametrize("target", ALLOWED)
def test_allow_names_the_methods_that_a_path_supports(send, target):
    for method, status in (("OPTIONS", 204), ("PUT", 405)):
        response = send(Case("writer", method, target, status))
        assert response.status_code == status
        assert set(response.headers["Allow"].split(", ")) == ALLOWED[target]


def test_the_request_id_is_the_services_own_and_never_repeats(send):
    sent = {"headers": {"X-Request-Id": "the-clients-own"}}
    cases = [Case("writer", "GET", ORDERS, 200, sent=sent)] * 50
    ids = {send(case).headers["X-Request-Id"] for case in cases}
    assert len(ids) == 50
    assert "the-clients-own" not in ids


def test_an_unknown_path_leaves_no_garbage_for_the_collector(patient):
    patient.get("/v1/nothing")
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            patient.get("/v1/nothing")
        left = [each for each in gc.get_objects() if isinstance(each, NotFound)]
    finally:
        gc.enable()
    assert left == []


@pytest.mark.slow
def test_the_server_passes_targets_on_unchanged(service):
    key = service.issue()
    rows = [
        *((target, 200, True) for target in (ORDERS, "/%761/store/orders", f"http://a{ORDERS}")),
        *((target, 404, True) for target in (f"/{ORDERS}", "///v1", f"http://a/{ORDERS}")),
        *((target, 404, True) for target in ("/v1/pets/1%2F1", "/v1/store%2Forders", ORDERS + "/")),
        *((target, 404, False) for target in ("/v1%2Fstore/orders", "/V1/store/orders")),
        *(("//healthz", 404, False), ("/healthz", 200, False)),
    ]
    for target, status, is_api in rows:
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=10)
        connection.request("GET", target, headers={"Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        names = {name for name, _ in response.getheaders()}
        connection.close()
        assert response.status == status, target
        assert names.issuperset(API_HEADERS) if is_api else names.isdisjoint(API_HEADERS), target


# Rate limits are checked before the key, and the key's scopes before the route.


ANYTHING = (
    ("GET", ORDERS),
    ("HEAD", ORDERS),
    ("OPTIONS", ORDERS),
    ("DELETE", f"{ORDERS}/1"),
    ("PUT", ORDERS),
    ("GET", "/v1/nothing"),
    ("GET", "//v1/store/orders"),
)


def test_a_request_over_its_limit_is_rejected_before_any_other_check(make_store, subtests):
    store = make_store(ban_after=2)
    for method, target in ANYTHING:
        reader = store.client(plan="enterprise", scopes=("read",), per_minute=1, per_day=50)
        assert reader.get(ORDERS).status_code == 200
        for code in ("rate_limit_exceeded", "rate_limit_exceeded", "api_key_banned"):
            store.clock.advance(code == "api_key_banned")
            with subtests.test(f"{method} {target}", code=code):
                response = reader.send(target, method)
                assert_answer(response, Case("reader", method, target, 429, code))
                assert not [name for name in API_HEADERS if name not in response.headers]
                assert response.headers["Cache-Control"] == "no-store"


# 500.

BREAKS = {
    "orders.store.orders.insert_pending": ("POST", ORDERS, body(b'{"petId":7}')),
    "orders.store.orders.cancel_pending": ("DELETE", f"{ORDERS}/1", {}),
    "orders.store.orders.ship_pending": ("POST", f"{ORDERS}/1/ship", {}),
    "orders.store.orders_json.one_order": ("GET", f"{ORDERS}/1", {}),
    "orders.store.orders_json.CurrentList.now": ("GET", ORDERS, {}),
    "orders.store.pets.find": ("GET", "/v1/pets/7", {}),
    "orders.store.apikeys.find_by_secret": ("GET", ORDERS, {}),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_an_internal_error_shows_only_its_request_id(shared, send, broken, monkeypatch, caplog):
    def break_off(*_, **__):
        raise LookupError("a detail for the log")

    monkeypatch.setattr(broken, break_off)
    method, target, sent = BREAKS[broken]
    changes = len(shared.events())
    response = send(Case("writer", method, target, 500, sent=sent))
    assert_answer(response, Case("writer", method, target, 500, "internal_error"))
    request_id = response.headers["X-Request-Id"]
    words = response.get_json()["message"].split(request_id)
    assert words == ["Something went wrong here. Report it with the request id ", "."]
    assert not [name for name in API_HEADERS if name not in response.headers]
    assert response.headers["Cache-Control"] == "no-store"
    assert request_id in caplog.text
    assert "LookupError: a detail for the log" in caplog.text
    assert len(shared.events()) == changes


def test_an_internal_error_outside_the_api_is_an_error_too(send, monkeypatch):
    monkeypatch.setattr("orders.store.orders.newest_event", lambda _: 1 / 0)
    response = send(Case("nobody", "GET", "/readyz", 500))
    assert_answer(response, Case("nobody", "GET", "/readyz", 500, "internal_error"))
    assert "division" not in response.text
    assert not [name for name in API_HEADERS if name in response.headers]


# 503. Real disk faults are in `test_faults`.


@pytest.fixture
def impatient(make_store, monkeypatch):
    """A store that waits only a moment for a lock, with order 1 in it."""
    monkeypatch.setattr(DATABASES.module, "BUSY_SECONDS", 0.05)
    store = make_store()
    store.writer = store.client()
    store.writer.place()
    return store


def assert_unavailable(response, plan, remaining, clock):
    """Check that the answer is a 503 store_unavailable with these limits."""
    assert_error(response, 503, "store_unavailable")
    assert response.headers["Retry-After"] == "5"
    assert_headed(response, plan, remaining, clock.time())


WRITES = [
    ("POST", ORDERS, body(b'{"petId":7}')),
    ("DELETE", f"{ORDERS}/1", {}),
    ("POST", f"{ORDERS}/1/ship", {}),
]
READS = [("GET", ORDERS, {}), ("GET", f"{ORDERS}/1", {}), ("GET", "/v1/pets/7", {})]


def test_while_another_program_writes_changes_are_rejected_and_reads_served(impatient, clock):
    with impatient.locked():
        for spent, (method, path, sent) in enumerate(WRITES, 2):
            response = impatient.writer.request(method, path, **sent)
            assert_unavailable(response, BUSINESS, (1_000 - spent, 100_000 - spent), clock)
        assert [order["id"] for order in impatient.writer.get(ORDERS).get_json()] == [1]
    assert len(impatient.events()) == 1
    assert impatient.writer.ship(1).status_code == 200


def test_a_missing_database_rejects_every_request_until_it_is_back(impatient, clock):
    with impatient.away():
        for spent, (method, target, sent) in enumerate(WRITES + READS, 2):
            response = impatient.writer.request(method, target, **sent)
            assert_unavailable(response, BUSINESS, (1_000 - spent, 100_000 - spent), clock)
        assert not impatient.settings.database_path.exists()
    assert impatient.writer.get(f"{ORDERS}/1").get_json()["complete"] is False


def test_a_request_whose_key_cannot_be_looked_up_is_not_counted(impatient, clock):
    clock.advance(1)  # a key is cached for less than a second
    stranger = impatient.client()
    with impatient.away():
        for method, target, sent in (*WRITES, *READS, ("GET", "/v1/nothing", {})):
            response = stranger.request(method, target, **sent)
            assert_unavailable(response, FREE, FREE, clock)
            response = impatient.writer.request(method, target, **sent)
            assert_error(response, 503, "store_unavailable")
            assert response.headers["RateLimit"] == '"minute";r=999;t=59, "day";r=99999;t=86399'
    response = impatient.writer.get(ORDERS)
    assert (response.status_code, response.headers["X-RateLimit-Remaining"]) == (200, "998")


def test_requests_without_a_well_formed_key_need_no_database(impatient):
    with impatient.away():
        assert_error(impatient.anonymous().get(ORDERS), 401, "missing_api_key")
        assert_error(Client(impatient, None, "nonsense").get(ORDERS), 401, "invalid_api_key")


def test_readiness_fails_with_the_same_error_but_without_the_api_headers(impatient):
    assert impatient.anonymous().get("/readyz").status_code == 200
    with impatient.away():
        response = impatient.anonymous().get("/readyz")
        assert_error(response, 503, "store_unavailable")
        assert response.headers["Retry-After"] == "5"
        assert not [name for name in API_HEADERS if name in response.headers]
        assert impatient.anonymous().get("/healthz").status_code == 200
