"""shipOrder: POST /v1/store/orders/{orderId}/ship. Races are in test_cancel_order.py."""

from __future__ import annotations

from tests.support.stores import assert_error

PATH = "/v1/store/orders/1/ship"
NOW = "2026-12-01T12:00:00.000Z"


def post(client, body=b"", content_type="application/json", path=PATH, **headers):
    return client.post(path, data=body, content_type=content_type, headers=headers)


# How an order ships.


def test_a_pending_order_ships_now_and_is_complete(client):
    client.place(7, quantity=2)
    response = client.ship(1)
    assert response.status_code == 200
    shipped = {"id": 1, "petId": 7, "quantity": 2, "shipDate": NOW, "complete": True}
    assert response.get_json() == shipped
    assert list(response.get_json()) == list(shipped)
    assert client.get("/v1/store/orders/1").get_json() == shipped
    assert client.get("/v1/store/orders").get_json() == [shipped]


DATES = {
    "2026-11-30T23:30:00-01:00": "2026-12-01T00:30:00.000Z",
    "1999-12-31T23:59:59.9999z": "1999-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59Z": "9999-12-31T23:59:59.000Z",
}


def test_an_order_ships_at_the_time_given(client, subtests):
    for order_id, (told, shown) in enumerate(DATES.items(), 1):
        with subtests.test(told):
            client.place()
            response = client.ship(order_id, shipDate=told)
            assert (response.status_code, response.get_json()["shipDate"]) == (200, shown)


def test_the_time_of_shipping_takes_the_place_of_the_expected_one(client):
    for _ in range(2):
        client.place(shipDate="2026-12-05T08:00:00Z")
    assert client.ship(1).get_json()["shipDate"] == NOW
    assert client.ship(2, shipDate="2026-12-02T08:00:00Z").get_json()["shipDate"] == (
        "2026-12-02T08:00:00.000Z"
    )


UNDATED = (
    {"data": b""},
    {"data": b"", "content_type": "application/json"},
    {"data": b"", "content_type": "text/plain"},
    {"data": b"", "headers": {"Content-Encoding": "gzip"}},
    {"data": b"{}", "content_type": "application/json"},
    {"data": b" {}\n", "content_type": "application/json; charset=utf-8"},
)


def test_without_a_date_in_it_the_body_may_be_left_out_or_empty(client, subtests):
    for order_id, body in enumerate(UNDATED, 1):
        with subtests.test(body=body):
            client.place()
            response = client.post(f"/v1/store/orders/{order_id}/ship", **body)
            assert (response.status_code, response.get_json()["shipDate"]) == (200, NOW)


def test_a_shipment_has_one_event_that_tells_who_shipped(client, store, clock):
    client.place(7, quantity=2)
    clock.advance(60)
    other = store.client()
    response = other.ship(1, shipDate="2026-11-30T08:00:00Z")
    placed, shipped = store.events()
    now = "2026-12-01T12:01:00.000Z"
    assert shipped == {
        **placed,
        "id": 2,
        "type": "order.shipped",
        "at": now,
        "actor": f"key:{other.key_id}",
        "request_id": response.headers["X-Request-Id"],
        "status": "shipped",
        "ship_date": "2026-11-30T08:00:00.000Z",
        "updated_at": now,
    }


# What does not ship.


def test_a_shipped_order_cannot_be_shipped_again(client, store, clock):
    client.place()
    client.ship(1)
    clock.advance(60)
    assert_error(client.ship(1), 409, "order_already_shipped")
    assert_error(client.ship(1, shipDate="2027-01-01T00:00:00Z"), 409, "order_already_shipped")
    assert client.get("/v1/store/orders/1").get_json()["shipDate"] == NOW
    assert len(store.events()) == 2


def test_a_cancelled_order_cannot_be_shipped(client, store):
    client.place()
    client.cancel(1)
    assert_error(client.ship(1), 404, "order_not_found")
    assert len(store.events()) == 2


def test_an_order_that_is_not_there_cannot_be_shipped(client, store, subtests):
    client.place()
    for order_id in ("2", "0", "01", "+1", "9" * 30, "abc"):
        with subtests.test(order_id):
            assert_error(client.ship(order_id), 404, "order_not_found")
    assert len(store.events()) == 1


def test_a_read_key_cannot_ship(client, store):
    client.place()
    assert_error(store.client(scopes=("read",)).ship(1), 403, "insufficient_scope")
    assert client.get("/v1/store/orders/1").get_json()["complete"] is False


NO_SHIPMENTS = {
    "null for a date": (b'{"shipDate":null}', "application/json", 422, "validation_failed"),
    "a number": (b'{"shipDate":1796112000}', "application/json", 422, "validation_failed"),
    "no instant": (b'{"shipDate":"2026-12-01"}', "application/json", 422, "validation_failed"),
    "another field": (b'{"complete":true}', "application/json", 422, "validation_failed"),
    "a list": (b"[]", "application/json", 422, "validation_failed"),
    "null": (b"null", "application/json", 422, "validation_failed"),
    "blanks": (b" ", "application/json", 400, "malformed_request"),
    "no JSON": (b"{", "application/json", 400, "malformed_request"),
    "a name twice": (b'{"shipDate":1,"shipDate":1}', "application/json", 400, "malformed_request"),
    "34 levels": (
        b'{"shipDate":' + b"[" * 33 + b"]" * 33 + b"}",
        "application/json",
        400,
        "malformed_request",
    ),
    "no type": (b"{}", None, 415, "unsupported_media_type"),
    "another type": (b"{}", "text/plain", 415, "unsupported_media_type"),
    "a byte too many": (
        b"{}" + b" " * 65_535,
        "application/json",
        413,
        "payload_too_large",
    ),
}


def test_a_fault_of_the_body_comes_before_any_of_the_order(client, store, subtests):
    client.place()
    for what, (body, content_type, status, code) in NO_SHIPMENTS.items():
        for order_id in ("1", "2", "abc"):
            with subtests.test(what, order_id=order_id):
                path = f"/v1/store/orders/{order_id}/ship"
                assert_error(post(client, body, content_type, path), status, code)
    assert len(store.events()) == 1


def test_a_body_with_a_content_encoding_is_refused(client):
    client.place()
    response = post(client, b"{}", **{"Content-Encoding": "gzip"})
    assert_error(response, 415, "unsupported_media_type")


def test_a_body_of_just_64_kib_is_read(client):
    client.place()
    assert post(client, b"{}" + b" " * 65_534).status_code == 200
