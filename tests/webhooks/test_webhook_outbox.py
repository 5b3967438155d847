"""The outbox at work: its threads in this process, and the real service."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import insert

from orders.store import tables
from orders.store.database import commits
from orders.store.database.errors import StoreUnavailable
from orders.webhooks import deliveries, endpoints, outbox
from orders.webhooks.sender import Sender
from tests.proofs.core.placing import Placing
from tests.support.databases import DATABASES, plan_of
from tests.support.machine import wait_until
from tests.support.receiver import answer_with, hang, receiving
from tests.support.stores import logged
from tests.support.webhooks import Hooks

# No machine is so slow.
ANY_TIME = 60


@pytest.fixture
def store(make_store):
    """A store that gives up no attempt, however long a test takes on a busy machine."""
    store = make_store()
    parts = store.shop
    parts.outbox = outbox.Outbox(
        parts.database,
        parts.changes,
        parts.clock,
        lambda: parts.store_id,
        Sender(seconds=10 * ANY_TIME),
        on_commit=parts.on_commit,
    )
    return store


@contextmanager
def at_work(store):
    """Let a store's outbox deliver."""
    store.shop.outbox.start()
    try:
        yield store.shop.outbox
    finally:
        store.shop.outbox.stop()


def arrived(receiver, count):
    """Wait for messages; return the ids of their events."""
    return [receiver.arrivals.get(timeout=ANY_TIME).event for _ in range(count)]


def test_events_from_before_the_start_and_since_are_delivered(store, client, hooks, receiver):
    hooks.add(receiver.url)
    client.place()
    with at_work(store), receiving() as added_later:
        assert arrived(receiver, 1) == [1]
        hooks.add(added_later.url)
        for _ in range(2):
            client.place()
        client.ship(2)
        assert arrived(receiver, 3) == arrived(added_later, 3) == [2, 3, 4]
    assert receiver.events == [1, 2, 3, 4]


def test_an_order_is_sent_as_soon_as_it_is_placed_and_wakes_nobody_without_webhooks(
    store, client, hooks, receiver, monkeypatch
):
    monkeypatch.setattr(outbox, "POLL_SECONDS", 10 * ANY_TIME)
    assert store.shop.on_commit == set()
    hooks.add(receiver.url)
    client.place()
    with at_work(store) as working:
        assert arrived(receiver, 1) == [1]
        wait_until(lambda: not working._at_work and not working._news.is_set())  # noqa: SLF001
        client.place()
        assert arrived(receiver, 1) == [2]


def test_a_retry_that_is_due_is_made(store, client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    client.place()
    with at_work(store):
        assert arrived(receiver, 1) == [1]
        wait_until(lambda: hooks.get().next_at)
        receiver.answering = answer_with(200)
        store.clock.advance(6)
        assert arrived(receiver, 1) == [1]


def test_endpoints_that_hang_hold_up_no_other_and_no_request_however_many(
    store, client, hooks, receiver
):
    over = threading.Event()
    with receiving() as hanging:
        hanging.answering = hang(over)
        for _ in range(endpoints.MAX_ENDPOINTS - 1):
            hooks.add(hanging.url)
        hooks.add(receiver.url)
        with at_work(store):
            for number in range(1, 11):
                assert client.place().status_code == 201
                assert arrived(receiver, 1) == [number]
            assert set(arrived(hanging, endpoints.MAX_ENDPOINTS // 2)) == {1}
            over.set()


def test_a_stop_waits_for_an_attempt_under_way(store, client, hooks, receiver):
    hooks.add(receiver.url)
    answered = threading.Event()
    receiver.answering = lambda handler, _: (answered.wait(ANY_TIME), handler.answer(200))
    with at_work(store):
        client.place()
        client.place()
        arrived(receiver, 1)
        stopping = threading.Thread(target=store.shop.outbox.stop)
        stopping.start()
        answered.set()
        stopping.join(ANY_TIME)
    # It was delivered, and later events were left for the next start.
    assert (hooks.tries(), receiver.events) == ([(1, "delivered", 200)], [1])


def test_a_stop_cancels_an_attempt_that_hangs_and_the_next_start_repeats_it(
    store, client, hooks, receiver, monkeypatch
):
    monkeypatch.setattr(outbox, "IN_FLIGHT_SECONDS", 0.1)
    over = threading.Event()
    receiver.answering = hang(over)
    hooks.add(receiver.url)
    with at_work(store):
        client.place()
        arrived(receiver, 1)
    over.set()
    assert (hooks.tries(), hooks.get().tries) == ([], 0)
    receiver.answering = answer_with(200)
    again = store.restarted()
    with at_work(again):
        assert arrived(receiver, 1) == [1]
    again.shop.end()


def test_a_restart_does_not_wait_for_an_old_claim(store, client, hooks, receiver):
    hooks.add(receiver.url)
    client.place()
    hooks.deliver()  # as a process that was then killed
    client.place()
    assert hooks.get().claimed_until > store.clock.now()
    with at_work(store):
        assert arrived(receiver, 2) == [1, 2]


@pytest.mark.slow
def test_one_of_several_processes_releases_its_claims_when_it_stops(store, client, hooks, receiver):
    hooks.add(receiver.url)
    client.place()
    store.shop.outbox.start(alone=False)
    assert arrived(receiver, 1) == [1]
    wait_until(lambda: hooks.get().position == 1)
    assert hooks.get().claimed_by is not None
    store.shop.outbox.stop()
    assert hooks.get().claimed_by is None


def test_an_outcome_that_cannot_be_recorded_yet_is_not_sent_again(
    make_store, receiver, monkeypatch
):
    for module in (DATABASES.module, commits):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.1)
    store = make_store()
    hooks = Hooks(store)
    hooks.add(receiver.url)
    store.client().place()
    with ExitStack() as others, logged() as log:
        receiver.answering = lambda handler, _: (
            others.enter_context(store.locked()),
            handler.answer(200),
        )
        delivering = threading.Thread(target=hooks.deliver)
        delivering.start()
        wait_until(lambda: "can't be recorded yet" in log.getvalue())
        others.close()
        delivering.join(ANY_TIME)
    assert (receiver.events, hooks.get().position) == ([1], 1)
    assert log.getvalue().count("can't be recorded yet") == 1


def test_an_unavailable_database_is_logged_once_and_waited_for(
    store, client, hooks, receiver, monkeypatch
):
    monkeypatch.setattr(outbox, "_REST_SECONDS", 0.01)
    monkeypatch.setattr(outbox, "POLL_SECONDS", 0.01)
    hooks.add(receiver.url)
    client.place()
    looks, version = [], store.database.version
    monkeypatch.setattr(store.database, "version", lambda: looks.append(1) or version())
    with logged() as log, ExitStack() as fault:
        fault.enter_context(store.away())
        with at_work(store):
            wait_until(lambda: len(looks) > 3)
            fault.close()
            assert arrived(receiver, 1) == [1]
    assert log.getvalue().count("wait for the database") == 1


def test_an_endpoint_that_waits_for_the_database_is_logged_once(make_store, receiver, monkeypatch):
    for module in (DATABASES.module, commits):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(outbox, "_REST_SECONDS", 0.01)
    store = make_store()
    Hooks(store).add(receiver.url)
    store.client().place()
    tries, deliver = [], store.shop.outbox.courier.deliver
    monkeypatch.setattr(
        store.shop.outbox.courier, "deliver", lambda each: tries.append(1) or deliver(each)
    )
    with logged() as log, ExitStack() as others:
        others.enter_context(store.locked())
        with at_work(store):
            wait_until(lambda: len(tries) > 3)
            others.close()
            assert arrived(receiver, 1) == [1]
    assert log.getvalue().count("Webhook 1 waits for the database: ") == 1


def test_events_that_no_endpoint_wants_are_passed_over_once(client, hooks, receiver):
    hooks.add(receiver.url, "order.shipped")
    client.place()
    hooks.deliver()
    assert hooks.ask(hooks.courier.seconds_until_due, hooks.get(), 1) is None
    assert hooks.ask(hooks.courier.seconds_until_due, hooks.get(), 2) == 0


def test_the_first_of_any_number_of_events_put_aside_is_found_by_an_index(store):
    plan = str(plan_of(store.database, deliveries.NEXT_REFUSED, of_endpoint=1))
    assert "webhook_refused_by_next" in plan
    assert "SORT" not in plan.upper().replace("TEMP B-TREE", "SORT")


def test_an_endpoint_is_served_though_the_system_had_no_thread_for_it_at_first(
    store, client, hooks, receiver, monkeypatch
):
    monkeypatch.setattr(outbox, "_REST_SECONDS", 0.01)
    start, refused = threading.Thread.start, []

    def start_later(thread):
        if thread.name == "webhook-1" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    hooks.add(receiver.url)
    client.place()
    with logged() as log, at_work(store):
        assert arrived(receiver, 1) == [1]
    assert refused
    assert "can't start new thread" in log.getvalue()


def test_an_endpoint_whose_courier_failed_is_served_though_the_next_look_fails_too(
    store, client, hooks, receiver, monkeypatch
):
    for name in ("_REST_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(outbox, name, 0.01)
    courier, failed = store.shop.outbox.courier, []
    deliver, get_all = courier.deliver, endpoints.get_all

    def fail(name):
        failed.append(name)
        raise StoreUnavailable("the database is busy")

    monkeypatch.setattr(
        courier, "deliver", lambda each: deliver(each) if failed else fail("courier")
    )
    monkeypatch.setattr(
        endpoints, "get_all", lambda each: fail("look") if failed == ["courier"] else get_all(each)
    )
    hooks.add(receiver.url)
    client.place()
    with at_work(store):
        assert arrived(receiver, 1) == [1]
    assert failed == ["courier", "look"]


def test_after_a_kill_another_process_looks_again_the_moment_the_claim_lapses(
    store, client, hooks, receiver, monkeypatch
):
    monkeypatch.setattr(outbox, "POLL_SECONDS", 10 * ANY_TIME)
    hooks.add(receiver.url)
    client.place()
    hooks.deliver()  # as a process that is then killed
    client.place()
    store.clock.advance(2.9)
    courier, looks = store.shop.outbox.courier, []
    deliver = courier.deliver
    monkeypatch.setattr(courier, "deliver", lambda each: looks.append(deliver(each)) or looks[-1])
    store.shop.outbox.start(alone=False)
    wait_until(lambda: looks)
    assert (receiver.events, looks) == ([1], [pytest.approx(0.1)])
    store.clock.advance(0.1)
    assert arrived(receiver, 2) == [1, 2]
    store.shop.outbox.stop()


def test_the_log_of_deliveries_is_swept_after_30_days_a_few_lines_at_a_time(
    store, client, hooks, receiver
):
    hooks.add(receiver.url)
    for _ in range(3):
        client.place()
        hooks.deliver(15 * 24 * 3600 + 1)
    old = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"endpoint_id": 1, "at": old, "outcome": "down", "milliseconds": 1, "answer": ""}
    with store.database.write() as connection:
        connection.execute(insert(tables.webhook_deliveries), [row] * 1_200)
    assert not hooks.change(deliveries.sweep, store.clock.now() - timedelta(days=500))
    assert hooks.change(deliveries.sweep, store.clock.now() - outbox.LOG_RETENTION)
    assert len(hooks.ask(deliveries.latest, 1, 2_000)) == 703
    with at_work(store):
        wait_until(lambda: len(hooks.tries()) == 2)
        client.place()
        wait_until(lambda: len(hooks.tries()) == 3)
    assert [event for event, *_ in hooks.tries()] == [2, 3, 4]


def test_a_clock_that_is_ahead_does_not_empty_the_log_of_deliveries(
    store, client, hooks, receiver, monkeypatch
):
    sweep, swept, begin = deliveries.sweep, [], outbox.Outbox._begin  # noqa: SLF001 - the order
    monkeypatch.setattr(
        deliveries, "sweep", lambda *arguments: swept.append(sweep(*arguments)) or swept[-1]
    )

    def begin_and_end(self, *arguments):
        begin(self, *arguments)
        self._await_couriers(ANY_TIME)

    monkeypatch.setattr(outbox.Outbox, "_begin", begin_and_end)
    hooks.add(receiver.url)
    client.place()
    hooks.deliver()
    store.clock.set_wall(365 * 24 * 3600)
    client.place()
    with at_work(store):
        wait_until(lambda: swept and receiver.events == [1, 2])
        store.clock.advance(3_600)
        client.place()
        wait_until(lambda: len(swept) > 1 and receiver.events == [1, 2, 3])
    assert [event for event, *_ in hooks.tries()] == [1, 2, 3]


def webhook(service, *arguments):
    """Run `flask webhooks …` beside a service."""
    done = service.command("webhooks", *arguments)
    assert done.returncode == 0, done.stderr


def place(service, key):
    answer = service.request("POST", "/v1/store/orders", key, json={"petId": 7})
    assert answer.status == 201, answer.data


@pytest.mark.slow
def test_the_service_acts_on_commands_run_beside_it_and_stops_though_an_endpoint_hangs(
    start, receiver, tmp_path
):
    service = start()
    key = service.issue()
    webhook(service, "add", receiver.url, "--allow-private", "--event", "order.placed")
    place(service, key)
    assert arrived(receiver, 1) == [1]
    webhook(service, "pause", "1")
    webhook(service, "redeliver", "1", "1")
    assert arrived(receiver, 1) == [1]
    # Events committed by a command are sent, too.
    webhook(service, "add", receiver.url, "--allow-private", "--event", "order.imported")
    (tmp_path / "orders.csv").write_text("petId\n7\n8\n")
    assert service.command("orders", "import", str(tmp_path / "orders.csv")).returncode == 0
    assert arrived(receiver, 2) == [2, 3]
    over = threading.Event()
    receiver.answering = hang(over)
    webhook(service, "resume", "1")
    place(service, key)
    assert arrived(receiver, 1) == [4]
    assert service.stop() == 0
    assert "whsec_" not in "".join(service.log)
    over.set()
    receiver.answering = answer_with(200)
    start()
    assert arrived(receiver, 1) == [4]


@pytest.mark.slow
def test_a_killed_service_continues_where_it_was(start):
    chance = random.Random(1)
    kills, placed = 3, 0
    with receiving() as quick, receiving() as slow:
        slow.answering = lambda handler, _: (time.sleep(0.02), handler.answer(204))
        service = start()
        key = service.issue("enterprise", "--per-minute", "1000000", "--per-day", "1000000")
        for each in (quick, slow):
            webhook(service, "add", each.url, "--allow-private")
        for _ in range(kills):
            for _ in range(30):
                place(service, key)
                placed += 1
            time.sleep(chance.uniform(0, 0.2))
            service.kill()
            service = start()
        for each in (quick, slow):
            wait_until(lambda each=each: each.events[-1:] == [placed])
        service.stop()
    for each in (quick, slow):
        assert list(dict.fromkeys(each.events)) == list(range(1, placed + 1))
        # In order, and twice only the message that was on its way at a kill.
        assert all(after in {before, before + 1} for before, after in pairwise(each.events))
        assert len(each.events) <= placed + kills
    # The slow one was behind at each kill, so that kills did hit deliveries.
    assert len(slow.events) > placed


@pytest.mark.slow
def test_an_endpoint_that_hangs_delays_neither_another_nor_requests(start):
    service, over = start(), threading.Event()
    with receiving() as quick, receiving() as stuck:
        stuck.answering = hang(over)
        for each in (quick, stuck):
            webhook(service, "add", each.url, "--allow-private")
        placing = Placing(service, service.issue(), clients=4)
        placing.place(60)
        # Each event once, in order; in a new store it has its order's id.
        wait_until(lambda: len(quick.events) == 60)
        assert quick.events == sorted(placing.acknowledged)
        assert placing.statuses == {201}
        assert stuck.events == [1]
        over.set()
        assert service.stop() == 0
