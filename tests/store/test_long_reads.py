"""The write-ahead log stays short despite long reads; no request pays for its checkpoints."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from orders.store.care import opening
from orders.store.database import sqlite
from orders.store.database.sqlite import MOST_CLOSED_TURNS, OPEN_TURNS
from tests.support.stores import logged

pytestmark = pytest.mark.sqlite_only

ROW = 200_000


@pytest.fixture
def small(monkeypatch):
    """Count a log of a MiB as long."""
    for name, pages in (("CHECKPOINT_PAGES", 16), ("RESTART_PAGES", 64), ("MOST_PAGES", 256)):
        monkeypatch.setattr(sqlite, name, pages)


@pytest.fixture
def gate(store, small):
    return store.database.long_reads


def write(store, mebibytes):
    """Commit this much, in rows of 200 kB."""
    store.execute("CREATE TABLE IF NOT EXISTS filler (id INTEGER PRIMARY KEY, text BLOB)")
    for _ in range(mebibytes * 2**20 // ROW + 1):
        store.execute("INSERT INTO filler (text) VALUES (zeroblob(:size))", size=ROW)


@pytest.fixture
def reading(store):
    """Begin a snapshot read at each call; return the function that ends it."""
    with ExitStack() as running:

        def begin():
            read = running.enter_context(ExitStack())
            connection = read.enter_context(store.database.snapshot())
            connection.exec_driver_sql("SELECT count(*) FROM orders").fetchall()
            return read.close

        yield begin


def size(store):
    return store.database.path.with_name("orders.db-wal").stat().st_size


def test_no_commit_makes_a_checkpoint_and_housekeeping_does(store):
    file, before = store.database.path, store.database.path.stat().st_size
    write(store, 12)
    assert file.stat().st_size == before
    assert store.database.long_reads.tend() is None
    assert file.stat().st_size > 12 * 2**20


def test_overlapping_long_reads_are_held_back_until_the_log_restarts(store, gate, reading):
    ends, turns = [reading()], set()
    for _ in range(40):
        # A client that lists repeatedly begins the next read before the last one ends.
        ends += [reading()] if gate.is_open else []
        for end in ends[:1]:
            end()
            ends.remove(end)
        write(store, 1)
        turns.add(gate.tend())
    assert size(store) < 8 * 2**20
    assert turns == {None, sqlite.CLOSED_SECONDS}


def test_a_read_without_end_holds_others_back_for_a_second_and_is_reported(store, gate, reading):
    end = reading()
    write(store, 2)
    with logged() as log:
        turns = list(iter(gate.tend, None))
        assert len(turns) == MOST_CLOSED_TURNS
        assert "has grown to 2 MB: something reads the database for long" in log.getvalue()
    assert [gate.tend() for _ in range(OPEN_TURNS)] == [None] * OPEN_TURNS
    assert gate.is_open
    assert gate.tend() == sqlite.CLOSED_SECONDS
    end()
    assert gate.tend() is None
    write(store, 2)
    assert size(store) < 4 * 2**20


def test_a_database_that_is_away_holds_nobody_back(store, gate, reading):
    reading()
    write(store, 2)
    gate.tend()
    assert not gate.is_open
    with store.away():
        assert gate.tend() is None
        assert gate.is_open


def test_a_connection_is_never_opened_to_a_file_that_replaced_the_database(store, client):
    assert client.place().status_code == 201
    path = store.database.path
    kept = path.rename(path.with_name("kept.db"))
    opening.create(path.with_name("other.db"))
    path.with_name("other.db").rename(path)
    assert [client.place().status_code for _ in range(3)] == [503] * 3
    kept.rename(path)
    assert client.place().status_code == 201
    assert [order["id"] for order in client.get(client.orders).get_json()] == [1, 2]
