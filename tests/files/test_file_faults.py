"""Files with faults: nothing of them is imported, and each fault is named by line and column."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orders.files.rows import ORDERS, PETS
from tests.support.commands import messages
from tests.support.imports import lines, table

ORDER_COLUMNS, PET_COLUMNS = list(ORDERS.kinds), list(PETS.kinds)
MAX_ID = 2**53 - 1
MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1
UP_TO = "must be a whole number from 1 to {}"
INSTANT = "must be a date-time with a time zone"
REFERENCE = "must be 1 to 64 characters"
NOTE = "must be 1 to 500 characters"
STATUS = "must be one of cancelled, pending, shipped"
NAME = "must be 1 to 255 printable characters"
PET_STATUS = "must be one of available, pending, sold"
NO_NUMBERS = ["0", "-1", "+7", "7.0", "7,0", "1e3", "seven", "0x7", "\u0667", "²", "1_000", "7 8"]
DATES = [
    *["2026-12-01-08", "2026-12-01T08", "01.12.", "tomorrow", "2026-02-30T08:00:00Z"],
    *["2026-02-30T08:00:00.000Z", "2026-12-01T24:00:00Z"],
    *["2026-12-01T08:60:00Z", "0000-01-01T00:00:00.000Z", "10000-01-01T00:00:00Z"],
    *["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+00:01", "1764576000"],
]

# Kind of file, column, reason, and the bad cells of CSV and bad values of JSON Lines.
ORDER, PET = {"petId": 7, "reference": "R-1"}, {"id": 2, "name": "Mia", "status": "sold"}
BAD = [
    ("orders", "shipDate", "must have seconds from 00 to 59", ["2026-12-01T08:00:60Z"], []),
    (
        *("orders", "petId", UP_TO.format(MAX_INT64)),
        [*NO_NUMBERS, "true", str(MAX_INT64 + 1), "1" * 5_000, "7\0", "null", "NaN"],
        ["7", 7.0, True, False, 0, -1, MAX_INT64 + 1, 10**900, [7], [], {}, {"id": 7}],
    ),
    ("orders", "petId", "is required", ["", "  "], [None]),
    (
        *("orders", "quantity", UP_TO.format(MAX_QUANTITY)),
        ["0", "-1", "1.0", "two", str(MAX_QUANTITY + 1)],
        ["1", 1.0, True, 0, MAX_QUANTITY + 1, []],
    ),
    (
        *("orders", "id", UP_TO.format(MAX_ID)),
        ["0", "-1", "A1", "1.0", str(MAX_ID + 1), str(MAX_INT64)],
        ["1", 1.0, True, 0, MAX_ID + 1, {}],
    ),
    (
        *("orders", "status", STATUS),
        ["Shipped", "lost", "complete", "1"],
        ["Shipped", " shipped", "", 1, True, [], ["shipped"], {}],
    ),
    (
        *("orders", "shipDate", INSTANT),
        DATES,
        ["", "2026-12-01", " 2026-12-01T08:00:00Z", 1_764_576_000, True, [], {}],
    ),
    ("orders", "placedAt", INSTANT, ["now", "at noon"], ["", 0, {}]),
    ("orders", "updatedAt", INSTANT, ["now", "at noon"], ["", 0, {}]),
    (
        *("orders", "reference", REFERENCE),
        ["x" * 65, "a\tb", "two\nlines", "a\0b", "\x7f", "a\x85b", "a\x1b[m"],
        ["", "x" * 65, "a\nb", "\0", "\ud800", 7, True, [], ["R-1"], {}],
    ),
    (
        *("orders", "note", NOTE),
        ["x" * 501, "a\tb", "a\0b", "\x7f", "a\x85b", "a\x0bb"],
        ["", "x" * 501, "\t", "\ud800", 7, True, [], {}],
    ),
    (
        *("pets", "id", UP_TO.format(MAX_INT64)),
        ["0", "-1", "1.0", "one", str(MAX_INT64 + 1)],
        ["2", 2.0, True, 0, MAX_INT64 + 1, [], {}],
    ),
    *(("pets", column, "is required", [""], [None]) for column in ("id", "name", "status")),
    (
        *("pets", "categoryId", UP_TO.format(MAX_INT64)),
        ["0", "dogs", "1e3", str(MAX_INT64 + 1)],
        ["3", 3.0, False, [], {"id": 3}],
    ),
    (
        *("pets", "name", NAME),
        ["x" * 256, "a\tb", "two\nlines", "a\0b"],
        [7, "", ["Mia"], "\ud800", "a\nb", "x" * 256],
    ),
    (
        *("pets", "status", PET_STATUS),
        ["Sold", "gone", "shipped"],
        ["SOLD", 1, [], {}, True],
    ),
]


def bad_files():
    """Yield for each case a CSV file of its bad cells and a JSON Lines file of its bad values."""
    for kind, column, reason, cells, values in BAD:
        good = ORDER if kind == "orders" else PET
        header = list(good | {column: ""})
        rows = [good, *({**good, column: cell} for cell in cells)]
        # A cell may have several lines.
        begins = accumulate((cell.count("\n") + 1 for cell in cells[:-1]), initial=3)
        content = table(header, *([row.get(name, "") for name in header] for row in rows))
        yield f"{kind}.csv", content, [f"line {line}, {column}: {reason}" for line in begins]
        if values:
            content = "\n" + lines(good, *({**good, column: value} for value in values))
            faults = [f"line {line}, {column}: {reason}" for line in range(3, 3 + len(values))]
            yield f"{kind}.jsonl", content, faults


@pytest.mark.parametrize(
    ("name", "content", "faults"),
    [pytest.param(*case, id=f"{case[0]} {case[2][0][:40]}") for case in bad_files()],
)
def test_a_bad_value_is_named_by_line_and_column(rejected, name, content, faults):
    assert_named(rejected(content, name), *faults)


def assert_named(message, *faults):
    """Check that a message names these faults in this order, and no others."""
    named = re.findall(r"(?<!at )(?<!earlier )\bline \d+", message)
    assert named == [fault.split(":")[0].split(",")[0] for fault in faults], message
    for fault in faults:
        assert fault in message


ORDER_CSV = "petId,quantity\n7,2\n"
REFERENCES = "petId,reference\n7,R-0\n"
ORDER_LINE, PET_LINE = lines(ORDER), lines(PET)
PETS = "id,name,categoryId,status\n"
COLUMNS_ARE = "; the columns are {}"
NOT_UTF_8 = "line 3: it is not UTF-8"
NOT_CSV = "line 3: it is not CSV"
FILES = [
    # Missing cells, and cells that depend on each other.
    ("orders.csv", "quantity,reference\n2,R-1\n", "line 2, petId: is required"),
    ("orders.csv", 'petId\n""\n', "line 2, petId: is required"),
    ("orders.jsonl", lines(ORDER, {"quantity": 2}), "line 2, petId: is required"),
    ("orders.jsonl", lines({}), "line 1, petId: is required"),
    (
        *("orders.csv", "petId,status,shipDate\n7,pending,\n7,shipped,  \n7,cancelled,\n"),
        "line 3, shipDate: is required where status is shipped",
    ),
    *(
        case
        for column in ("id", "name", "status")
        for row in [{name: value for name, value in PET.items() if name != column}]
        for case in [
            ("pets.csv", table(row, row.values()), f"line 2, {column}: "),
            ("pets.jsonl", lines(row), f"line 1, {column}: "),
        ]
    ),
    # Several faults, and how lines are counted.
    (
        "orders.csv",
        "petId,quantity,status\nx,1,\n7,1,\n7,0,\n7,1,lost\n",
        *("line 2, petId: ", "line 4, quantity: ", "line 5, status: "),
    ),
    (
        "orders.csv",
        'petId,reference\n"7\n\n",good\n\n8,"two\nlines"\nx,bad\n',
        *("line 6, reference: ", "line 8, petId: "),
    ),
    (
        "orders.csv",
        (
            "petId,id,quantity,shipDate,status,placedAt,updatedAt,reference,note\n"
            "x,0,-1,today,lost,now,then,\x7f,\x7f\n7,5,1,,shipped,,,,\n8,5,x,,,,,,\n"
        ),
        *(f"line 2, {column}: must be " for column in ORDER_COLUMNS[:6]),
        *("line 2, updatedAt: must be ", "line 2, reference: must be ", "line 2, note: must be "),
        *(
            "line 3, shipDate: is required",
            "line 4, quantity: must be ",
            "line 4, id: 5 is also on",
        ),
    ),
    (
        *(
            "pets.jsonl",
            '{"id": 0, "name": "", "colour": 1, "categoryId": 0, "status": 7, "": 0}\n',
        ),
        *("line 1, colour: is not a column", "line 1: is not a column"),
        *(f"line 1, {column}: must be " for column in PET_COLUMNS),
    ),
    ("orders.csv", "petId,quantity\r\n\r\n\r\nx,1\r\n", "line 4, petId: "),
    ("orders.jsonl", '\n{"petId": 7}\n{"petId": 0}\n', "line 3, petId: "),
    *(
        (
            *("orders.csv", b"petId\nx\n7\ny\n" + end),
            *("line 2, petId: ", "line 4, petId: ", "line 5: it is n"),
        )
        for end in (b'"9', b"\x81")
    ),
    # Columns.
    *(
        (
            *("orders.csv", f"{header}\n7,1\n"),
            *("line 1: unknown column ", COLUMNS_ARE.format(", ".join(ORDER_COLUMNS))),
        )
        for header in (
            *("petId,colour", "petId,complete", "petId|quantity", "petId,"),
            *("petId,pet ids", "7"),
        )
    ),
    (
        *("orders.csv", "7,petId,2,petId\n", "line 1: unknown column '7'"),
        *("line 1: unknown column '2'", "line 1: the column petId is there twice"),
    ),
    (
        *("pets.csv", "petId,name,status\n", "line 1: unknown column 'petId'"),
        COLUMNS_ARE.format(", ".join(PET_COLUMNS)),
    ),
    *(
        ("orders.csv", f"{header}\n7,7\n", "line 1: the column petId is there twice")
        for header in ("petId,petId", "petId,quantity,petId", " petId,petId ", "petId,Pet ID")
    ),
    *(("orders.csv", empty, "line 1: there is no header") for empty in ("", "\n", "\n\n")),
    ("orders.csv", b"\xef\xbb\xbf", "line 1: there is no header"),
    *(
        ("orders.csv", f"{ORDER_CSV}{row}\n7,1\n", f"line 3: it has {cells} cells and the header 2")
        for row, cells in (("7", 1), ("7,1,", 3), ("7,1,R-1", 3), (" ", 1))
    ),
    ("orders.jsonl", lines(ORDER, {**ORDER, "colour": "red"}), "line 2, colour: is not a column"),
    *(
        ("orders.jsonl", lines({**ORDER, "complete": value}), "line 1, complete: is not a column")
        for value in (None, "", 1)
    ),
    (
        *("orders.jsonl", '{"petId": 7}\n{"petId": 7, "petId": 8}\n'),
        *("line 2: ", "repeated name"),
    ),
    # Not CSV, not JSON, not UTF-8.
    *(
        ("orders.csv", f"{REFERENCES}{rows}\n", NOT_CSV)
        for rows in ('7,"R-1', '7,"R\n8,R', '7,"R"1', f"7,{'x' * 200_000}")
    ),
    ("orders.csv", f'{REFERENCES}"\n7",R\n7,"R"1\n', "line 5: it is not CSV"),
    *(
        ("orders.jsonl", b'\n{"petId": 7}\n{"reference": "' + bad + b'"}\n', NOT_UTF_8)
        for bad in (b"\xff", "Höhle".encode("latin-1"), b"\xed\xa0\x80", "R-2".encode("utf-16"))
    ),
    # Neither UTF-8 nor Windows-1252, which lacks such letters, or a mixture of both.
    *(
        ("orders.csv", f"{REFERENCES}7,".encode() + bad + b"\n", "line 3: it is neither UTF-8")
        for bad in (b"\x81", b"H\x90", "ö".encode() + b"\xff")
    ),
    ("orders.csv", "petId,item\n7,H\xf6hle\n8,".encode("latin-1") + "ö".encode(), "line 3: "),
    ("orders.csv", "petId\n7\n".encode("utf-16") + b"7", "line 3: it is neither UTF-8"),
    *(
        ("orders.jsonl", f"{ORDER_LINE}{bad}\n{ORDER_LINE}", "line 2: ")
        for bad in (
            *("{", "7", '"7"', "null", "[]", '[{"petId": 7}]', "petId", "{petId: 7}"),
            '{"petId": NaN}',
        )
    ),
    ("pets.jsonl", PET_LINE + "[]\n", "line 2: it is not a JSON object"),
    # Zero bytes.
    ("orders.csv", b"petId,quantity\n7\0,1\n", "line 2, petId: "),
    ("orders.csv", b"petId\0\n7\n", "line 1: "),
    ("orders.csv", b"petId\n\0\n", "line 2, petId: "),
    ("orders.jsonl", b'{"petId": 7}\0\n', "line 1: "),
    ("orders.jsonl", b"\0\n", "line 1: "),
    ("orders.csv", bytes(5_000), "line 1: "),
    ("orders.jsonl", bytes(5_000), "line 1: "),
    # The file name's extension.
    *(
        (name, "petId\n7\n", "line 1: the name must end in .csv or .jsonl")
        for name in ("orders.xlsx", "orders", "orders.csv.gz", "csv", "pets.json")
    ),
]


@pytest.mark.parametrize(
    ("name", "content", "faults"),
    [pytest.param(name, content, faults) for name, content, *faults in FILES],
    # pytest would escape backslashes again in each run of one process (mutmut).
    ids=[f"{name} {ascii(content)[:40]}".replace("\\", "/") for name, content, *_ in FILES],
)
def test_a_file_with_faults_is_rejected_and_each_is_named(rejected, name, content, faults):
    message = rejected(content, name)
    assert_named(message, *(fault for fault in faults if fault.startswith("line ")))
    for words in faults:
        assert words in message


def test_the_first_hundred_faults_are_named_and_the_others_counted(rejected):
    message = rejected("petId\n" + "x\n" * 1_300)
    assert_named(message, *(f"line {line}, petId: " for line in range(2, 102)))
    assert "and 1,200 more" in message
    assert "more" not in rejected("petId\n" + "x\n" * 100)


def test_faults_of_every_kind_are_counted_together(rejected_here, client):
    client.place()
    message = rejected_here("petId,id\n7,1\n7,2\n7,2\n7\n" + "x,3\nx,0\n" * 40)
    assert " line 5: it has 1 cells and the header 2" in message
    # 162 in all, such as 40 without a pet, 40 without a pet or a valid id, and 40 repeated ids.
    assert "and 62 more" in message


@pytest.mark.parametrize("name", ["\x1b]0;renamed\x07", "\x9b2J", "a\nb", "\ud800"])
def test_control_characters_in_a_column_name_do_not_reach_the_terminal(rejected, name):
    assert rejected(lines({"petId": 7, name: 1}), "orders.jsonl").isprintable()


def test_a_long_column_name_is_shortened_in_the_message(rejected):
    assert len(rejected("x" * 90_000 + "\n")) < 1_000
    assert len(rejected(lines({"x" * 90_000: 1}), "orders.jsonl")) < 1_000


@pytest.mark.parametrize(
    ("name", "header", "good", "bad"),
    [
        *(
            ("orders.csv", "petId,quantity,reference", "7,2,R", bad)
            for bad in ("x,1,R", "7,1", '7,1,"R')
        ),
        ("pets.csv", "id,name,status", "7,Mia,sold", "8,Rex,lost"),
    ],
)
def test_one_bad_row_after_thousands_of_good_ones_rejects_them_all(
    rejected, name, header, good, bad
):
    assert " line 4002" in rejected(f"{header}\n" + f"{good}\n" * 4_000 + f"{bad}\n", name)


@pytest.mark.parametrize("group", ["orders", "pets"])
def test_a_missing_file_is_reported_in_one_line(shared_store, tmp_path, group):
    for path in (tmp_path / "some.csv", tmp_path):
        done = shared_store.app.test_cli_runner().invoke(args=[group, "import", str(path)])
        assert done.exit_code != 0
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        assert str(path) in done.stderr


JUNK = st.text(st.sampled_from('petId,quanty"\n\r \0é7'), max_size=60) | st.binary(max_size=60)


@given(JUNK, st.sampled_from(["orders.csv", "orders.jsonl"]))
def test_no_content_makes_the_command_crash(take, content, name):
    done = take(content, name)
    assert isinstance(done.exception, SystemExit | None), content
    assert (done.stdout, messages(done).count("\n")) == ("", 1)
