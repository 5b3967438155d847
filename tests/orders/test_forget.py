"""Forgetting the customers of settled orders: in rows, events, answers, messages and files."""

from __future__ import annotations

import json
import re
from getpass import getuser

import pytest
from sqlalchemy.exc import IntegrityError

from orders.domain import PERSONAL, Origin, name_in_api
from orders.store import forgetting, tables
from orders.store.care import checks
from orders.store.database import sqlite
from tests.support.commands import command, messages, rejected
from tests.support.orders import OPTIONAL, REPEATED, TRACKING
from tests.support.stores import assert_error

pytestmark = pytest.mark.usefixtures("databases")

ORDERS = "/v2/store/orders"
PERSONAL_SHOWN = [name_in_api(name) for name in PERSONAL]
# Words that no other text has, as they stand in files, and in the words of the search.
MARK = "Zaphod"
NAMED = {**OPTIONAL, "reference": f"{MARK}-1", "note": f"for {MARK}", "shipTo": f"{MARK} B.\nX"}


@pytest.fixture
def client(store):
    return store.client().speaking(2)


def settled(client, change="ship", headers=None, **order):
    order_id = client.place(headers=headers, **(NAMED | order)).get_json()["id"]
    more = {"tracking": f"{MARK} {TRACKING}"} if change == "ship" else {}
    getattr(client, change)(order_id, **more)
    return order_id


def blank(order):
    return {name: value for name, value in order.items() if name not in PERSONAL_SHOWN}


def forget(store, *arguments):
    """Run the command, which must succeed; return its output."""
    done = command(store, "orders", "forget", *arguments)
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    return messages(done)


def complaint(store):
    with store.database.read() as connection:
        return checks.complaint(connection)


def bytes_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def holding(folder, text=MARK):
    """Return the names of the files of a folder that have a text, in either case."""
    wanted = text.lower().encode()
    return sorted(path.name for path, data in bytes_of(folder).items() if wanted in data.lower())


@pytest.mark.parametrize("change", ["ship", "cancel"])
def test_a_settled_order_and_its_history_lose_what_may_name_a_person(store, client, clock, change):
    order_id = settled(client, change)
    before, history = client.order(order_id), client.get(f"{ORDERS}/1/events").get_json()["events"]
    clock.advance(60)
    assert "Deleted the personal data of 1 order." in forget(store, order_id)
    after = client.order(order_id)
    assert after.get_json() == blank(before.get_json()) | {"updatedAt": "2026-12-01T12:01:00.000Z"}
    assert after.get_json()["item"] == OPTIONAL["item"]
    assert after.headers["ETag"] != before.headers["ETag"]
    events = client.get(f"{ORDERS}/1/events").get_json()["events"]
    assert events[:-1] == [{**each, "order": blank(each["order"])} for each in history]
    last = events[-1]
    assert (last["type"], last["actor"], last["order"]) == (
        "order.forgotten",
        "cli",
        after.get_json(),
    )
    assert client.get("/v2/store/events?after=2").get_json()["events"] == [last]
    for search in (MARK, TRACKING, "B."):
        assert client.get(f"{ORDERS}?search={search}").get_json()["orders"] == []
    assert len(client.get(f"{ORDERS}?search=collar").get_json()["orders"]) == 1
    assert complaint(store) is None
    forget(store, order_id)  # again, in vain
    (act,) = store.rows("SELECT who, action, subject FROM audit_trail")
    assert (act["action"], act["subject"]) == ("orders.forgotten", "order 1")
    assert getuser() in act["who"]


def test_reopening_an_order_brings_no_forgotten_text_back(store, client):
    order_id = settled(client)
    forget(store, order_id)
    reopened = client.post(f"{ORDERS}/{order_id}/reopen").get_json()
    assert reopened == blank(reopened)
    assert complaint(store) is None


def test_an_order_is_forgotten_once_and_again_when_it_has_new_texts(store, client):
    order_id = settled(client)
    forget(store, order_id)
    assert "Deleted the personal data of 0 orders." in forget(store, order_id)
    client.request("PATCH", f"{ORDERS}/1", json={"note": f"{MARK} called"})
    client.request("PATCH", f"{ORDERS}/1", json={"note": None})
    # Only an event has it.
    assert "Deleted the personal data of 1 order." in forget(store, order_id)
    types = [each["type"] for each in store.events()]
    assert types[2:] == ["order.forgotten", "order.changed", "order.changed", "order.forgotten"]


def test_pending_and_unknown_orders_are_refused_by_id_and_nothing_is_forgotten(store, client):
    done, open_one, other = settled(client), client.place(**NAMED), client.place(**NAMED)
    before = store.events()
    for ids, names in (
        ([done, 2, 3], "Order 2, 3 is pending"),
        ([done, 9], "There is no order 9"),
    ):
        assert names in rejected(store, "orders", "forget", *ids)
    assert "by --placed-before DATE" in rejected(store, "orders", "forget")
    assert "ids, or" in rejected(store, "orders", "forget", 1, "--placed-before", "2027-01-01")
    assert "neither a day" in rejected(store, "orders", "forget", "--placed-before", "soon")
    assert store.events() == before
    assert [each.status_code for each in (open_one, other)] == [201, 201]


def test_settled_orders_placed_before_a_day_are_forgotten_but_not_pending_ones(
    store, client, clock
):
    old = settled(client)
    client.place(**NAMED)
    client.cancel(client.place(7).get_json()["id"])
    clock.advance(24 * 3600)
    new = settled(client, "cancel")
    before = ("--placed-before", "2026-12-02")
    assert forget(store, *before, "--dry-run") == "1 order with personal data.\n"
    assert "Deleted the personal data of 1 order." in forget(store, *before)
    kept = [each["id"] for each in client.get(f"{ORDERS}?search={MARK}").get_json()["orders"]]
    assert (old, sorted(kept)) == (1, [2, new])
    assert "personal data of 1 order" in forget(
        store, "--placed-before", "2026-12-02T13:00:00+00:30", "--yes"
    )


def test_replays_of_idempotency_keys_show_the_blanked_orders(store, client):
    once = {"Idempotency-Key": "a"}
    places = [{"json": {"petId": 7, **NAMED}, "headers": once}] * 2
    placed = client.post(ORDERS, **places[0])
    v1 = client.speaking(1).place(headers={"Idempotency-Key": "b"})
    several = {
        "json": {"orderIds": [1, 2], "tracking": {"1": MARK}},
        "headers": {"Idempotency-Key": "c"},
    }
    shipped = client.post("/v2/store/shipments", **several)
    client.place(**NAMED)
    cancelled = client.delete(f"{ORDERS}/3", headers={"Idempotency-Key": "d"})
    assert [each.status_code for each in (placed, v1, shipped, cancelled)] == [201, 201, 200, 204]
    forget(store, 1, 3)
    replays = client.post(ORDERS, **places[1]), client.post("/v2/store/shipments", **several)
    assert [each.headers["Idempotent-Replayed"] for each in replays] == ["true", "true"]
    assert replays[0].get_json() == blank(placed.get_json())
    assert (replays[0].status_code, replays[1].status_code) == (201, 200)
    first, second = shipped.get_json()["results"]
    assert replays[1].get_json()["results"] == [{**first, "order": blank(first["order"])}, second]
    again = client.delete(f"{ORDERS}/3", headers={"Idempotency-Key": "d"})
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (204, "true")
    assert client.speaking(1).place(headers={"Idempotency-Key": "b"}).data == v1.data
    changed = client.post(ORDERS, json={"petId": 8}, headers=once)
    assert_error(changed, 422, "idempotency_key_reused")
    answers = store.rows("SELECT answer FROM idempotency_keys")
    assert MARK not in json.dumps(answers)


def test_waiting_messages_are_blanked_and_answers_of_receivers_are_discarded(
    store, client, hooks, receiver
):
    def answering(handler, message):
        if message.json["type"] == "order.placed":  # and is on its way
            found = forgetting.due(store.database)
            assert list(store.shop.orders.forget(found, Origin("cli"), "it")) == [[1]]
        handler.answer(200, f"thank you, {MARK}")

    receiver.answering = answering
    hooks.add(receiver.url, "order.placed", "order.shipped", "order.forgotten")
    settled(client)
    hooks.deliver(3)
    sent = [each.json for each in receiver.received]
    assert [each["type"] for each in sent] == ["order.placed", "order.shipped", "order.forgotten"]
    assert sent[0]["data"]["shipTo"] == NAMED["shipTo"]
    assert [each["data"] == blank(each["data"]) for each in sent[1:]] == [True, True]
    assert {each["answer"] for each in store.rows("SELECT answer FROM webhook_deliveries")} == {""}
    assert MARK not in command(store, "webhooks", "redeliver", 1, 1).output
    assert receiver.received[-1].json["data"] == blank(sent[0]["data"])


def test_old_answers_of_receivers_are_forgotten(store, client, hooks, receiver):
    receiver.answering = lambda handler, _: handler.answer(200, f"thank you, {MARK}")
    hooks.add(receiver.url)
    settled(client)
    hooks.deliver(2)
    forget(store, 1)
    assert {each["answer"] for each in store.rows("SELECT answer FROM webhook_deliveries")} == {""}


def test_the_database_rejects_any_other_change_of_events(store, client):
    client.place(**NAMED)
    for name in tables.order_events.columns.keys():  # noqa: SIM118 - no dict
        changed = "'other'" if name in PERSONAL else name
        with pytest.raises(IntegrityError, match="the event log is never changed"):
            store.execute(f"UPDATE order_events SET {name} = {changed}")


@pytest.mark.sqlite_only("searches the bytes of the files")
def test_neither_the_folder_nor_a_new_backup_contains_forgotten_texts(store, client, tmp_path):
    folder = store.settings.instance
    others = [client.place(note=f"Arthur {number}").get_json()["id"] for number in range(12)]
    for number in range(16):
        long = f"for {MARK}" + " and family" * (3 * number)
        settled(client, headers={"Idempotency-Key": str(number)}, note=long[:500])
    client.request("PATCH", f"{ORDERS}/28", json={"note": "short"})
    for order_id in others:
        client.cancel(order_id)
    assert "orders.db-wal" in holding(folder)
    forget(store, "--placed-before", "2027-01-01")
    assert (holding(folder), holding(folder, "Arthur")) == ([], [])
    command(store, "db", "backup", tmp_path / "new.db")
    assert (holding(tmp_path), holding(tmp_path, "Arthur")) == ([], [])
    assert holding(tmp_path, "collar") != []
    assert complaint(store) is None


@pytest.mark.sqlite_only("searches the bytes of the files")
def test_a_large_file_is_rewritten_only_on_request(store, client, monkeypatch):
    monkeypatch.setattr(sqlite, "_SCRUBBED_BYTES", 0)
    for _ in range(3):
        settled(client)
    assert "Traces may remain in unused parts of orders.db." in forget(store, 1, 2, 3)
    assert holding(store.settings.instance) == []
    with store.database.snapshot() as reading:
        reading.exec_driver_sql("SELECT count(*) FROM orders").fetchall()
        client.place(7)
        assert "in orders.db-wal, which something is reading" in forget(store, "--compact")
    assert "Traces" not in forget(store, "--compact")


@pytest.mark.sqlite_only("backups are of files")
def test_the_command_reports_where_forgotten_texts_remain_and_for_how_long(make_store, clock):
    store = make_store(backups_keep=(7, 4))
    settled(store.client().speaking(2))
    backup = store.shop.backups.make()
    store.settings.instance.joinpath("orders-replaced-20261101T080000.db").touch()
    message = forget(store, 1)
    assert (
        f"those in {store.shop.backups.folder} for up to 28 days (ORDERS_BACKUPS_KEEP)" in message
    )
    assert (
        "These have it, too, until you remove them: orders-replaced-20261101T080000.db." in message
    )
    assert holding(backup.path.parent) == [backup.path.name]


@pytest.mark.sqlite_only("a file in the place of another")
def test_a_restored_backup_forgets_again_what_was_forgotten_since(store, client, clock, tmp_path):
    settled(client)
    client.place(**NAMED)
    backup = tmp_path / "backup.db"
    command(store, "db", "backup", backup)
    client.ship(2)
    forget(store, 1, 2)
    store.shop.end()
    said = messages(command(store, "db", "restore", backup))
    assert "Deleted the personal data of 1 order again." in said
    assert re.search(r"pending in the backup. Once .* run `.*orders forget 2`", said)
    first, second = (client.order(each).get_json() for each in (1, 2))
    assert (first, second["shipTo"]) == (blank(first), NAMED["shipTo"])
    assert complaint(store) is None
    clock.advance(1)
    store.shop.end()
    store.shop.database.path.write_bytes(b"")
    assert "is in it again" in messages(command(store, "db", "restore", backup, "--keep-keys"))


def test_the_service_forgets_automatically_after_the_configured_days(make_store, clock):
    store = make_store(forget_after_days=30)
    client = store.client().speaking(2)
    settled(client)
    client.place(**NAMED)
    clock.advance(20 * 86_400)
    settled(client, "cancel")
    store.shop.forget_due()
    assert store.events()[-1]["type"] == "order.cancelled"
    clock.advance(11 * 86_400)
    store.shop.forget_due()
    last = store.events()[-1]
    assert (last["type"], last["order_id"], last["actor"]) == ("order.forgotten", 1, "service")
    store.shop.forget_due()  # not again within the hour
    assert len(store.events()) == 6
    acts = store.rows("SELECT who, subject FROM audit_trail")
    assert acts == [{"who": "service", "subject": "settled orders without a change for 30 days"}]


def test_each_transaction_takes_a_moment_and_others_write_in_between(store, client):
    for _ in range(5):
        settled(client)
    store.execute(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 500)"
        f"INSERT INTO order_events (type, order_id, at, actor, {REPEATED}) "
        f"SELECT 'order.changed', id, updated_at, 'cli', {REPEATED} FROM orders, numbers "
        "WHERE id = 3"
    )
    rests = []
    found = list(forgetting.due(store.database))
    done = list(store.shop.orders.forget(found, Origin("cli"), "these", rests.append))
    assert (done, len(rests)) == ([[1, 2], [3], [4, 5]], 3)
    stopped = store.shop.orders.forget(found, Origin("cli"), "these", lambda _: True)
    assert list(stopped) == [[]]
    assert store.rows("SELECT subject FROM audit_trail") == [{"subject": "these"}]
    assert list(forgetting.due(store.database)) == []
    assert complaint(store) is None
