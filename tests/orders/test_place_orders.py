"""placeOrders: up to 100 orders in one request, each placed or refused on its own."""

from __future__ import annotations

import json

import pytest

from tests.support.orders import OPTIONAL, order_v2
from tests.support.stores import assert_error

ORDERS = "/v2/store/orders"
BATCH = f"{ORDERS}/batch"
INVALID = (422, "validation_failed")
NEW = {"petId": 7}
UNIQUE = {"petId": 7, "reference": "R-1", "uniqueReference": True}


def place_all(client, *orders, **headers):
    return client.post(BATCH, json={"orders": orders}, headers=headers)


def results(response):
    assert response.status_code == 200, response.get_json()
    return response.get_json()["results"]


def test_one_request_places_orders_in_the_sequence_sent(client_v2, store):
    response = place_all(client_v2, NEW, {"petId": 8, "quantity": 3, **OPTIONAL}, NEW)
    assert results(response) == [
        {"orderId": 1, "order": order_v2(id=1)},
        {"orderId": 2, "order": order_v2(id=2, petId=8, quantity=3, **OPTIONAL)},
        {"orderId": 3, "order": order_v2(id=3)},
    ]
    assert [each["order"] for each in results(response)] == [
        client_v2.order(number).get_json() for number in (1, 2, 3)
    ]
    events = client_v2.get("/v2/store/events").get_json()["events"]
    assert [each["type"] for each in events] == ["order.placed"] * 3
    assert {each["requestId"] for each in events} == {response.headers["X-Request-Id"]}
    assert client_v2.get(f"{ORDERS}?search=wong").get_json()["orders"][0]["id"] == 2


def test_it_counts_as_one_request(store):
    client = store.client()
    before = client.get("/v2/usage").get_json()["windows"]["minute"]["remaining"]
    place_all(client, *[NEW] * 100)
    after = client.get("/v2/usage").get_json()["windows"]["minute"]["remaining"]
    assert before - after == 2


def test_only_the_order_whose_reference_exists_is_refused(client_v2, store):
    client_v2.place(reference="R-0")
    known = {**UNIQUE, "reference": "R-0"}
    placed, refused, again, other, last = results(
        place_all(client_v2, UNIQUE, known, UNIQUE, {"petId": 8, "reference": "R-1"}, NEW)
    )
    assert [each["order"]["id"] for each in (placed, other, last)] == [2, 3, 4]
    for each, order_id in ((refused, 1), (again, 2)):
        error = each.pop("error")
        assert each == {"orderId": order_id}
        assert (error["code"], error["status"]) == ("reference_exists", 409)
        assert f"Order {order_id} already has" in error["message"]
    assert len(store.events()) == 4


def test_of_a_hundred_with_one_reference_one_is_placed(client_v2, store):
    answers = results(place_all(client_v2, *[UNIQUE] * 100))
    assert ["order" in each for each in answers] == [True] + [False] * 99
    assert len(store.rows("SELECT id FROM orders")) == 1


def test_an_invalid_field_is_named_and_rejects_all_orders(client_v2, store):
    wrong = [
        *({"petId": 7}, {}, {"petId": 7, "quantity": 0}, [], {"petId": 7, "colour": 1, "a.b": 2}),
        *(None, {"petId": 7, "uniqueReference": True}),
    ]
    response = place_all(client_v2, *wrong)
    assert_error(response, *INVALID)
    assert [(each["field"], each["code"]) for each in response.get_json()["errors"]] == [
        ("orders[1].petId", "required"),
        ("orders[2].quantity", "range"),
        ("orders[3]", "type"),
        ("orders[4].a.b", "unknown"),
        ("orders[4].colour", "unknown"),
        ("orders[5]", "null"),
        ("orders[6].reference", "required"),
    ]
    assert "orders[2].quantity: must be a whole number from 1" in response.get_json()["message"]
    assert store.events() == []


@pytest.mark.parametrize(
    ("sent", "field", "code"),
    [
        ({}, "orders", "required"),
        ({"orders": None}, "orders", "null"),
        ({"orders": NEW}, "orders", "type"),
        ({"orders": []}, "orders", "length"),
        ({"orders": [NEW] * 101}, "orders", "length"),
        ({"orders": [{}] * 101}, "orders", "length"),
        ({"orders": [NEW], "order": NEW}, "order", "unknown"),
        ([NEW], "body", "type"),
    ],
)
def test_a_list_has_1_to_100_orders(client_v2, sent, field, code):
    response = client_v2.post(BATCH, json=sent)
    assert_error(response, *INVALID)
    (fault,) = response.get_json()["errors"]
    assert (fault["field"], fault["code"]) == (field, code)


def test_a_retry_gets_the_first_answer_and_places_nothing(client_v2, store):
    orders, keyed = [UNIQUE, UNIQUE, *[NEW] * 98], {"Idempotency-Key": "one"}
    first = place_all(client_v2, *orders, **keyed)
    client_v2.ship(1)
    again = place_all(client_v2, *orders, **keyed)
    assert (again.status_code, again.data) == (200, first.data)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    reused = (422, "idempotency_key_reused")
    without = {**UNIQUE, "uniqueReference": False}
    for others in (orders[:-1], orders[::-1], [without, *orders[1:]]):
        assert_error(place_all(client_v2, *others, **keyed), *reused)
    assert_error(client_v2.place(headers=keyed), *reused)
    assert len(store.rows("SELECT id FROM orders")) == 99


def test_the_conditions_of_the_list_and_the_keys_scopes_apply(client_v2, store):
    tag = client_v2.get(ORDERS).headers["ETag"]
    unmet = (412, "precondition_failed")
    assert_error(place_all(client_v2, NEW, **{"If-None-Match": tag}), *unmet)
    assert_error(place_all(client_v2, NEW, **{"If-Match": tag}), *unmet)
    reader = store.client(scopes=("read",)).speaking(2)
    assert_error(place_all(reader, NEW), 403, "insufficient_scope")
    assert_error(client_v2.get(BATCH), 404, "order_not_found")
    assert_error(
        client_v2.speaking(1).post("/v1/store/orders/batch", json={}), *(405, "method_not_allowed")
    )
    assert store.events() == []


def test_a_large_or_deep_body_is_refused(client_v2):
    note = {**NEW, "note": "x" * 500}
    assert results(place_all(client_v2, *[note] * 100))[99]["order"]["note"] == "x" * 500
    long = json.dumps({"orders": [{**NEW, "note": "x" * 20_000}] * 100}).encode()
    for body in (long, b"[" * 70_000):
        response = client_v2.post(BATCH, data=body, content_type="application/json")
        assert_error(response, 413, "payload_too_large")
    for deep in (b'{"orders":' * 5_000, b'{"orders":' + b"[" * 30_000 + b"]" * 30_000 + b"}"):
        response = client_v2.post(BATCH, data=deep, content_type="application/json")
        assert_error(response, 400, "malformed_request")


def test_forgetting_an_order_also_blanks_the_remembered_answer(client_v2, store):
    keyed = {"Idempotency-Key": "one"}
    orders = [{**NEW, "shipTo": "Mia Wong"}, {**NEW, "shipTo": "Leo Park"}]
    place_all(client_v2, *orders, **keyed)
    client_v2.ship(1)
    done = store.app.test_cli_runner().invoke(args=["orders", "forget", "1", "--yes"])
    assert done.exit_code == 0, done.output
    again = place_all(client_v2, *orders, **keyed)
    assert ["shipTo" in each["order"] for each in results(again)] == [False, True]
