"""What is delivered to an endpoint, in which order, and what follows if it is not accepted."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from random import Random

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from orders.domain import EventType
from orders.webhooks import deliveries, endpoints, sender
from orders.webhooks.sender import Response
from tests.support.receiver import answer_with
from tests.support.stores import logged

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # pragma: allowlist secret
HOURS = 3600
DAYS = 24 * HOURS
# From the contract: the time from each attempt to the next.
SCHEDULE = (
    *(5, 30, 120, 600, 1_800),
    *(hours * HOURS for hours in (2, 5, 10, 14, 20, 24)),
)
# With the maximum jitter.
LATEST = tuple(wait * 1.1 for wait in SCHEDULE)
GONE = "it answered 410 Gone"


def place(client, count=1, **order):
    """Place orders, which are events 1, 2, 3, … of a new store."""
    for _ in range(count):
        assert client.place(**order).status_code == 201


def answer_once(receiver, action, status=200):
    """Run an action while the first message is on its way; then answer all with a status."""

    def answering(handler, _):
        if len(receiver.received) == 1:
            action()
        handler.answer(status)

    receiver.answering = answering


@pytest.fixture
def hook(hooks, receiver):
    """The store's webhooks, with one endpoint, 1, at the receiver."""
    hooks.add(receiver.url, secret=SECRET)
    return hooks


# What arrives.


def test_an_event_arrives_as_standard_webhooks_says(store, client, hook, receiver):
    store.clock.wall = time.time()  # the library compares it with the machine's own
    place(client, petId=7)
    hook.deliver(3)
    (received,) = receiver.received
    assert received.id == f"evt_{store.shop.store_id}_1"
    assert received.headers["webhook-timestamp"] == str(int(store.clock.time()))
    assert received.headers["content-type"] == "application/json"
    assert received.headers["host"] == f"127.0.0.1:{receiver.server_port}"
    assert received.path == "/hook"
    assert list(received.json) == ["type", "timestamp", "eventId", "actor", "requestId", "data"]
    assert Webhook(SECRET).verify(received.body, received.headers) == received.json
    for secret, body in (
        (SECRET, received.body.replace(b"7", b"8")),
        (sender.generate_secret(), received.body),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, received.headers)


def test_a_message_has_the_event_of_the_feed(client, hooks, receiver):
    hooks.add(receiver.url, *EventType)
    for reference in ("R-1", 'a "quoted" \\ back/slash', "Höhle 🐢 \u2028", None):
        new = {"petId": 7, "reference": reference, "note": "1\n2"} if reference else {"petId": 7}
        assert client.post("/v2/store/orders", json=new).status_code == 201
    client.ship(1)
    client.cancel(2)
    hooks.deliver()
    feed = client.get("/v2/store/events").get_json()["events"]
    assert len(feed) == 6
    sent = [(each.event, *each.json.values()) for each in receiver.received]
    names = ("type", "at", "id", "actor", "requestId", "order")
    assert sent == [(each["id"], *(each[name] for name in names)) for each in feed]
    assert "🐢".encode() in receiver.received[2].body


def test_an_endpoint_gets_the_events_that_it_wants_from_the_next_one_on(client, hooks, receiver):
    place(client, 3)
    client.ship(3)
    hooks.add(receiver.url, EventType.SHIPPED)
    client.ship(1)
    client.cancel(2)
    place(client)
    hooks.deliver()
    assert [(each.event, each.json["type"]) for each in receiver.received] == [(5, "order.shipped")]


# What is retried, and when.


def test_waits_follow_the_schedule_with_up_to_a_tenth_added_by_chance():
    answer, chance, now = Response(500, None, "", 0.0), Random(1), datetime(2026, 12, 1, tzinfo=UTC)
    assert sender.DELAYS == SCHEDULE
    for tries, wait in enumerate(SCHEDULE, start=1):
        waits = {answer.retry_delay(tries, now, chance).total_seconds() for _ in range(200)}
        assert len(waits) == 200
        assert wait <= min(waits) < wait * 1.02
        assert wait * 1.08 < max(waits) <= wait * 1.1


def test_a_retry_has_the_same_id_and_a_new_time(store, client, hook, receiver):
    store.clock.wall = time.time()
    receiver.answering = answer_with(500)
    place(client)
    began = store.clock.time()
    hook.deliver(0, 6)
    first, second = receiver.received
    assert (first.id, first.body) == (second.id, second.body)
    times = [int(each.headers["webhook-timestamp"]) for each in (first, second)]
    assert times == [int(began), int(began + 6)]
    assert Webhook(SECRET).verify(second.body, second.headers) == first.json


OUTCOMES = {
    "delivered": [200, 204, 299],
    "down": [300, 301, 307, 408, 425, 429, 500, 502, 503, 504, 599],
    "refused": [400, 401, 403, 404, 409, 413, 422, 451],
}


def test_the_status_of_an_answer_says_what_became_of_the_event(client, hooks, receiver):
    outcomes = [(outcome, status) for outcome, some in OUTCOMES.items() for status in some]
    for _ in outcomes:
        hooks.add(receiver.url)
    place(client)
    for number, (outcome, status) in enumerate(outcomes, start=1):
        receiver.answering = answer_with(status)
        hooks.deliver(endpoint_id=number)
        assert hooks.tries(number) == [(1, outcome, status)]


def test_an_endpoint_that_is_down_is_retried_with_all_later_events_waiting(client, hook, receiver):
    receiver.answering = answer_with(503)
    place(client, 3)
    with logged() as log:
        for tried, wait in enumerate(SCHEDULE, start=1):
            hook.deliver(0, wait - 1)  # which is too early
            assert receiver.events == [1] * tried
            hook.deliver(wait * sender.JITTER + 1)
            assert receiver.events == [1] * (tried + 1)
        hook.deliver(1000 * HOURS)
    assert len(receiver.events) == 12
    reason = "it is down (status 503)"
    assert hook.get().paused_because == reason
    (line,) = log.getvalue().splitlines()
    assert f"warning: Webhook 1 (127.0.0.1) is paused: {reason}." in line
    (standing,) = hook.ask(deliveries.endpoint_states)
    assert (standing.state, standing.behind) == ("paused", 3)


def test_a_refused_event_lets_others_pass_and_is_retried_by_itself_until_its_last_attempt(
    client, hook, receiver
):
    receiver.answering = refusing_event_1()
    place(client, 3)
    with logged() as log:
        hook.deliver()
        assert receiver.events == [1]
        hook.deliver(6)
        assert receiver.events == [1, 1, 2, 3]
        for tried, wait in enumerate(SCHEDULE[1:], start=3):
            hook.deliver(wait - 1)
            assert receiver.events.count(1) == tried - 1
            hook.deliver(wait * sender.JITTER + 1)
            assert receiver.events.count(1) == tried
        hook.deliver(1000 * HOURS)
    assert receiver.events.count(1) == 12
    assert state_of(hook) == "idle"
    aside, last = log.getvalue().splitlines()
    assert "Webhook 1 (127.0.0.1) refuses event 1, which is put aside" in aside
    assert "did not accept event 1 at the last attempt (status 422)" in last


def refusing_event_1(status=422):
    """Return how a receiver answers that refuses event 1, and accepts all others."""
    return lambda handler, received: handler.answer(status if received.event == 1 else 200)


def state_of(hook):
    """Return the reason of a pause, `aside` or `idle`: nothing is waited for."""
    endpoint = hook.get()
    if endpoint.paused_at is not None:
        return endpoint.paused_because
    if (endpoint.tries, endpoint.next_at) != (0, None):
        return "waiting"
    return "aside" if hook.refused() else "idle"


ASKED = {
    "seconds": (429, "90", 90),
    "a date": (503, "Tue, 01 Dec 2026 12:02:00 GMT", 120),
    "more than an hour": (503, "86400", HOURS),
    "less than the schedule": (503, "1", 5),
    "a date that is past": (503, "Tue, 01 Dec 2026 11:00:00 GMT", 5),
    "no time": (503, "soon", 5),
    "no Unicode digit": (503, "\u0669", 5),
    "a date without a zone": (503, "Tue, 01 Dec 2026 12:02:00 -0000", 5),
    "another status": (500, "90", 5),
}


@pytest.mark.parametrize("asked", ASKED)
def test_retry_after_of_429_and_503_is_heeded_for_up_to_an_hour(client, hook, receiver, asked):
    status, header, wait = ASKED[asked]
    receiver.answering = answer_with(status, **{"Retry-After": header.encode().decode("latin-1")})
    place(client)
    hook.deliver(0)
    left = (hook.get().next_at - hook.store.clock.now()).total_seconds()
    assert wait <= left <= wait * 1.1
    hook.deliver(left - 1, 2)
    assert receiver.events == [1, 1]


# What happens to an endpoint, the events it receives, and its state in the end. A number is a time
# that passes before due events are delivered; `refuse` concerns the first event only.
STORIES = {
    "events arrive once, in the order of the log": (
        ["place 3", "ship 2", "cancel 1", "place 1", 0, 100 * HOURS],
        [1, 2, 3, 4, 5, 6],
        "idle",
    ),
    "an endpoint that is up again receives all in order": (
        ["answer 503", "place 3", 0, 6, "answer 200", 34],
        [1, 1, 1, 2, 3],
        "idle",
    ),
    "a refused event that is accepted at last is forgotten": (
        ["refuse 422", "place 2", 0, 6, "answer 200", 34],
        [1, 1, 2, 1],
        "idle",
    ),
    "a refused event does not hold up later ones": (
        ["refuse 422", "place 1", 0, 6, "place 1", 34, "place 1", 34, "place 1", 34],
        [1, 1, 1, 2, 3, 4],
        "aside",
    ),
    "a refused event is not tried while its endpoint is down": (
        # It would be due after the 10.
        ["refuse 422", "place 1", 0, 6, "answer 503", "place 1", 20, 6, 10],
        [1, 1, 2, 2],
        "waiting",
    ),
    "a refused event is tried again when its endpoint is": (
        ["refuse 422", "place 1", 0, 6, "answer 503", "place 1", 20, 6, 10, 60],
        [1, 1, 2, 2, 1, 2],
        "waiting",
    ),
    "a refused event that is never accepted pauses nothing": (
        ["refuse 422", "place 1", 0, 6, "refuse 500", *LATEST[1:], "place 1", 1000 * HOURS],
        [1] * 12 + [2],
        "idle",
    ),
    "an event refused after its endpoint was down has all its attempts": (
        ["answer 503", "place 2", 0, *LATEST[:-1], "refuse 422", *LATEST[-1:], *LATEST[1:]],
        [1] * 12 + [2] + [1] * 10,
        "idle",
    ),
    "410 pauses at once": (["answer 410", "place 2", 0, 1000 * HOURS], [1], GONE),
    "410 to an event that was put aside pauses, too": (
        ["refuse 422", "place 1", 0, 6, "answer 410", 34],
        [1, 1, 1],
        GONE,
    ),
    "a paused endpoint receives nothing": (["pause", "place 3", 1000 * HOURS], [], "a person"),
    "a resumed endpoint receives everything": (
        ["pause", "place 2", 0, "resume", 0],
        [1, 2],
        "idle",
    ),
    "a resumed endpoint has all its attempts again": (
        ["answer 503", "place 1", 0, *LATEST, 1000 * HOURS, "resume", 0, *LATEST, 1000 * HOURS],
        [1] * 24,
        "it is down (status 503)",
    ),
    "resume after an event skips what waited and what was refused": (
        ["refuse 422", "place 2", 0, 6, "pause", "place 3", "resume 4", 1000 * HOURS],
        [1, 1, 2, 5],
        "idle",
    ),
    "resume after an earlier event repeats later ones": (
        ["place 4", 0, "resume 2", 0],
        [1, 2, 3, 4, 3, 4],
        "idle",
    ),
    "a restart does not shorten a wait and continues in order": (
        ["answer 503", "place 2", 0, 6, "restart", 10, "answer 200", 24],
        [1, 1, 1, 2],
        "idle",
    ),
    **{
        f"a wall clock set {days} days changes no wait: after {last} s": (
            ["answer 503", "place 1", 0, "poll", f"set {days * DAYS}", 0, 4, last - 4],
            [1] * attempts,
            "waiting",
        )
        for days in (-400, 400)
        for last, attempts in ((4, 1), (6, 2))
    },
    "after a restart no wait is longer than one may be": (
        ["answer 503", "place 1", 0, f"set {-400 * DAYS}", "restart", 0, 1.1 * HOURS + 1],
        [1, 1],
        "waiting",
    ),
    "a claim from before the clock was set back is ignored": (
        ["place 1", 0, "place 1", f"set {-HOURS}", "restart", 0],
        [1, 2],
        "idle",
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_what_an_endpoint_receives(client, hook, receiver, story):
    steps, events, state = STORIES[story]
    clock = hook.store.clock
    actions = {
        "place": lambda number: place(client, number),
        "ship": client.ship,
        "cancel": client.cancel,
        "answer": lambda status: setattr(receiver, "answering", answer_with(status)),
        "refuse": lambda status: setattr(receiver, "answering", refusing_event_1(status)),
        "pause": lambda _: hook.change(endpoints.pause, 1, "a person", clock.now()),
        "resume": lambda number: hook.change(endpoints.resume, 1, clock.now(), number),
        "restart": lambda _: setattr(hook, "courier", hook.another_courier()),
        "set": clock.set_wall,
        "poll": lambda _: hook.ask(hook.courier.seconds_until_due, hook.get(), 1),
    }
    with logged() as log:
        for step in steps:
            if isinstance(step, str):
                name, _, number = step.partition(" ")
                actions[name](int(number) if number else None)
            else:
                hook.deliver(step)
    assert (receiver.events, state_of(hook)) == (events, state)
    pauses = len(events) // 10 if state.startswith("it is") else int(state == GONE)
    assert log.getvalue().count("is paused") == pauses


def test_a_position_that_a_command_sets_during_a_delivery_stays(store, client, hook, receiver):
    place(client, 3)
    answer_once(receiver, lambda: hook.change(endpoints.resume, 1, store.clock.now(), 2))
    hook.deliver()
    assert receiver.events == [1, 3]


def test_an_endpoint_that_is_removed_during_a_delivery_is_gone(client, hook, receiver):
    place(client, 2)
    answer_once(receiver, lambda: hook.change(endpoints.remove, 1), 500)
    hook.deliver(0, 1000 * HOURS)
    assert receiver.events == [1]
    assert hook.store.rows("SELECT * FROM webhook_deliveries") == []


# Several processes.


def test_of_two_processes_one_delivers_until_its_claim_of_3_seconds_lapses(client, hook, receiver):
    place(client)
    assert hook.deliver()
    another = hook.another_courier()
    place(client)
    hook.store.clock.set_wall(-0.5)  # that machine's clock is a little behind
    assert another.deliver(1) == 3.5
    hook.store.clock.advance(3)
    assert another.deliver(1) == 0.5
    assert receiver.events == [1]
    hook.store.clock.advance(0.5)
    assert another.deliver(1) == 0
    place(client)
    assert not hook.deliver()
    assert receiver.events == [1, 2]


def test_while_an_attempt_takes_long_no_other_process_begins_one(client, hook, receiver):
    place(client)
    answered = threading.Event()
    answer_once(receiver, lambda: answered.wait(60))
    another = hook.another_courier()
    trying = threading.Thread(target=hook.deliver)
    trying.start()
    receiver.arrivals.get(timeout=60)
    for _ in range(4):
        hook.store.clock.advance(2)
        hook.courier.claims.renew()
        assert another.deliver(1) == 3
    answered.set()
    trying.join()
    assert receiver.events == [1]
    # No attempt is under way any more, so nothing is renewed.
    hook.store.clock.advance(3)
    hook.courier.claims.renew()
    place(client)
    assert another.deliver(1) == 0
    assert receiver.events == [1, 2]


def test_what_another_process_delivered_a_moment_ago_is_not_sent_again(
    store, client, hook, receiver
):
    place(client, 2)

    class Changes:
        """Has the first process deliver and end between the second's look and its claim."""

        def transaction(self):
            if not receiver.events:
                hook.deliver()
                hook.courier.claims.release()
            return store.shop.changes.transaction()

    another = hook.another_courier(Changes())
    assert another.deliver(1) == 0
    assert receiver.events == [1, 2]
    place(client)
    assert another.deliver(1) == 0
    assert receiver.events == [1, 2, 3]


# The log of deliveries.


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((500, "ä€🐢".encode() * 1_000), ("down", ("ä€🐢" * 67)[:200])),
        ((400, f"I know {SECRET}.".encode()), ("refused", "I know whsec_***.")),
        ((200, b"a\0b\xff"), ("delivered", "a\ufffdb\ufffd")),
    ],
)
def test_each_attempt_is_logged_with_200_characters_and_no_secret(
    client, hook, receiver, answer, expected
):
    receiver.answering = answer_with(*answer)
    place(client)
    hook.deliver()
    (made,) = hook.ask(deliveries.latest, 1, 10)
    assert (made.event_id, made.status, made.fault) == (1, answer[0], None)
    assert (made.outcome, made.answer) == expected
    assert made.at == hook.store.clock.now()
    assert made.milliseconds >= 0
    assert hook.get().position == int(made.outcome == "delivered")
