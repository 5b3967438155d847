"""`flask pets import FILE`: pets of the catalogue, which replace those with the same ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support.imports import imported, lines
from tests.support.stores import assert_error

MAX_INT64 = 2**63 - 1
COLUMNS = "id,name,categoryId,status"
BELLO = {"id": 1, "name": "Bello", "categoryId": 3, "status": "available"}
MIA = {"id": 2, "name": "Mia", "status": "pending"}


def pets_of(store):
    """Return all pets, by id."""
    rows = store.rows("SELECT id, name, category_id, status FROM pets ORDER BY id")
    return [tuple(row.values()) for row in rows]


# Imported content.


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
    imported(take(content, name), 2, "pets")
    assert client.get("/v1/pets/1").get_json() == BELLO
    assert client.get("/v1/pets/2").get_json() == MIA
    assert client.store.events() == []


NAMES = ["Zoë", "Мурка", "ポチ", "🐢 Schildi", 'O\'Hara "Jack"']
PADDED = '\ufeff id , name,status,categoryId\r\n 7 ," Mia, the 2nd ",\tsold ,  \r\n'
LONGEST = (MAX_INT64, "ö" * 255, MAX_INT64, "sold")


@pytest.mark.parametrize(
    ("name", "content", "pets"),
    [
        ("pets.csv", "id,name,status\n7,Mia,sold\n", [(7, "Mia", None, "sold")]),
        ("pets.csv", f"{COLUMNS}\n{','.join(map(str, LONGEST))}\n", [LONGEST]),
        ("pets.csv", PADDED, [(7, "Mia, the 2nd", None, "sold")]),
        (
            "pets.jsonl",
            lines(*({**MIA, "id": n, "name": name} for n, name in enumerate(NAMES, start=1))),
            [(n, name, None, "pending") for n, name in enumerate(NAMES, start=1)],
        ),
    ],
    ids=["columns left out", "the longest values", "blanks and a mark", "any language"],
)
def test_a_file_is_read_as_intended(take, store, name, content, pets):
    imported(take(content, name), len(pets), "pets")
    assert pets_of(store) == pets


# Replacement.


def test_a_pet_replaces_one_with_its_id_and_others_are_kept(take, store):
    first = f"{COLUMNS}\n1,Bello,3,available\n2,Mia,4,pending\n3,Rex,,sold\n"
    imported(take(first, "pets.csv"), 3, "pets")
    imported(take(f"{COLUMNS}\n2,Minka,,sold\n4,Kiki,5,available\n", "pets.csv"), 2, "pets")
    assert pets_of(store) == [
        (1, "Bello", 3, "available"),
        (2, "Minka", None, "sold"),
        (3, "Rex", None, "sold"),
        (4, "Kiki", 5, "available"),
    ]


@hypothesis_settings(max_examples=10)
@given(st.lists(st.lists(st.integers(1, 2_000), max_size=1_200), max_size=2))
def test_after_any_files_the_last_pet_of_each_id_remains(take, store, files):
    wanted = {pet_id: name for pet_id, name, *_ in pets_of(store)}
    for number, ids in enumerate(files):
        rows = "".join(f"{pet_id},{number} {line},sold\n" for line, pet_id in enumerate(ids))
        assert take(f"id,name,status\n{rows}", "pets.csv").exit_code == 0
        wanted |= {pet_id: f"{number} {line}" for line, pet_id in enumerate(ids)}
    assert {pet_id: name for pet_id, name, *_ in pets_of(store)} == wanted
