"""Two shops in one process, over one set of routes: neither sees anything of the other."""

from __future__ import annotations

import pytest

from tests.support.stores import assert_error

LIST = "/v2/store/orders"


@pytest.fixture
def shops(make_store, tmp_path):
    """Two stores that serve, with their background work."""
    stores = make_store(), make_store(instance=tmp_path / "other")
    for store in stores:
        store.shop.begin()
        store.shop.start()
    yield stores
    for store in stores:
        store.shop.stop()


def test_a_shop_has_orders_keys_and_limits_of_its_own(shops):
    one, other = (store.client(plan="free").speaking(2) for store in shops)
    assert [one.place(7).get_json()["id"], one.place(8).get_json()["id"]] == [1, 2]
    assert other.place(9).get_json()["id"] == 1
    for _ in range(2):  # then cached
        assert [each["petId"] for each in one.get(LIST).get_json()["orders"]] == [7, 8]
        assert [each["petId"] for each in other.get(LIST).get_json()["orders"]] == [9]
    assert one.order(1).headers["ETag"] != other.order(1).headers["ETag"]
    left = [each.get("/v2/usage").headers["X-RateLimit-Remaining"] for each in (one, other)]
    assert int(left[0]) + 1 == int(left[1])
    one.secret, other.secret = other.secret, one.secret
    for each in (one, other):
        assert_error(each.get(LIST), 401, "invalid_api_key")


def test_a_shop_that_stops_leaves_the_other_serving(shops):
    stopping, staying = shops
    client = staying.client().speaking(2)
    stopping.shop.stop()
    stopping.shop.end()
    assert client.place().status_code == 201
    assert client.get(LIST).status_code == 200
