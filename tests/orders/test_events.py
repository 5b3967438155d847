"""listEvents and listOrderEvents of version 2, and the commands that show the same."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.stores import Client, assert_error

FEED = "/v2/store/events"
TYPES = ["order.placed", "order.placed", "order.shipped", "order.cancelled"]


@pytest.fixture
def shop(client_v2):
    """A client of a shop where order 1 was shipped and order 2 cancelled."""
    client_v2.place(7, reference='R-1 "ü"')
    client_v2.place(8)
    client_v2.store.clock.advance(60)
    client_v2.ship(1)
    client_v2.cancel(2)
    return client_v2


def events(client, query=""):
    """Return the events of a page."""
    response = client.get(f"{FEED}?{query}")
    assert response.status_code == 200, response.get_json()
    return response.get_json()["events"]


def command(store, *arguments):
    return store.app.test_cli_runner().invoke(args=arguments)


# The feed.


def test_an_empty_log_has_no_events(client_v2):
    assert client_v2.get(FEED).data == b'{"events":[]}'


def test_the_feed_tells_what_happened_in_order(shop):
    response = shop.get(FEED)
    assert list(response.get_json()) == ["events"]
    assert response.headers["Cache-Control"] == "no-store"
    told = response.get_json()["events"]
    assert [event["id"] for event in told] == [1, 2, 3, 4]
    assert [event["type"] for event in told] == TYPES
    assert [event["orderId"] for event in told] == [1, 2, 1, 2]
    placed = shop.store.events()[0]
    assert list(told[0].items()) == [
        ("id", 1),
        ("type", "order.placed"),
        ("orderId", 1),
        ("at", "2026-12-01T12:00:00.000Z"),
        ("actor", f"key:{shop.key_id}"),
        ("requestId", placed["request_id"]),
        ("order", told[0]["order"]),
    ]
    # The order as it stood after each.
    assert [event["order"]["status"] for event in told] == [
        *("pending", "pending"),
        *("shipped", "cancelled"),
    ]
    assert told[2]["order"] == shop.get("/v2/store/orders/1").get_json()
    assert told[3]["order"] == shop.get("/v2/store/orders/2").get_json()


def test_what_commands_did_has_no_request(client_v2, tmp_path):
    (tmp_path / "some.csv").write_text("petId,status\n7,cancelled\n")
    assert command(client_v2.store, "orders", "import", str(tmp_path / "some.csv")).exit_code == 0
    (event,) = events(client_v2)
    assert (event["type"], event["actor"], event["requestId"]) == ("order.imported", "cli", None)
    assert event["order"]["status"] == "cancelled"


def test_next_is_the_last_id_while_there_is_more(shop):
    first = shop.get(f"{FEED}?limit=3").get_json()
    assert ([event["id"] for event in first["events"]], first["next"]) == ([1, 2, 3], 3)
    last = shop.get(f"{FEED}?limit=3&after=3").get_json()
    assert [event["id"] for event in last["events"]] == [4]
    assert "next" not in last
    assert "next" not in shop.get(f"{FEED}?limit=4").get_json()
    assert events(shop, "after=4") == []


REFUSED = ("after=5", "after=9223372036854775807", "after=-1", "after=x", "after=1&after=1")


@pytest.mark.parametrize("query", [*REFUSED, "limit=0", "limit=201", "since=1", "after=%ff"])
def test_what_can_not_be_meant_is_refused_by_name(shop, query):
    response = shop.get(f"{FEED}?{query}")
    assert_error(response, 422, "validation_failed")
    assert response.get_json()["message"].startswith(f"{query.split('=')[0]}: ")


def test_a_reader_misses_nothing_and_sees_nothing_twice_whoever_writes(client_v2):
    done = threading.Event()

    def write(number):
        client = Client(client_v2.store, client_v2.key_id, client_v2.secret)
        client.version = 2
        for _ in range(40):
            order_id = client.place(number).get_json()["id"]
            assert (client.ship if number % 2 else client.cancel)(order_id).status_code < 300

    def read():
        client = Client(client_v2.store, client_v2.key_id, client_v2.secret)
        seen, last = [], 0
        while not (done.is_set() and last == len(seen) == 240):
            was_done = done.is_set()
            page = events(client, f"after={last}&limit=7")
            seen += page
            last = page[-1]["id"] if page else last
            if was_done and not page:
                break
        return seen

    with ThreadPoolExecutor(5) as pool:
        reading = [pool.submit(read) for _ in range(2)]
        for writing in [pool.submit(write, number) for number in (1, 2, 3)]:
            writing.result()
        done.set()
        seen = [each.result() for each in reading]
    whole = [(row["id"], row["type"], row["order_id"]) for row in client_v2.store.events()]
    assert len(whole) == 240
    for each in seen:
        assert [(event["id"], event["type"], event["orderId"]) for event in each] == whole


# The history of an order.


def test_the_history_of_an_order_is_its_part_of_the_feed(shop):
    response = shop.get("/v2/store/orders/1/events")
    assert list(response.get_json()) == ["events"]
    assert response.get_json()["events"] == [
        event for event in events(shop) if event["orderId"] == 1
    ]
    assert_error(shop.get("/v2/store/orders/3/events"), 404, "order_not_found")
    assert_error(shop.get("/v2/store/orders/01/events"), 404, "order_not_found")


# Commands.


def test_an_order_is_shown_with_its_history(shop):
    done = command(shop.store, "orders", "show", "1")
    assert (done.exit_code, done.stderr) == (0, "")
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


@pytest.mark.parametrize("order_id", ["3", "0", "abc", "9223372036854775808"])
def test_an_order_that_there_is_not_is_said_in_a_line(shop, order_id):
    done = command(shop.store, "orders", "show", order_id)
    assert done.exit_code != 0
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_the_tail_of_the_log_is_shown(shop):
    def shown(*options):
        done = command(shop.store, "events", "tail", *options)
        assert (done.exit_code, done.stderr) == (0, "")
        return [int(line.split()[0]) for line in done.stdout.splitlines()]

    assert shown() == [1, 2, 3, 4]
    assert shown("-n", "2") == [3, 4]
    assert shown("--after", "1") == [2, 3, 4]
    assert shown("--after", "4") == []


def test_the_tail_is_the_feed_for_programs(shop):
    done = command(shop.store, "events", "tail", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == events(shop)
