"""`flask orders import FILE`: files of orders from elsewhere, taken whole or not at all."""

from __future__ import annotations

import os
import pty
import signal
import tempfile
import time
from contextlib import suppress
from functools import partial
from stat import S_IMODE

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from orders.clock import Clock
from tests.support.databases import DATABASES
from tests.support.imports import contents, imported, leftovers, lines, orders_of, table
from tests.support.stores import Store, assert_error

LIST = "/v1/store/orders"
MAX_ID = 2**53 - 1
MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1
NOW = "2026-12-01T12:00:00.000Z"
COLUMNS = ["id", "petId", "quantity", "shipDate", "status", "placedAt", "updatedAt", "reference"]


@pytest.fixture
def settings(settings, empty_database):
    DATABASES.make(settings, empty_database)
    return settings


UNNUMBERED = "petId,quantity,status,reference\n"


def unnumbered(count, blanks=0):
    """Return CSV rows, without the header, of orders that have no ids; blanks make them longer."""
    return "".join(f"7,2,pending,{' ' * blanks}a reference {n:052}\n" for n in range(count))


# More than what is read of a file at once, so that some rows have been checked before its end.
SOME = unnumbered(3_000, blanks=400)
assert len(SOME) > 1024 * 1024


# What is taken.


def test_a_row_needs_no_more_than_a_pet(take, store, client):
    imported(take("petId\n7\n"), 1)
    assert store.rows("SELECT * FROM orders") == [
        {
            "id": 1,
            "pet_id": 7,
            "quantity": 1,
            "ship_date": None,
            "status": "pending",
            "placed_at": NOW,
            "updated_at": NOW,
            "reference": None,
        }
    ]
    assert client.get(LIST).get_json() == [{"id": 1, "petId": 7, "quantity": 1, "complete": False}]


EVERYTHING = {
    "id": 41,
    "petId": MAX_INT64,
    "quantity": MAX_QUANTITY,
    "shipDate": "2026-11-20T09:30:00Z",
    "status": "shipped",
    "placedAt": "2026-11-18T16:05:00.1239+01:00",
    "updatedAt": "2026-11-20t10:30:00.5z",
    "reference": 'R-1041, "Höhle" 🐢',
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("orders.csv", table(EVERYTHING, EVERYTHING.values())),
        ("orders.CSV", table(reversed(EVERYTHING), reversed(EVERYTHING.values()))),
        ("orders.jsonl", lines(EVERYTHING)),
        ("orders.ndjson", lines(EVERYTHING)),
    ],
    ids=["CSV", "CSV, other way round", "JSON Lines", "JSON Lines by its other name"],
)
def test_a_row_may_have_every_column(take, store, name, content):
    imported(take(content, name), 1)
    assert store.rows("SELECT * FROM orders") == [
        {
            "id": 41,
            "pet_id": MAX_INT64,
            "quantity": MAX_QUANTITY,
            "ship_date": "2026-11-20T09:30:00.000Z",
            "status": "shipped",
            "placed_at": "2026-11-18T15:05:00.123Z",
            "updated_at": "2026-11-20T10:30:00.500Z",
            "reference": 'R-1041, "Höhle" 🐢',
        }
    ]


PADDED = " petId ,\tid,quantity , status, shipDate,reference"
READ = {
    "updatedAt is placedAt unless given": (
        *("orders.csv", "petId,placedAt\n7,2026-11-18T15:05:00Z\n"),
        *("placed_at, updated_at", [("2026-11-18T15:05:00.000Z",) * 2]),
    ),
    "cells are trimmed and an empty one is absent": (
        "orders.csv",
        f"{PADDED}\n  7 ,  ,\t, ,,\n 8,\t5 ,3,  pending  , ,  two words \n",
        "id, pet_id, quantity, status, ship_date, reference",
        [(5, 8, 3, "pending", None, "two words"), (6, 7, 1, "pending", None, None)],
    ),
    "a blank before a quoted cell is trimmed": (
        *("orders.csv", 'petId, reference\n7, "two words"\n8, "with, comma"\n'),
        *("reference", [("two words",), ("with, comma",)]),
    ),
    "a quoted blank cell is absent": (
        *("orders.csv", 'petId,quantity,reference\n"7",""," "\n'),
        *("pet_id, quantity, reference", [(7, 1, None)]),
    ),
    "a null is absent": (
        *("orders.jsonl", lines({"petId": 7, **dict.fromkeys(set(COLUMNS) - {"petId"})})),
        *("id, pet_id, quantity, status, reference", [(1, 7, 1, "pending", None)]),
    ),
    "a text of JSON is not trimmed": (
        *("orders.jsonl", lines({"petId": 7, "reference": "  two  "})),
        *("reference", [("  two  ",)]),
    ),
    "a reference of 64 characters": (
        *("orders.csv", f"petId,reference\n7,{'🐢' * 64}\n"),
        *("reference", [("🐢" * 64,)]),
    ),
    **{
        f"a byte order mark before {header}": (
            *("orders.csv", f"{header}\r\n7,2\r\n".encode("utf-8-sig")),
            *("pet_id, quantity", [(7, 2)]),
        )
        for header in ("petId,quantity", '"petId",quantity')
    },
    "a byte order mark before JSON": (
        *("orders.jsonl", '{"petId": 7}\n{"petId": 8}\n'.encode("utf-8-sig")),
        *("pet_id", [(7,), (8,)]),
    ),
    **{
        f"{name} with {end!r}, without the last": (name, end.join(rows), "pet_id", [(7,), (8,)])
        for end in ("\n", "\r\n")
        for name, rows in (
            ("orders.csv", ["petId", "7", "", "8"]),
            ("orders.jsonl", ['{"petId": 7}', "", "", '{"petId": 8}']),
        )
    },
    "CSV without rows": ("orders.csv", "petId\n", "id", []),
    "JSON Lines without rows": ("orders.jsonl", "", "id", []),
    "the highest id": ("orders.csv", f"id,petId\n{MAX_ID},7\n", "id", [(MAX_ID,)]),
}


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_a_file_is_read_as_it_is_meant(take, store, case):
    name, content, columns, rows = case
    imported(take(content, name), len(rows))
    assert orders_of(store, columns) == rows
    assert len(store.events()) == len(rows)


def test_an_imported_order_is_one_like_others(take, client):
    imported(take("petId,status,shipDate\n7,pending,\n8,shipped,2026-11-20T09:30:00Z\n"), 2)
    assert_error(client.cancel(2), 409, "order_already_shipped")
    assert client.ship(1).get_json()["complete"] is True


def test_a_cancelled_order_is_imported_and_not_shown_by_version_1(take, store, client):
    imported(take("petId,status\n7,cancelled\n8,pending\n"), 2)
    assert [order["id"] for order in client.get(LIST).get_json()] == [2]
    assert_error(client.get(f"{LIST}/1"), 404, "order_not_found")
    assert [event["status"] for event in store.events()] == ["cancelled", "pending"]


# The event log.


def test_each_row_has_one_event_with_the_order_as_it_stands(take, store, clock):
    clock.advance(1.5)
    now = "2026-12-01T12:00:01.500Z"
    given = table(
        COLUMNS,
        ["", 7, 2, "", "", "", "", "R-1"],
        [9, 8, "", "2026-11-20T09:30:00Z", "shipped", "2026-11-18T15:00:00Z", "", ""],
        ["", 9, "", "2026-12-24T00:00:00Z", "cancelled", "", "2026-11-30T00:00:00Z", ""],
    )
    imported(take(given), 3)
    events = store.events()
    told = ("type", "at", "actor", "request_id")
    assert {tuple(event[name] for name in told) for event in events} == {
        ("order.imported", now, "cli", None)
    }
    assert sorted(event["id"] for event in events) == [1, 2, 3]
    in_events = [
        {"id": event["order_id"]} | {name: event[name] for name in event if name not in told}
        for event in events
    ]
    for event, logged in zip(events, in_events, strict=True):
        logged["id"] = logged.pop("order_id")
        assert event["order_id"] == logged["id"]
    assert sorted(in_events, key=lambda order: order["id"]) == store.rows(
        "SELECT * FROM orders ORDER BY id"
    )


def test_an_import_changes_the_etag_of_the_list(take, client):
    before = client.get(LIST).headers["ETag"]
    imported(take("petId\n7\n"), 1)
    assert client.get(LIST, headers={"If-None-Match": before}).status_code == 200


# Ids.


def test_rows_without_an_id_get_ids_by_line_above_all_others(take, store, client):
    for _ in range(3):
        client.place()
    imported(take("id,petId\n,11\n9,12\n,13\n5,14\n,15\n"), 5)
    assert orders_of(store, "id, pet_id")[3:] == [(5, 14), (9, 12), (10, 11), (11, 13), (12, 15)]
    assert client.place().get_json()["id"] == 13
    imported(take("id,petId\n,16\n"), 1)
    assert orders_of(store, "id, pet_id")[-1] == (14, 16)


def test_an_id_that_exists_is_rejected_though_its_order_was_cancelled(rejected_here, client):
    client.place()
    client.place()
    client.cancel(1)
    message = rejected_here("petId,id\n7,\n7,2\n7,8\n7,1\n")
    assert "line 3, id: order 2 exists already" in message
    assert "line 5, id: order 1 exists already" in message
    assert "line 2" not in message
    assert "line 4" not in message


def test_an_id_that_is_in_the_file_twice_is_rejected(rejected):
    message = rejected("petId,id\n7,8\n7,9\n7,8\n7,\n7,8\n")
    assert "line 4, id: 8 stands on an earlier line" in message
    assert "line 6, id: 8 stands on an earlier line" in message
    assert "line 2" not in message


def test_an_id_that_exists_and_is_repeated_is_named_for_each_line(rejected_here, client):
    client.place()
    message = rejected_here(lines({"petId": 7, "id": 1}, {"petId": 7, "id": 1}), "orders.jsonl")
    assert "line 1, id: order 1 exists already" in message
    assert "line 2, id: " in message


@hypothesis_settings(max_examples=20)
@given(
    st.lists(
        st.none() | st.integers(1, 6) | st.integers(1, MAX_ID - 100),
        max_size=12,
        unique_by=lambda order_id: object() if order_id is None else order_id,
    )
)
@example([MAX_ID])
@example([None] * 3)
def test_no_mixture_of_ids_collides(take, store, empty_database, ids):
    store.database.close()
    DATABASES.empty(store.settings, empty_database)
    rows = [(order_id or "", line) for line, order_id in enumerate(ids, start=2)]
    imported(take(table(("id", "petId"), *rows)), len(ids))
    found = {line: order_id for order_id, line in orders_of(store, "id, pet_id")}
    assert set(found) == set(range(2, len(ids) + 2))
    assert {line: found[line] for line, order_id in enumerate(ids, start=2) if order_id} == {
        line: order_id for line, order_id in enumerate(ids, start=2) if order_id
    }
    given_here = [found[line] for line, order_id in enumerate(ids, start=2) if not order_id]
    highest = max((order_id for order_id in ids if order_id), default=0)
    assert given_here == list(range(highest + 1, highest + 1 + len(given_here)))


# All or nothing.


def test_thousands_of_rows_are_imported_at_once(take, store):
    imported(take(UNNUMBERED + unnumbered(12_345)), 12_345)
    assert store.rows("SELECT count(*) AS n, max(id) AS highest FROM orders") == [
        {"n": 12_345, "highest": 12_345}
    ]
    assert store.rows("SELECT count(DISTINCT order_id) AS n FROM order_events") == [{"n": 12_345}]


def test_a_file_can_be_imported_again_once_it_is_fixed(rejected_here, take, store):
    rejected_here("petId,quantity\n7,2\n8,none\n")
    imported(take("petId,quantity\n7,2\n8,1\n"), 2)
    assert orders_of(store, "id, pet_id") == [(1, 7), (2, 8)]


def test_a_locked_store_is_reported(rejected_here, store, monkeypatch):
    monkeypatch.setattr(DATABASES.module, "BUSY_SECONDS", 0.05)
    with store.locked():
        assert "locked by another program" in rejected_here("petId\n7\n")


# As a process of its own: cut off, watched, beside a running service.


class Importing:
    """An import into a store, as a process that reads what the test writes, or a file."""

    def __init__(self, forks, store, folder, *, file=None, stderr=None, limit=None):
        self._forks, self._folder = forks, folder
        if file is None:
            file = folder / "pipe.csv"
            os.mkfifo(file)
        self.pid = forks.begin(
            *("flask", "orders", "import", file),
            instance=store.settings.instance,
            stdout=folder / "stdout",
            stderr=stderr or folder / "stderr",
            limit=limit,
        )
        self._pipe = opened_to_write(file) if file.is_fifo() else None

    def write(self, text):
        """Write to the file that is being imported; it was read but for the last 64 KiB."""
        rest = text.encode()
        while rest:
            rest = rest[self._pipe.write(rest) :]

    def end_of_file(self):
        """End what is being imported."""
        if self._pipe:
            self._pipe.close()

    def end(self):
        """End the file, and wait; give exit status and what was said."""
        self.end_of_file()
        status = self._forks.wait(self.pid)
        return status, *((self._folder / name).read_text() for name in ("stdout", "stderr"))

    def stop(self, number):
        """Send a signal, and wait; give exit status and what was said."""
        os.kill(self.pid, number)
        return self.end()


def wait_for(what, *unless):
    """Wait for something that will be there in a moment; return it."""
    ends = time.monotonic() + 30
    while True:
        with suppress(*unless):
            if found := what():
                return found
        assert time.monotonic() < ends
        time.sleep(0.001)


def opened_to_write(pipe):
    """Open a named pipe that a process is going to read."""

    def open_it():
        return os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "wb", buffering=0)

    opened = wait_for(open_it, OSError)  # which it is as long as nobody reads
    os.set_blocking(opened.fileno(), True)
    return opened


@pytest.fixture
def importing(forks, store, tmp_path):
    """Begin an import into the store, in a process that reads what the test writes."""
    return partial(Importing, forks, store, tmp_path)


@pytest.mark.slow
def test_a_service_goes_on_placing_orders_during_an_import(start, forks, tmp_path):
    folder = tmp_path / "instance"
    service = start()
    beside = Store(DATABASES.settings(folder), Clock())
    _, key = beside.issue()
    beside.database.close()

    def place():
        response = service.request("POST", LIST, key, json={"petId": 1, "quantity": 9})
        assert response.status == 201, response.data
        return response.json()["id"]

    running = Importing(forks, beside, tmp_path)
    running.write(UNNUMBERED + SOME)
    placed = [place() for _ in range(3)]
    running.write(unnumbered(9_000))
    running.end_of_file()
    while leftovers(folder):
        placed.append(place())
    assert running.end() == (0, "", "Imported 12,000 orders.\n")
    placed.append(place())

    everything = service.request("GET", LIST, key).json()
    assert [order["id"] for order in everything] == list(range(1, 12_000 + len(placed) + 1))
    assert [order["id"] for order in everything if order["quantity"] == 9] == placed
    assert len([order for order in everything if order["quantity"] == 2]) == 12_000


def test_what_waits_to_be_imported_takes_no_room_outside_of_the_instance_folder(
    take, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    imported(take("petId\n7\n"), 1)


@pytest.mark.slow
def test_what_waits_to_be_imported_is_for_its_owner_only(importing, store):
    running = importing()
    running.write(UNNUMBERED + SOME)
    (folder,) = leftovers(store.settings.instance)
    assert S_IMODE(folder.stat().st_mode) == 0o700
    assert contents(store) == ([], [], [])
    assert running.end()[0] == 0
    assert leftovers(store.settings.instance) == []


def assert_sound(store):
    """Check that the store's database is whole, and that each order has one event."""
    store.services.upkeep.check_whole()
    counts = (
        "(SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM order_events) AS events"
    )
    (row,) = store.rows(f"SELECT {counts}")
    assert row["orders"] == row["events"]
    return row["orders"]


def test_an_import_that_is_killed_while_it_checks_leaves_nothing_behind(importing, store, client):
    running = importing()
    running.write(UNNUMBERED + SOME)
    assert running.stop(signal.SIGKILL) == (-signal.SIGKILL, "", "")
    assert assert_sound(store) == 0
    assert client.place().get_json()["id"] == 1


@pytest.mark.slow
def test_an_import_that_is_killed_while_it_writes_leaves_nothing_half_done(
    importing, store, tmp_path
):
    file = tmp_path / "many.csv"
    file.write_text(UNNUMBERED + unnumbered(30_000))
    running = importing(file=file)
    wait_for(lambda: DATABASES.is_being_written(store.settings))
    running.stop(signal.SIGKILL)
    assert assert_sound(store) in {0, 30_000}


def test_what_a_killed_import_left_is_removed_by_the_next(importing, take, store):
    running = importing()
    running.write(UNNUMBERED + SOME)
    wait_for(lambda: leftovers(store.settings.instance))
    running.stop(signal.SIGKILL)
    assert leftovers(store.settings.instance)
    imported(take("petId\n7\n"), 1)
    assert leftovers(store.settings.instance) == []
    again = store.restarted()
    assert again.client().get(LIST).get_json()[0]["id"] == 1
    again.services.end()


def test_an_import_that_is_interrupted_takes_its_things_away(importing, store):
    running = importing()
    running.write(UNNUMBERED + SOME)
    status, stdout, stderr = running.stop(signal.SIGINT)
    assert (status != 0, stdout) == (True, "")
    assert "Traceback" not in stderr
    assert leftovers(store.settings.instance) == []
    assert assert_sound(store) == 0


def test_an_import_that_fills_the_disk_is_reported_in_one_line(importing, store, tmp_path):
    file = tmp_path / "many.csv"
    file.write_text(UNNUMBERED + unnumbered(5_000))
    status, stdout, stderr = importing(file=file, limit=200_000).end()
    assert (status != 0, stdout) == (True, "")
    assert "Traceback" not in stderr
    assert stderr.count("\n") == 1
    assert leftovers(store.settings.instance) == []
    assert assert_sound(store) == 0


def test_a_terminal_is_shown_the_progress(importing, store, tmp_path):
    file = tmp_path / "some.csv"
    file.write_text(UNNUMBERED + unnumbered(5_000))
    terminal, end = pty.openpty()
    running = importing(file=file, stderr=os.ttyname(end))
    shown = b""
    while b"Imported" not in shown:
        shown += os.read(terminal, 4096)
    (tmp_path / "stderr").touch()
    assert running.end() == (0, "", "")
    os.close(end)
    os.close(terminal)
    assert b"Checking" in shown
    assert b"100%" in shown
    assert b"Imported 5,000 orders." in shown
