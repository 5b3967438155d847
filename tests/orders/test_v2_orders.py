"""placeOrder, getOrder, cancelOrder and shipOrder of version 2, where version 1 has others."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.stores import assert_error

PATH = "/v2/store/orders"


@pytest.fixture
def v1(client_v2):
    """The same key, speaking version 1."""
    client = type(client_v2)(client_v2.store, client_v2.key_id, client_v2.secret)
    assert client.version == 1
    return client


# Placing.


def test_an_order_is_placed_with_a_reference(client_v2):
    response = client_v2.place(7, quantity=2, reference='R-1, "Höhle" 🐢')
    assert response.status_code == 201
    assert response.headers["Location"] == f"{PATH}/1"
    assert list(response.get_json().items()) == [
        ("id", 1),
        ("petId", 7),
        ("quantity", 2),
        ("complete", False),
        ("status", "pending"),
        ("placedAt", "2026-12-01T12:00:00.000Z"),
        ("updatedAt", "2026-12-01T12:00:00.000Z"),
        ("reference", 'R-1, "Höhle" 🐢'),
    ]
    assert client_v2.get(f"{PATH}/1").get_json() == response.get_json()


def test_a_reference_may_be_left_out_and_come_twice(client_v2):
    assert "reference" not in client_v2.place().get_json()
    assert [client_v2.place(reference="R").status_code for _ in range(2)] == [201, 201]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=64))
@example("🐢" * 64)
@example(" ")
def test_any_text_of_64_characters_is_a_reference(client_v2, text):
    placed = client_v2.place(reference=text).get_json()
    assert placed["reference"] == text
    assert client_v2.get(f"{PATH}/{placed['id']}").get_json() == placed


@pytest.mark.parametrize("text", ["", "R" * 65, "a\nb", "\x7f", "\x85", "\ud800", 7, None, ["R"]])
def test_what_is_no_reference_is_refused(client_v2, text):
    response = client_v2.place(reference=text)
    assert_error(response, 422, "validation_failed")
    assert response.get_json()["message"].startswith("reference: ")
    assert client_v2.store.events() == []


def test_version_1_takes_no_reference_and_does_not_show_one(client_v2, v1):
    client_v2.place(reference="R-1")
    assert list(v1.get("/v1/store/orders/1").get_json()) == ["id", "petId", "quantity", "complete"]
    response = v1.place(reference="R-1")
    assert_error(response, 422, "validation_failed")


def test_the_versions_have_idempotency_keys_of_their_own(client_v2, v1):
    key = {"Idempotency-Key": "one"}
    placed = [client.place(headers=key) for client in (v1, client_v2, v1, client_v2)]
    assert [each.get_json()["id"] for each in placed] == [1, 2, 1, 2]
    assert [each.headers.get("Idempotent-Replayed") for each in placed] == [
        *(None, None),
        *("true", "true"),
    ]
    assert [each.headers["Location"] for each in placed[2:]] == ["/v1/store/orders/1", f"{PATH}/2"]
    assert placed[1].data == placed[3].data


def test_a_replay_gives_the_order_as_it_was_placed(client_v2):
    key = {"Idempotency-Key": "one"}
    first = client_v2.place(headers=key, reference="R-1")
    client_v2.store.clock.advance(60)
    client_v2.cancel(1)
    assert client_v2.place(headers=key, reference="R-1").data == first.data
    other = client_v2.place(headers=key, reference="R-2")
    assert_error(other, 422, "idempotency_key_reused")


# Looking, shipping and cancelling.


def test_a_cancelled_order_is_there(client_v2, v1):
    client_v2.place(reference="R-1")
    client_v2.store.clock.advance(60)
    assert client_v2.cancel(1).status_code == 204
    order = client_v2.get(f"{PATH}/1").get_json()
    assert (order["status"], order["complete"]) == ("cancelled", False)
    assert order["updatedAt"] == "2026-12-01T12:01:00.000Z"
    assert_error(v1.get("/v1/store/orders/1"), 404, "order_not_found")
    assert_error(v1.cancel(1), 404, "order_not_found")


def test_nothing_leaves_cancelled(client_v2):
    client_v2.place()
    client_v2.cancel(1)
    assert_error(client_v2.cancel(1), 409, "order_already_cancelled")
    assert_error(client_v2.ship(1), 409, "order_already_cancelled")
    assert len(client_v2.store.events()) == 2


def test_nothing_leaves_shipped(client_v2):
    client_v2.place()
    client_v2.store.clock.advance(60)
    shipped = client_v2.ship(1, shipDate="2026-11-30T08:00:00+01:00").get_json()
    assert (shipped["status"], shipped["complete"]) == ("shipped", True)
    assert shipped["shipDate"] == "2026-11-30T07:00:00.000Z"
    assert shipped["updatedAt"] == "2026-12-01T12:01:00.000Z"
    assert client_v2.get(f"{PATH}/1").get_json() == shipped
    assert_error(client_v2.cancel(1), 409, "order_already_shipped")
    assert_error(client_v2.ship(1), 409, "order_already_shipped")


@pytest.mark.parametrize("order_id", ["2", "0", "01", "abc", "9" * 30])
def test_an_order_that_there_is_not_is_not_found(client_v2, order_id):
    client_v2.place()
    assert_error(client_v2.get(f"{PATH}/{order_id}"), 404, "order_not_found")
    assert_error(client_v2.cancel(order_id), 404, "order_not_found")
    assert_error(client_v2.ship(order_id), 404, "order_not_found")
    assert_error(client_v2.get(f"{PATH}/{order_id}/events"), 404, "order_not_found")


def test_the_etag_of_an_order_is_of_its_own_latest_event(client_v2):
    client_v2.place()
    tag = client_v2.get(f"{PATH}/1").headers["ETag"]
    client_v2.place()
    again = client_v2.get(f"{PATH}/1", headers={"If-None-Match": tag})
    assert (again.status_code, again.data) == (304, b"")
    client_v2.cancel(1)
    changed = client_v2.get(f"{PATH}/1", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.get_json()["status"]) == (200, "cancelled")
    assert re.fullmatch(r'W/"[!#-~]+"', changed.headers["ETag"])
