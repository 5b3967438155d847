"""`flask orders export [FILE]`: all orders, in a file that can be imported again."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from datetime import UTC
from stat import S_IMODE

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from orders import domain
from orders.store.database.database import continue_ids_above
from orders.store.database.sqlite import Checkpoint
from tests.support.commands import command, messages, names_in, rejected, without_store
from tests.support.databases import DATABASES
from tests.support.imports import table
from tests.support.orders import SHOWN, order_row, put_rows, sql_copy
from tests.support.service import ROOT

HEADER = ",".join(SHOWN.values()) + "\n"
assert HEADER.startswith("id,petId,quantity,shipDate,status,placedAt,updatedAt,reference,note")
LEFT_OUT = ", without their history and without keys and pets.\n"
MAX_ID = 2**53 - 1
MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1
# More than is read from the store at once, or fits into a pipe.
MANY = 6_000
# Too little for many orders.
LITTLE_SPACE = 128 * 1024


@pytest.fixture
def full_store(make_store):
    """A store with many orders."""
    store = make_store()
    put_rows(store.database, [order_row(reference=f"a reference {'':0<40}")])
    store.execute(sql_copy("orders", 1, times=MANY - 1, id="n + 1"))
    with store.database.write() as connection:
        continue_ids_above(connection, "orders", MANY)
    return store


def export(store, *file, options=()):
    """Export a store's orders; return standard output and, if there is one, the file's content."""
    done = command(store, "orders", "export", *file, *options)
    assert done.exit_code == 0, done.stderr
    assert re.fullmatch(rf"Exported [\d,]+ orders{LEFT_OUT}", messages(done))
    return done.stdout_bytes, *(path.read_bytes() for path in file)


def put(store, content, file):
    """Import a file of this content."""
    file.write_text(content, encoding="utf-8", newline="")
    done = command(store, "orders", "import", file)
    assert done.exit_code == 0, done.stderr


@pytest.fixture
def varied(store, client, tmp_path):
    """A store with orders of every kind."""
    client.place(7, quantity=2, shipDate="2026-12-05T10:00:00+02:00")
    client.place(8)
    store.clock.advance(1.25)
    client.ship(2)
    client.place(9)
    client.cancel(3)
    row = {"petId": MAX_INT64, "quantity": MAX_QUANTITY, "id": MAX_ID, "reference": 'a "b", ö'}
    row["note"] = "First\rsecond\r\nthird\n\nlast"
    put(store, json.dumps(row), tmp_path / "more.jsonl")
    return store


JSON_LINES = """\
{"id":1,"petId":7,"quantity":2,"shipDate":"2026-12-05T08:00:00.000Z","status":"pending",\
"placedAt":"2026-12-01T12:00:00.000Z","updatedAt":"2026-12-01T12:00:00.000Z"}
{"id":2,"petId":8,"quantity":1,"shipDate":"2026-12-01T12:00:01.250Z","status":"shipped",\
"placedAt":"2026-12-01T12:00:00.000Z","updatedAt":"2026-12-01T12:00:01.250Z"}
{"id":3,"petId":9,"quantity":1,"status":"cancelled",\
"placedAt":"2026-12-01T12:00:01.250Z","updatedAt":"2026-12-01T12:00:01.250Z"}
{"id":9007199254740991,"petId":9223372036854775807,"quantity":2147483647,"status":"pending",\
"placedAt":"2026-12-01T12:00:01.250Z","updatedAt":"2026-12-01T12:00:01.250Z",\
"reference":"a \\"b\\", ö","note":"First\\rsecond\\r\\nthird\\n\\nlast"}
"""
ROWS = map(json.loads, JSON_LINES.splitlines())
CSV = HEADER + table(*([order.get(name) for name in SHOWN.values()] for order in ROWS))


# Exported content.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("orders.csv", CSV),
        ("ORDERS.CSV", CSV),
        ("orders.jsonl", JSON_LINES),
        ("orders.ndjson", JSON_LINES),
    ],
)
def test_a_file_has_every_order_with_all_its_columns(varied, tmp_path, name, content):
    assert export(varied, tmp_path / name) == (b"", content.encode())


def test_without_a_file_csv_goes_to_standard_output(varied):
    assert export(varied) == (CSV.encode(),)


def test_an_empty_store_is_exported_as_an_empty_file(store, tmp_path):
    assert export(store) == (HEADER.encode(),)
    assert export(store, tmp_path / "orders.jsonl") == (b"", b"")


def test_an_export_overwrites_a_file_only_if_asked_and_is_private_to_its_owner(
    varied, client, tmp_path
):
    file = tmp_path / "orders.csv"
    _, first = export(varied, file)
    client.cancel(1)
    assert "exists already" in rejected(varied, "orders", "export", file)
    assert file.read_bytes() == first
    before = os.umask(0)
    try:
        _, second = export(varied, file, options=["--overwrite"])
    finally:
        os.umask(before)
    assert b"1,7,2,2026-12-05T08:00:00.000Z,cancelled," in second
    assert S_IMODE(file.stat().st_mode) == 0o600
    assert names_in(tmp_path) == {"orders.csv", "more.jsonl", "instance"}


# Round trips.

# Text without control characters and surrogates; trimmed, as cells of CSV are.
CHARACTERS = st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\",;'\\=\u2028 ")
REFERENCES = st.text(CHARACTERS, min_size=1, max_size=64).map(str.strip).filter(bool)
INSTANTS = st.datetimes(timezones=st.just(UTC)).map(domain.format_instant)
ORDERS = st.fixed_dictionaries(
    {"petId": st.integers(1, MAX_INT64), "shipDate": INSTANTS},
    optional={
        "id": st.integers(1, MAX_ID - 1_000),
        "quantity": st.integers(1, MAX_QUANTITY),
        "status": st.sampled_from(["pending", "shipped", "cancelled"]),
        "placedAt": INSTANTS,
        "updatedAt": INSTANTS,
        "reference": REFERENCES,
        "note": st.text(CHARACTERS | st.sampled_from("\r\n"), min_size=1)
        .map(str.strip)
        .filter(bool),
    },
)


@pytest.fixture
def emptied(store, empty_database):
    """Return a function that empties the store."""

    def empty():
        store.database.close()
        DATABASES.empty(store.settings, empty_database)
        return store

    return empty


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
@hypothesis_settings(max_examples=8)
@given(st.lists(ORDERS, max_size=12, unique_by=lambda order: order.get("id", object())))
@example([{"petId": 1, "reference": '"'}, {"petId": 1, "reference": ',"\u2028"'}])
@example([{"petId": 1, "reference": "=1+1"}, {"petId": 1, "reference": "\ufeffx"}])
@example([{"petId": 1, "reference": "None"}, {"petId": 1, "reference": "0007"}])
def test_an_export_that_is_imported_is_exported_again_byte_for_byte(
    emptied, tmp_path, ending, orders
):
    first, second = tmp_path / f"first{ending}", tmp_path / f"second{ending}"
    store = emptied()
    put(store, "".join(json.dumps(order) + "\n" for order in orders), tmp_path / "made.jsonl")
    export(store, first, options=["--overwrite"])
    rows = store.rows("SELECT * FROM orders ORDER BY id")
    assert len(rows) == len(orders)
    store = emptied()
    assert command(store, "orders", "import", first).exit_code == 0
    export(store, second, options=["--overwrite"])
    assert second.read_bytes() == first.read_bytes()
    assert store.rows("SELECT * FROM orders ORDER BY id") == rows


# Rejections.


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, ".csv or .jsonl") for name in ("orders", "orders.csv.gz", "two\nlines.xlsx")),
        ("nowhere/orders.csv", "/nowhere"),
        ("folder.csv", "/folder.csv"),
    ],
)
def test_a_file_that_cannot_be_written_is_rejected(store, tmp_path, name, words):
    (tmp_path / "folder.csv").mkdir()
    assert words in rejected(store, "orders", "export", tmp_path / name)
    assert names_in(tmp_path) == {"instance", "folder.csv"}
    assert names_in(tmp_path / "folder.csv") == set()


# In a process of its own: a full disk, pipes, a terminal, concurrent changes.


@pytest.fixture
def begin(forks, full_store, tmp_path_factory):
    """Begin an export of many orders; return a function that waits for its status and messages."""

    def begin_one(*file, **options):
        said = tmp_path_factory.mktemp("messages") / "stderr"
        said.touch()
        process = forks.begin(
            *("flask", "orders", "export", *file),
            instance=full_store.settings.instance,
            **{"stdout": os.devnull, "stderr": said, **options},
        )
        return lambda: (process.wait(), without_store(said.read_text()))

    return begin_one


@pytest.mark.slow
def test_an_export_that_fills_the_disk_leaves_no_half_file(begin, tmp_path):
    new, older = tmp_path / "new.csv", tmp_path / "older.jsonl"
    older.write_bytes(b"an older export")
    for file in (new, older):
        status, stderr = begin(file, "--overwrite", limit=LITTLE_SPACE)()
        assert status != 0
        assert stderr.count("\n") == 1
        assert "File too large" in stderr
        assert "None" not in stderr
    assert names_in(tmp_path) == {"instance", older.name}
    assert older.read_bytes() == b"an older export"


@pytest.fixture
def pipe(tmp_path):
    """A named pipe, which is read while an export writes to it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_early_causes_no_traceback(begin, pipe):
    end = begin(stdout=pipe)
    with pipe.open() as opened:
        assert opened.readline() == HEADER
    status, stderr = end()
    assert status != 0
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr
    assert "None" not in stderr
    assert stderr.count("\n") <= 1


def test_an_export_is_a_snapshot(begin, pipe, full_store):
    client = full_store.client()
    end = begin(stdout=pipe)
    with pipe.open() as opened:
        opened.readline()
        # Most of the export has not been read yet.
        assert client.cancel(MANY).status_code == 204
        assert client.place().status_code == 201
        rows = opened.read().splitlines()
    assert end() == (0, f"Exported {MANY:,} orders{LEFT_OUT}")
    assert [int(row.partition(",")[0]) for row in rows] == list(range(1, MANY + 1))
    assert rows[-1].startswith(f"{MANY},7,1,,pending,")


@pytest.mark.sqlite_only
def test_a_stalled_pipe_does_not_keep_the_write_ahead_log_from_being_reused(
    begin, pipe, full_store
):
    end = begin(stdout=pipe)
    with pipe.open() as opened:
        select.select([opened], [], [])
        full_store.client()  # a commit, after which the log has pages to copy
        _, pages, copied = full_store.database.checkpoint(Checkpoint.COPY)
        is_blocked, *_ = full_store.database.checkpoint(Checkpoint.RESTART)
        assert (pages, is_blocked) == (copied, False)
        assert len(opened.readlines()) == MANY + 1
    assert end()[0] == 0


def test_an_export_shows_its_progress_on_the_terminal(begin, tmp_path):
    terminal, end = os.openpty()
    ended = begin(stdout=tmp_path / "stdout", stderr=os.ttyname(end))
    assert ended() == (0, "")
    shown = os.read(terminal, 65_536)
    os.close(end)
    os.close(terminal)
    assert len((tmp_path / "stdout").read_text().splitlines()) == MANY + 1
    assert b"Exporting" in shown
    assert b"100%" in shown
    assert shown.endswith(LEFT_OUT.replace("\n", "\r\n").encode())


@pytest.mark.slow
def test_standard_output_is_utf_8_whatever_the_locale(varied):
    done = subprocess.run(
        [sys.executable, "-m", "flask", "orders", "export"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONIOENCODING": "latin-1",
            "ORDERS_INSTANCE": str(varied.settings.instance),
            **DATABASES.environment(varied.settings.instance),
        },
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, CSV.encode())
