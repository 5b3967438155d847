"""Idempotency-Key: an order sent again gets the first answer again, and is placed once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import HTTPHeaderDict

from orders.domain import NewOrder, Origin
from orders.service import Terms
from orders.store import idempotency
from tests.support.stores import BOTH_VERSIONS, assert_error

KEY = "7f9c2ba4-e88f-4c1d-a1b0-6f2f6f1f8e55"
DAY = 24 * 60 * 60


def place(client, order=None, value=KEY):
    """Place an order with an Idempotency-Key; return the response."""
    return client.post(
        client.orders, json=order or {"petId": 7}, headers={"Idempotency-Key": value}
    )


def assert_replays(again, first):
    """Check that a response is the first answer, sent again."""
    assert (again.status_code, again.data) == (201, first.data)
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"


def assert_places(response):
    """Check that a response is that of an order placed just now."""
    assert response.status_code == 201
    assert "Idempotent-Replayed" not in response.headers


def all_at_once(actions):
    """Run functions at the same moment, in a thread each; return their results in order."""
    barrier = threading.Barrier(len(actions))

    def wait_and_run(action):
        barrier.wait(60)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(wait_and_run, actions))


# A retry.


# Version 2 replays all its writes: see `test_v2_writes`.
@pytest.mark.parametrize("change", ["order", "ship", "cancel"])
def test_a_retry_gets_the_first_answer_and_places_nothing(client, store, clock, change):
    first = place(client, DATED)
    assert_places(first)
    clock.advance(60)
    assert getattr(client, change)(1).status_code in {200, 204}
    for _ in range(2):
        again = place(client, DATED)
        assert_replays(again, first)
        assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    assert len(store.events()) == (1 if change == "order" else 2)


DATED = {"petId": 7, "shipDate": "2026-12-05T08:00:00Z"}


@pytest.mark.parametrize(
    ("order", "spelled_otherwise"),
    [
        ({"petId": 7}, {"petId": 7, "quantity": 1}),
        ({"petId": 7, "quantity": 1}, {"petId": 7}),
        ({"petId": 7, "quantity": 2}, {"quantity": 2, "petId": 7}),
        (DATED, {"petId": 7, "shipDate": "2026-12-05t10:00:00.0009+02:00"}),
    ],
    ids=["default filled in", "default left out", "order of fields", "spelling of the instant"],
)
def test_the_same_order_in_another_spelling_is_the_same(client, store, order, spelled_otherwise):
    first = place(client, order)
    assert_replays(place(client, spelled_otherwise), first)
    assert len(store.events()) == 1


@pytest.mark.parametrize(
    ("version", "other"),
    [
        (1, {**DATED, "petId": 8}),
        (1, {**DATED, "quantity": 2}),
        (1, {**DATED, "shipDate": "2026-12-05T08:00:00.001Z"}),
        (1, {"petId": 7}),
        (2, {**DATED, "reference": "R-2"}),
        (2, {**DATED, "note": "A gift"}),
    ],
)
def test_another_order_under_the_same_value_is_rejected(client, store, other):
    first = place(client, DATED)
    rejected = place(client, other)
    assert_error(rejected, 422, "idempotency_key_reused")
    assert "for a different request" in rejected.get_json()["message"]
    assert_replays(place(client, DATED), first)
    assert len(store.events()) == 1


def test_a_value_is_remembered_for_24_hours_which_a_replay_does_not_prolong(client, store, clock):
    first = place(client)
    clock.advance(DAY - 1)
    assert_replays(place(client), first)
    clock.advance(1)
    second = place(client, {"petId": 8})
    assert_places(second)
    clock.advance(DAY - 1)
    assert_replays(place(client, {"petId": 8}), second)
    assert [event["pet_id"] for event in store.events()] == [7, 8]


YEAR = 365 * DAY


def set_clock(client, clock, seconds, *, is_restarted):
    """Set the clock, before a start or while the service runs; return the client."""
    if is_restarted:
        client.store.shop.end()
    clock.set_wall(seconds)
    if is_restarted:
        client = type(client)(client.store.restarted(), client.key_id, client.secret)
    client.store.shop.write_keys()
    return client


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_value_dated_by_a_clock_that_was_ahead_expires_after_24_hours(
    store, client, clock, is_restarted
):
    place(client, value="before")
    client = set_clock(client, clock, YEAR, is_restarted=False)
    first = place(client)
    client = set_clock(client, clock, -YEAR, is_restarted=is_restarted)
    clock.advance(DAY - 1)
    assert_replays(place(client), first)
    clock.advance(1)
    assert_places(place(client, {"petId": 8}))
    assert remembered(client.store) == [KEY]


@pytest.mark.parametrize("step", [YEAR, -YEAR, 3_600.5])
def test_a_value_keeps_its_age_when_the_clock_is_set_meanwhile(client, clock, step):
    first = place(client)
    clock.advance(DAY / 2)
    set_clock(client, clock, step, is_restarted=False)
    clock.advance(DAY / 2 - 1)
    assert_replays(place(client), first)
    clock.advance(1)
    assert_places(place(client))


def test_a_value_keeps_its_age_before_the_clock_change_is_noticed(client, clock):
    first = place(client)
    clock.set_wall(YEAR)
    assert_replays(place(client), first)


@pytest.mark.redis  # whose client it needs
def test_with_several_processes_a_clock_change_moves_only_values_that_are_ahead(make_store, clock):
    client = make_store(limits_url="redis://nowhere").client()
    service = client.store.shop.orders
    key = idempotency.IdempotencyKey(client.key_id, 1, KEY)
    placed = service.place(NewOrder(7), Terms(Origin("test"), key=key))
    clock.set_wall(YEAR)
    assert (
        service.place(NewOrder(7), Terms(Origin("test"), key=key)).answer.order_id
        == placed.answer.order_id + 1
    )
    clock.set_wall(-YEAR)
    service.follow_clock()
    clock.advance(DAY)
    assert (
        service.place(NewOrder(7), Terms(Origin("test"), key=key)).answer.order_id
        == placed.answer.order_id + 2
    )


def remembered(store):
    """Return the values that the store remembers, the oldest first."""
    return [row["value"] for row in store.rows("SELECT value FROM idempotency_keys ORDER BY at")]


def test_an_expired_value_is_forgotten_when_another_comes(client, store, clock):
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


def test_a_value_belongs_to_the_version_that_it_was_sent_to(client):
    both = [client.speaking(1), client.speaking(2)]
    placed = [place(each) for each in both]
    assert [each.get_json()["id"] for each in placed] == [1, 2]
    for each, first in zip(both, placed, strict=True):
        assert_places(first)
        assert_replays(place(each), first)
        assert first.headers["Location"].startswith(f"{each.orders}/")


# What is remembered.


@BOTH_VERSIONS
def test_a_rejected_order_is_not_remembered(client, store):
    for status, sent in (
        (422, {"data": b'{"petId":0}', "content_type": "application/json"}),
        (400, {"data": b'{"petId":', "content_type": "application/json"}),
        (415, {"data": b'{"petId":7}', "content_type": "text/plain"}),
        (413, {"data": b" " * 65_537, "content_type": "application/json"}),
    ):
        headers = {"Idempotency-Key": KEY}
        assert client.post(client.orders, headers=headers, **sent).status_code == status
    assert_places(place(client))
    assert len(store.events()) == 1


def test_an_interrupted_order_is_neither_placed_nor_remembered(client, store, monkeypatch):
    def break_off(*_):
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(idempotency, "remember", break_off)
        assert_error(place(client), 500, "internal_error")
    assert store.rows("SELECT id FROM orders") == []
    assert_places(place(client))
    assert len(store.events()) == 1


# Which values are valid.

VALID = st.text(
    st.characters(min_codepoint=ord("!"), max_codepoint=ord("~"), exclude_characters=","),
    min_size=1,
    max_size=255,
)


@given(values=st.sets(VALID, min_size=1, max_size=8))
@settings(max_examples=5)
def test_any_visible_ascii_without_a_comma_is_a_value(store, values):
    client = store.client(plan="enterprise", per_minute=10**9, per_day=10**9)
    for value in values:
        first = place(client, value=value)
        assert_places(first)
        assert_replays(place(client, value=value), first)


def test_values_that_differ_in_any_letter_are_different(client, store):
    for value in ("a", "A", '"a"', "aa", "a" * 254, "a" * 255):
        assert_places(place(client, value=value))
    assert len(store.events()) == 6


@BOTH_VERSIONS
def test_an_invalid_value_is_rejected(client, store):
    for value in ("", "a b", "a,b", ",", "a\tb", "ä", "\x7f", "\x80", "a" * 256):
        assert_error(place(client, value=value), 400, "malformed_request")
    assert store.events() == []


@pytest.mark.slow
def test_a_repeated_header_is_rejected(service):
    headers = HTTPHeaderDict({"Authorization": f"Bearer {service.issue()}"})
    headers.add("Idempotency-Key", "one")
    headers.add("Idempotency-Key", "two")
    url = f"{service.url}/v1/store/orders"
    response = service.http.request("POST", url, json={"petId": 7}, headers=headers)
    assert (response.status, response.json()["code"]) == (400, "malformed_request")


@BOTH_VERSIONS
def test_other_operations_ignore_the_header(client, version):
    client.place()
    client.place()
    headers = {"Idempotency-Key": "a,b"}
    assert client.get(client.orders, headers=headers).status_code == 200
    assert client.order(1, headers=headers).status_code == 200
    if version == 2:
        return
    assert client.post(f"{client.orders}/1/ship", headers=headers).status_code == 200
    assert client.post(f"{client.orders}/1/ship", headers=headers).status_code == 409
    assert client.delete(f"{client.orders}/2", headers=headers).status_code == 204


# Twins.


def test_of_concurrent_twins_one_is_placed_and_the_others_are_its_replays(store, client):
    answers = all_at_once([lambda: place(client)] * 16)
    assert [answer.status_code for answer in answers] == [201] * 16
    assert len({(answer.data, answer.headers["Location"]) for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    assert len(store.events()) == 1


def test_of_concurrent_orders_under_one_value_one_is_placed(store, client):
    answers = all_at_once([lambda pet=pet: place(client, {"petId": pet}) for pet in range(1, 9)])
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 7
    assert len(store.events()) == 1
