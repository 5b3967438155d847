"""shipOrder and cancelOrder: what changes an order, what doesn't, and races of changes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.orders import order_v1, order_v2
from tests.support.stores import BOTH_VERSIONS, assert_error

pytestmark = BOTH_VERSIONS

NOW, LATER = "2026-12-01T12:00:00.000Z", "2026-12-01T12:01:00.000Z"
EITHER_CHANGE = pytest.mark.parametrize("change", ["ship", "cancel"])
DONE = {"ship": 200, "cancel": 204}
# Why an order that was changed can't be changed again.
TAKEN = {
    ("ship", 1): (409, "order_already_shipped"),
    ("ship", 2): (409, "order_already_shipped"),
    ("cancel", 1): (404, "order_not_found"),
    ("cancel", 2): (409, "order_already_cancelled"),
}


def make(change, client, order_id=1):
    """Ship or cancel an order; return the response."""
    return getattr(client, change)(order_id)


def post(client, body=b"", content_type="application/json", order_id=1, **headers):
    path = f"{client.orders}/{order_id}/ship"
    return client.post(path, data=body, content_type=content_type, headers=headers)


# Shipping.


def test_a_pending_order_ships_now_and_is_complete(client, store, version, clock):
    client.place(7, quantity=2)
    clock.advance(60)
    response = client.ship(1)
    shipped = {
        1: order_v1(quantity=2, shipDate=LATER, complete=True),
        2: order_v2(quantity=2, shipDate=LATER, status="shipped", updatedAt=LATER),
    }[version]
    assert (response.status_code, response.get_json()) == (200, shipped)
    assert list(response.get_json()) == list(shipped)
    assert client.order(1).get_json() == shipped


SHIP_DATES = {
    "2026-12-02T08:00:00Z": "2026-12-02T08:00:00.000Z",
    "2026-11-30T23:30:00-01:00": "2026-12-01T00:30:00.000Z",
    "1999-12-31T23:59:59.9999z": "1999-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59Z": "9999-12-31T23:59:59.000Z",
}


def test_the_time_of_shipping_replaces_the_expected_one(client):
    def place():
        return client.place(shipDate="2026-12-05T08:00:00Z").get_json()["id"]

    assert client.ship(place()).get_json()["shipDate"] == NOW
    for sent, shown in SHIP_DATES.items():
        assert client.ship(place(), shipDate=sent).get_json()["shipDate"] == shown


NO_DATE = [
    *({"data": b"", "content_type": kind} for kind in (None, "application/json", "text/plain")),
    {"data": b"", "headers": {"Content-Encoding": "gzip"}},
    {"data": b"{}", "content_type": "application/json"},
    {"data": b" {}\n", "content_type": "application/json; charset=utf-8"},
    {"data": b"{}" + b" " * 65_534, "content_type": "application/json"},
]


def test_without_a_date_the_body_may_be_empty_or_missing(client):
    for order_id, body in enumerate(NO_DATE, 1):
        client.place()
        response = client.post(f"{client.orders}/{order_id}/ship", **body)
        assert (response.status_code, response.get_json()["shipDate"]) == (200, NOW)


INVALID, MALFORMED = (422, "validation_failed"), (400, "malformed_request")
UNSUPPORTED = (415, "unsupported_media_type")
# `test_place_order` tests bodies in full.
BAD_SHIPMENTS = [
    *((body, INVALID) for body in (b'{"shipDate":null}', b'{"shipDate":"2026-12-01"}')),
    *((body, INVALID) for body in (b'{"complete":true}', b"[]")),
    *((body, MALFORMED) for body in (b" ", b'{"shipDate":1,"shipDate":1}')),
    *((b"{}", UNSUPPORTED, content_type) for content_type in (None, "text/plain")),
    (b"{}" + b" " * 65_535, (413, "payload_too_large")),
]


def test_an_invalid_body_is_reported_before_the_state_of_the_order(client, store):
    client.place()
    for body, error, *content_type in BAD_SHIPMENTS:
        for order_id in ("1", "2", "abc"):
            response = post(client, body, *content_type or ["application/json"], order_id)
            assert_error(response, *error)
    assert len(store.events()) == 1


# Cancelling.


def test_a_pending_order_is_cancelled_whatever_the_body(client):
    for order_id, sent in enumerate(({}, {"data": b"{" * 70_000, "content_type": "text/plain"}), 1):
        client.place()
        response = client.delete(f"{client.orders}/{order_id}", **sent)
        assert (response.status_code, response.data) == (204, b"")
        assert "Content-Length" not in response.headers


def test_a_cancelled_order_is_gone_in_version_1_and_stays_in_version_2(client, clock):
    client.place(reference="R-1") if client.version == 2 else client.place()
    clock.advance(60)
    client.cancel(1)
    assert client.speaking(1).get("/v1/store/orders").get_json() == []
    assert_error(client.speaking(1).order(1), 404, "order_not_found")
    order = client.speaking(2).order(1).get_json()
    assert (order["status"], order["complete"]) == ("cancelled", False)
    assert order["updatedAt"] == LATER


# Both.


@EITHER_CHANGE
def test_a_change_has_one_event_with_its_author_and_keeps_the_row(client, store, clock, change):
    client.place(7, quantity=2, shipDate="2026-12-05T08:00:00Z")
    clock.advance(60)
    other = store.client().speaking(client.version)
    response = make(change, other)
    placed, changed = store.events()
    status = {"ship": "shipped", "cancel": "cancelled"}[change]
    own = {"status": status, "updated_at": LATER}
    own["ship_date"] = LATER if change == "ship" else placed["ship_date"]
    assert changed == {
        **placed,
        **own,
        "id": 2,
        "type": f"order.{status}",
        "at": LATER,
        "actor": f"key:{other.key_id}",
        "request_id": response.headers["X-Request-Id"],
    }
    (row,) = store.rows("SELECT * FROM orders")
    assert row == {**row, **own, "placed_at": NOW}


@pytest.mark.parametrize("first", ["ship", "cancel"])
def test_nothing_leaves_shipped_or_cancelled(client, store, clock, version, first):
    client.place()
    make(first, client)
    before = client.order(1).data
    clock.advance(60)
    again = [client.cancel(1), client.ship(1), client.ship(1, shipDate="2027-01-01T00:00:00Z")]
    for response in again:
        assert_error(response, *TAKEN[first, version])
        said = {
            ("ship", 1): "has shipped",
            ("ship", 2): "has shipped",
            ("cancel", 2): "was cancelled",
        }
        assert said.get((first, version), "") in response.get_json()["message"]
    assert client.order(1).data == before
    assert len(store.events()) == 2


# Conditions (RFC 9110, section 13). `{tag}` is the inside of the order's own.

HOLD = (
    *({"If-Match": "*"}, {"If-None-Match": '"another"'}),
    *({"If-None-Match": ""}, {"If-Match": "*", "If-None-Match": 'W/"another"'}),
)
HOLD_WHERE_STRONG = (
    *({"If-Match": '"{tag}"'}, {"If-Match": '"another","{tag}"'}),
    {"If-Match": '"{tag}"', "If-None-Match": '"another"'},
)
FAIL = (
    *({"If-Match": each} for each in ("", '"nope"', "nope", '"*"', 'W/"{tag}"', '"{tag}0"')),
    *({"If-None-Match": each} for each in ("*", '"{tag}"', 'W/"{tag}"', '"another", "{tag}"')),
    *({"If-Match": "*", "If-None-Match": "*"}, {"If-Match": '"x"', "If-None-Match": '"x"'}),
    {"If-Match": '"{tag}"', "If-None-Match": 'W/"{tag}"'},
)


def send(change, client, order_id=1, **headers):
    """Ship or cancel an order with headers; return the response."""
    method, end = ("POST", "/ship") if change == "ship" else ("DELETE", "")
    return client.request(method, f"{client.orders}/{order_id}{end}", headers=headers)


def conditional(change, client, condition, order_id=1):
    """Ship or cancel an order with a condition; return the response."""
    tag = client.order(order_id).headers["ETag"].removeprefix("W/").strip('"')
    headers = {name: value.format(tag=tag) for name, value in condition.items()}
    return send(change, client, order_id, **headers)


@EITHER_CHANGE
def test_a_change_is_made_only_if_its_condition_holds(client, store, version, change, subtests):
    client.place()
    before = client.order(1).data
    for condition in FAIL if version == 2 else FAIL + HOLD_WHERE_STRONG:
        with subtests.test(str(condition)):
            response = conditional(change, client, condition)
            assert_error(response, 412, "precondition_failed")
            assert (client.order(1).data, len(store.events())) == (before, 1)
    for condition in HOLD if version == 1 else HOLD + HOLD_WHERE_STRONG:
        with subtests.test(str(condition)):
            placed = client.place().get_json()["id"]
            done = conditional(change, client, condition, placed)
            assert done.status_code == DONE[change]


@EITHER_CHANGE
def test_a_condition_is_judged_after_everything_else(client, store, change):
    fails = {"If-Match": '"nope"', "If-None-Match": "*"}
    client.place()
    if change == "ship":
        assert_error(post(client, b"{", **fails), *MALFORMED)
        assert_error(post(client, b"{}", "text/plain", **fails), *UNSUPPORTED)
    assert_error(send(change, client, 2, **fails), 404, "order_not_found")
    assert_error(send(change, client, "abc", **fails), 404, "order_not_found")
    for first, taken in (("ship", 1), ("cancel", 2)):
        client.place()
        assert make(first, client, taken).status_code == DONE[first]
        error = TAKEN[first, client.version]
        assert_error(send(change, client, taken, **fails), *error)
    assert len(store.events()) == 5


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_order_is_shown_only_if_the_condition_holds(client, version, method):
    client.place()
    tag = client.order(1).headers["ETag"]
    assert tag.startswith("W/") == (version == 1)
    path = f"{client.orders}/1"
    for wanted, status in (("*", 200), (tag, 200 if version == 2 else 412), ('"nope"', 412)):
        assert client.request(method, path, headers={"If-Match": wanted}).status_code == status
        both = {"If-Match": wanted, "If-None-Match": tag}
        expected = 304 if status == 200 else 412
        assert client.request(method, path, headers=both).status_code == expected
    client.ship(1)
    assert_error(client.get(path, headers={"If-Match": tag}), 412, "precondition_failed")
    missing = client.get(f"{client.orders}/2", headers={"If-Match": "*"})
    assert_error(missing, 404, "order_not_found")
    # A list's tag is weak.
    tag = client.get(client.orders).headers["ETag"]
    for wanted, status in (("*", 304), (tag, 412), (tag.removeprefix("W/"), 412), ('"nope"', 412)):
        both = {"If-Match": wanted, "If-None-Match": tag}
        assert client.request(method, client.orders, headers=both).status_code == status


@pytest.mark.parametrize(
    "changes",
    [["cancel"] * 8, ["ship"] * 8, ["cancel", "ship"] * 4],
    ids=["cancel", "ship", "both"],
)
def test_one_of_racing_changes_wins_and_the_others_learn_why(store, client, version, changes):
    barrier = threading.Barrier(len(changes))

    def race(change):
        barrier.wait(60)
        return change, make(change, client)

    client.place()
    with ThreadPoolExecutor(len(changes)) as pool:
        answers = list(pool.map(race, changes))
    ((winner, won),) = [pair for pair in answers if pair[1].status_code < 300]
    assert won.status_code == DONE[winner]
    for _, lost in answers:
        if lost is not won:
            assert_error(lost, *TAKEN[winner, version])
    placed, changed = store.events()
    assert placed["type"] == "order.placed"
    assert changed["request_id"] == won.headers["X-Request-Id"]
