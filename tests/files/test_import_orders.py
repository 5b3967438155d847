"""`flask orders import FILE`: files of orders from elsewhere, taken whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from itertools import chain
from stat import S_IMODE

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from orders.clock import Clock
from tests.support.clocks import SetClock
from tests.support.databases import DATABASES
from tests.support.service import ROOT
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


@pytest.fixture
def take(store, tmp_path):
    """Import a file of this content and name; return the result of the command."""
    return partial(import_file, store, tmp_path)


@pytest.fixture
def refused_here(store, tmp_path):
    """Import a file that must be refused, and nothing of it stored; return what was said."""
    return partial(import_and_be_refused, store, tmp_path)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory, databases, empty_database):
    """An empty store that the tables of this file share: none of their files leaves a trace."""
    settings = databases.settings(tmp_path_factory.mktemp("untouched") / "instance")
    databases.make(settings, empty_database)
    store = Store(settings, SetClock())
    yield store
    store.services.database.close()


@pytest.fixture
def refused(untouched, tmp_path):
    """As `refused_here`, for tests that need no orders of their own."""
    yield partial(import_and_be_refused, untouched, tmp_path)
    assert contents(untouched) == ([], [])


def import_file(store, folder, content, name="orders.csv"):
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return store.app.test_cli_runner().invoke(args=["orders", "import", str(file)])


def import_and_be_refused(store, folder, content, name="orders.csv"):
    before = contents(store)
    done = import_file(store, folder, content, name)
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert contents(store) == before
    assert leftovers(store.settings.instance) == []
    return done.stderr.rstrip("\n")


def taken(done, count):
    """Check that a command imported this many orders, and said so where no data goes."""
    assert done.exit_code == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", f"Imported {count:,} orders.\n")


def contents(store):
    """Return all orders and events."""
    return store.rows("SELECT * FROM orders ORDER BY id"), store.events()


def orders_of(store, columns):
    """Return these columns of all orders, by id."""
    return [tuple(row.values()) for row in store.rows(f"SELECT {columns} FROM orders ORDER BY id")]


def leftovers(instance):
    """Return what imports have left in the instance folder."""
    return sorted(instance.glob("import-*"))


def table(*rows):
    """Return a CSV file: a header and rows of cells."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def lines(*values):
    """Return a JSON Lines file."""
    return "".join(json.dumps(value) + "\n" for value in values)


UNNUMBERED = "petId,quantity,status,reference\n"


def unnumbered(count, blanks=0):
    """Return CSV rows, without the header, of orders that have no ids; blanks make them longer."""
    return "".join(f"7,2,pending,{' ' * blanks}a reference {n:052}\n" for n in range(count))


# More than what is read of a file at once, so that some rows have been checked before its end.
SOME = unnumbered(3_000, blanks=400)
assert len(SOME) > 1024 * 1024


# What is taken.


def test_a_row_needs_no_more_than_a_pet(take, store, client):
    taken(take("petId\n7\n"), 1)
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
def test_a_row_may_tell_everything(take, store, name, content):
    taken(take(content, name), 1)
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


def test_updated_at_is_placed_at_unless_told(take, store):
    taken(take("petId,placedAt\n7,2026-11-18T15:05:00Z\n"), 1)
    assert orders_of(store, "placed_at, updated_at") == [("2026-11-18T15:05:00.000Z",) * 2]


def test_cells_are_trimmed_and_an_empty_one_is_absent(take, store):
    header = " petId ,\tid,quantity , status, shipDate,reference\n"
    taken(take(header + "  7 ,  ,\t, ,,\n 8,\t5 ,3,  pending  , ,  two words \n"), 2)
    assert orders_of(store, "id, pet_id, quantity, status, ship_date, reference") == [
        (5, 8, 3, "pending", None, "two words"),
        (6, 7, 1, "pending", None, None),
    ]


def test_a_blank_before_a_quoted_cell_is_trimmed_too(take, store):
    taken(take('petId, reference\n7, "two words"\n8, "with, comma"\n'), 2)
    assert orders_of(store, "reference") == [("two words",), ("with, comma",)]


def test_a_quoted_blank_cell_is_absent_too(take, store):
    taken(take('petId,quantity,reference\n"7",""," "\n'), 1)
    assert orders_of(store, "pet_id, quantity, reference") == [(7, 1, None)]


def test_a_null_in_json_lines_is_absent(take, store):
    rest = dict.fromkeys(set(COLUMNS) - {"petId"})
    taken(take(lines({"petId": 7, **rest}), "orders.jsonl"), 1)
    assert orders_of(store, "id, pet_id, quantity, status, reference") == [
        (1, 7, 1, "pending", None)
    ]


def test_a_reference_in_json_lines_is_taken_as_it_is(take, store):
    taken(take(lines({"petId": 7, "reference": "  two  "}), "orders.jsonl"), 1)
    assert orders_of(store, "reference") == [("  two  ",)]


def test_a_reference_may_have_64_characters(take, store):
    long = "🐢" * 64
    taken(take(f"petId,reference\n7,{long}\n"), 1)
    assert orders_of(store, "reference") == [(long,)]


@pytest.mark.parametrize("header", ["petId,quantity", '"petId",quantity'])
def test_a_byte_order_mark_of_a_spreadsheet_is_no_part_of_the_first_name(take, store, header):
    taken(take(f"{header}\r\n7,2\r\n".encode("utf-8-sig")), 1)
    assert orders_of(store, "pet_id, quantity") == [(7, 2)]


def test_a_byte_order_mark_before_json_lines_is_no_part_of_the_first(take, store):
    taken(take('{"petId": 7}\n{"petId": 8}\n'.encode("utf-8-sig"), "orders.jsonl"), 2)
    assert orders_of(store, "pet_id") == [(7,), (8,)]


@pytest.mark.parametrize("name", ["orders.csv", "orders.jsonl"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_last_line_may_lack_its_end_and_others_may_be_empty(take, store, name, end):
    csv_lines = ["petId", "7", "", "8"]
    json_lines = ['{"petId": 7}', "", "", '{"petId": 8}']
    taken(take(end.join(csv_lines if name == "orders.csv" else json_lines), name), 2)
    assert orders_of(store, "pet_id") == [(7,), (8,)]


@pytest.mark.parametrize(("name", "content"), [("orders.csv", "petId\n"), ("orders.jsonl", "")])
def test_a_file_without_rows_imports_nothing(take, store, name, content):
    taken(take(content, name), 0)
    assert contents(store) == ([], [])


def test_an_imported_order_is_one_like_others(take, client):
    taken(take("petId,status,shipDate\n7,pending,\n8,shipped,2026-11-20T09:30:00Z\n"), 2)
    assert_error(client.cancel(2), 409, "order_already_shipped")
    assert client.ship(1).get_json()["complete"] is True


def test_a_cancelled_order_is_imported_and_not_shown_by_version_1(take, store, client):
    taken(take("petId,status\n7,cancelled\n8,pending\n"), 2)
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
    taken(take(given), 3)
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
    taken(take("petId\n7\n"), 1)
    assert client.get(LIST, headers={"If-None-Match": before}).status_code == 200


# Ids.


def test_rows_without_an_id_get_ids_by_line_above_all_others(take, store, client):
    for _ in range(3):
        client.place()
    taken(take("id,petId\n,11\n9,12\n,13\n5,14\n,15\n"), 5)
    assert orders_of(store, "id, pet_id")[3:] == [(5, 14), (9, 12), (10, 11), (11, 13), (12, 15)]
    assert client.place().get_json()["id"] == 13


def test_rows_without_an_id_come_after_all_that_were_ever_given(take, store, client):
    for _ in range(5):
        client.place()
    taken(take("id,petId\n,11\n"), 1)
    assert orders_of(store, "id, pet_id")[5:] == [(6, 11)]


def test_the_highest_id_is_taken(take, store):
    taken(take(f"id,petId\n{MAX_ID},7\n"), 1)
    assert orders_of(store, "id") == [(MAX_ID,)]


def test_an_id_that_exists_is_refused_though_its_order_was_cancelled(refused_here, client):
    client.place()
    client.place()
    client.cancel(1)
    told = refused_here("petId,id\n7,\n7,2\n7,8\n7,1\n")
    assert "line 3, id: order 2 exists already" in told
    assert "line 5, id: order 1 exists already" in told
    assert "line 2" not in told
    assert "line 4" not in told


def test_an_id_that_stands_in_the_file_before_is_refused(refused):
    told = refused("petId,id\n7,8\n7,9\n7,8\n7,\n7,8\n")
    assert "line 4, id: 8 stands on an earlier line" in told
    assert "line 6, id: 8 stands on an earlier line" in told
    assert "line 2" not in told


def test_an_id_that_exists_and_is_repeated_is_told_for_each_line(refused_here, client):
    client.place()
    told = refused_here(lines({"petId": 7, "id": 1}, {"petId": 7, "id": 1}), "orders.jsonl")
    assert "line 1, id: order 1 exists already" in told
    assert "line 2, id: " in told


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
    taken(take(table(("id", "petId"), *rows)), len(ids))
    found = {line: order_id for order_id, line in orders_of(store, "id, pet_id")}
    assert set(found) == set(range(2, len(ids) + 2))
    assert {line: found[line] for line, order_id in enumerate(ids, start=2) if order_id} == {
        line: order_id for line, order_id in enumerate(ids, start=2) if order_id
    }
    given_here = [found[line] for line, order_id in enumerate(ids, start=2) if not order_id]
    highest = max((order_id for order_id in ids if order_id), default=0)
    assert given_here == list(range(highest + 1, highest + 1 + len(given_here)))


# What is refused, by line, column and reason.

WHOLE = "must be a whole number from 1 to "
INSTANT = "must be a date-time with a time zone"
REFERENCE = "must be 1 to 64 characters"
STATUS = "must be one of cancelled, pending, shipped"

BAD_CELLS = {
    "petId": (
        WHOLE + str(MAX_INT64),
        [
            "0",
            "-1",
            "+7",
            "7.0",
            "7,0",
            "1e3",
            "seven",
            "0x7",
            "\u0667",
            "²",
            "1_000",
            "7 8",
            "true",
        ],
        [str(MAX_INT64 + 1), "1" * 5_000, "7\0", "null", "NaN"],
    ),
    "quantity": (WHOLE + str(MAX_QUANTITY), ["0", "-1", "1.0", "two", str(MAX_QUANTITY + 1)]),
    "id": (WHOLE + str(MAX_ID), ["0", "-1", "A1", "1.0", str(MAX_ID + 1), str(MAX_INT64)]),
    "status": (STATUS, ["Shipped", "lost", "complete", "1"]),
    "shipDate": (
        INSTANT,
        ["2026-12-01", "2026-12-01T08:00:00", "2026-12-01 08:00:00Z", "01.12.2026", "tomorrow"],
        ["2026-02-30T08:00:00Z", "2026-02-30T08:00:00.000Z", "2026-12-01T24:00:00Z"],
        ["2026-12-01T08:00:60Z", "0000-01-01T00:00:00.000Z", "10000-01-01T00:00:00Z"],
        ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+00:01", "1764576000"],
    ),
    "placedAt": (INSTANT, ["2026-12-01", "now", "2026-12-01T08:00:00"]),
    "updatedAt": (INSTANT, ["2026-12-01", "now", "2026-12-01T08:00:00"]),
    "reference": (REFERENCE, ["x" * 65, "a\tb", "two\nlines", "a\0b", "\x7f", "a\x85b", "a\x1b[m"]),
}


def every_bad_cell(cells):
    return [
        pytest.param(column, value, reason, id=f"{column} {ascii(value)[:30]}")
        for column, (reason, *values) in cells.items()
        for value in chain(*values)
    ]


@pytest.mark.parametrize(("column", "value", "reason"), every_bad_cell(BAD_CELLS))
def test_a_bad_cell_is_named(refused, column, value, reason):
    good = {"petId": "7", "reference": "R-1"}
    header = list(good | {column: ""})
    bad = {**good, column: value}
    told = refused(table(header, [good.get(name, "") for name in header], bad.values()))
    assert f" line 3, {column}: {reason}" in told
    assert "line 2" not in told


BAD_VALUES = {
    "petId": (
        WHOLE + str(MAX_INT64),
        ["7", 7.0, True, False, 0, -1, MAX_INT64 + 1, 10**900, [7], [], {}, {"id": 7}],
    ),
    "quantity": (WHOLE + str(MAX_QUANTITY), ["1", 1.0, True, 0, MAX_QUANTITY + 1, []]),
    "id": (WHOLE + str(MAX_ID), ["1", 1.0, True, 0, MAX_ID + 1, {}]),
    "status": (STATUS, ["Shipped", " shipped", "", 1, True, [], ["shipped"], {}]),
    "shipDate": (INSTANT, ["", "2026-12-01", " 2026-12-01T08:00:00Z", 1_764_576_000, True, [], {}]),
    "placedAt": (INSTANT, ["", "now", 0, {}]),
    "updatedAt": (INSTANT, ["", "now", 0, {}]),
    "reference": (REFERENCE, ["", "x" * 65, "a\nb", "\0", "\ud800", 7, True, [], ["R-1"], {}]),
}


@pytest.mark.parametrize(("column", "value", "reason"), every_bad_cell(BAD_VALUES))
def test_a_bad_value_in_json_lines_is_named(refused, column, value, reason):
    told = refused(lines({"petId": 7}, {"petId": 7, column: value}), "orders.jsonl")
    assert f" line 2, {column}: {reason}" in told
    assert "line 1" not in told


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("orders.csv", "petId,quantity\n7,2\n,2\n", 3),
        ("orders.csv", "quantity,reference\n2,R-1\n", 2),
        ("orders.csv", 'petId\n""\n', 2),
        ("orders.jsonl", lines({"petId": 7}, {"quantity": 2}), 2),
        ("orders.jsonl", lines({"petId": None}), 1),
        ("orders.jsonl", lines({}), 1),
    ],
)
def test_a_row_without_a_pet_is_refused(refused, name, content, line):
    assert f" line {line}, petId: is required" in refused(content, name)


@pytest.mark.parametrize("ship_date", ["", "  "])
def test_a_shipped_row_needs_its_date(refused, ship_date):
    told = refused(f"petId,status,shipDate\n7,pending,\n7,shipped,{ship_date}\n7,cancelled,\n")
    assert " line 3, shipDate: is required where status is shipped" in told


def test_each_bad_row_is_named(refused):
    told = refused("petId,quantity,status\nx,1,\n7,1,\n7,0,\n7,1,lost\n")
    assert " line 2, petId: " in told
    assert " line 4, quantity: " in told
    assert " line 5, status: " in told
    assert "line 3" not in told
    assert "more" not in told


def test_the_first_ten_faults_are_named_and_the_others_counted(refused):
    told = refused("petId\n" + "x\n" * 1_300)
    assert [f" line {line}, petId: " in told for line in range(1, 13)] == [
        False,
        *[True] * 10,
        False,
    ]
    assert "and 1,290 more" in told


def test_ten_faults_are_all_there_are(refused):
    told = refused("petId\n" + "x\n" * 10)
    assert " line 11, petId: " in told
    assert "more" not in told


def test_faults_of_every_kind_are_counted_together(refused_here, client):
    client.place()
    told = refused_here("petId,id\n7,1\n7,2\n7,2\n7\n" + "x,3\n" * 9)
    assert " line 5: it has 1 cells and the header 2" in told
    assert "and 2 more" in told


@pytest.mark.parametrize("end", [b'"9', b"\xff"], ids=["not CSV", "not UTF-8"])
def test_bad_rows_are_named_though_the_file_cannot_be_read_to_its_end(refused, end):
    told = refused(b"petId\nx\n7\ny\n" + end)
    assert " line 2, petId: " in told
    assert " line 4, petId: " in told
    assert " line 5: it is not " in told


def test_lines_are_counted_as_an_editor_does_where_cells_have_several(refused):
    told = refused('petId,reference\n"7\n\n",good\n\n8,"two\nlines"\nx,bad\n')
    assert " line 6, reference: " in told
    assert " line 8, petId: " in told
    assert told.count(" line ") == 2


def test_empty_lines_count(refused):
    assert " line 4, petId: " in refused("petId,quantity\r\n\r\n\r\nx,1\r\n")
    assert " line 3, petId: " in refused('\n{"petId": 7}\n{"petId": 0}\n', "orders.jsonl")


@pytest.mark.parametrize(
    "header",
    ["petId,colour", "petid", "petId,complete", "petId;quantity", "petId,", "petId,pet id"],
)
def test_an_unknown_column_is_refused_with_those_that_there_are(refused, header):
    told = refused(f"{header}\n7,1\n")
    assert "line 1: unknown column " in told
    assert ", ".join(COLUMNS) in told


def test_an_unknown_name_in_json_lines_is_refused(refused):
    told = refused(lines({"petId": 7}, {"petId": 7, "colour": "red"}), "orders.jsonl")
    assert " line 2, colour: " in told


@pytest.mark.parametrize("value", [None, "", 1])
def test_an_unknown_name_is_refused_whatever_its_value(refused, value):
    assert " line 1, complete: " in refused(lines({"petId": 7, "complete": value}), "orders.jsonl")


@pytest.mark.parametrize("name", ["\x1b]0;renamed\x07", "\x9b2J", "a\nb", "\ud800"])
def test_a_strange_name_cannot_upset_a_terminal(refused, name):
    told = refused(lines({"petId": 7, name: 1}), "orders.jsonl")
    assert told.isprintable()


def test_a_long_name_is_not_repeated_whole(refused):
    assert len(refused("x" * 90_000 + "\n")) < 1_000
    assert len(refused(lines({"x" * 90_000: 1}), "orders.jsonl")) < 1_000


@pytest.mark.parametrize("header", ["petId,petId", "petId,quantity,petId", " petId,petId "])
def test_a_column_that_is_there_twice_is_refused(refused, header):
    told = refused(f"{header}\n7,7\n")
    assert "line 1" in told
    assert "the column petId is there twice" in told


def test_a_name_that_is_there_twice_in_json_lines_is_refused(refused):
    told = refused('{"petId": 7}\n{"petId": 7, "petId": 8}\n', "orders.jsonl")
    assert " line 2: " in told
    assert "repeated name" in told


@pytest.mark.parametrize(
    "content", ["", "\n", "\n\n", b"\xef\xbb\xbf"], ids=["empty", "a line", "two lines", "a mark"]
)
def test_a_csv_file_needs_a_header(refused, content):
    assert "line 1: there is no header" in refused(content)


@pytest.mark.parametrize("content", ["7\n", "7,2\n8,1\n"])
def test_rows_are_no_header(refused, content):
    assert "line 1: unknown column '7'" in refused(content)


@pytest.mark.parametrize(("row", "cells"), [("7", 1), ("7,1,", 3), ("7,1,R-1", 3), (" ", 1)])
def test_a_row_with_too_few_or_too_many_cells_is_refused(refused, row, cells):
    told = refused(f"petId,quantity\n7,1\n{row}\n7,1\n")
    assert f" line 3: it has {cells} cells and the header 2" in told


@pytest.mark.parametrize(
    "bad", [b"\xff", "Höhle".encode("latin-1"), b"\xed\xa0\x80", "R-2".encode("utf-16")]
)
def test_a_file_that_is_not_utf_8_is_refused(refused, bad):
    told = refused(b"petId,reference\n7,R-1\n7," + bad + b"\n")
    assert " line 3: it is not UTF-8" in told
    told = refused(b'{"petId": 7}\n{"petId": 7, "reference": "' + bad + b'"}\n', "orders.jsonl")
    assert " line 2: it is not UTF-8" in told


def test_a_file_that_is_utf_16_is_refused(refused):
    assert "line 1: " in refused("petId\n7\n".encode("utf-16"))
    assert "line 1: " in refused('{"petId": 7}\n'.encode("utf-16"), "orders.jsonl")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('7,"R-1', 3),
        ('7,"R-1\n8,R-2\n9,R-3', 3),
        ('7,"R"1', 3),
        ("7,R\r8,S", 3),
        (f"7,{'x' * 200_000}", 3),
        ('"\n7",R\n7,"R"1', 5),
    ],
    ids=["an open quote", "open for lines", "a text behind it", "CR", "a huge cell", "further on"],
)
def test_what_is_not_csv_is_refused_with_the_line(refused, rows, line):
    assert f" line {line}: it is not CSV" in refused(f"petId,reference\n7,R-0\n{rows}\n")


@pytest.mark.parametrize(
    "bad",
    ["{", "7", '"7"', "null", "[]", '[{"petId": 7}]', "petId", "{petId: 7}", '{"petId": NaN}'],
)
def test_a_line_that_is_no_json_object_is_refused(refused, bad):
    told = refused(f'{{"petId": 7}}\n{bad}\n{{"petId": 7}}\n', "orders.jsonl")
    assert " line 2: " in told
    assert told.count(" line ") == 1 + (" at line " in told)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"petId,quantity\n7\0,1\n", "orders.csv"),
        (b"petId\0\n7\n", "orders.csv"),
        (b"petId\n\0\n", "orders.csv"),
        (b'{"petId": 7}\0\n', "orders.jsonl"),
        (b"\0\n", "orders.jsonl"),
        (bytes(5_000), "orders.csv"),
        (bytes(5_000), "orders.jsonl"),
    ],
)
def test_a_file_with_zero_bytes_is_refused(refused, content, name):
    assert " line " in refused(content, name)


@pytest.mark.parametrize("name", ["orders.txt", "orders", "orders.xlsx", "orders.csv.gz", "csv"])
def test_a_name_with_another_ending_is_refused(refused, name):
    assert ".csv or .jsonl" in refused("petId\n7\n", name)


def test_a_file_that_is_not_there_is_told_in_one_line(store, tmp_path):
    for path in (tmp_path / "orders.csv", tmp_path):
        done = store.app.test_cli_runner().invoke(args=["orders", "import", str(path)])
        assert done.exit_code != 0
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        assert str(path) in done.stderr


JUNK = st.text(st.sampled_from('petId,quanty"\n\r \0é7'), max_size=60) | st.binary(max_size=60)


@hypothesis_settings(max_examples=50)
@given(JUNK, st.sampled_from(["orders.csv", "orders.jsonl"]))
def test_no_file_whatever_upsets_the_command(take, content, name):
    done = take(content, name)
    assert isinstance(done.exception, SystemExit | None), content
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


# All or nothing.


@pytest.mark.parametrize("bad", ["x,1,pending,R-1\n", "7,1,pending\n", '7,1,pending,"R\n'])
def test_one_bad_row_behind_thousands_of_good_ones_refuses_them_all(refused, bad):
    assert " line 4002" in refused(UNNUMBERED + unnumbered(4_000) + bad)


def test_thousands_of_rows_are_imported_at_once(take, store):
    taken(take(UNNUMBERED + unnumbered(12_345)), 12_345)
    assert store.rows("SELECT count(*) AS n, max(id) AS highest FROM orders") == [
        {"n": 12_345, "highest": 12_345}
    ]
    assert store.rows("SELECT count(DISTINCT order_id) AS n FROM order_events") == [{"n": 12_345}]


def test_a_file_can_be_imported_again_once_it_is_mended(refused_here, take, store):
    refused_here("petId,quantity\n7,2\n8,none\n")
    taken(take("petId,quantity\n7,2\n8,1\n"), 2)
    assert orders_of(store, "id, pet_id") == [(1, 7), (2, 8)]


def test_a_store_that_another_program_has_locked_is_told(refused_here, store, monkeypatch):
    monkeypatch.setattr(DATABASES.module, "BUSY_SECONDS", 0.05)
    with store.locked():
        assert "locked by another program" in refused_here("petId\n7\n")


# As a process of its own: cut off, watched, beside a running service. Python takes a second to
# import the program: it is imported once, and each command is a process that forks from there.

FORKS = """
import gc, json, os, resource, signal, sys
import alembic.command, flask.cli
import app, orders.store.care.backup
gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    if "wait" in asked:
        told = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
    else:
        told = os.fork()
        if told == 0:
            break
    print(told, flush=True)
else:
    sys.exit()
signal.alarm(60)
os.environ.update(asked["environment"])
for number, path in ((1, asked["stdout"]), (2, asked["stderr"])):
    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOCTTY), number)
if asked["limit"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (asked["limit"], asked["limit"]))
sys.argv = ["flask", *asked["arguments"]]
flask.cli.main()
"""


class Forks:
    """Runs flask commands as processes that fork from one that has imported the program."""

    def __init__(self):
        self._host = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, store, *arguments, stdout, stderr, limit=None):
        """Begin a command whose output goes to files, none over a limit in bytes; return its id."""
        return self._ask(
            arguments=list(map(str, arguments)),
            environment={
                "ORDERS_INSTANCE": str(store.settings.instance),
                **DATABASES.environment(store.settings.instance),
            },
            stdout=str(stdout),
            stderr=str(stderr),
            limit=limit,
        )

    def wait(self, pid):
        """Wait for the end of a command; return its exit status."""
        return self._ask(wait=pid)

    def close(self):
        """End."""
        self._host.communicate(timeout=60)

    def _ask(self, **what):
        self._host.stdin.write(json.dumps(what) + "\n")
        self._host.stdin.flush()
        return int(self._host.stdout.readline())


class Importing:
    """An import into a store, as a process that reads what the test writes, or a file."""

    def __init__(self, forks, store, folder, *, file=None, stderr=None, limit=None):
        self._forks, self._folder = forks, folder
        if file is None:
            file = folder / "pipe.csv"
            os.mkfifo(file)
        self.pid = forks.begin(
            store,
            *("orders", "import", file),
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


@pytest.fixture(scope="module")
def forks():
    host = Forks()
    yield host
    host.close()


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
    taken(take("petId\n7\n"), 1)


@pytest.mark.slow
def test_what_waits_to_be_imported_is_for_its_owner_only(importing, store):
    running = importing()
    running.write(UNNUMBERED + SOME)
    (folder,) = leftovers(store.settings.instance)
    assert S_IMODE(folder.stat().st_mode) == 0o700
    assert contents(store) == ([], [])
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
    taken(take("petId\n7\n"), 1)
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


def test_an_import_that_fills_the_disk_is_told_in_one_line(importing, store, tmp_path):
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
    told = b""
    while b"Imported" not in told:
        told += os.read(terminal, 4096)
    (tmp_path / "stderr").touch()
    assert running.end() == (0, "", "")
    os.close(end)
    os.close(terminal)
    assert b"Checking" in told
    assert b"100%" in told
    assert b"Imported 5,000 orders." in told
