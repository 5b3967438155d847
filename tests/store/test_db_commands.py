"""`flask db upgrade`, `check`, `backup`; and what all groups of commands have in common."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from stat import S_IMODE

import click
import pytest

from orders.clock import Clock
from orders.settings import Settings
from orders.store.care import checks, opening
from orders.store.care.files import locked
from orders.store.care.opening import InUse
from orders.store.database import sqlite
from orders.store.database.sqlite import SqliteDatabase
from tests.support.clocks import SetClock
from tests.support.commands import command, names_in, rejected, said
from tests.support.machine import IS_ROOT
from tests.support.orders import event_row, order_row, put_rows
from tests.support.stores import Store

pytestmark = pytest.mark.sqlite_only("backups and checks of a file")

LIST = "/v1/store/orders"
PAGE = 4096
MANY = 2_000


@pytest.fixture(scope="module")
def full_database(tmp_path_factory):
    """A database with many orders and their events, to be copied."""
    path = tmp_path_factory.mktemp("full") / "orders.db"
    opening.create(path)
    orders = [order_row(id=order_id, quantity=2) for order_id in range(1, MANY + 1)]
    with closing(SqliteDatabase(path)) as database:
        put_rows(database, orders, map(event_row, orders))
    return path


@pytest.fixture
def full_store(settings, make_store, full_database):
    """A store with many orders."""
    settings.instance.mkdir(mode=0o700)
    shutil.copy(full_database, settings.database_path)
    return make_store()


def rows_in(path, statement):
    """Return the rows that a statement selects from a file."""
    with closing(sqlite.connect(path)) as connection:
        return connection.execute(statement).fetchall()


@pytest.fixture
def beside(service):
    """Run commands on the folder of the running service, from this other process."""
    store = Store(Settings(instance=Path(service.environment["ORDERS_INSTANCE"])), Clock())
    yield store
    store.database.close()


# upgrade


@pytest.mark.slow
def test_commands_that_need_the_service_stopped_are_rejected_while_it_runs(beside):
    for arguments in (["upgrade"], ["renew"], ["restore", beside.database.path]):
        assert "A service runs on this folder. Stop it" in rejected(beside, "db", *arguments)


def test_one_file_through_two_folders_has_one_service(store, tmp_path):
    store.issue()
    url = f"sqlite:///{store.database.path}"
    other = replace(store.settings, instance=tmp_path / "other", database_url=url)
    link = replace(store.settings, instance=tmp_path / "link", database_url="")
    link.instance.mkdir()
    link.database_path.symlink_to(store.database.path)
    for stopped in (Store(other, store.clock), Store(link, store.clock)):
        with locked(store.settings.instance):
            assert "A service uses" in rejected(stopped, "db", "renew")
            with pytest.raises(InUse):
                stopped.shop.upkeep.prepare()
        stopped.shop.upkeep.prepare()
        stopped.database.close()


@pytest.mark.skipif(not IS_ROOT, reason="only root can mount a disk")
def test_a_store_on_a_read_only_disk_can_be_read_and_copied(full_database, settings, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", disk]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounts are not allowed here")
    try:
        shutil.copy(full_database, disk / "orders.db")
        store = Store(replace(settings, instance=disk, database_url=""), SetClock())
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert "2,000 orders" in said(store, "orders", "export", tmp_path / "orders.csv")
        assert "Copied to" in said(store, "db", "backup", tmp_path / "copy.db")
        assert "read-only" in rejected(store, "keys", "issue", "shop", "--plan", "free")
        store.database.close()
    finally:
        subprocess.run(["umount", disk], check=True)


# check


def test_check_finds_nothing_wrong_with_a_sound_database_also_beside_a_service(beside):
    assert said(beside, "db", "check") == f"{beside.database.path} is sound.\n"


WRONG_WORDS = {
    "one is missing": "DELETE FROM order_words WHERE order_id = 2 AND word = 'wong'",
    "all are missing": "DELETE FROM order_words",
    "one too many": "INSERT INTO order_words (order_id, word) VALUES (2, 'wang')",
    "of no order": "INSERT INTO order_words (order_id, word) VALUES (9, 'wong')",
}


def test_check_finds_orders_missing_from_the_search_and_adds_them(store):
    client = store.client().speaking(2)
    for name in (None, "Mia Wong", "Łukasz Ångström"):
        client.place(**({"shipTo": name} if name else {}))
    for wrong, statement in WRONG_WORDS.items():
        store.execute(statement)
        assert "db check --fix-search`" in rejected(store, "db", "check"), wrong
        assert command(store, "db", "check", "--fix-search").exit_code == 0, wrong
        assert "is sound" in said(store, "db", "check"), wrong
    for search in ("wong", "lukasz angs"):
        found = client.get("/v2/store/orders", query_string={"search": search})
        assert len(found.get_json()["orders"]) == 1


def damage(path, offset, content):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def test_check_finds_any_damaged_page_and_a_cut_off_file(settings, make_store, full_database):
    pages = full_database.stat().st_size // PAGE
    assert rows_in(full_database, "PRAGMA freelist_count") == [(0,)]
    settings.instance.mkdir(mode=0o700)
    shutil.copy(full_database, settings.database_path)
    store = make_store()
    for page in range(1, pages, pages // 12):
        shutil.copy(full_database, settings.database_path)
        damage(settings.database_path, page * PAGE, b"\xff" * PAGE)
        assert "is damaged" in rejected(store, "db", "check"), page
    with settings.database_path.open("r+b") as file:
        file.truncate(pages // 2 * PAGE)
    assert "is damaged" in rejected(store, "db", "check")


@pytest.mark.parametrize("content", [b"", b"\0" * PAGE, b"this is no database " * 1_000])
def test_check_reports_a_missing_database(store, content):
    store.database.path.write_bytes(content)
    message = rejected(store, "db", "check")
    assert "database of this program" in message or "is damaged" in message
    assert store.database.path.read_bytes() == content


def test_check_finds_an_index_with_wrong_entries(store):
    # The quick check at a start counts an index's entries, and does not look at them.
    store.issue()
    path, index = store.database.path, "FROM sqlite_schema WHERE name = 'api_keys_by_secret'"
    columns = "rowid, type, name, tbl_name, rootpage, sql"
    (hidden,) = rows_in(path, f"SELECT {columns} {index}")
    for statement, values in (
        (f"DELETE {index}", ()),
        ("UPDATE api_keys SET secret_hash = zeroblob(32)", ()),
        (f"INSERT INTO sqlite_schema ({columns}) VALUES (?, ?, ?, ?, ?, ?)", hidden),
    ):
        with closing(sqlite.connect(path)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(statement, values)
    checks.check(path)
    message = rejected(store, "db", "check")
    assert "is damaged" in message
    assert "api_keys_by_secret" in message


# backup


def test_a_backup_is_all_of_the_database(full_store, tmp_path):
    client = full_store.client()
    file = tmp_path / "copy.db"
    assert said(full_store, "db", "backup", file) == f"Copied to {file} and checked.\n"
    assert rows_in(file, "PRAGMA integrity_check") == [("ok",)]
    for table in ("orders", "order_events", "api_keys", "store", "sqlite_sequence"):
        statement = f"SELECT * FROM {table} ORDER BY 1"
        assert rows_in(file, statement) == rows_in(full_store.database.path, statement)
    again = tmp_path / "again"
    again.mkdir(mode=0o700)
    file.rename(again / "orders.db")
    store = Store(Settings(instance=again), SetClock())
    client.store, before = store, client.get(LIST).get_json()
    assert client.get(LIST).get_json() == before
    assert len(before) == MANY
    store.database.close()


def test_a_backup_of_a_running_service_has_every_order_that_was_acknowledged(
    service, beside, tmp_path
):
    _, key = beside.issue()
    placed, stopped = [], threading.Event()

    def place_on():
        while not placed or not stopped.is_set():
            response = service.request("POST", LIST, key, json={"petId": 7})
            placed.append(response.json()["id"])

    placing = threading.Thread(target=place_on)
    placing.start()
    try:
        files = [tmp_path / f"{n}.db" for n in range(3)]
        for file in files:
            acknowledged = list(placed)
            said(beside, "db", "backup", file)
            found = {order_id for (order_id,) in rows_in(file, "SELECT id FROM orders")}
            assert found >= set(acknowledged)
            assert rows_in(file, "PRAGMA integrity_check") == [("ok",)]
            # It is a snapshot: each order has its events.
            logged = "SELECT DISTINCT order_id FROM order_events"
            assert {order_id for (order_id,) in rows_in(file, logged)} == found
    finally:
        stopped.set()
        placing.join()
    assert placed


@pytest.mark.parametrize("name", ["any name.sqlite", "ünï🐢.db", "a?b#c%41.db", "'; --.db"])
def test_a_backup_of_any_name_is_for_its_owner_only_with_nothing_beside_it(store, tmp_path, name):
    folder = tmp_path / "copies"
    folder.mkdir()
    before = os.umask(0)
    try:
        said(store, "db", "backup", folder / name)
    finally:
        os.umask(before)
    assert names_in(folder) == {name}
    assert S_IMODE((folder / name).stat().st_mode) == 0o600
    assert rows_in(folder / name, "PRAGMA integrity_check") == [("ok",)]


def test_a_backup_overwrites_files_only_if_asked_and_never_the_database(store, client, tmp_path):
    client.place()
    file, link = tmp_path / "copy.db", tmp_path / "link.db"
    link.symlink_to(tmp_path / "elsewhere.db")
    for content in (b"", b"something else"):
        file.write_bytes(content)
        assert "exists already" in rejected(store, "db", "backup", file)
        assert file.read_bytes() == content
    assert "exists already" in rejected(store, "db", "backup", link)
    assert link.is_symlink()
    for options in ([], ["--overwrite"]):
        message = rejected(store, "db", "backup", store.database.path, *options)
        assert "is the database itself" in message
    said(store, "db", "backup", file, "--overwrite")
    assert rows_in(file, "SELECT count(*) FROM orders") == [(1,)]
    assert len(client.get(LIST).get_json()) == 1
    assert names_in(tmp_path) == {"copy.db", "link.db", "instance"}


@pytest.mark.parametrize("target", ["nowhere/copy.db", "instance", "instance/orders.db/copy.db"])
def test_a_backup_to_an_impossible_place_is_rejected(store, tmp_path, target):
    rejected(store, "db", "backup", tmp_path / target)
    assert names_in(tmp_path) == {"instance"}


def test_a_damaged_database_is_not_backed_up(full_store, tmp_path):
    damage(full_store.database.path, 20 * PAGE, b"\xff" * PAGE)
    assert "is damaged" in rejected(full_store, "db", "backup", tmp_path / "copy.db")
    assert names_in(tmp_path) == {"instance"}


def test_a_corrupt_copy_is_not_kept(store, client, tmp_path, monkeypatch):
    # As with a database that is too large for the check before a command.
    monkeypatch.setattr(checks, "QUICK_CHECK_BYTES", 0)
    client.place()
    with closing(sqlite.connect(store.database.path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE orders SET status = 'lost'")
    assert "is damaged" in rejected(store, "db", "backup", tmp_path / "copy.db")
    assert names_in(tmp_path) == {"instance"}


# What all groups of commands have in common.


def test_every_group_and_command_has_help_and_needs_no_store_for_it(settings, clock):
    store = Store(settings, clock)
    groups = {
        name: group.commands
        for name, group in store.app.cli.commands.items()
        if isinstance(group, click.Group) and name != "openapi"  # which an extension brings along
    }
    assert set(groups) == {"keys", "orders", "events", "pets", "webhooks", "db", "test"}
    for group, commands in groups.items():
        help_text, bare = command(store, group, "--help"), command(store, group)
        assert (help_text.exit_code, help_text.stderr) == (0, "")
        # A group alone is no success.
        assert (bare.exit_code, bare.stdout, bare.stderr) == (2, "", help_text.stdout)
        for name in commands:
            assert re.search(rf"^  {name} +\w", help_text.stdout, re.MULTILINE), name
            done = command(store, group, name, "--help")
            assert (done.exit_code, done.stderr) == (0, "")
            usage, _, rest = done.stdout.partition("\n")
            assert re.match(rf"Usage: \S+ {group} {name} ", usage)
            # A sentence that describes the command.
            assert re.search(r"[a-z]\.", rest), name
    assert not settings.instance.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        *(["db", "destroy"], ["db", "two\nlines"], ["db", "check", "all"]),
        *(["db", "check", "--colour"], ["db", "check", "--two\nlines"], ["db", "--colour"]),
        *(["orders", "--colour", "export"], ["orders", "export", "/"]),
        *(["db", "backup"], ["db", "backup", "a.db", "b.db"], ["db", "backup", ""]),
        *(["orders", "import"], ["orders", "import", "/nowhere/orders.csv"]),
        *(["pets", "import"], ["pets", "import", ""]),
    ],
    ids=" ".join,
)
def test_unknown_arguments_are_reported_in_one_line(store, arguments):
    message = rejected(store, *arguments)
    assert "Usage:" not in message
    assert "Try" not in message
