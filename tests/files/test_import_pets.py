"""`flask pets import FILE`: the catalogue's pets, in place of those with the same ids."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support.clocks import SetClock
from tests.support.stores import Store, assert_error

MAX_INT64 = 2**63 - 1
COLUMNS = "id,name,categoryId,status"
BELLO = {"id": 1, "name": "Bello", "categoryId": 3, "status": "available"}
MIA = {"id": 2, "name": "Mia", "status": "pending"}


@pytest.fixture
def take(store, tmp_path):
    """Import a file of this content and name; return the result of the command."""
    return partial(import_file, store, tmp_path)


@pytest.fixture(scope="module")
def bello(tmp_path_factory, databases):
    """A store with one pet that the tables of this file share: none of their files changes it."""
    settings = databases.settings(tmp_path_factory.mktemp("pets") / "instance")
    databases.make(settings)
    store = Store(settings, SetClock())
    taken(import_file(store, settings.instance, lines(BELLO), "pets.jsonl"), 1)
    yield store
    store.services.database.close()


@pytest.fixture
def refused(bello, tmp_path):
    """Import a file that must be refused, in one line, with nothing stored; return the line."""
    before = pets_of(bello)

    def refuse_one(content, name="pets.csv"):
        done = import_file(bello, tmp_path, content, name)
        assert done.exit_code != 0
        assert isinstance(done.exception, SystemExit), done.exception
        assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
        assert pets_of(bello) == before
        return done.stderr

    return refuse_one


def import_file(store, folder, content, name="pets.csv"):
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return store.app.test_cli_runner().invoke(args=["pets", "import", str(file)])


def taken(done, count):
    """Check that a command imported this many pets, and said so where no data goes."""
    assert done.exit_code == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", f"Imported {count:,} pets.\n")


def pets_of(store):
    """Return all pets, by id."""
    rows = store.rows("SELECT id, name, category_id, status FROM pets ORDER BY id")
    return [tuple(row.values()) for row in rows]


def lines(*values):
    """Return a JSON Lines file."""
    return "".join(json.dumps(value) + "\n" for value in values)


# What is taken.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pets.csv", f"{COLUMNS}\n1,Bello,3,available\n2,Mia,,pending\n"),
        ("PETS.CSV", "status,name,id,categoryId\navailable,Bello,1,3\npending,Mia,2,\n"),
        ("pets.jsonl", lines(BELLO, MIA)),
        ("pets.ndjson", lines(BELLO, {**MIA, "categoryId": None})),
    ],
)
def test_imported_pets_are_found_by_version_1(take, client, name, content):
    assert_error(client.get("/v1/pets/1"), 404, "pet_not_found")
    taken(take(content, name), 2)
    assert client.get("/v1/pets/1").get_json() == BELLO
    assert client.get("/v1/pets/2").get_json() == MIA


@pytest.mark.parametrize("status", ["available", "pending", "sold"])
def test_a_pet_has_one_of_three_states(take, client, status):
    taken(take(f"id,name,status\n7,Mia,{status}\n"), 1)
    assert client.get("/v1/pets/7").get_json()["status"] == status


def test_a_column_that_is_not_needed_may_be_missing(take, store):
    taken(take("id,name,status\n7,Mia,sold\n"), 1)
    assert pets_of(store) == [(7, "Mia", None, "sold")]


def test_the_highest_numbers_and_the_longest_name_are_taken(take, store):
    taken(take(f"{COLUMNS}\n{MAX_INT64},{'ö' * 255},{MAX_INT64},sold\n"), 1)
    assert pets_of(store) == [(MAX_INT64, "ö" * 255, MAX_INT64, "sold")]


def test_cells_are_trimmed_and_an_empty_one_is_absent(take, store):
    taken(take('\ufeff id , name,status,categoryId\r\n 7 ," Mia, the 2nd ",\tsold ,  \r\n'), 1)
    assert pets_of(store) == [(7, "Mia, the 2nd", None, "sold")]


def test_a_name_may_be_in_any_language(take, client):
    names = ["Zoë", "Мурка", "ポチ", "🐢 Schildi", 'O\'Hara "Jack"']
    taken(
        take(
            lines(*({**MIA, "id": n, "name": name} for n, name in enumerate(names, start=1))),
            "pets.jsonl",
        ),
        len(names),
    )
    assert [client.get(f"/v1/pets/{n}").get_json()["name"] for n in range(1, 6)] == names


# In place of others.


def test_a_pet_takes_the_place_of_one_with_its_id_and_others_are_kept(take, store):
    taken(take(f"{COLUMNS}\n1,Bello,3,available\n2,Mia,4,pending\n3,Rex,,sold\n"), 3)
    taken(take(f"{COLUMNS}\n2,Minka,,sold\n4,Kiki,5,available\n"), 2)
    assert pets_of(store) == [
        (1, "Bello", 3, "available"),
        (2, "Minka", None, "sold"),
        (3, "Rex", None, "sold"),
        (4, "Kiki", 5, "available"),
    ]


def test_the_same_file_may_be_imported_again(take, store):
    for _ in range(2):
        taken(take(lines(BELLO, MIA), "pets.jsonl"), 2)
    assert [pet[0] for pet in pets_of(store)] == [1, 2]


def test_of_equal_ids_in_a_file_the_last_is_taken(take, store):
    assert take(f"{COLUMNS}\n1,Bello,3,available\n1,Rex,,sold\n").exit_code == 0
    assert pets_of(store) == [(1, "Rex", None, "sold")]


@hypothesis_settings(max_examples=10)
@given(st.lists(st.lists(st.integers(1, 2_000), max_size=1_200), max_size=2))
def test_any_files_leave_the_last_pet_of_each_id(take, store, files):
    wanted = {pet_id: name for pet_id, name, *_ in pets_of(store)}
    for number, ids in enumerate(files):
        rows = "".join(f"{pet_id},{number} {line},sold\n" for line, pet_id in enumerate(ids))
        assert take(f"id,name,status\n{rows}").exit_code == 0
        wanted |= {pet_id: f"{number} {line}" for line, pet_id in enumerate(ids)}
    assert {pet_id: name for pet_id, name, *_ in pets_of(store)} == wanted


def test_pets_are_no_part_of_the_event_log(take, store):
    taken(take(lines(BELLO), "pets.jsonl"), 1)
    assert store.events() == []


# What is refused, by line, column and reason.

WHOLE = f"must be a whole number from 1 to {MAX_INT64}"
NAME = "must be 1 to 255 printable characters"
STATUS = "must be one of available, pending, sold"


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        *(("id", value, WHOLE) for value in ("0", "-1", "1.0", "one", str(MAX_INT64 + 1))),
        *(("categoryId", value, WHOLE) for value in ("0", "dogs", "1e3", str(MAX_INT64 + 1))),
        *(("name", value, NAME) for value in ("x" * 256, "a\tb", "two\nlines", "a\0b", "")),
        *(("status", value, STATUS) for value in ("Sold", "gone", "shipped", "")),
        ("id", "", "is required"),
    ],
)
def test_a_bad_cell_is_named(refused, column, value, reason):
    cells = {"id": "2", "name": "Mia", "categoryId": "3", "status": "sold", column: value}
    row = ",".join(f'"{cell}"' for cell in cells.values())
    told = refused(f"{COLUMNS}\n1,Rex,,sold\n{row}\n")
    assert f" line 3, {column}: {reason}" in told
    assert "line 2" not in told


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        *(("id", value, WHOLE) for value in ("2", 2.0, True, 0, MAX_INT64 + 1, [], {})),
        *(("categoryId", value, WHOLE) for value in ("3", 3.0, False, [], {"id": 3})),
        *(("name", value, NAME) for value in (7, "", None, ["Mia"], "\ud800", "a\nb", "x" * 256)),
        *(("status", value, STATUS) for value in ("SOLD", None, 1, [], {}, True)),
        ("id", None, "is required"),
    ],
)
def test_a_bad_value_in_json_lines_is_named(refused, column, value, reason):
    told = refused(lines({**BELLO, "name": "Rex"}, {**MIA, column: value}), "pets.jsonl")
    assert f" line 2, {column}: {reason}" in told
    assert "line 1" not in told


@pytest.mark.parametrize("column", ["id", "name", "status"])
def test_what_a_pet_needs_is_missed(refused, column):
    others = {name: value for name, value in BELLO.items() if name != column}
    assert f" line 1, {column}: " in refused(lines(others), "pets.jsonl")
    row = ",".join(map(str, others.values()))
    assert f" line 2, {column}: " in refused(f"{','.join(others)}\n{row}\n")


@pytest.mark.parametrize(
    ("content", "name", "told"),
    [
        ("", "pets.csv", "line 1: there is no header"),
        ("id,name,status,photo\n", "pets.csv", "line 1: unknown column 'photo'"),
        ("petId,name,status\n", "pets.csv", "line 1: unknown column 'petId'"),
        (f"{COLUMNS},name\n", "pets.csv", "twice"),
        (f"{COLUMNS}\n2,Mia,sold\n", "pets.csv", "line 2: it has 3 cells and the header 4"),
        (f'{COLUMNS}\n2,"Mia\n', "pets.csv", "line 2: it is not CSV"),
        (f"{COLUMNS}\n2,Zoë,,sold\n".encode("latin-1"), "pets.csv", "line 2: it is not UTF-8"),
        (lines({**MIA, "photo": None}), "pets.jsonl", "line 1, photo: "),
        (lines(BELLO) + "[]\n", "pets.jsonl", "line 2: it is not a JSON object"),
        (lines(BELLO) + "{\n", "pets.jsonl", "line 2: it is not JSON"),
        (b'{"id": 2, "name": "\xff"}\n', "pets.jsonl", "line 1: it is not UTF-8"),
        (lines(MIA), "pets.json", ".csv or .jsonl"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(refused, content, name, told):
    assert told in refused(content, name)


def test_one_bad_row_behind_many_good_ones_refuses_them_all(refused):
    good = "".join(f"{n},pet {n},sold\n" for n in range(1, 2_001))
    assert " line 2002, status: " in refused(f"id,name,status\n{good}2001,Rex,lost\n")


def test_the_first_ten_faults_are_named_and_the_others_counted(refused):
    told = refused("id,name,status\n" + "0,Rex,sold\n" * 15)
    assert told.count(", id: ") == 10
    assert "and 5 more" in told


def test_a_file_that_is_not_there_is_told_in_one_line(bello, tmp_path):
    missing = str(tmp_path / "pets.csv")
    done = bello.app.test_cli_runner().invoke(args=["pets", "import", missing])
    assert done.exit_code != 0
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert missing in done.stderr
