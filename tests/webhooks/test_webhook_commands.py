"""`flask webhooks …`: add, list, remove, pause, resume, rotate, deliveries, redeliver, ping."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from orders.webhooks.endpoints import MAX_ENDPOINTS
from tests.support import commands
from tests.support.receiver import answer_with

PUBLIC = "https://192.88.98.1/hook"


@pytest.fixture(autouse=True)
def now(clock):
    """The machine's time, which the library compares a message's with."""
    clock.wall = float(int(time.time()))


def command(store, *arguments):
    """Run `flask webhooks …` over a store; return the result."""
    return commands.command(store, "webhooks", *arguments)


def run(store, *arguments):
    """Run a command that must work; return what it prints on standard output."""
    done = command(store, *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refused(store, *arguments):
    """Run a command that must fail, in one line and without a traceback; return the line."""
    return commands.rejected(store, "webhooks", *arguments)


def add(store, receiver, *options):
    """Add a receiver; return its secret."""
    return run(store, "add", receiver.url, "--allow-private", *options).strip()


def listed(store, endpoint_id=1):
    """Return what `list --json` says of a webhook."""
    (row,) = [row for row in json.loads(run(store, "list", "--json")) if row["id"] == endpoint_id]
    return row


def test_add_prints_the_secret_alone_and_once(store, receiver):
    done = command(store, "add", receiver.url, "--allow-private")
    secret = done.stdout.strip()
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert done.stdout == f"{secret}\n"
    assert add(store, receiver) != secret
    for arguments in (("list",), ("list", "--json"), ("deliveries", 1)):
        done = command(store, *arguments)
        assert "whsec_" not in done.stdout + done.stderr


def test_without_event_it_means_what_every_receiver_knows(store, receiver):
    add(store, receiver)
    add(store, receiver, "--event", "order.imported", "--event", "order.placed")
    names = ["order.placed", "order.changed", "order.shipped", "order.cancelled"]
    assert listed(store, 1)["events"] == names
    assert listed(store, 2)["events"] == ["order.placed", "order.imported"]
    named = ("--event", "order.changed", "--event", "order.placed")
    done = command(store, "events", "2", *named)
    assert "2 receives order.placed, order.changed." in done.stderr
    assert listed(store, 2)["events"] == ["order.placed", "order.changed"]
    assert listed(store, 1)["events"] == names
    assert "--event" in refused(store, "events", "2")
    assert "webhook 9" in refused(store, "events", "9", *named)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("http://192.88.98.1/hook", "begins with https://"),
        ("https://127.0.0.1/hook", "127.0.0.1 is not a public address. Within your own"),
        ("https://localhost/hook", "localhost is at"),
        (f"{PUBLIC} --event order.lost", "order.lost"),
    ],
)
def test_add_rejects_urls_that_are_not_public_and_unknown_events(store, arguments, words):
    assert words in refused(store, "add", *arguments.split())
    assert run(store, "list", "--json") == "[]\n"
    assert "store-orders webhooks add URL" in command(store, "list").stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [(PUBLIC, "Webhook 1 receives"), ("https://shop.invalid/hook", "can't be resolved right now")],
)
def test_add_accepts_a_public_address_and_a_name_that_is_not_known_yet(store, url, words):
    done = command(store, "add", url)
    assert done.exit_code == 0
    assert words in done.stderr
    assert (listed(store)["url"], listed(store)["allowPrivate"]) == (url, False)


def test_there_is_a_maximum_of_webhooks(store, hooks, receiver):
    for _ in range(MAX_ENDPOINTS):
        hooks.add(receiver.url)
    assert "which is the maximum" in refused(store, "add", receiver.url, "--allow-private")
    run(store, "remove", 1)
    add(store, receiver)


def test_list_shows_the_state_of_each(store, client, hooks, receiver):
    add(store, receiver)
    client.place()
    assert (listed(store)["state"], listed(store)["behind"]) == ("active", 1)
    receiver.answering = answer_with(503)
    hooks.deliver()
    row = listed(store)
    assert (row["state"], row["lastOutcome"]) == ("waiting", "down")
    assert row["nextTry"] > row["lastTry"]
    run(store, "pause", 1)
    row = listed(store)
    assert (row["state"], row["because"], row["nextTry"]) == ("paused", "paused by command", None)
    receiver.answering = answer_with(422)
    run(store, "resume", 1)
    hooks.deliver(0, 6)
    row = listed(store)
    assert (row["state"], row["refused"], row["behind"]) == ("active", 1, 0)
    assert list(row) == run(store, "list").splitlines()[0].split()


def test_pause_resume_and_resume_after_an_event(store, client, hooks, receiver):
    add(store, receiver)
    run(store, "pause", 1)
    for _ in range(3):
        client.place()
    hooks.deliver()
    assert receiver.events == []
    assert "resumes after event 2" in command(store, "resume", 1, "--after", 2).stderr
    hooks.deliver()
    assert receiver.events == [3]
    assert "no event 4" in refused(store, "resume", 1, "--after", 4)


def test_remove_forgets_all_about_it(store, client, hooks, receiver):
    add(store, receiver)
    client.place()
    receiver.answering = answer_with(422)
    hooks.deliver(0, 6)
    run(store, "remove", 1)
    for table in ("webhook_endpoints", "webhook_refused", "webhook_deliveries"):
        assert store.rows(f"SELECT * FROM {table}") == []
    add(store, receiver)
    assert listed(store, 2)["behind"] == 0


def test_rotate_prints_a_new_secret_and_both_sign_for_24_hours(store, client, hooks, receiver):
    old = add(store, receiver)
    new = run(store, "rotate", 1).strip()
    for wait in (0, 24 * 3600 - 1, 1):
        client.place()
        hooks.deliver(wait)
    newest = run(store, "rotate", 1).strip()
    assert "The previous secret of webhook 1 works until " in refused(store, "rotate", 1)
    client.place()
    hooks.deliver()
    run(store, "rotate", 1, "--force")
    expected = ([new, old], [new, old], [new], [newest, new])
    for received, secrets in zip(receiver.received, expected, strict=True):
        at = datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC)
        signatures = [
            Webhook(each).sign(received.id, at, received.body.decode()) for each in secrets
        ]
        assert received.headers["webhook-signature"].split(" ") == signatures


@pytest.mark.parametrize(
    "arguments",
    ["remove 9", "pause 9", "resume 9", "rotate 9", "deliveries 9", "redeliver 9 1", "ping 9"],
)
def test_an_unknown_webhook_is_named(store, client, arguments):
    client.place()
    assert "There is no webhook 9. `store-orders webhooks list`" in refused(
        store, *arguments.split()
    )


def test_deliveries_lists_attempts_newest_first(store, client, hooks, receiver):
    add(store, receiver)
    receiver.answering = answer_with(503, b"\x1b[31mlater\x07")
    client.place()
    hooks.deliver()
    receiver.answering = answer_with(200, b"thank you")
    hooks.deliver(6)
    rows = json.loads(run(store, "deliveries", 1, "--json"))
    shown = [(row["event"], row["outcome"], row["status"], row["answer"]) for row in rows]
    assert shown == [(1, "delivered", 200, "thank you"), (1, "down", 503, "\x1b[31mlater\x07")]
    assert all(row["ms"] >= 0 and row["fault"] is None for row in rows)
    shown = run(store, "deliveries", 1)
    assert list(rows[0]) == shown.splitlines()[0].split()
    assert "\x1b" not in shown
    assert len(run(store, "deliveries", 1, "--limit", 1).splitlines()) == 2


def test_redeliver_sends_an_event_outside_the_order(store, client, hooks, receiver):
    secret = add(store, receiver)
    for _ in range(3):
        client.place()
    hooks.deliver()
    done = command(store, "redeliver", 1, 2)
    assert (done.exit_code, receiver.events) == (0, [1, 2, 3, 2])
    assert "Delivered: the endpoint answered 204" in done.stderr
    again = receiver.received[-1]
    assert (again.id, again.body) == (receiver.received[1].id, receiver.received[1].body)
    assert Webhook(secret).verify(again.body, again.headers) == again.json
    assert listed(store)["after"] == 3
    assert "no event 4" in refused(store, "redeliver", 1, 4)


def test_a_refused_event_that_was_redelivered_is_not_retried(store, client, hooks, receiver):
    add(store, receiver)
    receiver.answering = answer_with(422)
    client.place()
    hooks.deliver(0, 6)
    refused(store, "redeliver", 1, 1)
    assert hooks.refused() is not None
    receiver.answering = answer_with(200)
    run(store, "redeliver", 1, 1)
    assert hooks.refused() is None


def test_ping_sends_a_signed_message_of_its_own_even_while_paused(store, receiver):
    secret = add(store, receiver)
    run(store, "pause", 1)
    assert "Delivered: the endpoint answered 204" in command(store, "ping", 1).stderr
    (received,) = receiver.received
    message = Webhook(secret).verify(received.body, received.headers)
    assert (message["type"], message["data"]) == ("ping", {"webhook": 1})
    assert received.id.startswith(f"ping_{store.shop.store_id}_")
    run(store, "ping", 1)
    assert receiver.received[0].id != receiver.received[1].id
    assert [row["event"] for row in json.loads(run(store, "deliveries", 1, "--json"))] == [None] * 2


@pytest.mark.parametrize(
    ("arguments", "status"),
    [("redeliver 1 1", 410), *[("ping 1", status) for status in (302, 404, 410, 500)]],
)
def test_a_failure_is_explained_and_only_410_to_an_event_pauses(
    store, client, receiver, arguments, status
):
    add(store, receiver)
    client.place()
    receiver.answering = answer_with(status, b"why not")
    words = f"Not delivered. The endpoint answered {status}: why not."
    assert words in refused(store, *arguments.split())
    gone = "it answered 410 Gone" if arguments.startswith("redeliver") else None
    assert listed(store)["because"] == gone


def test_a_ping_goes_to_public_addresses_only(store, receiver):
    add(store, receiver)
    store.execute("UPDATE webhook_endpoints SET allow_private = false")
    fault = "A webhook's URL begins with https://"
    assert f"Not delivered. {fault}" in refused(store, "ping", 1)
    (row,) = json.loads(run(store, "deliveries", 1, "--json"))
    assert (row["outcome"], row["status"], row["fault"][: len(fault)]) == ("down", None, fault)
    assert receiver.received == []
