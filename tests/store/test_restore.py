"""`flask db restore`: a backup replaces the database; no key is revived, no id used twice."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import Pool, event

from orders.store.care import checks, opening, restoring
from orders.store.database import sqlite
from orders.store.database.errors import StoreUnavailable
from orders.webhooks import deliveries, endpoints
from orders.webhooks.deliveries import RefusedEvent
from tests.support.commands import command, rejected, said
from tests.support.service import ROOT
from tests.support.stores import Store
from tests.support.webhooks import Hooks

pytestmark = pytest.mark.sqlite_only("a file in the place of another")


@pytest.fixture
def shop(store):
    """A store with an order and two keys, backed up; then more orders, a revoked key, a new one."""
    client, other = store.client(name="web"), store.client(name="till")
    client.place(7)
    backup = store.settings.instance.parent / "backup.db"
    said(store, "db", "backup", backup)
    for _ in range(3):
        client.place(8)
    said(store, "keys", "revoke", other.key_id)
    late = store.client(name="late")
    return store, backup, client, other, late


@pytest.fixture
def restored(store):
    """Restore a backup over the stopped store; return the store as it is then, and the messages."""
    with ExitStack() as at_the_end:

        def restore(backup, *options):
            store.shop.end()
            done = command(store, "db", "restore", backup, *options)
            assert done.exit_code == 0, done.output
            after = Store(store.settings, store.clock)
            after.shop.begin()
            at_the_end.callback(after.shop.end)
            return after, done.stderr

        yield restore


def trail(store):
    """Return what `flask audit --json` lists."""
    return json.loads(command(store, "audit", "--json").stdout)


def again(client, store):
    return type(client)(store, client.key_id, client.secret)


def test_orders_are_those_of_the_backup_and_new_ids_continue_above_the_replaced_ones(
    shop, restored
):
    store, backup, client, *_ = shop
    last_event = store.events()[-1]["id"]
    tag = client.get("/v1/store/orders/1").headers["ETag"]
    after, _ = restored(backup)
    client = again(client, after)
    orders = client.get("/v1/store/orders").get_json()
    assert [(order["id"], order["petId"]) for order in orders] == [(1, 7)]
    # An ETag from before the restore no longer matches.
    response = client.get("/v1/store/orders/1", headers={"If-None-Match": tag})
    assert response.status_code == 200
    assert response.headers["ETag"] != tag
    assert client.place(9).get_json()["id"] == 5
    assert after.events()[-1]["id"] == last_event + 1


def test_a_key_that_was_revoked_since_stays_revoked_and_a_later_one_stays(shop, restored):
    _, backup, client, other, late = shop
    after, messages = restored(backup)
    assert again(other, after).get("/v1/store/orders").status_code == 401
    assert again(client, after).get("/v1/store/orders").status_code == 200
    assert again(late, after).get("/v1/store/orders").status_code == 200
    assert "Kept 3 keys as they were, 1 of them revoked since the backup." in messages


@pytest.mark.parametrize("refusal", [None, errno.EPERM, errno.EOPNOTSUPP])
def test_the_replaced_database_is_kept_also_where_there_are_no_hard_links(
    shop, restored, monkeypatch, refusal
):
    store, backup, *_ = shop
    if refusal:  # as on FAT, and on some network disks
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(refusal, os.strerror(refusal))))
    after, messages = restored(backup)
    after.shop.end()
    kept = re.search(r"kept in (\S+)\.\n", messages)[1]
    shutil.copyfile(kept, after.database.path)
    as_before = Store(store.settings, store.clock)
    assert len(as_before.rows("SELECT * FROM orders")) == 4
    as_before.shop.end()


def test_restore_reports_what_the_file_has_and_lacks_before_it_acts(shop, restored, client):
    _, backup, *_ = shop
    client.ship(1)
    _, messages = restored(backup)
    assert (
        f"{backup} has 1 orders, the newest change of 2026-12-01T12:00:00.000Z.\n"
        "It lacks 3 orders of today's store, and 1 were shipped or cancelled since.\n"
        f"Restored from {backup}.\n"
    ) in messages


def test_another_shops_backup_needs_confirmation_and_keeps_this_shops_audit_trail(shop, make_store):
    store, *_ = shop
    other = make_store(instance=store.settings.instance / "other")
    other.execute("UPDATE store SET store_id = 'theirs'")
    store.clock.advance(1)
    other.client(name="theirs").place()
    said(other, "keys", "revoke", 1)
    backup = store.settings.instance.parent / "theirs.db"
    said(other, "db", "backup", backup)
    mine = [act["subject"] for act in trail(store)]
    store.shop.end()
    done = command(store, "db", "restore", backup)
    assert done.exit_code == 1
    assert f"{backup} has 1 orders" in done.stderr
    assert "is the backup of another shop" in done.stderr
    assert "--another-shop" in done.stderr
    assert len(store.rows("SELECT * FROM orders")) == 4
    store.shop.end()
    done = command(store, "db", "restore", backup, "--another-shop", "--keep-keys")
    assert done.exit_code == 0, done.stderr
    theirs = [act["subject"] for act in trail(other)]
    assert [act["subject"] for act in trail(store)] == [*mine, *theirs, "from theirs.db"]


def test_a_store_that_was_never_used_needs_no_confirmation(shop, make_store):
    store, backup, *_ = shop
    new = make_store(instance=store.settings.instance / "new")
    done = command(new, "db", "restore", backup, "--keep-keys")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("changed.db", None, "has changed since it was made"),
        ("orders.db.gz", gzip.compress(b"SQLite format 3", mtime=0), "run `gunzip orders.db.gz`"),
        ("orders.db/x", b"", "x: Not a directory"),
        ("orders.db", None, "is a directory"),
        ("none.db", None, "none.db: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_restored_is_reported_with_the_reason(
    shop, tmp_path, name, content, words
):
    store, backup, *_ = shop
    store.shop.end()
    file = tmp_path / name
    if name == "changed.db":
        shutil.copy(backup, file)
        file.with_name("changed.db.sha256").write_text(f"{'0' * 64}  changed.db\n")
    elif name == "orders.db":
        file.mkdir()
    elif name.endswith("/x"):
        file.parent.write_bytes(content)
    elif content:
        file.write_bytes(content)
    assert words.lower() in rejected(store, "db", "restore", file).lower()


def test_a_file_that_is_not_a_backup_changes_nothing(shop, tmp_path):
    store, *_ = shop
    store.shop.end()
    before = store.database.path.read_bytes()
    bad = tmp_path / "bad.db"
    bad.write_text("no database")
    rejected(store, "db", "restore", bad)
    assert store.database.path.read_bytes() == before
    assert [path.name for path in store.settings.instance.iterdir() if "re" in path.name] == []


def test_a_backup_may_be_on_a_disk_that_cannot_be_written(shop, restored, tmp_path):
    _, backup, client, *_ = shop
    medium = tmp_path / "medium"
    medium.mkdir()
    shutil.copy(backup, medium / "backup.db")
    medium.chmod(0o500)  # which the superuser may write to all the same
    after, _ = restored(medium / "backup.db")
    assert len(again(client, after).get("/v1/store/orders").get_json()) == 1


def crash(store):
    """Leave the database as a killed service does, with its last writes in the log beside it."""
    path = store.database.path
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal")]
    with store.database.read():
        for file in files:
            shutil.copy(file, file.with_name(f"{file.name}.crashed"))
    store.shop.end()
    for file in files:
        file.with_name(f"{file.name}.crashed").replace(file)


def test_the_log_of_a_database_that_is_gone_is_not_applied_to_the_restored_one(shop, restored):
    store, backup, client, *_ = shop
    crash(store)
    store.database.path.unlink()
    log = store.database.path.with_name("orders.db-wal").read_bytes()
    after, _ = restored(backup, "--keep-keys")
    assert len(again(client, after).get("/v1/store/orders").get_json()) == 1
    checks.check_whole(after.database.path)
    (kept,) = store.settings.instance.glob("orders-replaced-*.db-wal")
    assert kept.read_bytes() == log


def test_restore_is_rejected_while_another_program_uses_the_database(shop):
    store, backup, client, *_ = shop
    store.shop.end()
    with closing(sqlite.connect(store.database.path)) as connection:
        connection.execute("BEGIN")
        before = connection.execute("SELECT count(*) FROM orders").fetchone()
        assert "Stop what uses it" in rejected(store, "db", "restore", backup)
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == before
    assert sorted(store.settings.instance.glob("*re*")) == []
    assert client.get("/v1/store/orders").status_code == 200


# What Python reports before it changes a name; the connection's own files are SQLite's.
DIE_AT = """
import os, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from orders.store.care import restoring

if sys.argv[4] == "without links":
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")
    os.link = refuse

left = int(sys.argv[3])
now = datetime.now(UTC) + timedelta(hours=left)

def die(event, arguments):
    global left
    if event in {"os.link", "os.remove", "os.rename", "os.rmdir", "sqlite3.connect"}:
        left -= 1
        if left == 0:
            os._exit(9)

sys.addaudithook(die)
restoring.restore(Path(sys.argv[1]), Path(sys.argv[2]), now)
"""


@pytest.mark.slow
@pytest.mark.parametrize("links", ["with links", "without links"])
def test_a_killed_restore_leaves_the_old_database_or_the_restored_one(shop, links):
    store, backup, *_ = shop
    store.shop.end()
    path, found = store.database.path, []
    before = path.read_bytes()
    for step in range(1, 100):
        path.unlink()
        path.write_bytes(before)
        arguments = [sys.executable, "-c", DIE_AT, backup, path, str(step), links]
        done = subprocess.run(
            arguments, cwd=ROOT, env={"PATH": os.environ["PATH"]}, check=False, timeout=60
        )
        checks.check(path)
        checks.check_whole(path)
        with closing(sqlite.connect(path)) as connection:
            found += connection.execute("SELECT count(*) FROM orders").fetchone()
        if done.returncode == 0:
            break
        assert done.returncode == 9
        assert not path.with_name("orders.db-wal").exists()
    # The four old orders at first, and from some step on the one of the backup.
    assert found == sorted(found, reverse=True)
    assert {4, 1} == set(found)
    assert list(store.settings.instance.glob("*.unfinished")) == []


def test_a_new_database_puts_the_log_of_one_that_is_gone_aside(shop):
    store, *_ = shop
    crash(store)
    log = store.database.path.with_name("orders.db-wal")
    content = log.read_bytes()
    store.database.path.unlink()
    opening.create(store.database.path)
    checks.check_whole(store.database.path)
    assert store.rows("SELECT * FROM orders") == []
    (kept,) = store.settings.instance.glob("orders-left-*.db-wal")
    assert kept.read_bytes() == content
    store.shop.end()


def test_a_change_that_waited_for_a_restore_is_not_made_in_the_replaced_database(shop):
    store, backup, *_ = shop
    orders = len(store.rows("SELECT * FROM orders"))
    path = store.database.path
    replaced = path.with_name("replaced.db")

    def replace(*_):
        path.rename(replaced)
        shutil.copy(backup, path)

    event.listen(Pool, "checkout", replace, once=True)
    with pytest.raises(StoreUnavailable, match="was replaced"), store.database.write() as writing:
        writing.exec_driver_sql("DELETE FROM orders")
    store.database.close()
    replaced.replace(path)
    assert len(store.rows("SELECT * FROM orders")) == orders


# Webhooks.


@pytest.fixture
def hooked(shop, store):
    """That store with webhooks 1 and 2 in another backup; 1 was removed since, 3 was added."""
    hooks = Hooks(store)
    for number in (1, 2):
        hooks.add(f"https://shop.example/{number}")
    backup = store.settings.instance.parent / "hooked.db"
    said(store, "db", "backup", backup)
    client = shop[2]
    client.place(7)
    late = store.events()[-1]["id"]
    hooks.change(endpoints.remove, 1)
    hooks.add("https://shop.example/3")
    hooks.change(endpoints.resume, 2, store.clock.now(), late - 1)
    now = store.clock.now()
    for event_id in (2, late):
        hooks.change(deliveries.put_aside, hooks.get(2), RefusedEvent(event_id, 2, now))
    return store, backup


def test_a_webhook_that_was_removed_since_stays_removed_and_a_later_one_stays(hooked, restored):
    store, backup = hooked
    before = Hooks(store).ask(endpoints.get_all)
    after, messages = restored(backup)
    assert Hooks(after).ask(endpoints.get_all) == before
    assert [each.url[-1] for each in before] == ["2", "3"]
    assert "Kept 2 webhooks as they were." in messages
    # One of the events that it refused is not in the backup.
    assert [row["event_id"] for row in after.rows("SELECT * FROM webhook_refused")] == [2]
    assert Hooks(after).add("https://shop.example/4") == 4


@pytest.mark.parametrize("options", [[], ["--keep-keys"]], ids=["revoke", "keep"])
def test_an_unreadable_database_is_kept_and_its_changes_are_assumed_lost(
    shop, hooked, restored, options
):
    store, backup = hooked
    crash(store)
    store.database.path.write_bytes(b"no database" * 1000)
    log = store.database.path.with_name("orders.db-wal").read_bytes()
    after, messages = restored(backup, *options)
    client = again(shop[2], after)
    assert client.get("/v1/store/orders").status_code == (200 if options else 401)
    assert ("All keys are revoked" in messages) is not bool(options)
    _, client.secret = after.issue()
    # There are four orders in the backup.
    assert client.place(9).get_json()["id"] == 4 + restoring.SKIPPED_IDS + 1
    webhooks = Hooks(after).ask(endpoints.get_all)
    assert [each.url[-1] for each in webhooks] == ["1", "2"]
    assert [each.paused_at is None for each in webhooks] == [bool(options)] * 2
    assert ("2 webhooks are paused" in messages) is not bool(options)
    kept = Path(re.search(r"kept in (\S+)\.\n", messages)[1])
    assert kept.read_bytes() == b"no database" * 1000
    assert kept.with_name(f"{kept.name}-wal").read_bytes() == log
    checks.check_whole(after.database.path)
