"""What is delivered to an endpoint, in which order, and what follows when it is not taken."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
import time
from random import Random

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from orders.domain import EventType
from orders.files.formats import Faults
from orders.webhooks import endpoints, messages, rules
from tests.support.receiver import answer_with
from tests.support.stores import logged

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # pragma: allowlist secret
HOURS = 3600
# From the contract: the time from each try to the next.
SCHEDULE = (5, 300, 1_800, 2 * HOURS, 5 * HOURS, 10 * HOURS, 14 * HOURS, 20 * HOURS, 24 * HOURS)


def plainly_signed(secret, received):
    """Return the signature of a message as somebody would make it who has no library."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    timestamp = received.headers["webhook-timestamp"]
    signed = f"{received.id}.{timestamp}.".encode() + received.body
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def place(client, count=1, **order):
    """Place orders, which are events 1, 2, 3, … of a new store."""
    for _ in range(count):
        assert client.place(**order).status_code == 201


# What arrives.


def test_an_event_arrives_as_standard_webhooks_says(store, client, hooks, receiver):
    hooks.add(receiver.url)
    place(client, petId=7, quantity=2, shipDate="2026-12-24T08:00:00Z")
    store.clock.advance(3)
    hooks.deliver()
    (received,) = receiver.received
    assert received.id == f"evt_{store.services.store_id}_1"
    assert received.headers["webhook-timestamp"] == str(int(store.clock.time()))
    assert received.headers["content-type"] == "application/json"
    assert received.headers["host"] == f"127.0.0.1:{receiver.server_port}"
    assert received.path == "/hook"
    assert received.body.startswith(
        b'{"type":"order.placed","timestamp":"2026-12-01T12:00:00.000Z"'
    )
    assert received.told["data"] == {
        "id": 1,
        "petId": 7,
        "quantity": 2,
        "shipDate": "2026-12-24T08:00:00.000Z",
        "complete": False,
        "status": "pending",
        "placedAt": "2026-12-01T12:00:00.000Z",
        "updatedAt": "2026-12-01T12:00:00.000Z",
    }


def test_what_is_not_known_of_an_order_is_left_out(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client)
    hooks.deliver()
    assert list(receiver.received[0].told["data"]) == [
        *("id", "petId", "quantity", "complete", "status", "placedAt", "updatedAt")
    ]


def test_an_event_tells_of_the_order_as_it_stood_then(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client)
    client.cancel(1)
    hooks.deliver()
    told = [(each.told["type"], each.told["data"]["status"]) for each in receiver.received]
    assert told == [("order.placed", "pending"), ("order.cancelled", "cancelled")]


def test_a_reference_is_sent_as_it_is(store, hooks, receiver):
    hooks.add(receiver.url, EventType.IMPORTED)
    store.services.orders.import_orders([(1, {"petId": 7, "reference": "Höhle “7” 🐢"})], Faults())
    hooks.deliver()
    assert receiver.received[0].told["data"]["reference"] == "Höhle “7” 🐢"
    assert "🐢".encode() in receiver.received[0].body


def test_the_library_and_a_few_lines_of_hmac_verify_it(store, client, hooks, receiver):
    store.clock.wall = time.time()  # the library compares it with the machine's own
    hooks.add(receiver.url, secret=SECRET)
    place(client)
    hooks.deliver()
    (received,) = receiver.received
    assert Webhook(SECRET).verify(received.body, received.headers) == received.told
    assert received.headers["webhook-signature"] == f"v1,{plainly_signed(SECRET, received)}"
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(received.body.replace(b"7", b"8"), received.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(messages.generate_secret()).verify(received.body, received.headers)


def test_a_secret_has_as_many_random_bytes_as_the_rules_ask():
    made = {messages.generate_secret() for _ in range(50)}
    assert len(made) == 50
    for secret in made:
        assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) <= 64


def test_both_secrets_sign_for_24_hours_after_a_rotation(store, client, hooks, receiver):
    hooks.add(receiver.url, secret=SECRET)
    newer = messages.generate_secret()
    hooks.change(endpoints.rotate, 1, newer, store.clock.now() + messages.GRACE)
    for wait in (0, 24 * HOURS - 1, 1):
        place(client)
        hooks.deliver(after=wait)
    signed = [each.headers["webhook-signature"].split(" ") for each in receiver.received]
    wanted = [
        [f"v1,{plainly_signed(secret, each)}" for secret in (newer, SECRET)]
        for each in receiver.received
    ]
    assert signed == [wanted[0], wanted[1], wanted[2][:1]]


def test_an_event_tells_of_its_order_what_the_feed_tells(store, client, hooks, receiver):
    hooks.add(receiver.url, *EventType)
    for reference in ("R-1", 'a "quoted" \\ back/slash', "Höhle 🐢 \u2028", None):
        order = {"petId": 7, "reference": reference}
        new = {name: value for name, value in order.items() if value is not None}
        assert client.post("/v2/store/orders", json=new).status_code == 201
    client.ship(1)
    client.cancel(2)
    hooks.deliver()
    feed = client.get("/v2/store/events").get_json()["events"]
    assert len(feed) == 6
    assert [each.told["data"] for each in receiver.received] == [each["order"] for each in feed]
    told = [(each.event, each.told["type"], each.told["timestamp"]) for each in receiver.received]
    assert told == [(each["id"], each["type"], each["at"]) for each in feed]


def test_events_arrive_in_the_order_of_the_log(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client, 3)
    client.ship(2)
    client.cancel(1)
    place(client)
    hooks.deliver()
    assert receiver.events == [1, 2, 3, 4, 5, 6]


def test_an_endpoint_begins_with_the_next_event(client, hooks, receiver):
    place(client, 3)
    hooks.add(receiver.url)
    place(client)
    hooks.deliver()
    assert receiver.events == [4]


def test_only_events_of_the_wanted_types_are_sent(client, hooks, receiver):
    hooks.add(receiver.url, EventType.SHIPPED)
    place(client, 2)
    client.ship(1)
    client.cancel(2)
    hooks.deliver()
    assert [each.told["type"] for each in receiver.received] == ["order.shipped"]


def test_nothing_is_sent_twice(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client, 2)
    hooks.deliver()
    hooks.deliver(after=100 * HOURS)
    assert receiver.events == [1, 2]


# What is tried again, and when.


def test_the_schedule_is_the_contracts():
    assert rules.DELAYS == SCHEDULE


def test_a_try_that_failed_is_made_again_with_the_same_id_and_a_new_time(
    store, client, hooks, receiver
):
    hooks.add(receiver.url, secret=SECRET)
    receiver.answering = answer_with(500)
    place(client)
    hooks.deliver()
    began = store.clock.time()
    receiver.answering = answer_with(200)
    hooks.deliver(after=6)
    first, second = receiver.received
    assert (first.id, first.body) == (second.id, second.body)
    times = [int(each.headers["webhook-timestamp"]) for each in (first, second)]
    assert times == [int(began), int(began + 6)]
    assert second.headers["webhook-signature"] == f"v1,{plainly_signed(SECRET, second)}"


@pytest.mark.parametrize("status", [300, 301, 307, 408, 425, 429, 500, 502, 503, 504, 599])
def test_an_endpoint_that_is_down_waits_with_all_that_follows(client, hooks, receiver, status):
    hooks.add(receiver.url)
    receiver.answering = answer_with(status)
    place(client, 3)
    for tried, wait in enumerate(SCHEDULE, start=1):
        hooks.deliver()
        hooks.deliver(after=wait - 1)  # which is too early
        assert receiver.events == [1] * tried
        hooks.deliver(after=wait * rules.JITTER + 1)
        assert receiver.events == [1] * (tried + 1)
    assert hooks.get().paused_because == f"it is down (status {status})"
    hooks.deliver(after=1000 * HOURS)
    assert len(receiver.events) == 10


def test_waits_are_spread_by_chance():
    chance = Random(1)
    for tries, wait in enumerate(SCHEDULE, start=1):
        waits = {rules.delay(tries, chance).total_seconds() for _ in range(200)}
        assert len(waits) == 200
        assert wait <= min(waits) < wait * 1.02
        assert wait * 1.08 < max(waits) <= wait * 1.1 == pytest.approx(rules.longest_delay(tries))


def test_the_pause_after_the_last_try_is_told_by_the_log_and_by_how_it_stands(
    client, hooks, receiver
):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    place(client)
    with logged() as log:
        for wait in (0, *SCHEDULE):
            hooks.deliver(after=wait * 1.1)
    (line,) = log.getvalue().splitlines()
    assert "Webhook 1 (127.0.0.1) is paused: it is down (status 503)." in line
    assert "warning" in line
    (standing,) = hooks.ask(endpoints.standings)
    assert (standing.state, standing.behind) == ("paused", 1)


def test_an_endpoint_that_is_up_again_gets_all_in_order(client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    place(client, 3)
    hooks.deliver()
    hooks.deliver(after=6)
    receiver.answering = answer_with(200)
    hooks.deliver(after=331)
    assert receiver.events == [1, 1, 1, 2, 3]
    assert (hooks.get().tries, hooks.get().next_at) == (0, None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 451])
def test_an_event_that_is_refused_lets_others_pass_after_the_second_try(
    client, hooks, receiver, status
):
    hooks.add(receiver.url)
    refuse_the_first(receiver, status)
    place(client, 3)
    hooks.deliver()
    assert receiver.events == [1]
    hooks.deliver(after=6)
    assert receiver.events == [1, 1, 2, 3]
    assert hooks.refused().event_id == 1


def refuse_the_first(receiver, status=422):
    """Let a receiver refuse event 1, and take all others."""

    def answering(handler, received):
        handler.answer(status if received.event == 1 else 200)

    receiver.answering = answering


def test_a_refused_event_goes_on_by_itself_until_its_last_try(client, hooks, receiver):
    hooks.add(receiver.url)
    refuse_the_first(receiver)
    place(client, 2)
    with logged() as log:
        for tried, wait in enumerate((0, *SCHEDULE), start=1):
            if wait:
                hooks.deliver(after=wait - 1)
            hooks.deliver(after=wait * rules.JITTER + 1)
            assert receiver.events.count(1) == tried
    hooks.deliver(after=1000 * HOURS)
    assert receiver.events.count(1) == 10
    assert hooks.refused() is None
    assert hooks.get().paused_at is None
    aside, given_up = log.getvalue().splitlines()
    assert "Webhook 1 (127.0.0.1) refuses event 1, which is put aside" in aside
    assert "did not accept event 1 at the last attempt (status 422)" in given_up


def test_a_refused_event_that_is_taken_at_last_is_forgotten(client, hooks, receiver):
    hooks.add(receiver.url)
    refuse_the_first(receiver)
    place(client, 2)
    hooks.deliver()
    hooks.deliver(after=6)
    receiver.answering = answer_with(200)
    hooks.deliver(after=331)
    assert receiver.events == [1, 1, 2, 1]
    assert hooks.refused() is None


def test_a_refused_event_does_not_hold_up_later_ones(client, hooks, receiver):
    hooks.add(receiver.url)
    refuse_the_first(receiver)
    place(client)
    hooks.deliver()
    hooks.deliver(after=6)
    for _ in range(3):
        place(client)
        hooks.deliver(after=331)
    assert receiver.events == [1, 1, 1, 2, 3, 4]


def test_a_refused_event_is_not_tried_while_its_endpoint_is_down(client, hooks, receiver):
    hooks.add(receiver.url)
    refuse_the_first(receiver)
    place(client)
    hooks.deliver()
    hooks.deliver(after=6)
    receiver.answering = answer_with(503)
    place(client)
    for wait in (280, 6, 50):  # the last of which is when the refused one would be due
        hooks.deliver(after=wait)
    assert receiver.events == [1, 1, 2, 2]
    hooks.deliver(after=300)
    assert receiver.events == [1, 1, 2, 2, 1, 2]


def test_a_refused_event_that_is_never_taken_pauses_nothing(client, hooks, receiver):
    hooks.add(receiver.url)
    refuse_the_first(receiver)
    place(client)
    hooks.deliver()
    hooks.deliver(after=6)
    refuse_the_first(receiver, 500)
    for wait in SCHEDULE[1:]:
        hooks.deliver(after=wait * 1.1)
    place(client)
    hooks.deliver(after=1000 * HOURS)
    assert receiver.events == [1] * 10 + [2]
    assert hooks.get().paused_at is None


def test_what_is_refused_after_its_endpoint_was_down_has_all_its_tries(client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    place(client, 2)
    for wait in (0, *SCHEDULE[:-1]):
        hooks.deliver(after=wait * 1.1)
    refuse_the_first(receiver)
    hooks.deliver(after=SCHEDULE[-1] * 1.1)
    assert receiver.events == [1] * 10 + [2]
    for wait in SCHEDULE[1:]:
        hooks.deliver(after=wait * 1.1)
    assert receiver.events.count(1) == 18
    assert hooks.refused() is None


def test_410_pauses_at_once(client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(410)
    place(client, 2)
    with logged() as log:
        hooks.deliver()
        hooks.deliver(after=1000 * HOURS)
    assert receiver.events == [1]
    assert hooks.get().paused_because == "it answered 410 Gone"
    assert log.getvalue().count("is paused") == 1


def test_410_to_an_event_that_was_put_aside_pauses_too(client, hooks, receiver):
    hooks.add(receiver.url)
    refuse_the_first(receiver)
    place(client)
    hooks.deliver()
    hooks.deliver(after=6)
    receiver.answering = answer_with(410)
    hooks.deliver(after=331)
    assert hooks.get().paused_because == "it answered 410 Gone"


def test_a_paused_endpoint_gets_nothing_and_everything_when_it_is_resumed(
    store, client, hooks, receiver
):
    hooks.add(receiver.url)
    hooks.change(endpoints.pause, 1, "by command", store.clock.now())
    place(client, 3)
    hooks.deliver(after=1000 * HOURS)
    assert receiver.events == []
    hooks.change(endpoints.resume, 1, store.clock.now(), None)
    hooks.deliver()
    assert receiver.events == [1, 2, 3]


def test_a_resumed_endpoint_has_all_its_tries_again(store, client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    place(client)
    for _ in range(2):
        for wait in (0, *SCHEDULE):
            hooks.deliver(after=wait * 1.1)
        assert hooks.get().paused_at is not None
        hooks.change(endpoints.resume, 1, store.clock.now(), None)
    assert len(receiver.events) == 20


def test_resume_after_an_event_skips_what_waited_and_what_was_refused(
    store, client, hooks, receiver
):
    hooks.add(receiver.url)
    refuse_the_first(receiver)
    place(client, 2)
    hooks.deliver()
    hooks.deliver(after=6)
    hooks.change(endpoints.pause, 1, "by command", store.clock.now())
    place(client, 3)
    hooks.change(endpoints.resume, 1, store.clock.now(), 4)
    hooks.deliver(after=1000 * HOURS)
    assert receiver.events == [1, 1, 2, 5]


def test_resume_after_an_earlier_event_sends_those_behind_it_once_more(
    store, client, hooks, receiver
):
    hooks.add(receiver.url)
    place(client, 4)
    hooks.deliver()
    hooks.change(endpoints.resume, 1, store.clock.now(), 2)
    hooks.deliver()
    assert receiver.events == [1, 2, 3, 4, 3, 4]


def test_a_position_that_is_set_during_a_delivery_stays(store, client, hooks, receiver):
    hooks.add(receiver.url)
    place(client, 3)

    def answering(handler, received):
        if len(receiver.received) == 1:
            hooks.change(endpoints.resume, 1, store.clock.now(), 2)
        handler.answer(200)

    receiver.answering = answering
    hooks.deliver()
    assert receiver.events == [1, 3]


def test_an_endpoint_that_is_removed_during_a_delivery_is_gone(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client, 2)

    def answering(handler, _):
        hooks.change(endpoints.remove, 1)
        handler.answer(500)

    receiver.answering = answering
    hooks.deliver()
    hooks.deliver(after=1000 * HOURS)
    assert receiver.events == [1]
    assert hooks.store.rows("SELECT * FROM webhook_deliveries") == []


# Clocks.


@pytest.mark.parametrize("days", [-400, 400])
def test_a_wall_clock_that_is_set_changes_no_wait(store, client, hooks, receiver, days):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    place(client)
    hooks.deliver()
    hooks.courier.seconds_to_work(hooks.get(), 1, None)  # as the outbox looks
    store.clock.set_wall(days * 24 * HOURS)
    hooks.deliver()
    hooks.deliver(after=4)
    assert receiver.events == [1]
    hooks.deliver(after=2)
    assert receiver.events == [1, 1]


def test_after_a_restart_no_wait_is_longer_than_its_own_length(store, client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    place(client)
    hooks.deliver()
    store.clock.set_wall(-400 * 24 * HOURS)
    hooks.courier = hooks.another_courier()
    hooks.deliver()
    hooks.deliver(after=6)
    assert receiver.events == [1, 1]


# Restarts, and several processes.


def test_a_restart_goes_on_where_it_was(client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(503)
    place(client, 2)
    hooks.deliver()
    hooks.deliver(after=6)
    hooks.courier = hooks.another_courier()
    hooks.deliver(after=100)
    assert receiver.events == [1, 1]
    receiver.answering = answer_with(200)
    hooks.deliver(after=231)
    assert receiver.events == [1, 1, 1, 2]


def test_of_two_processes_one_delivers_until_it_has_not_for_15_seconds(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client)
    assert hooks.deliver()
    another = hooks.another_courier()
    place(client)
    hooks.store.clock.advance(14)
    assert not another.deliver(1)
    assert receiver.events == [1]
    hooks.store.clock.advance(1)
    assert another.deliver(1)
    place(client)
    assert not hooks.deliver()
    assert receiver.events == [1, 2]


def test_while_a_try_takes_long_no_other_process_begins_one(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client)
    answered = threading.Event()

    def answering(handler, _):
        answered.wait(10)
        handler.answer(204)

    receiver.answering = answering
    another = hooks.another_courier()
    trying = threading.Thread(target=hooks.deliver)
    trying.start()
    receiver.arrivals.get(timeout=10)
    for _ in range(4):
        hooks.store.clock.advance(5)
        hooks.courier.claims.renew()
        assert not another.deliver(1)
    answered.set()
    trying.join()
    assert receiver.events == [1]
    # Nothing goes on any more, so nothing is renewed.
    hooks.store.clock.advance(15)
    hooks.courier.claims.renew()
    place(client)
    assert another.deliver(1)
    assert receiver.events == [1, 2]


def test_what_another_process_delivered_a_moment_ago_is_not_sent_again(
    store, client, hooks, receiver
):
    hooks.add(receiver.url)
    place(client, 2)

    class Changes:
        """Has the first process deliver and end between the second's look and its claim."""

        def run(self, work):
            if not receiver.events:
                hooks.deliver()
                hooks.courier.claims.release()
            return store.services.changes.run(work)

    another = hooks.another_courier(Changes())
    assert another.deliver(1)
    assert receiver.events == [1, 2]
    place(client)
    assert another.deliver(1)
    assert receiver.events == [1, 2, 3]


def test_a_claim_from_before_the_clock_was_set_back_is_none(client, hooks, receiver):
    hooks.add(receiver.url)
    place(client)
    hooks.deliver()
    place(client)
    hooks.store.clock.set_wall(-HOURS)
    assert hooks.another_courier().deliver(1)
    assert receiver.events == [1, 2]


# The log of deliveries.


def test_each_try_is_logged_with_its_status_duration_and_200_characters(
    store, client, hooks, receiver
):
    hooks.add(receiver.url)
    receiver.answering = answer_with(500, "ä€🐢".encode() * 1_000)
    place(client)
    hooks.deliver()
    (made,) = hooks.ask(endpoints.deliveries, 1, 10)
    assert (made.event_id, made.outcome, made.status) == (1, "down", 500)
    assert made.at == store.clock.now()
    assert made.answer == ("ä€🐢" * 67)[:200]
    assert made.fault is None
    assert made.milliseconds >= 0


def test_a_try_without_an_answer_is_logged_with_the_fault(client, hooks):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        hooks.add(f"http://127.0.0.1:{nobody.getsockname()[1]}/")
        place(client)
        hooks.deliver()
    (made,) = hooks.ask(endpoints.deliveries, 1, 10)
    assert (made.outcome, made.status, made.fault) == ("down", None, "Connection refused")


def test_what_looks_like_a_secret_in_an_answer_is_not_kept(client, hooks, receiver):
    hooks.add(receiver.url, secret=SECRET)
    receiver.answering = answer_with(400, f"I know {SECRET}.".encode())
    place(client)
    hooks.deliver()
    (made,) = hooks.ask(endpoints.deliveries, 1, 10)
    assert made.answer == "I know whsec_***."


def test_an_answer_may_be_of_any_bytes(client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(200, b"a\0b\xff")
    place(client)
    hooks.deliver()
    (made,) = hooks.ask(endpoints.deliveries, 1, 10)
    assert (made.answer, hooks.get().position) == ("a\ufffdb\ufffd", 1)
