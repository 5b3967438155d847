"""Version 2's own writes: changeOrder, shipOrders, Idempotency-Keys and ETags of every write."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest
from sqlalchemy import String

from orders.domain import NewOrder, format_instant, name_in_api
from orders.store import tables
from tests.support.orders import OPTIONAL, TRACKING
from tests.support.stores import assert_error

ORDERS = "/v2/store/orders"
SHIPMENTS = "/v2/store/shipments"
LATER = "2026-12-01T12:01:00.000Z"
ORDER = {"petId": 7, "quantity": 2, **OPTIONAL}
PRECONDITION = "precondition_failed"
MALFORMED, INVALID = (400, "malformed_request"), (422, "validation_failed")
UNSUPPORTED = (415, "unsupported_media_type")


@pytest.fixture
def client(client_v2):
    """A client with one order."""
    client_v2.post(ORDERS, json=ORDER)
    return client_v2


def patch(client, body, order_id=1, content_type="application/merge-patch+json", **headers):
    data = body if isinstance(body, bytes) else json.dumps(body)
    path = f"{ORDERS}/{order_id}"
    return client.request("PATCH", path, data=data, content_type=content_type, headers=headers)


def ship_all(client, order_ids, **more):
    headers = more.pop("headers", {})
    return client.post(SHIPMENTS, json={"orderIds": order_ids, **more}, headers=headers)


# Optional fields.


def test_every_optional_field_is_tested_and_each_text_has_a_rule():
    optional = {name_in_api(each.name) for each in fields(NewOrder) if each.default is None}
    assert optional == {*OPTIONAL}, "OPTIONAL in tests/support/orders.py"
    texts = {each.name for each in tables.orders.columns if type(each.type) is String}
    assert texts == {"status"}, "is it about a person? Let TEXTS in orders/domain.py say that"


# Invalid for every field, whatever its type.
NO_VALUES = (7, 1.5, "", "\0", [], {}, ["R-1"])


def test_an_invalid_optional_field_is_rejected_by_name(client, store):
    for name in OPTIONAL:
        for value in (*NO_VALUES, None):
            response = client.post(ORDERS, json={"petId": 7, name: value})
            assert_error(response, *INVALID)
            assert response.get_json()["message"].startswith(f"{name}: "), (name, value)
        for value in NO_VALUES:
            response = patch(client, {name: value})
            assert_error(response, *INVALID)
            assert response.get_json()["message"].startswith(f"{name}: "), (name, value)
    assert len(store.events()) == 1


# The request, its invalid field, and version 2's error code. "" stands for no field.
FAULTS = [
    ("post", "", {}, "petId", "required"),
    ("post", "", {"petId": 7, "pet": 7}, "pet", "unknown"),
    ("post", "", {"petId": "7"}, "petId", "type"),
    ("post", "", {"petId": 7, "quantity": 1.0}, "quantity", "type"),
    ("post", "", {"petId": 7, "quantity": 0}, "quantity", "range"),
    ("post", "", {"petId": 7, "quantity": None}, "quantity", "null"),
    ("post", "", {"petId": 7, "shipDate": "1 May"}, "shipDate", "format"),
    ("post", "", {"petId": 7, "shipDate": 1}, "shipDate", "type"),
    ("post", "", {"petId": 7, "reference": "x" * 65}, "reference", "length"),
    ("post", "", {"petId": 7, "reference": "\0"}, "reference", "format"),
    ("post", "", [], "body", "type"),
    ("post", "", None, "", "format"),
    ("patch", "/1", {"tracking": "AB 1"}, "tracking", "status"),
    ("get", "?limit=0", None, "limit", "range"),
    ("get", "?limit=1&limit=2", None, "limit", "duplicate"),
    ("get", "?page=2", None, "page", "unknown"),
    ("get", "?sort=size", None, "sort", "format"),
    ("get", "?after=x", None, "after", "format"),
    ("post", "/../shipments", {"orderIds": [1, "2"]}, "orderIds[1]", "type"),
    ("post", "/../shipments", {"orderIds": [1, 1]}, "orderIds", "duplicate"),
    ("post", "/../shipments", {"orderIds": []}, "orderIds", "length"),
]


def test_each_error_names_its_field_and_has_a_code_for_programs(client):
    for method, end, sent, field, code in FAULTS:
        body = {} if method == "get" else {"data": json.dumps(sent) if sent is not None else "{"}
        path = SHIPMENTS if end.endswith("shipments") else ORDERS + end
        response = client.request(method.upper(), path, content_type="application/json", **body)
        answer = response.get_json()
        assert response.status_code == (422 if field else 400), answer
        (fault,) = answer["errors"]
        assert (fault.get("field", ""), fault["code"]) == (field, code), answer
        named = f"{field}: {fault['message']}." if field else fault["message"]
        assert named == answer["message"]


def test_of_many_errors_the_first_hundred_are_listed(client):
    secret = f"sok_{'A' * 43}"
    sent = {secret: 1, "\ud800": 1, **{f"f{nth}": nth for nth in range(200)}}
    answer = client.post(ORDERS, json=sent).get_json()
    assert len(answer["errors"]) == 100
    assert secret not in str(answer)


# changeOrder.


CHANGES = [
    ({"quantity": 3}, {"quantity": 3}),
    ({"petId": 2**63 - 1}, {"petId": 2**63 - 1}),
    ({"shipDate": "2026-12-06T10:00:00+02:00"}, {"shipDate": "2026-12-06T08:00:00.000Z"}),
    ({"reference": "R-2", "note": "One\nTwo"}, {"reference": "R-2", "note": "One\nTwo"}),
    *(({name: None}, {name: None}) for name in OPTIONAL),
    ({**ORDER, "quantity": 9, "note": None}, {"quantity": 9, "note": None}),
]


def test_a_patch_changes_the_fields_it_names_with_one_event(client, clock):
    for body, changed in CHANGES:
        before = client.place(**ORDER).get_json()
        clock.advance(60)
        response = patch(client, body, before["id"])
        at = format_instant(clock.now())
        after = {**before, **changed, "updatedAt": at}
        after = {name: value for name, value in after.items() if value is not None}
        assert (response.status_code, response.get_json()) == (200, after)
        shown = client.order(before["id"])
        assert (shown.data, shown.headers["ETag"]) == (response.data, response.headers["ETag"])
        placed, event = client.get(f"{ORDERS}/{before['id']}/events").get_json()["events"]
        assert (event["type"], event["at"], event["order"]) == ("order.changed", at, after)
        assert event["requestId"] == response.headers["X-Request-Id"]
        assert placed["order"] == before
        fields = ("id", "petId", "quantity", "shipDate", "complete")
        first = {name: after[name] for name in fields if name in after}
        assert client.speaking(1).get(f"/v1/store/orders/{before['id']}").get_json() == first


@pytest.mark.parametrize("content_type", ["application/merge-patch+json", "application/json"])
def test_a_patch_that_changes_nothing_has_no_event(client, store, clock, content_type):
    before = client.order(1)
    clock.advance(60)
    same = ({}, ORDER, {"note": ORDER["note"]}, {"quantity": 2})
    for body in same:
        response = patch(client, body, content_type=content_type)
        assert (response.status_code, response.data) == (200, before.data)
        assert response.headers["ETag"] == before.headers["ETag"]
    client.ship(1, shipDate=ORDER["shipDate"])
    assert {patch(client, body).get_json()["status"] for body in same} == {"shipped"}
    assert len(store.events()) == 2


@pytest.mark.parametrize(
    ("end", "code"), [("ship", "order_already_shipped"), ("cancel", "order_already_cancelled")]
)
def test_of_an_order_that_is_not_pending_only_the_note_may_change(client, store, end, code):
    getattr(client, end)(1)
    ended = client.order(1).get_json()
    for body in ({"quantity": 3}, {"reference": None, "note": "Lost"}, {"shipDate": LATER}):
        assert_error(patch(client, body), 409, code)
        assert_error(patch(client, body, **{"If-Match": '"nope"'}), 409, code)
    assert_error(patch(client, {"note": "Lost"}, **{"If-Match": '"nope"'}), 412, PRECONDITION)
    response = patch(client, {"note": "Lost"})
    assert (response.status_code, response.get_json()) == (200, {**ended, "note": "Lost"})
    assert patch(client, {"note": None, "quantity": 2}).status_code == 200
    assert [each["type"] for each in store.events()][2:] == ["order.changed"] * 2
    days = client.get("/v2/store/stats?days=1").get_json()
    assert days["byStatus"] == {"pending": 0, "shipped": 0, "cancelled": 0, ended["status"]: 1}


BAD_PATCHES = [
    *((body, INVALID, "application/json") for body in ({"petId": None}, {"quantity": None})),
    *(({name: 1.0}, INVALID, "application/json") for name in ORDER),
    *(({name: 3}, INVALID, "application/json") for name in ("status", "id", "placedAt")),
    *((body, INVALID, "application/json") for body in ([], None, {"note": ""}, {"petId": 0})),
    *((body, MALFORMED, "application/merge-patch+json") for body in (b"", b"{", b'{"a":1,"a":2}')),
    *(({}, UNSUPPORTED, kind) for kind in ("", "text/plain", "application/json-patch+json")),
    (b"{}" + b" " * 65_535, (413, "payload_too_large"), "application/json"),
]


def test_an_invalid_patch_is_reported_before_the_state_of_the_order(client, store):
    types = "application/merge-patch+json, application/json"
    for body, error, content_type in BAD_PATCHES:
        for order_id in ("1", "2", "abc"):
            response = patch(client, body, order_id, content_type)
            assert_error(response, *error)
            assert response.headers.get("Accept-Patch") == (types if error == UNSUPPORTED else None)
    for kind, coding in (("application/json; charset=latin-1", ""), ("application/json", "gzip")):
        response = patch(client, {}, content_type=kind, **{"Content-Encoding": coding})
        assert_error(response, *UNSUPPORTED)
        assert response.headers["Accept-Patch"] == types
    assert client.options(f"{ORDERS}/1").headers["Accept-Patch"] == types
    assert "Accept-Patch" not in client.options(ORDERS).headers
    assert len(store.events()) == 1


def test_a_missing_order_is_not_found_and_a_read_key_changes_none(client, store):
    for order_id in ("2", "abc", "01"):
        assert_error(patch(client, {"note": "x"}, order_id), 404, "order_not_found")
        fails = {"If-Match": '"nope"'}
        assert_error(patch(client, {"note": "x"}, order_id, **fails), 404, "order_not_found")
    reader = store.client(scopes=("read",)).speaking(2)
    assert_error(patch(reader, {"note": "x"}), 403, "insufficient_scope")
    assert_error(ship_all(reader, [1]), 403, "insufficient_scope")
    assert_error(client.request("PATCH", "/v1/store/orders/1"), 405, "method_not_allowed")


def test_one_of_several_editors_wins_each_round_and_no_update_is_lost(client, store):
    def edit(editor):
        shown = client.order(1)
        note = shown.get_json()["note"]
        barrier.wait(60)
        tag = {"If-Match": shown.headers["ETag"]}
        return patch(client, {"note": f"{note}{editor}"}, **tag)

    expected = ORDER["note"]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            barrier = threading.Barrier(8)
            answers = list(pool.map(edit, range(8)))
            (winner,) = (n for n, each in enumerate(answers) if each.status_code == 200)
            for number, answer in enumerate(answers):
                if number != winner:
                    assert_error(answer, 412, PRECONDITION)
            expected += str(winner)
    assert client.order(1).get_json()["note"] == expected
    assert len(store.events()) == 6


# ETags of every write, and conditions on placing.


def writes(client, order_id=1):
    """Return, by name, a function that sends each write to one order with headers."""
    path = f"{ORDERS}/{order_id}"
    return {
        "placeOrder": lambda **h: client.post(ORDERS, json=ORDER, headers=h),
        "shipOrder": lambda **h: client.post(f"{path}/ship", headers=h),
        "shipOrder with a date": lambda **h: client.post(
            f"{path}/ship", json={"shipDate": LATER}, headers=h
        ),
        "cancelOrder": lambda **h: client.delete(path, headers=h),
        "reopenOrder": lambda **h: client.post(f"{path}/reopen", headers=h),
        "changeOrder": lambda **h: patch(client, {"quantity": 3, "note": None}, order_id, **h),
        "changeOrder to what it is": lambda **h: patch(client, ORDER, order_id, **h),
        "shipOrders": lambda **h: ship_all(client, [9_999, order_id, order_id + 1], headers=h),
        "shipOrders of one": lambda **h: ship_all(client, [order_id], headers=h),
        "shipOrders of none": lambda **h: ship_all(client, [9_999], headers=h),
    }


def each_write(client):
    """Yield each write, to the first of two new orders: its name, the id, and the function."""
    for name in writes(client):
        order_id = client.place(**ORDER).get_json()["id"]
        client.place(**ORDER)
        yield name, order_id, writes(client, order_id)[name]


def test_the_response_to_a_write_has_the_strong_etag_of_the_order(client):
    for name, order_id, send in each_write(client):
        if "shipOrders" in name:
            continue
        response = send()
        number = response.headers.get("Location", f"/{order_id}").rpartition("/")[2]
        shown = client.order(number)
        assert response.data in {shown.data, b""}
        assert not shown.headers["ETag"].startswith("W/")
        for header in ("ETag", "Cache-Control", "Vary"):
            assert response.headers[header] == shown.headers[header]
        assert response.headers["Cache-Control"] == "private, no-cache"
        assert response.headers["Vary"] == "Authorization"


@pytest.mark.parametrize("version", [1, 2])
def test_an_order_is_placed_only_if_the_condition_on_the_list_holds(client, store, version):
    client = client.speaking(version)
    tag = client.get(client.orders).headers["ETag"]
    for unwanted in ("*", tag, tag.removeprefix("W/"), f'"another", {tag}'):
        response = client.place(headers={"If-None-Match": unwanted})
        assert_error(response, 412, PRECONDITION)
    # The list's tag is weak.
    for wanted in ('"another"', tag, tag.removeprefix("W/"), ""):
        assert_error(client.place(headers={"If-Match": wanted}), 412, PRECONDITION)
    assert_error(client.place(0, headers={"If-None-Match": "*"}), *INVALID)
    assert len(store.events()) == 1
    for n, headers in enumerate(({"If-None-Match": '"another"'}, {"If-Match": "*"})):
        placed = client.place(headers={**headers, "Idempotency-Key": f"{n}"})
        assert placed.status_code == 201
    assert client.place(headers={"If-None-Match": tag, "Idempotency-Key": "new"}).status_code == 201
    again = client.place(headers={"If-None-Match": "*", "Idempotency-Key": "new"})
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")


def test_orders_ship_together_only_if_the_condition_on_the_list_holds(client, store):
    tag = client.get(ORDERS).headers["ETag"]
    for name, value in (("If-Match", tag), ("If-Match", '"x"'), ("If-None-Match", tag)):
        assert_error(ship_all(client, [1], headers={name: value}), 412, PRECONDITION)
        assert_error(ship_all(client, [], headers={name: value}), *INVALID)
    assert len(store.events()) == 1
    holds = {"If-Match": "*", "If-None-Match": '"x"', "Idempotency-Key": "k"}
    first = ship_all(client, [1], headers=holds)
    assert first.get_json()["results"][0]["order"]["status"] == "shipped"
    again = ship_all(client, [1], headers={"If-Match": '"x"', "Idempotency-Key": "k"})
    assert (again.data, again.headers["Idempotent-Replayed"]) == (first.data, "true")


# Idempotency-Keys.

KEPT = ("Location", "ETag", "Cache-Control", "Vary", "Content-Type", "Content-Length")


def test_a_retried_write_gets_its_first_answer(client, store, clock):
    for name, order_id, send in each_write(client):
        key = {"Idempotency-Key": name.replace(" ", "-")}
        first = send(**key)
        assert "Idempotent-Replayed" not in first.headers
        count = len(store.events())
        clock.advance(3600)
        patch(client, {"note": "Changed since"}, order_id)
        for again in (send(**key), send(**key, **{"If-Match": '"nope"', "If-None-Match": "*"})):
            assert (again.status_code, again.data) == (first.status_code, first.data)
            kept = [[each.headers.get(header) for header in KEPT] for each in (first, again)]
            assert kept[0] == kept[1]
            assert again.headers["Idempotent-Replayed"] == "true"
        assert len(store.events()) == count + 1
        clock.advance(86_400)
        assert "Idempotent-Replayed" not in send(**key).headers


def test_another_request_with_the_same_key_is_refused(client, store):
    for name, order_id, send in each_write(client):
        key = {"Idempotency-Key": name.replace(" ", "-")}
        assert send(**key).status_code < 300
        count = len(store.events())
        for other, refused in writes(client, order_id).items():
            if other != name:
                assert_error(refused(**key), 422, "idempotency_key_reused")
        if name not in {"placeOrder", "shipOrders of none"}:
            refused = writes(client, order_id + 1)[name]
            assert_error(refused(**key), 422, "idempotency_key_reused")
        assert_error(client.place(8, headers=key), 422, "idempotency_key_reused")
        assert_error(patch(client, {"quantity": 4}, order_id, **key), 422, "idempotency_key_reused")
        assert len(store.events()) == count


def test_a_refusal_is_not_remembered_and_a_bad_key_does_nothing(client, store):
    for name, _, send in each_write(client):
        count, key = len(store.events()), {"Idempotency-Key": name.replace(" ", "-")}
        assert_error(send(**{"Idempotency-Key": "a b"}), *MALFORMED)
        if name != "placeOrder" and "shipOrders" not in name:
            assert_error(send(**key, **{"If-Match": '"nope"'}), 412, PRECONDITION)
        assert len(store.events()) == count
        assert send(**key).status_code < 300


# shipOrders.


def test_each_of_several_orders_ships_or_fails_on_its_own(client, store, clock):
    for _ in range(4):
        client.place()
    client.ship(2)
    client.cancel(3)
    clock.advance(60)
    response = ship_all(client, [5, 3, 99, 1, 2, 2**63 - 1])
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    results = response.get_json()["results"]
    assert [each["orderId"] for each in results] == [5, 3, 99, 1, 2, 2**63 - 1]
    for number in (0, 3):
        order = results[number]["order"]
        assert order == client.order(order["id"]).get_json()
        assert (order["status"], order["shipDate"]) == ("shipped", LATER)
    alone = [client.ship(number).get_json() for number in (3, 99, 2, 2**63 - 1)]
    assert [results[number]["error"] for number in (1, 2, 4, 5)] == alone
    shipped = store.events()[7:]
    assert [(each["type"], each["order_id"]) for each in shipped] == [
        ("order.shipped", 1),
        ("order.shipped", 5),
    ]
    assert {each["request_id"] for each in shipped} == {response.headers["X-Request-Id"]}
    assert client.order(4).get_json()["status"] == "pending"
    again = ship_all(client, [4], shipDate="2026-12-24T18:00:00Z").get_json()["results"]
    assert again[0]["order"]["shipDate"] == "2026-12-24T18:00:00.000Z"
    stats = client.get("/v2/store/stats").get_json()
    assert stats["byStatus"] == {"pending": 0, "shipped": 4, "cancelled": 1}


def test_shipping_a_hundred_orders_counts_as_one_request(client, store):
    for _ in range(99):
        client.place()
    left = int(client.get("/v2/usage").headers["X-RateLimit-Remaining"])
    response = ship_all(client, list(range(100, 0, -1)))
    assert int(response.headers["X-RateLimit-Remaining"]) == left - 1
    results = response.get_json()["results"]
    assert [each["order"]["id"] for each in results] == list(range(100, 0, -1))
    assert len(store.events()) == 200


def test_shipped_orders_have_their_tracking_and_only_these_do(client, store):
    for _ in range(4):
        client.place()
    assert client.ship(1, tracking=TRACKING).get_json()["tracking"] == TRACKING
    results = ship_all(client, [2, 3], tracking={"3": "AB 1"}).get_json()["results"]
    assert [each["order"].get("tracking") for each in results] == [None, "AB 1"]
    assert [each["tracking"] for each in store.events()[-3:]] == [TRACKING, None, "AB 1"]
    assert patch(client, {"tracking": "AB 2"}, 2).get_json()["tracking"] == "AB 2"
    assert "tracking" not in patch(client, {"tracking": None}, 2).get_json()
    assert_error(patch(client, {"tracking": "AB 2"}, 4), *INVALID)
    assert patch(client, {"tracking": None}, 4).status_code == 200
    client.cancel(4)
    assert_error(patch(client, {"tracking": "AB 2"}, 4), 409, "order_already_cancelled")
    assert_error(patch(client, {"tracking": "AB 3", "quantity": 3}), 409, "order_already_shipped")
    shown = client.speaking(1).order(3).get_json()
    assert [*shown] == ["id", "petId", "quantity", "shipDate", "complete"]


# By what it would be of.
BAD_TEXTS = {
    "item": ("a" * 201, "a\nb", "\t", "a\u2028b", "a\u0085b"),
    "shipTo": ("a" * 501, "\n" * 8, "\r\n" * 8, "\u2028" * 8, "a\r" * 8, "a\tb"),
    "tracking": ("a" * 101, "Ö1", "a\n", "\u00a0"),
}
GOOD_TEXTS = {
    "item": ("a" * 200, " ", "Höhle 🐢"),
    "shipTo": ("a" * 500, "\n" * 7, "a\r\n" * 7 + "b", "🐢"),
    "tracking": ("~" * 100, "!", "A 1"),
}


def test_texts_have_a_maximum_length_and_number_of_lines(client, store):
    client.place()
    client.ship(1)
    client.place()
    for name, texts in GOOD_TEXTS.items():
        order_id = 1 if name == "tracking" else 2
        for text in texts:
            assert patch(client, {name: text}, order_id).get_json()[name] == text
        for text in BAD_TEXTS[name]:
            assert_error(patch(client, {name: text}, order_id), *INVALID)
    before = len(store.events())
    for body in (*({"tracking": each} for each in BAD_TEXTS["tracking"]), {"tracking": None}):
        assert_error(client.post(f"{ORDERS}/2/ship", json=body), *INVALID)
    assert len(store.events()) == before


BAD_SHIPMENTS = [
    *(
        ({"orderIds": [1], "tracking": each}, "tracking")
        for each in (None, [], "A", {"1": None}, {"1": ""}, {"1": "Ö"}, {"01": "A"}, {"2": "A"})
    ),
    *(({"orderIds": ids}, "orderIds") for ids in ([], [1, 1], list(range(1, 102)), 1, None, {})),
    *(({"orderIds": [9, id_]}, "orderIds[1]") for id_ in (0, -1, 2**63, "1", 1.0, True, None, [])),
    *(({}, "orderIds"), ({"orderIds": [1], "shipDate": None}, "shipDate")),
    ({"orderIds": [1], "note": "x"}, "note"),
]


def test_too_many_ids_are_rejected_unread(client):
    # Nor is there a message for each: that took a tenth of a second.
    for ids in ([1.5] * 12_000, ["x"] * 101):
        response = client.post(SHIPMENTS, json={"orderIds": ids})
        assert_error(response, *INVALID)
        assert response.get_json()["message"] == "orderIds: must be 1 to 100 ids, each once."
    response = client.post(SHIPMENTS, json={"orderIds": [None]})
    assert response.get_json()["message"] == "orderIds[0]: must not be null."


def test_an_invalid_shipment_ships_nothing(client, store):
    for body, name in BAD_SHIPMENTS:
        response = client.post(SHIPMENTS, json=body)
        assert_error(response, *INVALID)
        assert response.get_json()["message"].startswith(f"{name}: ")
    assert_error(client.post(SHIPMENTS), *UNSUPPORTED)
    assert_error(client.get(SHIPMENTS), 405, "method_not_allowed")
    assert len(store.events()) == 1
