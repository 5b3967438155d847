"""`flask db restore`: a backup takes the database's place, and misleads nobody."""

from __future__ import annotations

import re

import pytest
from conftest import Store, copy_database

from orders.store import restoring


@pytest.fixture
def shop(store):
    """A store with an order and two keys, backed up; then more orders, a revoked key, a new one."""
    client, other = store.client(name="web"), store.client(name="till")
    client.place(7)
    backup = store.settings.instance.parent / "backup.db"
    assert flask(store, "db", "backup", str(backup)).exit_code == 0
    for _ in range(3):
        client.place(8)
    assert flask(store, "keys", "revoke", str(other.key_id)).exit_code == 0
    late = store.client(name="late")
    return store, backup, client, other, late


def flask(store, *arguments):
    return store.app.test_cli_runner().invoke(args=arguments)


def restored(store, backup, *options):
    """Restore a backup over a stopped store; give the store as it is then, and the words."""
    store.shop.end()
    done = flask(store, "db", "restore", str(backup), *options)
    assert done.exit_code == 0, done.output
    again = Store(store.settings, store.clock)
    again.shop.begin()
    return again, done.stderr


def again(client, store):
    return type(client)(store, client.key_id, client.secret)


def test_orders_are_those_of_the_backup(shop):
    store, backup, client, *_ = shop
    after, _ = restored(store, backup)
    listed = again(client, after).get("/v1/store/orders").get_json()
    assert [(order["id"], order["petId"]) for order in listed] == [(1, 7)]
    after.shop.end()


def test_ids_go_on_above_those_that_were_given(shop):
    store, backup, client, *_ = shop
    last_event = store.events()[-1]["id"]
    after, _ = restored(store, backup)
    assert again(client, after).place(9).get_json()["id"] == 5
    assert after.events()[-1]["id"] == last_event + 1
    after.shop.end()


def test_a_key_that_was_revoked_since_stays_revoked_and_a_later_one_stays(shop):
    store, backup, client, other, late = shop
    after, said = restored(store, backup)
    assert again(other, after).get("/v1/store/orders").status_code == 401
    assert again(client, after).get("/v1/store/orders").status_code == 200
    assert again(late, after).get("/v1/store/orders").status_code == 200
    assert "Kept 3 keys as they were, 1 of them revoked since the backup." in said
    after.shop.end()


def test_a_remembered_etag_is_not_good_any_more(shop):
    store, backup, client, *_ = shop
    tag = client.get("/v1/store/orders/1").headers["ETag"]
    after, _ = restored(store, backup)
    response = again(client, after).get("/v1/store/orders/1", headers={"If-None-Match": tag})
    assert response.status_code == 200
    assert response.headers["ETag"] != tag
    after.shop.end()


def test_the_replaced_database_is_kept(shop):
    store, backup, *_ = shop
    after, said = restored(store, backup)
    kept = re.search(r"kept in (\S+)\.\n", said)[1]
    copy_database(kept, after.database.path)
    assert len(Store(store.settings, store.clock).rows("SELECT * FROM orders")) == 4
    after.shop.end()


@pytest.mark.parametrize("keep_keys", [False, True])
def test_where_it_cannot_be_read_ids_skip_a_million_and_keys_are_revoked(shop, keep_keys):
    store, backup, client, *_ = shop
    store.shop.end()
    store.database.path.write_bytes(b"no database" * 1000)
    after, said = restored(store, backup, *(["--keep-keys"] if keep_keys else []))
    expected = 200 if keep_keys else 401
    assert again(client, after).get("/v1/store/orders").status_code == expected
    assert ("All keys are revoked" in said) is not keep_keys
    _, secret = after.issue()
    placed = type(client)(after, 0, secret).place(9).get_json()
    assert placed["id"] == 1 + restoring.SKIPPED_IDS + 1
    after.shop.end()


def test_a_file_that_is_no_backup_changes_nothing(shop, tmp_path):
    store, *_ = shop
    store.shop.end()
    before = store.database.path.read_bytes()
    bad = tmp_path / "bad.db"
    bad.write_text("no database")
    done = flask(store, "db", "restore", str(bad))
    assert done.exit_code != 0
    assert done.stderr.count("\n") == 1
    assert store.database.path.read_bytes() == before
    assert [path.name for path in store.settings.instance.iterdir() if "re" in path.name] == []


def test_it_is_refused_while_the_service_runs(start, shop, tmp_path):
    _, backup, *_ = shop
    service = start(instance=tmp_path / "other")
    done = service.command("db", "restore", str(backup))
    assert done.returncode != 0
    assert "Stop it first" in done.stderr
