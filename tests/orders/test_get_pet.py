"""getPet: GET /v1/pets/{petId}, which is deprecated and says so."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from sqlalchemy import insert

from orders import keys
from orders.domain import MAX_INT64
from orders.store import keys as key_store
from orders.store import pets
from orders.store.tables import PetRow
from tests.support.stores import Client, assert_error

DEPRECATION = "@1764892800"
SUNSET = "Thu, 05 Dec 2030 00:00:00 GMT"


@pytest.fixture
def store(make_store):
    """A store with pets in its catalogue."""
    return stocked(make_store())


def stocked(store):
    with store.database.write() as connection:
        connection.execute(
            insert(PetRow),
            [
                {"id": 7, "name": "Rex", "category_id": 1, "status": "available"},
                {"id": 8, "name": 'Hündin "Luna"', "category_id": None, "status": "pending"},
                {"id": MAX_INT64, "name": "Mimi", "category_id": MAX_INT64, "status": "sold"},
            ],
        )
    return store


def announced(response):
    """Return what a response says of the end of its route."""
    return response.headers.get("Deprecation"), response.headers.get("Sunset")


# The pet.


def test_a_pet_is_shown_with_its_category_and_status(client):
    response = client.get("/v1/pets/7")
    pet = {"id": 7, "name": "Rex", "categoryId": 1, "status": "available"}
    assert (response.status_code, response.get_json()) == (200, pet)
    assert list(response.get_json()) == list(pet)
    assert response.content_type == "application/json"
    assert "ETag" not in response.headers


def test_a_category_that_is_unknown_is_left_out(client):
    assert client.get("/v1/pets/8").get_json() == {
        "id": 8,
        "name": 'Hündin "Luna"',
        "status": "pending",
    }


def test_the_highest_id_is_an_id(client):
    assert client.get(f"/v1/pets/{MAX_INT64}").get_json() == {
        "id": MAX_INT64,
        "name": "Mimi",
        "categoryId": MAX_INT64,
        "status": "sold",
    }


NO_IDS = (
    *("9", "0", "07", "+7", "-7", "7.0", "7%20", "7%0A", "%D9%A7", "7%2F7", "Rex"),
    *(str(MAX_INT64 + 1), "9" * 5_000),
)


def test_what_is_no_pet_of_ours_is_not_found(client, subtests):
    for no_id in NO_IDS:
        with subtests.test(no_id[:20]):
            response = client.get("/", environ_overrides={"REQUEST_URI": f"/v1/pets/{no_id}"})
            assert_error(response, 404, "pet_not_found")
            assert announced(response) == (DEPRECATION, SUNSET)


def test_a_read_key_may_get_a_pet(store):
    assert store.client(scopes=("read",)).get("/v1/pets/7").status_code == 200


# The end of the route.


ANSWERS = (
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
)


def test_every_answer_to_a_valid_key_tells_that_the_route_ends(client, subtests):
    for method, target, status in ANSWERS:
        with subtests.test(f"{method} {target}"):
            response = client.request(method, "/", environ_overrides={"REQUEST_URI": target})
            assert response.status_code == status
            assert announced(response) == (DEPRECATION, SUNSET)


def test_an_answer_that_a_read_key_may_not_write_tells_it_too(store):
    response = store.client(scopes=("read",)).delete("/v1/pets/7")
    assert_error(response, 403, "insufficient_scope")
    assert announced(response) == (DEPRECATION, SUNSET)


def test_an_answer_that_a_key_is_over_its_limit_or_banned_tells_it_too(make_store):
    store = stocked(make_store(ban_after=2))
    client = store.client(plan="enterprise", per_minute=1, per_day=10)
    client.get("/v1/pets/7")
    for code in ("rate_limit_exceeded", "api_key_banned", "api_key_banned"):
        response = client.get("/v1/pets/7")
        assert_error(response, 429, code)
        assert announced(response) == (DEPRECATION, SUNSET)


def test_an_answer_that_something_went_wrong_here_tells_it_too(client, monkeypatch):
    def go_wrong(*_):
        raise RuntimeError

    monkeypatch.setattr(pets, "find", go_wrong)
    response = client.get("/v1/pets/7")
    assert_error(response, 500, "internal_error")
    assert announced(response) == (DEPRECATION, SUNSET)


def test_an_answer_that_the_store_is_away_tells_it_too(client, store):
    client.get("/v1/pets/7")  # after which the key is known for a moment
    with store.away():
        response = client.get("/v1/pets/7")
    assert_error(response, 503, "store_unavailable")
    assert announced(response) == (DEPRECATION, SUNSET)


def test_without_a_valid_key_nothing_is_told(store, clock):
    past = clock.now() - timedelta(seconds=1)
    revoked = store.client()
    with store.database.write() as connection:
        key_store.change(connection, revoked.key_id, revoked_at=past)
    for nobody in (
        store.anonymous(),
        Client(store, None, "nonsense"),
        Client(store, None, keys.generate()),
        store.client(expires_at=past),
        revoked,
    ):
        for path in ("/v1/pets/7", "/v1/pets/9"):
            response = nobody.get(path)
            assert response.status_code == 401
            assert announced(response) == (None, None)


OTHER_ROUTES = (
    ("/v1/pets", 404),
    ("/v1/pets/", 404),
    ("/v1/pets/7/", 404),
    ("/v1/pets/7/orders", 404),
    ("//v1/pets/7", 404),
    ("/v1//pets/7", 404),
    ("/v2/pets/7", 404),
    ("/v1/store/orders", 200),
    ("/v1/store/orders/7", 404),
)


def test_no_other_route_is_said_to_end(client, subtests):
    for target, status in OTHER_ROUTES:
        with subtests.test(target):
            response = client.get("/", environ_overrides={"REQUEST_URI": target})
            assert response.status_code == status
            assert announced(response) == (None, None)


def test_the_sunset_is_the_configured_one(make_store):
    store = stocked(make_store(pets_sunset=date(2031, 1, 2)))
    response = store.client().get("/v1/pets/7")
    assert announced(response) == (DEPRECATION, "Thu, 02 Jan 2031 00:00:00 GMT")


def test_after_the_sunset_the_route_goes_on_answering(client, clock):
    clock.advance(5 * 366 * 24 * 60 * 60)
    response = client.get("/v1/pets/7")
    assert response.get_json()["name"] == "Rex"
    assert announced(response) == (DEPRECATION, SUNSET)
