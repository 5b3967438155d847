"""Unique references: requested by a client, by a setting, or by an import."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.commands import messages
from tests.support.imports import import_file, import_rejected, imported, orders_of, table
from tests.support.serving import serving
from tests.support.stores import Store, assert_error
from tests.support.wire import Wire

ORDERS = "/v2/store/orders"
EXISTS = (409, "reference_exists")
KEYED = {"Idempotency-Key": "one"}


@pytest.fixture
def unique(make_store):
    """A client of a shop whose references are unique."""
    return client_of(make_store(unique_references=True))


def client_of(store):
    return store.client(plan="enterprise", per_minute=10**9, per_day=10**9).speaking(2)


def place(client, reference="R-1", **order):
    headers = order.pop("headers", {})
    body = {"petId": 7, "reference": reference, "uniqueReference": True, **order}
    return client.post(ORDERS, json=body, headers=headers)


def change(client, order_id, **fields):
    return client.request("PATCH", f"{ORDERS}/{order_id}", json=fields)


def test_a_duplicate_reference_is_refused_with_the_path_of_the_other_order(client_v2, store):
    client_v2.place(reference="R-1")
    assert place(client_v2, "R-2").status_code == 201
    for end in (lambda _: None, client_v2.ship, client_v2.cancel):
        end(1)
        for reference, order_id in (("R-1", 1), ("R-2", 2)):
            response = place(client_v2, reference)
            assert_error(response, *EXISTS)
            shown = client_v2.order(order_id)
            assert response.headers["Location"] == f"{ORDERS}/{order_id}"
            assert response.headers["ETag"] == shown.headers["ETag"]
            assert f"Order {order_id} already has this reference" in response.get_json()["message"]
        client_v2.post(f"{ORDERS}/1/reopen")
    assert len(store.rows("SELECT id FROM orders")) == 2


def test_references_are_compared_exactly_and_only_on_request(client_v2):
    client_v2.place(reference="Größe")
    for other in ("größe", "GRÖSSE", "Größe ", "Grosse", "Gr_ße"):
        assert place(client_v2, other).status_code == 201, other
    assert_error(place(client_v2, "Größe"), *EXISTS)
    assert place(client_v2, "Größe", uniqueReference=False).status_code == 201
    assert "uniqueReference" not in client_v2.place(reference="Größe").get_json()
    # Of several orders with the reference, the first.
    assert place(client_v2, "Größe").headers["Location"] == f"{ORDERS}/1"


def test_uniqueness_needs_a_reference_and_is_true_or_false(client_v2):
    for order, field, code in (
        ({}, "reference", "required"),
        ({"reference": "R", "uniqueReference": None}, "uniqueReference", "null"),
        ({"reference": "R", "uniqueReference": 1}, "uniqueReference", "type"),
    ):
        response = client_v2.post(ORDERS, json={"petId": 7, "uniqueReference": True, **order})
        assert_error(response, 422, "validation_failed")
        (fault,) = response.get_json()["errors"]
        assert (fault["field"], fault["code"]) == (field, code)
    assert client_v2.place(uniqueReference=False).status_code == 201
    assert_error(client_v2.speaking(1).place(uniqueReference=True), 422, "validation_failed")


def test_a_retry_is_recognised_before_uniqueness_is_checked(client_v2, store):
    first = place(client_v2, headers=KEYED)
    again = place(client_v2, headers=KEYED)
    assert (again.status_code, again.data) == (201, first.data)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert_error(place(client_v2, headers={"Idempotency-Key": "two"}), *EXISTS)
    # Uniqueness is part of the request.
    for other in (
        place(client_v2, headers=KEYED, uniqueReference=False),
        client_v2.place(reference="R-1", headers=KEYED),
    ):
        expected = (422, "idempotency_key_reused")
        assert_error(other, *expected)
    # Refusals are not remembered: by the retry, the reference may be free.
    change(client_v2, 1, reference=None)
    assert place(client_v2, headers={"Idempotency-Key": "two"}).status_code == 201
    assert len(store.rows("SELECT id FROM orders")) == 2


def test_with_the_setting_all_references_are_unique(unique):
    for order in ({}, {"uniqueReference": False}):
        reference = f"R-{len(order)}"
        assert unique.place(reference=reference).status_code == 201
        assert_error(unique.place(reference=reference, **order), *EXISTS)
    for _ in range(2):
        assert unique.place().status_code == 201
        assert unique.speaking(1).place().status_code == 201


def test_with_the_setting_a_change_must_keep_references_unique(unique):
    for reference in ("R-1", "R-2"):
        unique.place(reference=reference)
    response = change(unique, 2, reference="R-1")
    assert_error(response, *EXISTS)
    assert response.headers["Location"] == f"{ORDERS}/1"
    assert response.headers["ETag"] == unique.order(1).headers["ETag"]
    assert change(unique, 2, reference="R-2", note="its own").status_code == 200
    assert change(unique, 2, reference="R-3").status_code == 200
    assert change(unique, 1, reference="R-2").status_code == 200
    # The reason why the order can't change at all comes first.
    unique.ship(2)
    assert_error(change(unique, 2, reference="R-2"), 409, "order_already_shipped")
    assert_error(change(unique, 9, reference="R-2"), 404, "order_not_found")


def test_orders_that_already_shared_a_reference_stay_as_they_are(make_store, store):
    client = client_of(store)
    for _ in range(2):
        client.place(reference="R-1")
    client.cancel(2)
    now = client_of(make_store(unique_references=True))
    assert now.post(f"{ORDERS}/2/reopen").status_code == 200
    assert change(now, 2, reference="R-1", quantity=3).status_code == 200
    assert_error(now.place(reference="R-1"), *EXISTS)


def test_without_the_setting_a_change_may_repeat_a_reference(client_v2):
    place(client_v2, "R-1")
    place(client_v2, "R-2")
    assert change(client_v2, 2, reference="R-1").status_code == 200


def test_of_a_hundred_simultaneous_orders_with_one_reference_one_is_placed(store):
    client, barrier = client_of(store), threading.Barrier(100)
    order = {"petId": 7, "reference": "R-1", "uniqueReference": True}
    with serving(store.app) as address, ThreadPoolExecutor(100) as pool:

        def send(_):
            wire = Wire(address, client.secret)
            barrier.wait(60)
            try:
                return wire.ask("POST", ORDERS, order).status
            finally:
                wire.close()

        statuses = sorted(pool.map(send, range(100)))
    assert statuses == [201] + [409] * 99
    assert orders_of(store, "id, reference") == [(1, "R-1")]


def test_two_processes_over_one_store_place_each_reference_once(store, settings, clock):
    # An application with its own connections is another process to the database.
    other = Store(settings, clock)
    clients = client_of(store), client_of(other)
    try:
        with ThreadPoolExecutor(8) as pool:
            sent = pool.map(
                lambda n: place(clients[n % 2], f"R-{n // 8}").status_code, range(8 * 20)
            )
            assert sorted(sent) == [201] * 20 + [409] * 140
    finally:
        other.shop.counters.close()
        other.shop.database.close()
    references = [each for (each,) in orders_of(store, "reference")]
    assert sorted(references) == sorted({*references})


# Imports.

ROWS = table(["petId", "reference"], [7, "R-1"], [8, ""], [9, "R-2"], [9, ""])
REPEATED = table(["petId", "reference"], [7, "R-1"], [8, "r-1"], [9, "R-1"], [9, "R-1"])


def test_an_import_with_unique_references_names_each_line_that_repeats_one(store, tmp_path):
    rejected = import_rejected(store, tmp_path, REPEATED, "orders.csv", "--unique-references")
    assert "line 4, reference: 'R-1' is also on line 2; line 5, reference: 'R-1'" in rejected
    imported(import_file(store, tmp_path, ROWS, "orders.csv", "--unique-references"), 4)
    rejected = import_rejected(store, tmp_path, ROWS, "orders.csv", "--unique-references")
    assert "line 2, reference: order 1 has 'R-1' already; line 4, reference: order 3" in rejected
    with_id = table(["id", "petId", "reference"], [77, 7, "R-1"])
    rejected = import_rejected(store, tmp_path, with_id, "orders.csv", "--unique-references")
    assert "line 2, reference: order 1 has 'R-1' already" in rejected
    imported(import_file(store, tmp_path, REPEATED), 4)


def test_the_setting_applies_to_imports_which_can_skip_known_references(make_store, tmp_path):
    store = make_store(unique_references=True)
    assert "'R-1' is also on line 2" in import_rejected(store, tmp_path, REPEATED)
    imported(import_file(store, tmp_path, ROWS), 4)
    again = import_rejected(store, tmp_path, ROWS, "orders.csv", "--if-known", "import")
    assert "line 2, reference: order 1 has 'R-1' already" in again
    more = ROWS + "5,R-3\n"
    done = import_file(store, tmp_path, more, "orders.csv", "--if-known", "skip")
    left_out = "2 rows left out, as an order has their reference.\nImported 3 orders.\n"
    assert messages(done) == left_out
    repeated = REPEATED + "5,R-9\n5,R-9\n"
    skipped = import_rejected(store, tmp_path, repeated, "orders.csv", "--if-known", "skip")
    assert "line 7, reference: 'R-9' is also on line 6" in skipped
    assert "line 4" not in skipped
