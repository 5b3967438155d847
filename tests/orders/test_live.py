"""listEvents as it happens: a page that waits for an event, and a stream of events."""

from __future__ import annotations

import http.client
import json
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest

from orders import feed, keyring
from orders.store import apikeys as key_store
from orders.store import orders as order_store
from tests.support.commands import command
from tests.support.live import FEED, Stream
from tests.support.machine import PATIENCE_SECONDS, wait_until
from tests.support.serving import serving
from tests.support.stores import logged
from tests.support.wire import Wire, exchange


@contextmanager
def served(store):
    """Serve a store's application; yield the address."""
    try:
        with serving(store.app) as address:
            yield address
    finally:
        store.shop.feed.stop()


class Live:
    """A store whose application is served, and a client of it without limits to speak of."""

    def __init__(self, store, client, address):
        self.store, self.client, self.address = store, client, address
        self.shop, self.clock = store.shop, store.clock

    @property
    def newest(self):
        return self.client.store.events()[-1]["id"]

    def stream(self, query=None, key=None, **headers):
        """Follow, from the newest event on unless the query says more."""
        query = f"after={self.newest}" if query is None else query
        return Stream(self.address, key or self.client.secret, query, **headers)

    def ask(self, path, **headers):
        """Return the answer to a GET."""
        wire = Wire(self.address, self.client.secret)
        try:
            return wire.ask("GET", path, headers=headers)
        finally:
            wire.close()

    def page(self, query):
        """Return a page in a future."""
        pool = ThreadPoolExecutor(1)
        page = pool.submit(lambda: json.loads(self.ask(f"{FEED}?{query}").body))
        pool.shutdown(wait=False)
        return page

    def positions(self):
        """Return the positions of all followers."""
        return {each.position for each in list(self.shop.feed._followers)}  # noqa: SLF001

    def is_followed(self, count=1):
        """Wait until there are this many followers."""
        wait_until(lambda: self.shop.feed.followers == count)


@pytest.fixture(scope="module")
def live(shared_store, patient):
    with served(shared_store) as address:
        client = patient.speaking(2)
        client.place(7)
        yield Live(shared_store, client, address)


@pytest.fixture(autouse=True)
def _nobody_stays(request):
    yield
    if "live" in request.fixturenames:
        request.getfixturevalue("live").is_followed(0)


def ids(events):
    return [each["id"] for each in events]


# The stream.


def test_a_stream_has_every_event_once_in_order_from_the_log_and_as_they_come(live, monkeypatch):
    monkeypatch.setattr(feed, "REMEMBERED_EVENTS", 10)
    for _ in range(100):
        live.client.place(7)
    with live.stream("after=0") as first, live.stream() as second, ThreadPoolExecutor(3) as pool:
        began, written = live.newest, 3 * 30
        assert ids(first.events(began)) == [*range(1, began + 1)]
        for _ in range(3):
            pool.submit(lambda: [live.client.place(8) for _ in range(30)])
        expected = [*range(began + 1, began + written + 1)]
        streamed = second.events(written)
        assert ids(first.events(written)) == ids(streamed) == expected
    assert streamed == live.client.get(f"{FEED}?after={began}&limit=200").get_json()["events"]


def test_a_commit_of_this_process_wakes_followers_if_there_are_any(live, monkeypatch):
    live.is_followed(0)
    assert live.shop.on_commit == set()
    monkeypatch.setattr(live.shop.feed, "_poll_seconds", 10 * PATIENCE_SECONDS)
    with live.stream() as stream:
        for _ in range(2):
            live.client.place(7)
            assert ids(stream.events(1)) == [live.newest]
        assert len(live.shop.on_commit) == 1
    live.is_followed(0)
    assert live.shop.on_commit == set()


def test_last_event_id_outranks_after_and_types_filter_events(live):
    after = live.newest
    for change in (live.client.ship, live.client.cancel):
        change(live.client.place(7).get_json()["id"])
    of_type = "type=order.cancelled&type=order.shipped"
    with live.stream(f"after=0&{of_type}", **{"Last-Event-ID": str(after)}) as stream:
        assert [each["type"] for each in stream.events(2)] == ["order.shipped", "order.cancelled"]
        live.client.place(7)
        live.client.ship(live.client.place(7).get_json()["id"])
        assert ids(stream.events(1)) == [live.newest]


def test_a_follower_of_a_rare_type_does_not_read_the_log_again_and_again(live, monkeypatch):
    monkeypatch.setattr(feed, "REMEMBERED_EVENTS", 10)
    # Of an earlier follower's, which would be read on from page by page.
    wait_until(lambda: live.shop.feed._memory is None)  # noqa: SLF001
    for _ in range(3 * feed.PAGE_EVENTS):
        live.client.place(7)
    rare = live.client.place(7).get_json()["id"]
    live.client.cancel(rare)
    cancelled = live.newest
    for _ in range(3 * feed.PAGE_EVENTS):
        live.client.place(7)
    pages, read = [], order_store.read_log
    monkeypatch.setattr(order_store, "read_log", lambda *of: pages.append(of) or read(*of))
    query = f"after={cancelled - 2 * feed.PAGE_EVENTS}&type=order.cancelled"
    with live.stream(query) as stream:
        assert ids(stream.events(1)) == [cancelled]
        live.is_followed()
        wait_until(lambda: live.positions() == {live.newest})
        live.clock.advance(15)
        assert stream.message() == [":", f"id: {live.newest}"]
    assert len([of for of in pages if len(of) > 3 and of[3]]) == 1


def test_a_page_that_waits_in_vain_continues_after_the_events_it_read(live):
    page = live.page(f"after={live.newest}&type=order.reopened&wait=30")
    live.is_followed()
    live.client.place(7)
    newest = live.newest
    wait_until(lambda: live.positions() == {newest})
    live.clock.advance(31)
    assert page.result(PATIENCE_SECONDS) == {"events": [], "next": newest, "more": False}


def test_a_stream_begins_with_its_head_and_is_not_compressed(live):
    with live.stream(**{"Accept-Encoding": "gzip"}) as stream:
        assert stream.status == 200
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.headers["X-Accel-Buffering"] == "no"
        assert stream.headers["Cache-Control"] == "no-store"
        assert stream.headers["Content-Encoding"] is None
        assert "X-RateLimit-Remaining" in stream.headers
        assert stream.message() == ["retry: 1000"]
        live.clock.advance(15)
        assert stream.message() == [":"]


def test_events_that_another_program_commits_are_sent_too(live, tmp_path):
    (tmp_path / "some.csv").write_text("petId\n7\n")
    with live.stream() as stream:
        assert command(live.store, "orders", "import", str(tmp_path / "some.csv")).exit_code == 0
        assert stream.events(1)[0]["type"] == "order.imported"


def test_forgotten_texts_are_forgotten_in_memory_too(live):
    before = live.newest
    with live.stream() as stream:
        order_id = live.client.place(7, note="for Anna").get_json()["id"]
        live.client.cancel(order_id)
        assert [each["order"]["note"] for each in stream.events(2)] == ["for Anna"] * 2
        assert command(live.store, "orders", "forget", str(order_id)).exit_code == 0
        stream.events(1)
        with live.stream(f"after={before}") as another:
            assert all("note" not in each["order"] for each in another.events(3))


def change_key(live, key_id, **changes):
    with live.store.database.write() as connection:
        key_store.change(connection, key_id, **changes)


ENDS = {
    "revoked": lambda live, key_id: change_key(live, key_id, revoked_at=live.clock.now()),
    "expired": lambda live, _: live.clock.advance(3_000),
    "banned": lambda live, key_id: change_key(
        live, key_id, banned_until=live.clock.now() + timedelta(seconds=60)
    ),
    "limited": lambda live, _: live.clock.advance(60),
    "hour": lambda live, _: live.clock.advance(3_600),
}


@pytest.mark.parametrize("why", ENDS)
def test_a_stream_says_why_it_ends(live, why):
    figures = (
        {"expires_at": live.clock.now() + timedelta(seconds=3_000)} if why == "expired" else {}
    )
    per_day = 1 if why == "limited" else 1_000
    key_id, secret = live.store.issue(per_minute=100, per_day=per_day, **figures)
    with live.stream(key=secret) as stream:
        stream.message()
        ENDS[why](live, key_id)
        live.clock.advance(1)  # for as long, keys are cached
        said = stream.rest()
    assert said.endswith(f": end {why}\n\n")


@pytest.mark.parametrize("why", ["revoked", "banned"])
def test_a_stream_ends_though_its_key_was_read_just_before(live, monkeypatch, why):
    monkeypatch.setattr(keyring, "CACHED_SECONDS", 10_000)
    key_id, secret = live.store.issue()
    with live.stream(key=secret) as stream:
        stream.message()
        ENDS[why](live, key_id)
        live.clock.advance(1)  # keys are checked once a second
        assert stream.rest().endswith(f": end {why}\n\n")


def test_a_stream_ends_at_an_expiry_that_its_key_got_meanwhile(live):
    key_id, secret = live.store.issue(per_minute=100, per_day=1_000)
    with live.stream(key=secret) as stream:
        stream.message()
        change_key(live, key_id, expires_at=live.clock.now() + timedelta(seconds=3_000))
        live.clock.advance(1)
        followers = live.shop.feed._followers  # noqa: SLF001
        wait_until(lambda: all(each.valid_until < math.inf for each in list(followers)))
        live.clock.advance(3_000)
        assert stream.rest().endswith(": end expired\n\n")


def test_a_stop_ends_streams_and_spreads_out_reconnections(store):
    client = store.client()
    with served(store) as address:
        streams = [Stream(address, client.secret) for _ in range(9)]
        for each in streams:
            each.message()
    delays = set()
    for each in streams:
        retry, last, _, _ = each.rest().split("\n")
        assert last == ": end stopping"
        delays.add(int(retry.removeprefix("retry: ")))
        each.close()
    assert len(delays) > 1
    assert all(500 <= each <= 2_500 for each in delays)


def test_a_stream_counts_once_and_for_each_further_minute(live):
    _, secret = live.store.issue(per_minute=100, per_day=1_000)

    def left():
        wire = Wire(live.address, secret)
        try:
            return wire.ask("GET", "/v2/usage").left()["day"]
        finally:
            wire.close()

    began = left()
    with live.stream(key=secret) as stream:
        stream.message()
        assert left() == began - 2
        live.clock.advance(59)
        assert stream.message() == [":"]
        assert left() == began - 3
        live.clock.advance(16)
        assert stream.message() == [":"]
        assert left() == began - 5


def test_metrics_count_followers_and_not_their_durations(make_store):
    store = make_store(metrics=True)
    with served(store) as address:
        with Stream(address, store.client().secret) as stream:
            stream.message()
            metrics = store.anonymous().get("/metrics").text
            assert "store_orders_http_followers 1.0" in metrics
        wait_until(lambda: store.shop.feed.followers == 0)
    metrics = store.anonymous().get("/metrics").text
    operation = '{operation="listEvents",version="v2"}'
    assert f"store_orders_http_request_duration_seconds_count{operation} 0.0" in metrics


def test_the_log_has_a_line_when_a_stream_ends(live):
    with logged() as log:
        with live.stream() as stream:
            stream.message()
            assert FEED not in log.getvalue()
        live.is_followed(0)
        assert log.getvalue().count(f"GET {FEED} 200 ") == 1


# The page that waits.


def test_a_page_waits_for_an_event_that_it_asks_for(live):
    after = live.newest
    order_id = live.client.place(7).get_json()["id"]
    page = live.page(f"after={after + 1}&wait=30&type=order.shipped")
    live.is_followed()
    live.client.place(8)
    live.client.ship(order_id)
    found = page.result(PATIENCE_SECONDS)
    assert [each["orderId"] for each in found["events"]] == [order_id]
    assert (found["next"], found["more"]) == (live.newest, False)
    # At once, where there is something.
    found = live.page(f"after={after}&wait=30&limit=1").result(PATIENCE_SECONDS)
    assert (ids(found["events"]), found["more"]) == ([after + 1], True)


def test_a_page_waits_no_longer_than_requested(live):
    after = live.newest
    page = live.page(f"after={after}&wait=30")
    live.is_followed()
    live.clock.advance(29)
    assert not page.done()
    live.clock.advance(1)
    assert page.result(PATIENCE_SECONDS) == {"events": [], "next": after, "more": False}


@pytest.mark.parametrize(
    ("query", "named", "headers"),
    [
        ("wait=61", "wait", {}),
        ("wait=-1", "wait", {}),
        ("wait=1.5", "wait", {}),
        ("wait=1&after=1000000", "after", {}),
        ("after=1000000", "after", {"Accept": "text/event-stream"}),
        ("", "Last-Event-ID", {"Last-Event-ID": "x"}),
        ("", "Last-Event-ID", {"Last-Event-ID": "9" * 30, "Accept": "text/event-stream"}),
    ],
)
def test_an_invalid_wait_is_rejected_by_name(live, query, named, headers):
    answer = live.ask(f"{FEED}?{query}", **headers)
    assert (answer.status, answer.code) == (422, "validation_failed")
    assert json.loads(answer.body)["message"].startswith(f"{named}: ")


def test_clients_that_cannot_wait_get_the_page_as_it_is(live):
    after = live.newest
    for accept, query in (("text/event-stream", ""), ("*/*", "&wait=60")):
        request = (
            f"GET {FEED}?after={after}{query} HTTP/1.0\r\nAccept: {accept}\r\n"
            f"Authorization: Bearer {live.client.secret}\r\n\r\n"
        )
        received = exchange(live.address, request.encode())
        assert received.endswith(b'\r\n\r\n{"events":[],"next":%d,"more":false}' % after)


@pytest.mark.parametrize(
    ("accept", "kind"), [("text/event-stream", "text/event-stream"), ("*/*", "application/json")]
)
def test_the_head_alone_is_answered_at_once(live, accept, kind):
    connection = http.client.HTTPConnection(*live.address, timeout=PATIENCE_SECONDS)
    headers = {"Accept": accept, "Authorization": f"Bearer {live.client.secret}"}
    connection.request("HEAD", f"{FEED}?after={live.newest}&wait=60", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"], answer.read()) == (200, kind, b"")
    connection.close()


# The bounds.


@pytest.mark.parametrize(("of", "most"), [("MOST_OF_A_KEY", 3), ("MOST_FOLLOWERS", 3)])
def test_followers_beyond_the_bounds_are_refused_until_one_leaves(live, monkeypatch, of, most):
    assert (feed.MOST_OF_A_KEY, feed.MOST_FOLLOWERS) == (20, 2_000)
    monkeypatch.setattr(feed, of, most)
    keys = [live.store.issue()[1] for _ in range(most + 1)] if most == feed.MOST_FOLLOWERS else []
    with ExitStack() as stack:
        streams = [
            stack.enter_context(live.stream(key=keys[number] if keys else None))
            for number in range(most)
        ]
        for query, headers in (("", {"Accept": "text/event-stream"}), ("&wait=9", {})):
            answer = live.ask(f"{FEED}?after={live.newest}{query}", **headers)
            assert (answer.status, answer.code) == (503, "server_busy")
            assert answer.header("Retry-After") > 0
        # Clients that don't wait are answered.
        assert live.ask(f"{FEED}?after={live.newest}").status == 200
        streams[0].close()
        live.is_followed(most - 1)
        with live.stream() as another:
            assert another.status == 200
