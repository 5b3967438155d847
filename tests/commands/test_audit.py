"""`flask audit [--json]`: who did what to keys, webhooks and the store, and when."""

from __future__ import annotations

import json
import os

import pytest
from sqlalchemy.exc import IntegrityError

from orders import demo
from orders.apikeys import USUAL_SCOPES
from orders.key_service import KeyService
from orders.store import apikeys as key_store
from orders.store.apikeys import NewKey
from orders.store.care import restoring
from orders.webhooks.service import WebhookService
from tests.support.commands import command, rejected
from tests.support.receiver import answer_with
from tests.support.stores import Store

pytestmark = pytest.mark.usefixtures("databases")

try:
    import pwd
except ImportError:  # on Windows
    WHO = os.getlogin()
else:
    WHO = pwd.getpwuid(os.getuid()).pw_name
NOON = "2026-12-01T12:00:00.000Z"
URL = "http://127.0.0.1:9/hook?token=secret"


@pytest.fixture(autouse=True)
def _nobody_called_sudo(monkeypatch):
    monkeypatch.delenv("SUDO_USER", raising=False)


def trail(store):
    """Return what `flask audit --json` lists."""
    done = command(store, "audit", "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def acts(store):
    """Return the actions and their subjects."""
    return [(act["action"], act["subject"]) for act in trail(store)]


ACTS = [
    ("keys issue shop --plan pro", "key.issued", "key 1 (shop): pro, read write"),
    ("keys issue till --plan free --scope read", "key.issued", "key 2 (till): free, read"),
    ("keys plan 2 pro", "key.plan", "key 2 (till): pro"),
    ("keys rotate 1 --grace 1", "key.rotated", "key 1 (shop)"),
    ("keys revoke 1", "key.revoked", "key 1 (shop)"),
    (f"webhooks add {URL} --allow-private", "webhook.added", "webhook 1 (127.0.0.1)"),
    ("webhooks events 1 --event order.changed", "webhook.changed", "webhook 1 (127.0.0.1)"),
    ("webhooks rotate 1", "webhook.rotated", "webhook 1 (127.0.0.1)"),
    ("webhooks pause 1", "webhook.paused", "webhook 1 (127.0.0.1)"),
    ("webhooks resume 1", "webhook.resumed", "webhook 1 (127.0.0.1)"),
    ("webhooks remove 1", "webhook.removed", "webhook 1 (127.0.0.1)"),
    ("db check --clock-is-right", "clock.trusted", "the store"),
]


def test_each_act_is_listed_with_its_time_and_user_and_without_secrets(store, clock):
    secrets = []
    for arguments, *_ in ACTS:
        done = command(store, *arguments.split())
        assert done.exit_code == 0, done.stderr
        secrets += done.stdout.split()
        clock.advance(1)
    listed = trail(store)
    assert [(act["action"], act["subject"]) for act in listed] == [tuple(act) for _, *act in ACTS]
    assert (listed[0]["at"], {act["who"] for act in listed}) == (NOON, {WHO})
    assert [list(act) for act in listed[:1]] == [["at", "who", "action", "subject"]]
    table = command(store, "audit").stdout
    assert len(table.splitlines()) == len(ACTS) + 1
    assert len(secrets) == 5
    assert not [each for each in (*secrets, "token") if each in table + json.dumps(listed)]


def test_commands_that_fail_or_change_nothing_are_not_listed(store):
    command(store, "keys", "issue", "shop", "--plan", "pro")
    command(store, "keys", "revoke", 1)
    before = acts(store)
    for arguments in (
        *("revoke 1", "revoke 9", "unban 1", "unban 9", "plan 9 pro", "rotate 1", "rotate 9"),
        "issue shop --plan lead",
    ):
        command(store, "keys", *arguments.split())
    command(store, "webhooks", "remove", 9)
    assert acts(store) == before


def test_lifting_a_ban_is_listed(store, clock):
    key_id, _ = store.issue()
    store.execute("UPDATE api_keys SET banned_until = expires_at")
    assert "not banned" in rejected(store, "keys", "unban", key_id)
    store.execute("UPDATE api_keys SET banned_until = created_at")
    command(store, "keys", "unban", key_id)
    assert acts(store) == [("key.unbanned", f"key {key_id} (test)")]


def test_a_webhook_paused_by_the_service_is_listed_as_its_act(store, client, hooks, receiver):
    hooks.add(receiver.url)
    receiver.answering = answer_with(410)
    client.place()
    hooks.deliver()
    (act,) = trail(store)
    assert (act["who"], act["action"]) == ("service", "webhook.paused")


def test_the_key_of_a_demo_is_listed(store, clock):
    demo.prepare(store.database, clock)
    demo.prepare(store.database, clock)
    assert acts(store) == [
        ("key.issued", "key 1 (demo): business, read write webhooks admin"),
        ("key.rotated", "key 1 (demo)"),
    ]


def test_an_empty_trail_is_reported(store):
    done = command(store, "audit")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "Nothing has been done" in done.stderr


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_trail SET who = 'nobody'", "DELETE FROM audit_trail WHERE id = 1"],
)
def test_the_trail_is_never_changed(store, statement):
    command(store, "keys", "issue", "shop", "--plan", "pro")
    with pytest.raises(IntegrityError, match="the audit trail is never changed"):
        store.execute(statement)
    assert len(acts(store)) == 1


def test_a_renewal_is_listed(store, clock):
    restoring.renew(store.database, clock.now())
    assert acts(store) == [("store.renewed", "the store")]


@pytest.mark.sqlite_only
def test_a_restore_keeps_what_was_done_since_the_backup_and_is_listed(store, clock, tmp_path):
    command(store, "keys", "issue", "shop", "--plan", "pro")
    command(store, "db", "backup", tmp_path / "backup.db")
    command(store, "keys", "revoke", 1)
    store.shop.end()
    for _ in range(2):
        clock.advance(1)
        done = command(store, "db", "restore", tmp_path / "backup.db")
        assert done.exit_code == 0, done.stderr
    assert acts(Store(store.settings, clock)) == [
        ("key.issued", "key 1 (shop): pro, read write"),
        ("key.revoked", "key 1 (shop)"),
        ("store.restored", "from backup.db"),
        ("store.restored", "from backup.db"),
    ]


@pytest.mark.parametrize(
    ("caller", "who"),
    [("daemon", f"daemon as {WHO}"), (WHO, WHO), ("", WHO), ("nobody at all: key.issued", WHO)],
)
def test_the_caller_of_sudo_is_listed_with_the_user_acted_as(store, monkeypatch, caller, who):
    monkeypatch.setenv("SUDO_USER", caller)
    command(store, "keys", "issue", "shop", "--plan", "pro")
    assert trail(store)[0]["who"] == who


def test_changes_over_http_name_the_key_that_made_them(store, clock):
    owner_id, _ = store.issue(name="the owner")
    with store.database.write() as connection:
        owner = key_store.get(connection, owner_id)
        keys = KeyService(connection, clock.now(), store.settings.plans, owner)
        key_id, _ = keys.issue(NewKey("shop", "pro", USUAL_SCOPES))
        keys.revoke(key_id)
        webhooks = WebhookService(connection, clock.now(), owner)
        webhooks.pause(webhooks.add("https://hooks.example/secret", ()).id, "a test")
    assert {each["who"] for each in trail(store)} == {"key 1 (the owner)"}
    assert [subject for _, subject in acts(store)] == [
        "key 2 (shop): pro, read write",
        "key 2 (shop)",
        "webhook 1 (hooks.example)",
        "webhook 1 (hooks.example)",
    ]


@pytest.mark.sqlite_only
def test_a_user_without_a_name_is_listed_by_number(store, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    command(store, "keys", "issue", "shop", "--plan", "pro")
    assert trail(store)[0]["who"] == "4000000000"
