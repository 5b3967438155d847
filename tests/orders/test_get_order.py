"""getOrder: one order, its ETag, and what an id in a path is."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orders.domain import MAX_INT64
from tests.support.orders import ANY, order_row, put_rows
from tests.support.stores import BOTH_VERSIONS, assert_error

# Which order.


@BOTH_VERSIONS
def test_an_order_is_shown_as_the_list_shows_it(client, version):
    client.place(7)
    client.place(8, shipDate="2026-12-05T08:00:00Z")
    client.ship(2)
    shown = [client.order(order_id).get_json() for order_id in (1, 2)]
    listed = client.get(client.orders).get_json()
    assert (listed if version == 1 else listed["orders"]) == shown


def test_a_cancelled_order_is_gone_whatever_copy_a_client_has(client):
    client.place()
    tag = client.order(1).headers["ETag"]
    client.cancel(1)
    for copies in ({}, {"If-None-Match": tag}, {"If-None-Match": "*"}):
        assert_error(client.order(1, headers=copies), 404, "order_not_found")


@BOTH_VERSIONS
def test_a_body_is_ignored_and_by_version_1_so_are_parameters(client, version):
    client.place()
    path = f"{client.orders}/1"
    query = "?id=2&%ff" if version == 1 else ""
    response = client.get(f"{path}{query}", data=b"{", content_type="application/json")
    assert response.data == client.get(path).data


@BOTH_VERSIONS
def test_the_highest_id_is_an_id(client, store):
    put_rows(store.database, [order_row(id=MAX_INT64)])
    assert client.order(MAX_INT64).get_json()["id"] == MAX_INT64


NOT_IDS = (
    *("2", "0", "+1", "-1", "01", "%301", "1.0", "1e0", "0x1", "1_0", "abc", ".."),
    # Blanks, other digits, bytes that are no text, and a slash.
    *("%201", "1%20", "1%0A", "1%00", "%D9%A1", "%EF%BC%91", "%C2%B9", "%FF", "1%2F1"),
    *(str(MAX_INT64 + 1), str(2**64 + 1), "9" * 5_000),
)


@BOTH_VERSIONS
def test_an_id_that_is_not_a_canonical_number_is_not_found_by_any_operation(
    client, version, subtests
):
    client.place()
    for not_id in NOT_IDS:
        path = f"{client.orders}/{not_id}"
        targets = [("GET", path), ("DELETE", path), ("POST", f"{path}/ship")]
        if version == 2:
            targets.append(("GET", f"{path}/events"))
        for method, target in targets:
            with subtests.test(f"{method} {target[:40]}"):
                assert_error(client.send(target, method), 404, "order_not_found")
    assert len(client.store.events()) == 1


@BOTH_VERSIONS
def test_an_encoded_digit_is_a_digit(client):
    placed = client.place()
    assert client.send(f"{client.orders}/%31").get_json() == placed.get_json()


@given(segment=st.text(ANY.filter(lambda one: one not in "/?#"), min_size=1))
def test_no_path_segment_breaks_the_service(client_v2, segment):
    patient = client_v2.speaking(1)
    path = f"{patient.orders}/{segment}"
    for target in (path.encode().decode("latin-1"), quote(path)):
        assert_error(patient.send(target), 404, "order_not_found")


@BOTH_VERSIONS
@pytest.mark.parametrize("change", ["ship", "cancel"])
def test_the_etag_changes_with_the_order_and_with_no_other(client, change):
    client.place()
    client.place()
    first, second = (client.order(order_id).headers["ETag"] for order_id in (1, 2))
    assert first != second
    getattr(client, change)(2)
    client.place()
    assert client.order(1).headers["ETag"] == first
    assert client.order(2).headers.get("ETag") != second
