"""Webhooks managed over HTTP, by keys with the scope webhooks or admin."""

from __future__ import annotations

import json
import time

import pytest

from orders.apikeys import SCOPES
from tests.support.commands import command
from tests.support.receiver import answer_with
from tests.support.stores import assert_error

HOOKS = "/v2/webhooks"
PUBLIC = "https://192.88.98.1/hook"


@pytest.fixture
def owner(store):
    return store.client(scopes=SCOPES, name="the owner")


@pytest.fixture
def integrator(store):
    return store.client(scopes=("webhooks",), name="the integrator")


def trail(store):
    acts = json.loads(command(store, "audit", "--json").stdout)
    return [(each["who"], each["action"], each["subject"]) for each in acts]


def local(store, receiver, added_by, *events):
    """Add a local receiver, which only the command can, and attribute it to a key."""
    arguments = [each for event in events for each in ("--event", event)]
    done = command(store, "webhooks", "add", receiver.url, "--allow-private", *arguments)
    assert done.exit_code == 0, done.stderr
    store.execute("UPDATE webhook_endpoints SET added_by = :id", id=added_by.key_id)
    return f"{HOOKS}/1"


def test_a_new_webhook_shows_its_secret_once_and_who_added_it(store, integrator):
    sent = {"json": {"url": PUBLIC, "events": ["order.shipped", "order.placed"]}}
    sent["headers"] = {"Idempotency-Key": "once"}
    first, again = integrator.post(HOOKS, **sent), integrator.post(HOOKS, **sent)
    added = first.get_json()
    secret = added.pop("secret")
    assert secret.startswith("whsec_")
    assert added == {
        "id": 1,
        "url": PUBLIC,
        "events": ["order.placed", "order.shipped"],
        "state": "active",
        "waiting": 0,
        "created": "2026-12-01T12:00:00.000Z",
        "addedBy": "the integrator",
    }
    assert (again.status_code, again.get_json()) == (201, added)
    assert integrator.get(HOOKS).get_json() == {"webhooks": [added]}
    rotated = integrator.post(f"{HOOKS}/1/rotate")
    assert rotated.headers["Cache-Control"] == "no-store"
    assert rotated.get_json()["secret"] not in {secret, None}
    assert_error(integrator.post(f"{HOOKS}/1/rotate"), 409, "rotation_in_grace")
    who = "key 1 (the integrator)"
    assert trail(store) == [
        (who, "webhook.added", "webhook 1 (192.88.98.1)"),
        (who, "webhook.rotated", "webhook 1 (192.88.98.1)"),
    ]
    rows = json.dumps(store.rows("SELECT answer FROM idempotency_keys"))
    assert "whsec_" not in rows + command(store, "audit", "--json").stdout


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://192.88.98.1/hook", "begins with https://"),
        ("https://127.0.0.1/hook", "not a public address"),
        ("https://localhost/hook", "not a public address"),
        ("https://[::1]/hook", "not a public address"),
        ("https://169.254.169.254/latest", "not a public address"),
        ("ftp://192.88.98.1/", "looks like"),
        ("https://anna:secret@192.88.98.1/", "no user name"),  # pragma: allowlist secret
        ("", "ASCII"),
    ],
)
def test_only_a_public_address_can_be_added_over_the_api(store, owner, url, words):
    response = owner.post(HOOKS, json={"url": url})
    assert_error(response, 422, "validation_failed")
    (fault,) = response.get_json()["errors"]
    assert fault["field"] == "url"
    assert words in fault["message"]
    assert "--allow-private" not in response.text
    refused = owner.post(HOOKS, json={"url": PUBLIC, "allowPrivate": True})
    assert_error(refused, 422, "validation_failed")
    assert owner.get(HOOKS).get_json() == {"webhooks": []}


def test_a_key_sees_only_the_webhooks_that_it_added_and_an_admin_key_all(store, owner, integrator):
    assert command(store, "webhooks", "add", PUBLIC).exit_code == 0
    other = store.client(scopes=("webhooks",))
    assert integrator.post(HOOKS, json={"url": PUBLIC}).status_code == 201
    assert [each["id"] for each in owner.get(HOOKS).get_json()["webhooks"]] == [1, 2]
    assert [each["id"] for each in integrator.get(HOOKS).get_json()["webhooks"]] == [2]
    for stranger, path in (
        (other, f"{HOOKS}/2"),
        (integrator, f"{HOOKS}/1"),
        (owner, f"{HOOKS}/9"),
    ):
        for response in (
            stranger.patch(path, json={"events": ["order.placed"]}),
            stranger.delete(path),
            stranger.get(f"{path}/deliveries"),
            *(stranger.post(f"{path}/{each}") for each in ("rotate", "pause", "resume", "ping")),
            stranger.post(f"{path}/deliveries/1/redeliver"),
        ):
            assert_error(response, 404, "webhook_not_found")
    changed = owner.patch(f"{HOOKS}/2", json={"events": ["order.placed"]})
    assert changed.get_json()["events"] == ["order.placed"]
    assert owner.delete(f"{HOOKS}/2").status_code == 204
    assert integrator.get(HOOKS).get_json() == {"webhooks": []}


def test_a_webhook_is_paused_and_resumed(store, owner):
    owner.post(HOOKS, json={"url": PUBLIC})
    paused = owner.post(f"{HOOKS}/1/pause").get_json()
    assert (paused["state"], paused["because"]) == ("paused", "paused over the API")
    assert paused["since"] == "2026-12-01T12:00:00.000Z"
    owner.place()
    assert owner.get(HOOKS).get_json()["webhooks"][0]["waiting"] == 1
    assert_error(owner.post(f"{HOOKS}/1/resume", json={"after": 9}), 404, "event_not_found")
    resumed = owner.post(f"{HOOKS}/1/resume", json={"after": 1}).get_json()
    assert (resumed["state"], resumed["waiting"], "since" in resumed) == ("active", 0, False)


def test_a_ping_reports_the_receivers_answer(store, integrator, receiver):
    path = local(store, receiver, integrator)
    assert integrator.post(f"{path}/ping").get_json()["status"] == 204
    receiver.answering = answer_with(503)
    assert integrator.post(f"{path}/ping").get_json()["status"] == 503
    store.execute("UPDATE webhook_endpoints SET url = 'http://127.0.0.1:9/'")
    pinged = integrator.post(f"{path}/ping").get_json()
    assert set(pinged) == {"error", "milliseconds"}
    who = "key 1 (the integrator)"
    assert [each for each in trail(store) if each[1] == "webhook.pinged"] == 3 * [
        (who, "webhook.pinged", "webhook 1 (127.0.0.1)")
    ]


def test_deliveries_come_in_pages_newest_first_and_an_event_is_sent_again(
    store, owner, receiver, hooks
):
    path = local(store, receiver, owner)
    receiver.answering = answer_with(400)
    owner.place()
    hooks.deliver(0, 10)
    receiver.answering = answer_with(204)
    sent = owner.post(f"{path}/deliveries/1/redeliver", headers={"Idempotency-Key": "once"})
    assert (sent.status_code, sent.get_json()) == (202, {"webhookId": 1, "eventId": 1})
    again = owner.post(f"{path}/deliveries/1/redeliver", headers={"Idempotency-Key": "once"})
    assert "Idempotent-Replayed" in again.headers
    assert_error(owner.post(f"{path}/deliveries/9/redeliver"), 404, "event_not_found")
    for _ in range(1_000):
        page = owner.get(f"{path}/deliveries?limit=2").get_json()
        if page["deliveries"][0]["outcome"] == "delivered":
            break
        time.sleep(0.01)
    assert [(each["eventId"], each["attempt"], each["status"]) for each in page["deliveries"]] == [
        (1, 3, 204),
        (1, 2, 400),
    ]
    assert page["more"]
    rest = owner.get(f"{path}/deliveries?limit=2&after={page['next']}").get_json()
    assert [each["attempt"] for each in rest["deliveries"]] == [1]
    assert not rest["more"]
    end = owner.get(f"{path}/deliveries?after={rest['next']}").get_json()
    assert end == {"deliveries": [], "next": rest["next"], "more": False}


def test_a_key_without_admin_can_add_eight_webhooks_and_other_keys_their_own(
    store, owner, integrator
):
    for _ in range(8):
        assert integrator.post(HOOKS, json={"url": PUBLIC}).status_code == 201
    refused = integrator.post(HOOKS, json={"url": PUBLIC})
    assert_error(refused, 409, "too_many_webhooks")
    assert "Your key has added 8 webhooks" in refused.get_json()["message"]
    assert store.client(scopes=("webhooks",)).post(HOOKS, json={"url": PUBLIC}).status_code == 201
    assert owner.post(HOOKS, json={"url": PUBLIC}).status_code == 201
    assert integrator.delete(f"{HOOKS}/1").status_code == 204
    assert integrator.post(HOOKS, json={"url": PUBLIC}).status_code == 201


def test_a_33rd_webhook_is_refused(owner):
    for _ in range(32):
        assert owner.post(HOOKS, json={"url": PUBLIC}).status_code == 201
    assert_error(owner.post(HOOKS, json={"url": PUBLIC}), 409, "too_many_webhooks")


def test_an_integrator_can_set_up_everything_without_a_terminal(store, owner):
    issued = owner.post(
        "/v2/keys",
        json={"name": "web shop", "plan": "pro", "scopes": ["read", "write", "webhooks"]},
    )
    shop = store.anonymous()
    shop.secret = issued.get_json()["secret"]
    hook = shop.post(HOOKS, json={"url": PUBLIC, "events": ["order.placed"]}).get_json()
    path = f"{HOOKS}/{hook['id']}"
    assert shop.post(f"{path}/pause").get_json()["state"] == "paused"
    placed = shop.post("/v2/store/orders", json={"petId": 7})
    assert placed.status_code == 201
    (waiting,) = shop.get(HOOKS).get_json()["webhooks"]
    assert (waiting["waiting"], waiting["addedBy"]) == (1, "web shop")
    (event,) = shop.get("/v2/store/events").get_json()["events"]
    changed = shop.patch(path, json={"events": ["order.placed", "order.shipped"]})
    assert changed.get_json()["events"] == ["order.placed", "order.shipped"]
    resumed = shop.post(f"{path}/resume", json={"after": event["id"]}).get_json()
    assert (resumed["state"], resumed["waiting"]) == ("active", 0)
    assert shop.get(f"{path}/deliveries").get_json()["deliveries"] == []
    assert shop.post(f"{path}/rotate").get_json()["secret"] != hook["secret"]
    for refused in ("/v2/keys", "/v2/audit", "/v2/backups"):
        assert_error(shop.get(refused), 403, "insufficient_scope")
    assert shop.delete(path).status_code == 204
    whos = {who for who, action, _ in trail(store) if action.startswith("webhook.")}
    assert whos == {"key 2 (web shop)"}
