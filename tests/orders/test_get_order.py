"""getOrder: GET /v1/store/orders/{orderId}, and what an id in a path is."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orders.domain import MAX_INT64
from tests.support.stores import assert_error

PATH = "/v1/store/orders/1"


def insert_row(store, order_id):
    """Insert a pending order of this id, as an import would."""
    now = "'2026-12-01T12:00:00.000Z'"
    store.execute(
        "INSERT INTO orders (id, pet_id, quantity, status, placed_at, updated_at) "
        f"VALUES ({order_id}, 7, 1, 'pending', {now}, {now})"
    )


@pytest.fixture
def patient(store):
    """A client without limits to speak of."""
    return store.client(plan="enterprise", per_minute=10**9, per_day=10**9)


# Which order.


def test_an_order_is_shown_as_it_was_placed(client):
    placed = client.place(7, quantity=2, shipDate="2026-12-05T08:00:00Z")
    response = client.get(PATH)
    assert (response.status_code, response.get_json()) == (200, placed.get_json())
    assert list(response.get_json()) == ["id", "petId", "quantity", "shipDate", "complete"]
    assert response.content_type == "application/json"


def test_an_order_is_shown_as_the_list_shows_it(client):
    client.place(7)
    client.place(8, shipDate="2026-12-05T08:00:00Z")
    client.ship(2)
    listed = [client.get(f"/v1/store/orders/{order_id}").get_json() for order_id in (1, 2)]
    assert client.get("/v1/store/orders").get_json() == listed


def test_a_shipped_order_is_complete(client):
    client.place(7)
    client.ship(1)
    assert client.get(PATH).get_json() == {
        "id": 1,
        "petId": 7,
        "quantity": 1,
        "shipDate": "2026-12-01T12:00:00.000Z",
        "complete": True,
    }


def test_a_cancelled_order_is_gone(client):
    client.place()
    tag = client.get(PATH).headers["ETag"]
    client.cancel(1)
    assert_error(client.get(PATH), 404, "order_not_found")
    assert_error(client.get(PATH, headers={"If-None-Match": tag}), 404, "order_not_found")
    assert_error(client.get(PATH, headers={"If-None-Match": "*"}), 404, "order_not_found")


def test_an_order_that_nobody_placed_is_not_found(client):
    client.place()
    assert_error(client.get("/v1/store/orders/2"), 404, "order_not_found")


def test_a_read_key_may_get_an_order(store, client):
    client.place()
    assert store.client(scopes=("read",)).get(PATH).status_code == 200


def test_query_parameters_and_a_body_are_ignored(client):
    client.place()
    response = client.get(f"{PATH}?id=2&%ff", data=b"{", content_type="application/json")
    assert response.data == client.get(PATH).data


def test_the_highest_id_is_an_id(client, store):
    insert_row(store, MAX_INT64)
    assert client.get(f"/v1/store/orders/{MAX_INT64}").get_json()["id"] == MAX_INT64


NO_IDS = {
    "zero": "0",
    "plus": "+1",
    "minus": "-1",
    "a leading zero": "01",
    "a leading zero, encoded": "%301",
    "a fraction": "1.0",
    "an exponent": "1e0",
    "a hexadecimal number": "0x1",
    "an underscore": "1_0",
    "a blank before": "%201",
    "a blank behind": "1%20",
    "a line break behind": "1%0A",
    "a zero byte behind": "1%00",
    "letters": "abc",
    "dots": "..",
    "arabic digits": "%D9%A1",
    "wide digits": "%EF%BC%91",
    "superscript": "%C2%B9",
    "no UTF-8": "%FF",
    "an encoded slash": "1%2F1",
    "2^63": str(MAX_INT64 + 1),
    "2^64 + 1": str(2**64 + 1),
    "5,000 digits": "9" * 5_000,
}


def test_what_is_no_canonical_number_of_ours_is_not_found_by_any_operation(client, subtests):
    client.place()
    for what, no_id in NO_IDS.items():
        path = f"/v1/store/orders/{no_id}"
        for method, target in (("GET", path), ("DELETE", path), ("POST", f"{path}/ship")):
            with subtests.test(what, method=method):
                # As a server writes it: the test client would decode the path first.
                response = client.request(method, "/", environ_overrides={"REQUEST_URI": target})
                assert_error(response, 404, "order_not_found")
    assert len(client.store.events()) == 1


def test_an_encoded_digit_is_a_digit(client):
    placed = client.place()
    response = client.get("/", environ_overrides={"REQUEST_URI": "/v1/store/orders/%31"})
    assert response.get_json() == placed.get_json()


@given(segment=st.text(st.characters(exclude_characters="/?#", codec="utf-8"), min_size=1))
def test_no_segment_whatever_upsets_the_service(patient, segment):
    raw = f"/v1/store/orders/{segment}".encode().decode("latin-1")
    for target in (raw, quote(f"/v1/store/orders/{segment}")):
        response = patient.get("/", environ_overrides={"REQUEST_URI": target})
        assert_error(response, 404, "order_not_found")


# ETag.


def test_the_etag_is_the_orders_own(client):
    client.place()
    client.place()
    first, second = (client.get(f"/v1/store/orders/{i}").headers["ETag"] for i in (1, 2))
    assert first != second
    client.ship(2)
    client.place()
    assert client.get(PATH).headers["ETag"] == first
    assert client.get("/v1/store/orders/2").headers["ETag"] != second


def test_a_good_copy_of_an_order_is_not_sent_again(client):
    client.place()
    whole = client.get(PATH)
    tag = whole.headers["ETag"]
    assert tag.startswith('W/"')
    assert whole.headers["Cache-Control"] == "private, no-cache"
    assert "Authorization" in whole.headers["Vary"].split(", ")
    for header in (tag, tag.removeprefix("W/"), "*", f'"another", {tag}'):
        response = client.get(PATH, headers={"If-None-Match": header})
        assert (response.status_code, response.data) == (304, b""), header
        for name in ("ETag", "Cache-Control", "Vary"):
            assert response.headers[name] == whole.headers[name]


def test_a_copy_from_before_a_change_is_replaced(client):
    client.place()
    tag = client.get(PATH).headers["ETag"]
    client.ship(1)
    response = client.get(PATH, headers={"If-None-Match": tag})
    assert response.status_code == 200
    assert response.get_json()["complete"] is True


def test_head_answers_like_get_without_the_body(client):
    client.place()
    whole, head = client.get(PATH), client.head(PATH)
    assert (head.status_code, head.data) == (200, b"")
    for name in ("ETag", "Cache-Control", "Vary", "Content-Type", "Content-Length"):
        assert head.headers[name] == whole.headers[name]
    assert client.head("/v1/store/orders/2").status_code == 404
