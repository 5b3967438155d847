"""`flask orders import FILE`: files of orders, imported as a whole or not at all."""

from __future__ import annotations

import itertools
import os
import re
import signal
import tempfile
from functools import partial
from stat import S_IMODE

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from orders.clock import Clock
from tests.support.commands import without_store
from tests.support.databases import DATABASES
from tests.support.imports import contents, imported, leftovers, lines, orders_of, table
from tests.support.machine import wait_until
from tests.support.orders import OPTIONAL, SHOWN, TRACKING, named_as_columns, order_row
from tests.support.stores import Store, assert_error

LIST = "/v1/store/orders"
MAX_ID = 2**53 - 1
MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1
NOW = "2026-12-01T12:00:00.000Z"


@pytest.fixture
def settings(settings, empty_database):
    DATABASES.make(settings, empty_database)
    return settings


UNNUMBERED = "petId,quantity,status,reference\n"


def unnumbered(count, blanks=0):
    """Return CSV rows of orders without ids, and without the header; blanks make them longer."""
    return "".join(f"7,2,pending,{' ' * blanks}a reference {n:052}\n" for n in range(count))


# More than is read from a file at once, so that some rows are checked before its end.
SOME = unnumbered(3_000, blanks=400)
assert len(SOME) > 1024 * 1024


# Imported content.


def test_a_row_needs_only_a_pet(take, store, client):
    imported(take("petId\n7\n"), 1)
    assert store.rows("SELECT * FROM orders") == [order_row(placed_at=NOW, updated_at=NOW)]
    assert client.get(LIST).get_json() == [{"id": 1, "petId": 7, "quantity": 1, "complete": False}]


EVERYTHING = {
    **OPTIONAL,
    "id": 41,
    "petId": MAX_INT64,
    "quantity": MAX_QUANTITY,
    "shipDate": "2026-11-20T09:30:00Z",
    "status": "shipped",
    "placedAt": "2026-11-18T16:05:00.1239+01:00",
    "updatedAt": "2026-11-20t10:30:00.5z",
    "reference": 'R-1041, "Höhle" 🐢',
    "note": 'A gift\nfor "Höhle"',
    "tracking": TRACKING,
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
    assert EVERYTHING.keys() == {*SHOWN.values()}
    imported(take(content, name), 1)
    assert store.rows("SELECT * FROM orders") == [
        order_row(
            **named_as_columns(EVERYTHING)
            | {
                "ship_date": "2026-11-20T09:30:00.000Z",
                "placed_at": "2026-11-18T15:05:00.123Z",
                "updated_at": "2026-11-20T10:30:00.500Z",
            }
        )
    ]
    client = store.client()
    for text in ("r-10", "hohle", "collar", "koln", TRACKING):
        found = client.get("/v2/store/orders", query_string={"search": text}).get_json()["orders"]
        assert [each["id"] for each in found] == [41], text


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
        *("orders.jsonl", lines({"petId": 7, **dict.fromkeys({*SHOWN.values()} - {"petId"})})),
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
        f"{name} with {ends}, without the last": (name, end.join(rows), "pet_id", [(7,), (8,)])
        for ends, end in (("LF", "\n"), ("CRLF", "\r\n"))
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
def test_a_file_is_read_as_intended(take, store, case):
    name, content, columns, rows = case
    imported(take(content, name), len(rows))
    assert orders_of(store, columns) == rows
    assert len(store.events()) == len(rows)


def test_imported_orders_can_be_read_and_changed_like_others(take, store, client):
    empty = client.get(LIST).headers["ETag"]
    imported(take("petId,status,shipDate\n7,pending,\n8,shipped,2026-11-20T09:30:00Z\n"), 2)
    assert client.get(LIST, headers={"If-None-Match": empty}).status_code == 200
    assert_error(client.cancel(2), 409, "order_already_shipped")
    assert client.ship(1).get_json()["complete"] is True
    imported(take("petId,status\n7,cancelled\n8,pending\n"), 2)
    assert [order["id"] for order in client.get(LIST).get_json()] == [1, 2, 4]
    assert_error(client.get(f"{LIST}/3"), 404, "order_not_found")
    assert [event["status"] for event in store.events()[-2:]] == ["cancelled", "pending"]


# The event log.


def test_each_row_has_one_event_with_the_imported_order(take, store, clock):
    clock.advance(1.5)
    now = "2026-12-01T12:00:01.500Z"
    given = table(
        [*SHOWN.values()][:9],
        ["", 7, 2, "", "", "", "", "R-1", "A gift"],
        [9, 8, "", "2026-11-20T09:30:00Z", "shipped", "2026-11-18T15:00:00Z", "", "", ""],
        ["", 9, "", "2026-12-24T00:00:00Z", "cancelled", "", "2026-11-30T00:00:00Z", "", ""],
    )
    imported(take(given), 3)
    events = store.events()
    assert sorted(event.pop("id") for event in events) == [1, 2, 3]
    logged = []
    for event in events:
        of_the_log = [event.pop(name) for name in ("type", "at", "actor", "request_id")]
        assert of_the_log == ["order.imported", now, "cli", None]
        logged.append({"id": event.pop("order_id"), **event})
    logged.sort(key=lambda order: order["id"])
    assert logged == store.rows("SELECT * FROM orders ORDER BY id")


# Ids.


def test_rows_without_an_id_get_ids_in_line_order_above_all_others(take, store, client):
    for _ in range(3):
        client.place()
    imported(take("id,petId\n,11\n9,12\n,13\n5,14\n,15\n"), 5)
    assert orders_of(store, "id, pet_id")[3:] == [(5, 14), (9, 12), (10, 11), (11, 13), (12, 15)]
    assert client.place().get_json()["id"] == 13
    imported(take("id,petId\n,16\n"), 1)
    assert orders_of(store, "id, pet_id")[-1] == (14, 16)


def test_existing_or_repeated_ids_are_rejected_line_by_line(rejected_here, client):
    for _ in range(2):
        client.place()
    client.cancel(1)
    message = rejected_here("petId,id\n7,\n7,2\n7,8\n7,1\n7,9\n7,8\n7,\n7,8\n7,1\n")
    assert re.findall(r"line (\d+), id: (8|1|order \d)", message) == [
        *(("7", "8"), ("9", "8"), ("10", "1")),  # repeat an id of an earlier line
        *(("3", "order 2"), ("5", "order 1"), ("10", "order 1")),  # exist already
    ]


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
    new = itertools.count(max(filter(None, ids), default=0) + 1)
    assert set(orders_of(store, "id, pet_id")) == {
        (order_id or next(new), line) for line, order_id in enumerate(ids, start=2)
    }


# All or nothing.


def test_thousands_of_rows_are_imported_at_once(take, store):
    imported(take(UNNUMBERED + unnumbered(5_432)), 5_432)
    assert store.rows("SELECT count(*) AS n, max(id) AS highest FROM orders") == [
        {"n": 5_432, "highest": 5_432}
    ]
    assert store.rows("SELECT count(DISTINCT order_id) AS n FROM order_events") == [{"n": 5_432}]


def test_a_locked_store_is_reported(rejected_here, store, monkeypatch):
    monkeypatch.setattr(DATABASES.module, "BUSY_SECONDS", 0.05)
    with store.locked():
        assert "locked by another program" in rejected_here("petId\n7\n")


# In a process of its own: killed, watched, beside a running service.


class Importing:
    """An import into a store, in a process that reads a pipe from the test, or a file."""

    def __init__(self, forks, store, folder, *, file=None, stderr=None):
        self._folder, self.pipe = folder, None
        path = file or folder / "pipe.csv"
        if not file:
            os.mkfifo(path)
        self.process = forks.begin(
            *("flask", "orders", "import", path),
            instance=store.settings.instance,
            stdout=folder / "stdout",
            stderr=stderr or folder / "stderr",
        )
        if not file:
            self.pipe = path.open("w", encoding="utf-8")  # waits for the reader

    def write(self, text):
        """Write to the pipe that is being imported; all but the last 64 KiB is read on return."""
        self.pipe.write(text)
        self.pipe.flush()

    def end(self):
        """Close the pipe and wait; return the exit status and the output."""
        if self.pipe:
            self.pipe.close()
        status = self.process.wait()
        stdout, stderr = ((self._folder / name).read_text() for name in ("stdout", "stderr"))
        return status, stdout, without_store(stderr)

    def stop(self, number):
        """Send a signal and wait; return the exit status and the output."""
        self.process.send_signal(number)
        return self.end()


@pytest.fixture
def importing(forks, store, tmp_path):
    """Begin an import into the store, in a process that reads a pipe from the test."""
    return partial(Importing, forks, store, tmp_path)


@pytest.mark.slow
def test_a_service_keeps_placing_orders_during_an_import(start, forks, tmp_path):
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
    running.pipe.close()
    while leftovers(folder):
        placed.append(place())
    assert running.end() == (0, "", "Imported 12,000 orders.\n")
    placed.append(place())

    everything = service.request("GET", LIST, key).json()
    assert [order["id"] for order in everything] == list(range(1, 12_000 + len(placed) + 1))
    assert [order["id"] for order in everything if order["quantity"] == 9] == placed
    assert len([order for order in everything if order["quantity"] == 2]) == 12_000


def test_temporary_files_of_an_import_stay_in_the_instance_folder(take, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    imported(take("petId\n7\n"), 1)


def assert_sound(store):
    """Check that the store's database is whole, and that each order has one event."""
    store.shop.upkeep.check_whole()
    (orders,) = store.rows("SELECT count(*) AS n FROM orders")
    assert store.rows("SELECT count(*) AS n FROM order_events") == [orders]
    return orders["n"]


def test_an_import_killed_while_checking_stores_nothing_and_the_next_one_cleans_up(
    importing, take, store, client
):
    running = importing()
    running.write(UNNUMBERED + SOME)
    (folder,) = leftovers(store.settings.instance)
    assert S_IMODE(folder.stat().st_mode) == 0o700
    assert running.stop(signal.SIGKILL) == (-signal.SIGKILL, "", "")
    assert contents(store) == ([], [], [])
    assert assert_sound(store) == 0
    imported(take("petId\n7\n"), 1)
    assert leftovers(store.settings.instance) == []
    assert client.place().get_json()["id"] == 2


@pytest.mark.slow
def test_an_import_killed_while_writing_is_stored_as_a_whole_or_not_at_all(
    importing, store, tmp_path
):
    file = tmp_path / "many.csv"
    file.write_text(UNNUMBERED + unnumbered(30_000))
    running = importing(file=file)
    wait_until(lambda: DATABASES.is_being_written(store.settings), meanwhile=lambda: None)
    running.stop(signal.SIGKILL)
    assert assert_sound(store) in {0, 30_000}


def test_an_interrupted_import_removes_its_temporary_files(importing, store):
    running = importing()
    running.write(UNNUMBERED + SOME)
    status, stdout, stderr = running.stop(signal.SIGINT)
    assert (status != 0, stdout) == (True, "")
    assert "Traceback" not in stderr
    assert leftovers(store.settings.instance) == []
    assert assert_sound(store) == 0


def test_an_import_shows_its_progress_on_the_terminal(importing, store, tmp_path):
    file = tmp_path / "some.csv"
    file.write_text(UNNUMBERED + unnumbered(5_000))
    terminal, end = os.openpty()
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
