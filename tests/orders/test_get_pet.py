"""getPet, whose responses announce that it is deprecated."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date, timedelta

import pytest
from sqlalchemy import insert

from orders import apikeys
from orders.domain import MAX_INT64
from orders.store import apikeys as key_store
from orders.store import pets, tables
from tests.support.stores import Client, assert_error

DEPRECATION, SUNSET = "@1764892800", "Thu, 05 Dec 2030 00:00:00 GMT"
PETS = [
    {"id": 7, "name": "Rex", "category_id": 1, "status": "available"},
    {"id": 8, "name": 'Hündin "Luna"', "category_id": None, "status": "pending"},
    {"id": MAX_INT64, "name": "Mimi", "category_id": MAX_INT64, "status": "sold"},
]


def stocked(store):
    with store.database.write() as connection:
        connection.execute(insert(tables.pets), PETS)
    return store


@pytest.fixture
def store(make_store):
    """A store with pets in its catalogue."""
    return stocked(make_store())


@pytest.fixture(scope="module")
def shared(shared_store):
    """A client of a store with those pets, which no test changes."""
    return stocked(shared_store).client()


def announced(response):
    """Return what a response announces about the end of its route."""
    return response.headers.get("Deprecation"), response.headers.get("Sunset")


# The pet.


@pytest.mark.parametrize("pet", PETS, ids=["7", "8", "the highest id"])
def test_a_pet_is_shown_with_its_category_if_it_has_one(shared, pet):
    response = shared.get(f"/v1/pets/{pet['id']}")
    shown = [("id", pet["id"]), ("name", pet["name"])]
    shown += [("categoryId", pet["category_id"])] if pet["category_id"] else []
    shown += [("status", pet["status"])]
    assert response.status_code == 200
    assert list(response.get_json().items()) == shown
    assert response.content_type == "application/json"
    assert "ETag" not in response.headers


NOT_IDS = (
    *("9", "0", "07", "+7", "-7", "7.0", "7%20", "7%0A", "%D9%A7", "7%2F7", "Rex"),
    *(str(MAX_INT64 + 1), "9" * 5_000),
)


def test_a_pet_that_is_not_there_is_not_found(shared, subtests):
    for not_id in NOT_IDS:
        with subtests.test(not_id[:20]):
            response = shared.send(f"/v1/pets/{not_id}")
            assert_error(response, 404, "pet_not_found")
            assert announced(response) == (DEPRECATION, SUNSET)


# The end of the route.


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v1/pets/7", 200),
        ("GET", "/v1/pets/7?x=y", 200),
        ("GET", "/v1/%70ets/%37", 200),
        ("GET", "http://shop.example/v1/pets/7", 200),
        ("HEAD", "/v1/pets/7", 200),
        ("OPTIONS", "/v1/pets/7", 204),
        ("GET", "/v1/pets/9", 404),
        ("HEAD", "/v1/pets/Rex", 404),
        ("POST", "/v1/pets/7", 405),
        ("DELETE", "/v1/pets/Rex", 405),
    ],
)
def test_every_answer_to_a_valid_key_announces_the_end_of_the_route(shared, method, target, status):
    response = shared.send(target, method)
    assert (response.status_code, announced(response)) == (status, (DEPRECATION, SUNSET))


def test_so_does_the_answer_to_a_read_key_that_may_not_write(store):
    response = store.client(scopes=("read",)).delete("/v1/pets/7")
    assert_error(response, 403, "insufficient_scope")
    assert announced(response) == (DEPRECATION, SUNSET)


def test_so_does_the_answer_to_a_key_over_its_limit_or_banned(make_store):
    store = stocked(make_store(ban_after=2))
    client = store.client(plan="enterprise", per_minute=1, per_day=10)
    client.get("/v1/pets/7")
    for code in ("rate_limit_exceeded", "api_key_banned", "api_key_banned"):
        response = client.get("/v1/pets/7")
        store.clock.advance(1)
        assert_error(response, 429, code)
        assert announced(response) == (DEPRECATION, SUNSET)


@pytest.mark.parametrize("error", [(500, "internal_error"), (503, "store_unavailable")])
def test_so_does_an_internal_error_or_an_outage(client, store, monkeypatch, error):
    client.get("/v1/pets/7")  # after which the key is known for a moment
    if error[0] == 500:
        monkeypatch.setattr(pets, "find", lambda *_: 1 / 0)
    with store.away() if error[0] == 503 else nullcontext():
        response = client.get("/v1/pets/7")
    assert_error(response, *error)
    assert announced(response) == (DEPRECATION, SUNSET)


def test_without_a_valid_key_nothing_is_announced(store, clock):
    past = clock.now() - timedelta(seconds=1)
    revoked = store.client()
    with store.database.write() as connection:
        key_store.change(connection, revoked.key_id, revoked_at=past)
    for nobody in (
        store.anonymous(),
        Client(store, None, "nonsense"),
        Client(store, None, apikeys.generate()),
        store.client(expires_at=past),
        revoked,
    ):
        for path in ("/v1/pets/7", "/v1/pets/9"):
            response = nobody.get(path)
            assert (response.status_code, announced(response)) == (401, (None, None))


OTHER_ROUTES = {
    404: (
        *("/v1/pets", "/v1/pets/", "/v1/pets/7/", "/v1/pets/7/orders", "//v1/pets/7"),
        *("/v1//pets/7", "/v2/pets/7", "/v1/store/orders/7"),
    ),
    200: ("/v1/store/orders",),
}


def test_no_other_route_ends(shared, subtests):
    for status, targets in OTHER_ROUTES.items():
        for target in targets:
            with subtests.test(target):
                response = shared.send(target)
                assert (response.status_code, announced(response)) == (status, (None, None))


def test_the_sunset_is_the_configured_one(make_store):
    store = stocked(make_store(pets_sunset=date(2031, 1, 2)))
    response = store.client().get("/v1/pets/7")
    assert announced(response) == (DEPRECATION, "Thu, 02 Jan 2031 00:00:00 GMT")


def test_after_the_sunset_the_route_goes_on_answering(client, clock):
    clock.advance(5 * 366 * 24 * 60 * 60)
    response = client.get("/v1/pets/7")
    assert response.get_json()["name"] == "Rex"
    assert announced(response) == (DEPRECATION, SUNSET)
