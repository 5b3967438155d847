"""`flask db salvage`: the readable rows of a damaged store are copied to a new one."""

from __future__ import annotations

import shutil
import struct
from contextlib import closing

import pytest

from orders.store.care import checks, opening, salvage
from orders.store.database import sqlite
from tests.support import year
from tests.support.commands import command, messages, rejected
from tests.support.stores import Store

pytestmark = pytest.mark.sqlite_only("damage of a file")

COUNT = 1_000
INTERIOR, LEAVES = {2, 5}, {10, 13}
PAGE = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory, module_store):
    """A store with a year's orders and a key, and the pages of each of its trees."""
    folder = tmp_path_factory.mktemp("sound")
    year.write(folder / "year.csv", year.rows(COUNT, seed=1))
    assert command(module_store, "orders", "import", folder / "year.csv").exit_code == 0
    client = module_store.client()
    client.place(note="ä" * 500)
    client.ship(COUNT + 1)
    module_store.shop.end()
    shutil.copy(module_store.database.path, folder / "orders.db")
    return folder / "orders.db", trees(folder / "orders.db")


@pytest.fixture(scope="module")
def module_store(tmp_path_factory):
    from orders.settings import Settings
    from tests.support.clocks import SetClock

    settings = Settings(instance=tmp_path_factory.mktemp("instance"))
    opening.create(settings.database_path)
    return Store(settings, SetClock())


def trees(path):
    """Return the pages of each table and index: its root first, then its leaves."""
    content = path.read_bytes()
    with closing(sqlite.connect(path)) as connection:
        roots = connection.execute(
            "SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0"
        ).fetchall()
    return {name: [root, *leaves(content, root)] for name, root in roots}


def leaves(content, number):
    page = content[(number - 1) * PAGE : number * PAGE]
    if page[0] not in INTERIOR:
        return [number]
    (count,) = struct.unpack_from(">H", page, 3)
    cells = struct.unpack_from(f">{count}H", page, 12)
    below = [struct.unpack_from(">I", page, at)[0] for at in (8, *cells)]
    return [leaf for child in sorted(below) for leaf in leaves(content, child)]


def rows(path, table):
    with closing(sqlite.connect(path)) as connection:
        return set(connection.execute(f"SELECT * FROM {table}").fetchall())


CASES = {
    "a page of an index": (lambda t: t["orders_by_status_placed_at"][2:3], ["Nothing is missing"]),
    "the root of an index": (lambda t: t["orders_by_pet"][:1], ["Nothing is missing"]),
    "a page of orders": (
        lambda t: t["orders"][3:4],
        ["Can't be read: rows", "were missing, and were made again from their last event"],
    ),
    "the root of orders": (lambda t: t["orders"][:1], ["were found page by page"]),
    "the root of events": (lambda t: t["order_events"][:1], ["were found page by page"]),
    "the first page": ([1], ["Only orders, events and keys can be found", "page by page"]),
}


@pytest.mark.parametrize("case", CASES)
def test_every_order_is_there_after_damage_in(sound, store, tmp_path, case):
    path, tree = sound
    pages, words = CASES[case]
    damaged, saved = tmp_path / "damaged.db", tmp_path / "saved.db"
    damage(path, damaged, pages(tree) if callable(pages) else pages)
    before = damaged.read_bytes()
    shutil.copy(damaged, store.database.path)
    done = command(store, "db", "salvage", saved)
    assert done.exit_code == 0, done.output
    assert [each for each in (*words, "Nothing was replaced") if each not in done.stderr] == []
    for table in ("orders", "order_events", "api_keys", "order_quarters", "order_words"):
        assert rows(saved, table) == rows(path, table), table
    assert damaged.read_bytes() == before == store.database.path.read_bytes()
    # It can take the store's place, as a backup can.
    store.shop.end()
    done = command(store, "db", "restore", saved, "--keep-keys")
    assert done.exit_code == 0, done.output
    checks.check_whole(store.database.path)


def test_orders_that_were_written_before_a_column_came_are_found_page_by_page(
    sound, store, tmp_path, next_program
):
    path, tree = sound
    copied = tmp_path / "copied.db"
    shutil.copy(path, copied)
    next_program()
    opening.upgrade(copied)
    damage(copied, tmp_path / "damaged.db", tree["orders"][:1])
    done = command(store, "db", "salvage", tmp_path / "damaged.db")
    (saved,) = tmp_path.glob("damaged-salvaged-*.db")
    assert rows(saved, "orders") == rows(copied, "orders")
    assert f"\n{COUNT:,} rows of those were found page by page" in done.stderr


def damage(source, target, pages):
    content = bytearray(source.read_bytes())
    for number in pages:
        content[(number - 1) * PAGE : number * PAGE] = b"\xff" * PAGE
    target.write_bytes(content)


def test_lost_rows_are_reported_as_missing_and_the_rest_agrees(sound, store, tmp_path, monkeypatch):
    monkeypatch.setattr(salvage, "_MOST_FAILURES", 2_000)
    path, tree = sound
    damaged = tmp_path / "damaged.db"
    damage(path, damaged, [tree["orders"][3], *tree["order_events"][5:8], tree["pets"][0]])
    done = command(store, "db", "salvage", damaged)
    assert done.exit_code == 0, done.output
    (saved,) = tmp_path.glob("damaged-salvaged-20261201T120000.db")
    lost = len(rows(path, "orders")) - len(rows(saved, "orders"))
    assert 0 < lost < COUNT / 10
    assert f"{lost} orders of those rows are missing for good" in done.stderr
    assert "orders lack history, and got an event that says how they stand" in done.stderr
    assert rows(saved, "orders") < rows(path, "orders")


def test_a_file_that_is_not_a_store_is_refused_and_nothing_is_overwritten(sound, store, tmp_path):
    file = tmp_path / "file.db"
    for content, words in ((b"", "is not a database"), (b"no database " * 1_000, "no order can")):
        file.write_bytes(content)
        assert words in rejected(store, "db", "salvage", file)
    with closing(sqlite.sqlite_module().connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE other (id)")
    message = rejected(store, "db", "salvage", tmp_path / "foreign.db")
    assert "not a database of this program" in message
    again = command(store, "db", "salvage", sound[0])
    assert "Nothing is missing" in messages(again)
    assert "exists already" in rejected(store, "db", "salvage", sound[0])
