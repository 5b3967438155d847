"""Idempotency-Key: an order sent again is answered again, and placed once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import HTTPHeaderDict

from orders.store import idempotency
from tests.support.databases import DATABASES
from tests.support.stores import Client, assert_error

PATH = "/v1/store/orders"
KEY = "7f9c2ba4-e88f-4c1d-a1b0-6f2f6f1f8e55"
DAY = 24 * 60 * 60


@pytest.fixture(scope="module")
def network_key(service):
    """A key of this file's own, for the running service."""
    return service.issue()


def place(client, order=None, value=KEY):
    """Place an order with an Idempotency-Key; return the response."""
    return client.post(PATH, json=order or {"petId": 7}, headers={"Idempotency-Key": value})


def assert_replays(again, first):
    """Check that a response is the first answer, given again."""
    assert (again.status_code, again.data) == (201, first.data)
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"


def assert_places(response):
    """Check that a response is that of an order placed just now."""
    assert response.status_code == 201
    assert "Idempotent-Replayed" not in response.headers


def all_at_once(actions):
    """Do things in a thread each, at the same moment; return what they gave, in order."""
    barrier = threading.Barrier(len(actions))

    def wait_and_do(action):
        barrier.wait(10)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(wait_and_do, actions))


# A retry.


def test_a_retry_gets_the_first_answer_and_places_nothing(client, store):
    order = {"petId": 7, "quantity": 2, "shipDate": "2026-12-05T08:00:00Z"}
    first = place(client, order)
    assert_places(first)
    for _ in range(3):
        again = place(client, order)
        assert_replays(again, first)
        assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    assert len(store.events()) == 1


@pytest.mark.parametrize("change", ["ship", "cancel"])
def test_a_retry_gets_the_first_answer_though_the_order_has_changed_since(client, store, change):
    first = place(client)
    assert getattr(client, change)(1).status_code in {200, 204}
    assert_replays(place(client), first)
    assert len(store.events()) == 2


SAME_ORDERS = {
    "default filled in": ({"petId": 7}, {"petId": 7, "quantity": 1}),
    "default left out": ({"petId": 7, "quantity": 1}, {"petId": 7}),
    "order of fields": ({"petId": 7, "quantity": 2}, {"quantity": 2, "petId": 7}),
    "spelling of the instant": (
        {"petId": 7, "shipDate": "2026-12-05T08:00:00Z"},
        {"petId": 7, "shipDate": "2026-12-05t10:00:00.0009+02:00"},
    ),
}


def test_the_same_order_spelled_otherwise_is_the_same(client, store, subtests):
    for what, (order, spelled_otherwise) in SAME_ORDERS.items():
        with subtests.test(what):
            value = what.replace(" ", "-")
            first = place(client, order, value)
            assert_replays(place(client, spelled_otherwise, value), first)
    assert len(store.events()) == len(SAME_ORDERS)


OTHER_ORDERS = {
    "pet": {"petId": 8, "shipDate": "2026-12-05T08:00:00Z"},
    "quantity": {"petId": 7, "shipDate": "2026-12-05T08:00:00Z", "quantity": 2},
    "ship date": {"petId": 7, "shipDate": "2026-12-05T08:00:00.001Z"},
    "no ship date": {"petId": 7},
}


def test_another_order_under_the_same_value_is_refused(client, store, subtests):
    order = {"petId": 7, "shipDate": "2026-12-05T08:00:00Z"}
    first = place(client, order)
    for what, other in OTHER_ORDERS.items():
        with subtests.test(what):
            refused = place(client, other)
            assert_error(refused, 422, "idempotency_key_reused")
            assert "a different order: 1." in refused.get_json()["message"]
            assert_replays(place(client, order), first)
    assert len(store.events()) == 1


def test_a_value_is_remembered_for_24_hours(client, store, clock):
    first = place(client)
    clock.advance(DAY - 1)
    assert_replays(place(client), first)
    clock.advance(1)
    second = place(client, {"petId": 8})
    assert_places(second)
    clock.advance(DAY - 1)
    assert_replays(place(client, {"petId": 8}), second)
    assert [event["pet_id"] for event in store.events()] == [7, 8]


def test_a_replay_does_not_prolong_the_24_hours(client, clock):
    place(client)
    clock.advance(DAY / 2)
    place(client)
    clock.advance(DAY / 2 + 1)
    assert_places(place(client))


def remembered(store):
    """Return the values that the store remembers, the oldest first."""
    return [row["value"] for row in store.rows("SELECT value FROM idempotency_keys ORDER BY at")]


def test_a_value_past_its_24_hours_is_forgotten_when_another_comes(client, store, clock):
    place(client, value="old")
    clock.advance(1)
    place(client, value="young")
    clock.advance(DAY - 1)
    place(client, value="new")
    assert remembered(store) == ["young", "new"]


def test_the_values_of_a_busy_day_are_forgotten_a_few_at_a_time(client, store, clock):
    for number in range(45):
        place(client, value=f"busy-{number}")
    clock.advance(DAY)
    left = []
    for number in range(3):
        place(client, value=f"quiet-{number}")
        left.append(len(remembered(store)))
    assert left == [45 - 20 + 1, 45 - 40 + 2, 3]


def test_a_value_belongs_to_the_api_key_that_sent_it(client, store):
    other = store.client()
    first, others_first = place(client), place(other, {"petId": 8})
    assert_places(others_first)
    assert_replays(place(client), first)
    assert_replays(place(other, {"petId": 8}), others_first)
    assert len(store.events()) == 2


def test_orders_without_a_value_are_all_placed(client, store):
    for _ in range(3):
        assert_places(client.place())
    assert len(store.events()) == 3


# What is remembered.


REFUSED = {
    422: {"data": b'{"petId":0}', "content_type": "application/json"},
    400: {"data": b'{"petId":', "content_type": "application/json"},
    415: {"data": b'{"petId":7}', "content_type": "text/plain"},
    413: {"data": b" " * 65_537, "content_type": "application/json"},
}


def test_a_refusal_is_not_remembered(client, store):
    for status, refused in REFUSED.items():
        headers = {"Idempotency-Key": KEY}
        assert client.post(PATH, headers=headers, **refused).status_code == status
    assert_places(place(client))
    assert len(store.events()) == 1


def test_an_order_that_broke_off_is_neither_placed_nor_remembered(client, store, monkeypatch):
    def break_off(*_):
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(idempotency, "remember", break_off)
        assert_error(place(client), 500, "internal_error")
    assert store.rows("SELECT id FROM orders") == []
    assert_places(place(client))
    assert len(store.events()) == 1


def test_an_order_that_the_store_could_not_take_is_not_remembered(make_store, monkeypatch):
    monkeypatch.setattr(DATABASES.module, "BUSY_SECONDS", 0.05)
    store = make_store()
    client = store.client()
    with store.locked():
        assert_error(place(client), 503, "store_unavailable")
    assert_places(place(client))
    assert len(store.events()) == 1


# What a value may be.

ALLOWED = st.text(
    st.characters(min_codepoint=ord("!"), max_codepoint=ord("~"), exclude_characters=","),
    min_size=1,
    max_size=255,
)


@settings(max_examples=40)
@given(value=ALLOWED)
def test_any_visible_ascii_without_a_comma_is_a_value(store, value):
    client = store.client(plan="enterprise", per_minute=10**9, per_day=10**9)
    first = place(client, value=value)
    assert_places(first)
    assert_replays(place(client, value=value), first)


def test_values_are_told_apart_to_the_letter(client, store):
    for value in ("a", "A", '"a"', "aa", "a" * 254, "a" * 255):
        assert_places(place(client, value=value))
    assert len(store.events()) == 6


NO_VALUES = {
    "nothing": "",
    "a blank": "a b",
    "a comma": "a,b",
    "only a comma": ",",
    "a tab": "a\tb",
    "ä": "ä",
    "DEL": "\x7f",
    "C1": "\x80",
    "256 characters": "a" * 256,
}


def test_a_value_that_is_none_is_refused(client, store, subtests):
    for what, value in NO_VALUES.items():
        with subtests.test(what):
            assert_error(place(client, value=value), 400, "malformed_request")
    assert store.events() == []


@pytest.mark.slow
def test_a_repeated_header_is_refused(service, network_key):
    headers = HTTPHeaderDict({"Authorization": f"Bearer {network_key}"})
    headers.add("Idempotency-Key", "one")
    headers.add("Idempotency-Key", "two")
    response = service.http.request("POST", service.url + PATH, json={"petId": 7}, headers=headers)
    assert (response.status, response.json()["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("value", ["", "a,b"])
def test_the_header_is_ignored_elsewhere(client, value):
    client.place()
    client.place()
    headers = {"Idempotency-Key": value}
    assert client.get(PATH, headers=headers).status_code == 200
    assert client.get(f"{PATH}/1", headers=headers).status_code == 200
    assert client.post(f"{PATH}/1/ship", headers=headers).status_code == 200
    assert client.post(f"{PATH}/1/ship", headers=headers).status_code == 409
    assert client.delete(f"{PATH}/2", headers=headers).status_code == 204


# Twins.


def test_of_concurrent_twins_one_is_placed_and_the_others_are_its_replays(store, client):
    twins = [Client(store, client.key_id, client.secret) for _ in range(16)]
    answers = all_at_once([lambda twin=twin: place(twin) for twin in twins])
    assert [answer.status_code for answer in answers] == [201] * 16
    assert len({(answer.data, answer.headers["Location"]) for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    assert len(store.events()) == 1


def test_concurrent_twins_over_the_network_place_one_order(service, network_key):
    headers = {"Idempotency-Key": KEY}

    def send():
        return service.request("POST", PATH, network_key, json={"petId": 4_711}, headers=headers)

    answers = all_at_once([send] * 8)
    assert [answer.status for answer in answers] == [201] * 8
    assert len({(answer.data, answer.headers["Location"]) for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    listed = service.request("GET", PATH, network_key).json()
    assert [order["petId"] for order in listed].count(4_711) == 1


def test_concurrent_orders_that_differ_under_one_value_place_one_of_them(store, client):
    rivals = [Client(store, client.key_id, client.secret) for _ in range(8)]
    answers = all_at_once(
        [
            lambda rival=rival, pet=pet: place(rival, {"petId": pet})
            for pet, rival in enumerate(rivals, 1)
        ]
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 7
    assert len(store.events()) == 1
