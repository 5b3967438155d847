"""listEvents and listOrderEvents, and the commands that show the same."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orders.store import orders as order_store
from tests.support.commands import command, messages
from tests.support.stores import assert_error

FEED = "/v2/store/events"


@pytest.fixture(scope="module")
def shop(patient):
    """A client of a shop where order 1 was shipped and order 2 cancelled, which no test changes."""
    client = patient.speaking(2)
    client.place(7, reference='R-1 "ü"')
    client.place(8)
    client.store.clock.advance(60)
    client.ship(1)
    client.cancel(2)
    return client


def events(client, query=""):
    """Return the events of a page."""
    response = client.get(f"{FEED}?{query}")
    assert response.status_code == 200, response.get_json()
    return response.get_json()["events"]


# The feed.


def test_an_empty_page_skips_no_event_committed_meanwhile(client_v2, monkeypatch):
    for _ in range(2):
        client_v2.place(7)
    newest = order_store.revision

    def then_cancelled(database):
        found = newest(database)
        client_v2.cancel(1)
        return found

    monkeypatch.setattr(order_store, "revision", then_cancelled)
    page = client_v2.get(f"{FEED}?type=order.cancelled").get_json()
    monkeypatch.undo()
    after = page["next"]
    more = client_v2.get(f"{FEED}?type=order.cancelled&after={after}").get_json()
    assert [each["id"] for each in page["events"] + more["events"]] == [3]


def test_an_empty_log_has_no_events(client_v2):
    assert client_v2.get(FEED).data == b'{"events":[],"next":0,"more":false}'


def test_the_feed_has_all_events_in_order(shop):
    response = shop.get(FEED)
    assert list(response.get_json()) == ["events", "next", "more"]
    assert response.headers["Cache-Control"] == "no-store"
    feed = response.get_json()["events"]
    columns = [(each["id"], each["type"], each["orderId"]) for each in feed]
    assert columns == [
        (1, "order.placed", 1),
        (2, "order.placed", 2),
        (3, "order.shipped", 1),
        (4, "order.cancelled", 2),
    ]
    assert list(feed[0].items()) == [
        ("id", 1),
        ("type", "order.placed"),
        ("orderId", 1),
        ("at", "2026-12-01T12:00:00.000Z"),
        ("actor", f"key:{shop.key_id}"),
        ("requestId", shop.store.events()[0]["request_id"]),
        ("order", feed[0]["order"]),
    ]
    # The order as it stood after each.
    assert [each["order"]["status"] for each in feed[:2]] == ["pending", "pending"]
    assert [each["order"] for each in feed[2:]] == [shop.order(i).get_json() for i in (1, 2)]


def test_an_event_of_a_command_has_no_request(client_v2, tmp_path):
    (tmp_path / "some.csv").write_text("petId,status\n7,cancelled\n")
    assert command(client_v2.store, "orders", "import", str(tmp_path / "some.csv")).exit_code == 0
    (event,) = events(client_v2)
    assert (event["type"], event["actor"], event["requestId"]) == ("order.imported", "cli", None)
    assert event["order"]["status"] == "cancelled"


PAGES = {
    f"{FEED}?limit=3": ([1, 2, 3], 3, True),
    f"{FEED}?limit=3&after=3": ([4], 4, False),
    f"{FEED}?limit=4": ([1, 2, 3, 4], 4, False),
    f"{FEED}?after=4": ([], 4, False),
    f"{FEED}?type=order.shipped": ([3], 3, False),
    f"{FEED}?type=order.placed&limit=1": ([1], 1, True),
    f"{FEED}?type=order.placed&type=order.cancelled&after=1": ([2, 4], 4, False),
    f"{FEED}?type=order.placed&type=order.cancelled&after=1&limit=1": ([2], 2, True),
    f"{FEED}?type=order.imported&after=2": ([], 4, False),
    f"{FEED}?type=order.shipped&after=3": ([], 4, False),
    f"{FEED}?type=order.imported&after=4": ([], 4, False),
    "/v2/store/orders/1/events": ([1, 3], 3, False),
    "/v2/store/orders/1/events?limit=1": ([1], 1, True),
    "/v2/store/orders/1/events?after=1&limit=1": ([3], 3, False),
    "/v2/store/orders/1/events?after=3": ([], 3, False),
}


def test_a_page_has_the_next_position_and_whether_there_is_more(shop):
    for path, page in PAGES.items():
        answer = shop.get(path).get_json()
        ids = [event["id"] for event in answer["events"]]
        assert (ids, answer["next"], answer["more"]) == page, path


def test_a_history_names_the_keys_that_changed_the_order(store):
    owner, till = store.client(name="the owner"), store.client(name='"tíll"')
    for number in (1, 2):
        owner.place(number)
    assert till.post("/v2/store/orders/2/ship").status_code == 200
    history = till.get("/v2/store/orders/2/events")
    assert history.get_json()["actors"] == [
        {"actor": f"key:{owner.key_id}", "name": "the owner"},
        {"actor": f"key:{till.key_id}", "name": '"tíll"'},
    ]
    assert len(till.get("/v2/store/orders/1/events").get_json()["actors"]) == 1


INVALID = (
    *("after=5", "after=9223372036854775807", "after=-1", "after=x", "after=1&after=1"),
    *("after=%ff", "limit=0", "limit=201", "since=1", "type=placed", "type="),
)


def test_unknown_parameters_and_invalid_values_are_rejected_by_name(shop):
    for query in INVALID:
        for path in (FEED, "/v2/store/orders/1/events"):
            response = shop.get(f"{path}?{query}")
            assert_error(response, 422, "validation_failed")
            assert response.get_json()["message"].startswith(f"{query.split('=')[0]}: ")


def test_readers_miss_nothing_and_see_nothing_twice_while_others_write(client_v2):
    written = threading.Event()

    def write(number):
        for _ in range(12):
            order_id = client_v2.place(number).get_json()["id"]
            change = client_v2.ship if number % 2 else client_v2.cancel
            assert change(order_id).status_code < 300

    def read():
        seen = []
        while True:
            was_written = written.is_set()
            page = events(client_v2, f"after={seen[-1]['id'] if seen else 0}&limit=7")
            seen += page
            if was_written and not page:
                return [(event["id"], event["type"], event["orderId"]) for event in seen]

    with ThreadPoolExecutor(5) as pool:
        reading = [pool.submit(read) for _ in range(2)]
        for writing in [pool.submit(write, number) for number in (1, 2, 3)]:
            writing.result()
        written.set()
    whole = [(row["id"], row["type"], row["order_id"]) for row in client_v2.store.events()]
    assert len(whole) == 72
    assert [each.result() for each in reading] == [whole, whole]


# The history of an order.


def test_the_history_of_an_order_is_its_part_of_the_feed(shop):
    history = shop.get(f"{shop.orders}/1/events").get_json()
    assert history["events"] == [each for each in events(shop) if each["orderId"] == 1]
    assert_error(shop.get(f"{shop.orders}/3/events?after=1"), 404, "order_not_found")


# Commands.


def test_an_order_is_shown_with_its_history(shop):
    done = command(shop.store, "orders", "show", "1")
    assert (done.exit_code, messages(done)) == (0, "")
    order, _, history = done.stdout.partition("\n\n")
    assert dict(line.split(maxsplit=1) for line in order.splitlines()) == {
        "id": "1",
        "petId": "7",
        "quantity": "1",
        "shipDate": "2026-12-01T12:01:00.000Z",
        "complete": "true",
        "status": "shipped",
        "placedAt": "2026-12-01T12:00:00.000Z",
        "updatedAt": "2026-12-01T12:01:00.000Z",
        "reference": 'R-1 "ü"',
    }
    rows = [line.split() for line in history.splitlines()]
    assert [row[:4] for row in rows] == [
        ["1", "2026-12-01T12:00:00.000Z", "order.placed", "1"],
        ["3", "2026-12-01T12:01:00.000Z", "order.shipped", "1"],
    ]
    assert rows[0][4:] == [f"key:{shop.key_id}", shop.store.events()[0]["request_id"]]


def test_a_missing_order_is_reported_in_one_line(shop):
    for order_id in ("3", "0", "abc", "9223372036854775808"):
        done = command(shop.store, "orders", "show", order_id)
        assert done.exit_code != 0
        assert (done.stdout, messages(done).count("\n")) == ("", 1)


def test_the_tail_of_the_log_is_shown(shop):
    def shown(*options):
        done = command(shop.store, "events", "tail", *options)
        assert (done.exit_code, messages(done)) == (0, "")
        return [int(line.split()[0]) for line in done.stdout.splitlines()]

    assert shown() == [1, 2, 3, 4]
    assert shown("-n", "2") == [3, 4]
    assert shown("--after", "1") == [2, 3, 4]
    assert shown("--after", "4") == []


def test_the_events_of_a_request_are_shown(shop):
    wanted = events(shop)[1]
    done = command(shop.store, "events", "tail", "--request", wanted["requestId"], "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [wanted]
    done = command(shop.store, "events", "tail", "--request", "0" * 16)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "changed no order" in done.stderr


def test_the_tail_is_the_feed_for_programs(shop):
    done = command(shop.store, "events", "tail", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == events(shop)
