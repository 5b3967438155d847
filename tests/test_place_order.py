"""placeOrder: POST /v1/store/orders."""

from __future__ import annotations

from conftest import assert_error


def test_a_placed_order_is_pending_and_has_a_location(client):
    response = client.place(7, quantity=2, shipDate="2026-12-05T10:00:00+02:00")
    assert response.status_code == 201
    assert response.get_json() == {
        "id": 1,
        "petId": 7,
        "quantity": 2,
        "shipDate": "2026-12-05T08:00:00.000Z",
        "complete": False,
    }
    assert response.headers["Location"] == "/v1/store/orders/1"


def test_a_field_that_is_not_the_clients_to_set_is_refused(client, store):
    assert_error(client.place(7, complete=True), 422, "validation_failed")
    assert store.events() == []
