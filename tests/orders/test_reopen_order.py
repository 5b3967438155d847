"""reopenOrder: its effect on an order and on the figures, and the ways to request it."""

from __future__ import annotations

import pytest

from orders.store.care import checks
from tests.support.imports import import_file, imported, lines
from tests.support.orders import OPTIONAL, TRACKING, order_v2
from tests.support.stores import assert_error

EXPECTED, LATER = OPTIONAL["shipDate"], "2026-12-01T12:01:00.000Z"
ORDERS = "/v2/store/orders"


@pytest.fixture
def client(client_v2):
    return client_v2


def reopen(client, order_id=1, **headers):
    return client.post(f"{ORDERS}/{order_id}/reopen", headers=headers)


def settled(client, change, **order):
    """Place an order, and ship or cancel it; return its id."""
    order_id = client.place(**order).get_json()["id"]
    more = {"tracking": TRACKING} if change == "ship" else {}
    getattr(client, change)(order_id, **more)
    return order_id


def figures(client):
    report = client.get("/v2/store/stats?days=30").get_json()
    counted = {name: sum(day[name] for day in report["days"]) for name in ("shipped", "cancelled")}
    return report["byStatus"], counted


def complaint(store):
    with store.database.read() as connection:
        return checks.complaint(connection)


@pytest.mark.parametrize("change", ["ship", "cancel"])
@pytest.mark.parametrize("order", [OPTIONAL, {}], ids=["every field", "no field"])
def test_a_reopened_order_is_as_it_was_placed(client, store, clock, change, order):
    settled(client, change, **order)
    clock.advance(60)
    response = reopen(client)
    assert response.get_json() == order_v2(**order, updatedAt=LATER)
    assert (response.status_code, client.order(1).get_json()) == (200, response.get_json())
    event = store.events()[-1]
    assert (event["type"], event["status"]) == ("order.reopened", "pending")
    assert event["request_id"] == response.headers["X-Request-Id"]
    assert [each["id"] for each in client.speaking(1).get("/v1/store/orders").get_json()] == [1]
    assert client.speaking(1).order(1).get_json()["complete"] is False
    assert client.get(f"{ORDERS}?search={TRACKING}").get_json()["orders"] == []
    assert complaint(store) is None


def test_the_last_expected_ship_date_comes_back(client):
    settled(client, "ship", shipDate=EXPECTED)
    client.request("PATCH", f"{ORDERS}/1", json={"note": "after it shipped"})
    assert reopen(client).get_json()["shipDate"] == EXPECTED
    client.request("PATCH", f"{ORDERS}/1", json={"shipDate": None})
    client.ship(1)
    assert "shipDate" not in reopen(client).get_json()


def test_a_pending_order_stays_as_it_is_without_an_event(client, store):
    placed = client.place(**OPTIONAL)
    again = reopen(client)
    assert (again.status_code, again.get_json()) == (200, placed.get_json())
    assert again.headers["ETag"] == client.order(1).headers["ETag"]
    assert len(store.events()) == 1


def test_a_reopened_order_counts_as_pending_on_the_day_it_was_placed(client, store, clock):
    for change in ("ship", "cancel", "ship", "cancel"):
        settled(client, change)
    clock.advance(24 * 3600)
    reopen(client, 1)
    reopen(client, 2)
    assert figures(client) == (
        {"pending": 2, "shipped": 1, "cancelled": 1},
        {"shipped": 1, "cancelled": 1},
    )
    client.cancel(1)
    client.ship(2)
    client.request("PATCH", f"{ORDERS}/1", json={"note": "after it was cancelled"})
    assert complaint(store) is None
    reopen(client, 1)
    reopen(client, 2)
    reopen(client, 3)
    reopen(client, 4)
    assert figures(client) == (
        {"pending": 4, "shipped": 0, "cancelled": 0},
        {"shipped": 0, "cancelled": 0},
    )
    assert complaint(store) is None


IMPORTED = {
    "shipped": ("2026-11-20T09:30:00Z", None),
    "cancelled": ("2026-11-20T09:30:00Z", "2026-11-20T09:30:00.000Z"),
}


@pytest.mark.parametrize("status", IMPORTED)
def test_an_imported_order_can_be_reopened(client, store, tmp_path, status):
    sent, expected = IMPORTED[status]
    order = {"petId": 7, "status": status, "shipDate": sent, "updatedAt": "2026-11-21T10:00:00Z"}
    order["placedAt"] = "2026-11-19T10:00:00Z"
    imported(import_file(store, tmp_path, lines(order), "orders.jsonl"), 1)
    assert reopen(client).get_json().get("shipDate") == expected
    assert figures(client)[0] == {"pending": 1, "shipped": 0, "cancelled": 0}
    assert complaint(store) is None


def test_an_order_that_does_not_exist_is_not_found(client, store):
    for order_id in ("1", "0", "abc", str(2**63)):
        assert_error(reopen(client, order_id), 404, "order_not_found")
        assert_error(reopen(client, order_id, **{"If-Match": '"x"'}), 404, "order_not_found")
    assert store.events() == []


def test_a_key_that_may_only_read_reopens_nothing(client, store):
    settled(client, "ship")
    assert_error(reopen(store.client(scopes=("read",))), 403, "insufficient_scope")
    assert store.events()[-1]["type"] == "order.shipped"


def test_it_heeds_if_match(client, store):
    tag = client.place().headers["ETag"]
    assert reopen(client, **{"If-Match": tag}).status_code == 200
    shipped = client.ship(1).headers["ETag"]
    for name, value in (("If-Match", tag), ("If-None-Match", shipped), ("If-None-Match", "*")):
        assert_error(reopen(client, **{name: value}), 412, "precondition_failed")
    assert store.events()[-1]["type"] == "order.shipped"
    assert reopen(client, **{"If-Match": shipped}).get_json()["status"] == "pending"


def test_with_an_idempotency_key_it_is_done_once(client, store):
    settled(client, "ship")
    first = reopen(client, **{"Idempotency-Key": "k"})
    client.ship(1)
    again = reopen(client, **{"Idempotency-Key": "k"})
    assert (again.get_json(), again.headers["Idempotent-Replayed"]) == (first.get_json(), "true")
    assert store.events()[-1]["type"] == "order.shipped"
    settled(client, "ship")
    other = reopen(client, 2, **{"Idempotency-Key": "k"})
    assert_error(other, 422, "idempotency_key_reused")
    assert_error(reopen(client, 2, **{"Idempotency-Key": "ö"}), 400, "malformed_request")


def test_version_1_has_no_such_operation(client):
    settled(client, "ship")
    response = client.post("/v1/store/orders/1/reopen")
    assert_error(response, 404, "not_found")
