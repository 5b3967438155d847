"""cancelOrder: DELETE /v1/store/orders/{orderId}, and races of all changes for one order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orders.domain import (
    OrderAlreadyCancelled,
    OrderAlreadyShipped,
    OrderNotFound,
    Origin,
    Refusal,
)
from tests.support.stores import Client, assert_error

PATH = "/v1/store/orders/1"


def test_a_pending_order_is_cancelled_without_a_body(client):
    client.place()
    response = client.cancel(1)
    assert (response.status_code, response.data) == (204, b"")
    assert "Content-Length" not in response.headers


def test_a_cancelled_order_is_gone_for_every_operation(client):
    client.place()
    client.cancel(1)
    assert client.get("/v1/store/orders").get_json() == []
    for answer in (client.get(PATH), client.cancel(1), client.ship(1)):
        assert_error(answer, 404, "order_not_found")


def test_a_cancelled_order_keeps_its_row_and_its_history(client, store, clock):
    client.place(7, quantity=2, shipDate="2026-12-05T08:00:00Z")
    clock.advance(60)
    client.cancel(1)
    (row,) = store.rows("SELECT * FROM orders")
    assert row["status"] == "cancelled"
    assert row["placed_at"] == "2026-12-01T12:00:00.000Z"
    assert row["updated_at"] == "2026-12-01T12:01:00.000Z"
    assert [event["type"] for event in store.events()] == ["order.placed", "order.cancelled"]


def test_a_cancellation_has_one_event_that_tells_who_cancelled(client, store, clock):
    client.place(7, quantity=2, shipDate="2026-12-05T08:00:00Z")
    clock.advance(60)
    other = store.client()
    response = other.cancel(1)
    placed, cancelled = store.events()
    now = "2026-12-01T12:01:00.000Z"
    assert cancelled == {
        **placed,
        "id": 2,
        "type": "order.cancelled",
        "at": now,
        "actor": f"key:{other.key_id}",
        "request_id": response.headers["X-Request-Id"],
        "status": "cancelled",
        "updated_at": now,
    }


def test_a_shipped_order_cannot_be_cancelled(client, store):
    client.place()
    client.ship(1)
    shipped = client.get(PATH)
    refused = client.cancel(1)
    assert_error(refused, 409, "order_already_shipped")
    assert refused.get_json()["message"].startswith("Order 1 has shipped.")
    assert client.get(PATH).data == shipped.data
    assert len(store.events()) == 2


def test_an_order_that_is_not_there_cannot_be_cancelled(client, store, subtests):
    client.place()
    for order_id in ("2", "0", "01", "+1", "9" * 30, "abc"):
        with subtests.test(order_id):
            assert_error(client.cancel(order_id), 404, "order_not_found")
    assert len(store.events()) == 1


@pytest.mark.parametrize("change", ["ship", "cancel"])
def test_versions_and_commands_are_told_which_order_cannot_be_changed_and_why(
    client, store, change
):
    changes = {
        "ship": lambda order_id: store.services.orders.ship(order_id, None, Origin("cli")),
        "cancel": lambda order_id: store.services.orders.cancel(order_id, Origin("cli")),
    }
    for _ in range(2):
        client.place()
    client.ship(1)
    client.cancel(2)
    for refusal in (OrderAlreadyShipped(1), OrderAlreadyCancelled(2), OrderNotFound(3)):
        with pytest.raises(Refusal) as refused:
            changes[change](refusal.order_id)
        assert refused.value == refusal


def test_a_read_key_cannot_cancel(client, store):
    client.place()
    assert_error(store.client(scopes=("read",)).cancel(1), 403, "insufficient_scope")
    assert client.get(PATH).status_code == 200


def test_a_body_is_ignored(client):
    client.place()
    response = client.delete(PATH, data=b"{" * 70_000, content_type="text/plain")
    assert response.status_code == 204


def test_only_the_order_named_is_cancelled(client):
    for _ in range(3):
        client.place()
    client.cancel(2)
    assert [order["id"] for order in client.get("/v1/store/orders").get_json()] == [1, 3]


# Races.

WON = {"cancel": 204, "ship": 200}
TRUE_AFTER = {"cancel": (404, "order_not_found"), "ship": (409, "order_already_shipped")}


@pytest.mark.parametrize(
    "changes",
    [["cancel"] * 16, ["ship"] * 16, ["cancel", "ship"] * 8],
    ids=["cancel", "ship", "both"],
)
def test_of_racing_changes_one_wins_and_the_others_are_told_what_is_true(store, client, changes):
    barrier = threading.Barrier(len(changes))

    def change(name):
        racer = Client(store, client.key_id, client.secret)
        barrier.wait(10)
        return name, getattr(racer, name)(1)

    client.place()
    with ThreadPoolExecutor(len(changes)) as pool:
        answers = list(pool.map(change, changes))
    ((winner, won),) = [pair for pair in answers if pair[1].status_code < 300]
    assert won.status_code == WON[winner]
    for _, lost in answers:
        if lost is not won:
            assert_error(lost, *TRUE_AFTER[winner])
    placed, changed = store.events()
    assert placed["type"] == "order.placed"
    assert changed["request_id"] == won.headers["X-Request-Id"]
