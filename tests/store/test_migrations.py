"""The schema: how it is created and migrated, and what happens to data on the way."""

from __future__ import annotations

import os
import re
import shutil
import signal
from contextlib import closing
from pathlib import Path
from stat import S_IMODE

import pytest

from orders.store.care import checks, opening
from orders.store.database import sqlite
from orders.store.tables import METADATA
from tests.support.commands import names_in, rejected, said
from tests.support.databases import copy_database
from tests.support.migrations import ADD_A_COLUMN
from tests.support.orders import sql_copy

pytestmark = [
    pytest.mark.sqlite_only(
        "the schema's history, which no PostgreSQL has seen, and copies of files"
    ),
    pytest.mark.filterwarnings("ignore:.*expression-based index"),
]

NOW = checks.schema_version()
NEXT = NOW + 1


@pytest.fixture
def path(tmp_path, empty_database):
    """A new database."""
    path = tmp_path / "orders.db"
    copy_database(empty_database, path)
    return path


def asked(path, *statements):
    """Return the rows of the last of some statements."""
    with closing(sqlite.connect(path)) as connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


def versions(path):
    """Return the number in the file's first page, and the one that Alembic keeps."""
    ((number,),) = asked(path, "PRAGMA user_version")
    ((revision,),) = asked(path, "SELECT version_num FROM alembic_version")
    return number, revision


def dump(path):
    """Return the contents of a database: its schema, its data, the numbers in its first page."""
    return (
        asked(path, "SELECT * FROM pragma_application_id, pragma_user_version"),
        asked(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"),
        data(path),
    )


# The first schema's columns, fixed for good, whatever later migrations change.
AN_ORDER = "pet_id, quantity, ship_date, status, placed_at, updated_at, reference"
FIRST_COLUMNS = {
    # Names of columns, in which detect-secrets sees a secret.
    "api_keys": "id, name, prefix, secret_hash, previous_hash, "  # pragma: allowlist secret
    "previous_until, plan, per_minute, "
    "per_day, plan_revision, scopes, created_at, last_used_at, expires_at, revoked_at, "
    "banned_until",
    "orders": f"id, {AN_ORDER}",
    "order_events": f"id, type, order_id, at, actor, request_id, {AN_ORDER}",
    "idempotency_keys": "key_id, version, value, event_id, at, request, answer",
    "pets": "id, name, category_id, status",
}
TABLES = (*FIRST_COLUMNS, "store")


def first_rows():
    """Return rows that the tables of the first schema can hold, up to the most they can hold."""
    early, late = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"
    times = (early, None, late, None, late)
    secrets = (b"\x00" * 32, b"\xff" * 32, late)
    orders = [
        (1, 7, 2, early, "shipped", early, late, 'R-1, "Höhle" 🐢'),
        (2, 2**63 - 1, 2**31 - 1, None, "pending", late, late, None),
        (2**53 - 1, 1, 1, late, "cancelled", early, early, " "),
    ]
    events = [
        ("order.placed", 0, "key:5", "f" * 32),
        ("order.shipped", 0, "key:5", "0" * 32),
        ("order.imported", 1, "cli", None),
        ("order.cancelled", 2, "key:5", "1" * 32),
    ]
    return {
        "api_keys": [
            (5, "Zoo", "sok_abcd", *secrets, "pro", 1, 2**31 - 1, 9, "read,write", *times)
        ],
        "orders": orders,
        "order_events": [
            (n, kind, orders[which][0], early, actor, request_id, *orders[which][1:])
            for n, (kind, which, actor, request_id) in enumerate(events, start=1)
        ],
        "idempotency_keys": [(5, 1, "a key!", 1, early, "0" * 64, "{}")],
        "pets": [(1, "Bello", 3, "available"), (2**63 - 1, "Мурка", None, "sold")],
    }


def filled(path):
    """Fill a new database; return its path."""
    with closing(sqlite.connect(path)) as connection:
        fill(connection)
    return path


def fill(connection):
    connection.execute("BEGIN")
    for table, rows in first_rows().items():
        marks = ", ".join("?" for _ in rows[0])
        statement = f"INSERT INTO {table} ({FIRST_COLUMNS[table]}) VALUES ({marks})"
        connection.executemany(statement, rows)
    connection.execute("UPDATE store SET demo_key_id = 5")
    connection.execute("COMMIT")


def data(path):
    """Return all rows of the first schema's tables as dictionaries, and the last ids assigned."""
    everything = {"given": dict(asked(path, "SELECT name, seq FROM sqlite_sequence"))}
    with closing(sqlite.connect(path)) as connection:
        for table in TABLES:
            cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            everything[table] = [dict(zip(names, row, strict=True)) for row in rows]
    return everything


def assert_kept(before, after):
    """Check that all rows are there as they were; columns may have come since."""
    assert after["given"] == {**before["given"], "audit_trail": 1}
    for table in TABLES:
        assert len(before[table]) == len(after[table])
        for old, new in zip(before[table], after[table], strict=True):
            assert new | old == new, table


# The first schema, and the tables that the program expects.


FIRST = Path(__file__).with_name("schema_0100.sql")


@pytest.fixture
def first_store(tmp_path):
    """A store that version 1.0.0 made."""
    path = tmp_path / "first.db"
    with closing(sqlite.connect(path, create=True)) as connection:
        connection.executescript(FIRST.read_text(encoding="utf-8"))
        connection.executescript(
            "INSERT INTO alembic_version VALUES ('0100');"
            "INSERT INTO order_quarters VALUES (-1, 0, 0, 0);"
            "INSERT INTO store (id, store_id) VALUES (1, '0123456789abcdef');"
            f"PRAGMA application_id = {checks.APPLICATION_ID}; PRAGMA user_version = 100;"
        )
    return path


def made_of(path):
    """Return the parts of a schema: each index and trigger, and each part of a table."""
    parts = set()
    for kind, name, sql in asked(path, "SELECT type, name, sql FROM sqlite_schema"):
        text = " ".join((sql or "").split())
        body = re.fullmatch(r"CREATE TABLE \w+ \((.*?)\)( WITHOUT ROWID)?", text)
        # Commas in brackets separate no columns.
        columns = re.split(r", ?(?![^()]*\))", body[1]) if body else [text]
        parts |= {f"{kind} {name}: {each.strip()}" for each in columns}
    return parts


def test_migrated_first_stores_have_the_schema_of_new_ones(first_store, path):
    opening.upgrade(first_store, keep_copy=False)
    checks.check_whole(first_store)
    upgraded, new = made_of(first_store), made_of(path)
    assert len(new) > 100
    assert new == upgraded, (
        "orders/store/tables.py and upgraded stores differ, for lack of (a part of) a migration in "
        f"orders/store/care/migrations/versions: {sorted(new ^ upgraded)}"
    )


def test_a_partial_index_is_partial_on_each_database():
    indexes = [index for table in METADATA.tables.values() for index in table.indexes]
    conditions = {
        each.name: [each.dialect_options[name]["where"] for name in ("sqlite", "postgresql")]
        for each in indexes
    }
    assert any(one is not None for one, _ in conditions.values())
    assert [name for name, (one, other) in conditions.items() if one is not other] == []


def test_a_new_database_is_empty_for_its_owner_only_and_has_an_id_of_its_own(tmp_path):
    path, other = tmp_path / "orders.db", tmp_path / "other.db"
    before = os.umask(0)
    try:
        opening.create(path)
    finally:
        os.umask(before)
    assert S_IMODE(path.stat().st_mode) == 0o600
    assert names_in(tmp_path) == {"orders.db"}
    opening.create(other)
    ids = [asked(each, "SELECT id, store_id FROM store") for each in (path, other)]
    assert ids[0] != ids[1]
    for ((row_id, store_id),) in ids:
        assert row_id == 1
        assert len(store_id) == 16
    assert versions(path) == (NOW, f"{NOW:04}")
    for table in set(TABLES) - {"store"}:
        assert asked(path, f"SELECT count(*) FROM {table}") == [(0,)]


BAD_ROWS = {
    "a status that there is not": "UPDATE orders SET status = 'lost' WHERE id = 1",
    "no units": "UPDATE orders SET quantity = 0 WHERE id = 1",
    "too many units": "UPDATE orders SET quantity = 2147483648 WHERE id = 1",
    "no pet": "UPDATE orders SET pet_id = 0 WHERE id = 1",
    "shipped at no time": "UPDATE orders SET ship_date = NULL WHERE id = 1",
    "an order without its events": "DELETE FROM orders WHERE id = 1",
    "a key that is referred to": "DELETE FROM api_keys WHERE id = 5",
    "a secret twice": sql_copy("api_keys", 5, id="6", previous_hash="NULL"),
    "an unknown kind of event": sql_copy("order_events", 1, id="9", type="'order.lost'"),
    "an event of no order": sql_copy("order_events", 1, id="9", order_id="99"),
    "a pet in another state": "UPDATE pets SET status = 'shipped'",
}


@pytest.mark.parametrize("statement", BAD_ROWS.values(), ids=BAD_ROWS)
def test_the_database_itself_refuses(path, statement):
    before = data(filled(path))
    with pytest.raises(sqlite.sqlite_module().IntegrityError):
        asked(path, statement)
    assert data(path) == before


CHANGES = {
    "an update": "UPDATE order_events SET actor = 'key:9' WHERE id = 2",
    "an update of all": "UPDATE order_events SET quantity = quantity + 1",
    "an update of nothing": "UPDATE order_events SET id = id",
    "a removal": "DELETE FROM order_events WHERE id = 2",
    "a removal of all": "DELETE FROM order_events",
    "a replacement": sql_copy("order_events", 2, verb="REPLACE", actor="'key:9'"),
    "an upsert": sql_copy("order_events", 2) + " ON CONFLICT DO UPDATE SET actor = 'key:9'",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES)
def test_the_event_log_is_never_changed(path, statement):
    before = data(filled(path))
    with pytest.raises(sqlite.sqlite_module().IntegrityError, match="event log is never changed"):
        asked(path, statement)
    assert data(path) == before


# From this schema to the next.


def test_data_survives_an_upgrade(next_program, path):
    before, dumped = data(filled(path)), dump(path)
    assert next_program() == NEXT
    kept = opening.upgrade(path)
    assert versions(path) == (NEXT, f"{NEXT:04}")
    checks.check(path)
    checks.check_whole(path)
    assert asked(path, "PRAGMA foreign_key_check") == []
    assert_kept(before, data(path))
    upgraded = ("store.upgraded", f"from schema {NOW} to {NEXT}")
    assert asked(path, "SELECT action, subject FROM audit_trail") == [upgraded]
    assert asked(path, "SELECT DISTINCT colour FROM orders") == [(None,)]
    assert dump(kept) == dumped


# `flask db upgrade` and the other commands.


@pytest.fixture
def old_store(store, next_program):
    """A store, with orders, that the version before the present one made."""
    filled(store.database.path)
    store.database.close()
    next_program()
    return store


def test_an_upgrade_keeps_the_data_and_a_checked_copy_for_its_owner(old_store):
    path = old_store.database.path
    before, rows = dump(path), data(path)
    kept = path.with_name(f"orders-before-{NEXT:04}.db")
    assert said(old_store, "db", "upgrade") == (f"Upgraded. The database as it was is in {kept}.\n")
    assert_kept(rows, data(path))
    orders = old_store.client().get("/v1/store/orders").get_json()
    assert [order["id"] for order in orders] == [1, 2]
    assert dump(kept) == before
    assert S_IMODE(kept.stat().st_mode) == 0o600
    assert asked(kept, "PRAGMA integrity_check") == [("ok",)]


def test_the_copy_of_an_earlier_upgrade_is_kept_but_not_one_of_the_same(old_store):
    path = old_store.database.path
    first = path.with_name(f"orders-before-{NEXT:04}.db")
    first.write_text("of a store that was restored since")
    second = first.with_name(f"orders-before-{NEXT:04}-2.db")
    old_store.database.close()
    before = path.read_bytes()
    for _ in range(2):  # as after an upgrade that failed, which supervisors start again and again
        path.write_bytes(before)
        assert str(second) in said(old_store, "db", "upgrade")
        old_store.database.close()
    assert first.read_text() == "of a store that was restored since"
    assert set(path.parent.glob("orders-before-*")) == {first, second}


def test_a_database_that_is_up_to_date_is_left_alone(store):
    path = store.database.path
    before = dump(path)
    assert said(store, "db", "upgrade") == "It is up to date.\n"
    assert dump(path) == before
    assert list(path.parent.glob("orders-before-*")) == []


EVERY_COMMAND = [
    ("orders", "export"),
    ("orders", "import", "some.csv"),
    ("pets", "import", "pets.csv"),
    ("keys", "issue", "shop", "--plan", "free"),
    ("keys", "list"),
    ("keys", "revoke", "5"),
    ("keys", "rotate", "5"),
    ("db", "check"),
    ("db", "backup", "copy.db"),
]


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """A folder that is the current one, with files to import."""
    monkeypatch.chdir(tmp_path)
    Path("some.csv").write_text("petId\n7\n")
    Path("pets.csv").write_text("id,name,status\n7,Mia,sold\n")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, ["older version", "store-orders db upgrade"]),
        (9998, ["newer version", "9998", "Start that version"]),
        (13, ["before version 1.0.0", "flask orders export orders.csv", "import them into a new"]),
    ],
)
def test_a_database_of_another_version_is_rejected_with_what_to_do(
    old_store, in_folder, version, words
):
    commands = EVERY_COMMAND
    if version:
        asked(old_store.database.path, f"PRAGMA user_version = {version}")
        shutil.copy(old_store.database.path, "backup.db")
        commands = [*EVERY_COMMAND, ("db", "upgrade"), ("db", "restore", "backup.db")]
    before = dump(old_store.database.path)
    for arguments in commands:
        message = rejected(old_store, *arguments)
        assert [each for each in words if each not in message] == [], arguments
    assert dump(old_store.database.path) == before
    assert not Path("copy.db").exists()


def test_a_damaged_database_is_not_upgraded(old_store):
    path = old_store.database.path
    old_store.database.close()
    whole = bytearray(path.read_bytes())
    whole[4096 * 2 : 4096 * 3] = b"\xff" * 4096
    path.write_bytes(whole)
    assert "damaged" in rejected(old_store, "db", "upgrade")
    assert path.read_bytes() == whole
    assert list(path.parent.glob("orders-before-*")) == []


# Interrupted migrations.

NO_UNITS = 'op.execute("UPDATE orders SET quantity = 0")'
WRITE_MUCH = 'op.execute("UPDATE pets SET name = hex(zeroblob(4000000))")\n'


def kill_meanwhile(next_program, path, forks):
    # Enough writes that SQLite has to put some on the disk before the end.
    next_program(ADD_A_COLUMN + WRITE_MUCH + "os.kill(os.getpid(), signal.SIGKILL)")
    first = (
        "import pathlib; from orders.store.care import checks; "
        f"checks.MIGRATIONS = pathlib.Path({str(checks.MIGRATIONS)!r})"
    )
    done = forks.run("flask", "db", "upgrade", instance=path.parent, first=first)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.with_name("orders.db-wal").stat().st_size > 2**20


def fail_with(upgrade, cause):
    def fail(next_program, path, forks):
        next_program(ADD_A_COLUMN + upgrade)
        with pytest.raises(Exception, match=cause):
            opening.upgrade(path)

    return fail


@pytest.mark.parametrize(
    "break_off",
    [
        fail_with("raise RuntimeError('one day')", "one day"),
        fail_with(NO_UNITS, "orders_quantity"),
        fail_with('op.execute("DELETE FROM orders WHERE id = 1")', "(?i)foreign key"),
        fail_with("op.drop_table('missing')", "no such table: missing"),
        kill_meanwhile,
    ],
    ids=["raises", "violates a check", "violates a foreign key", "fails", "is killed"],
)
def test_an_interrupted_upgrade_leaves_the_database_as_it_was(next_program, path, forks, break_off):
    before = dump(filled(path))
    break_off(next_program, path, forks)
    assert dump(path) == before
    checks.check_whole(path)
    # Once fixed, it runs from the beginning, with a copy of the same database.
    next_program(ADD_A_COLUMN)
    assert dump(opening.upgrade(path)) == before
    assert versions(path) == (NEXT, f"{NEXT:04}")


def test_the_command_reports_an_interrupted_migration_in_one_line(next_program, store):
    before = dump(filled(store.database.path))
    next_program(NO_UNITS)
    assert "orders_quantity" in rejected(store, "db", "upgrade")
    assert dump(store.database.path) == before


def test_an_interrupted_creation_leaves_no_database(tmp_path, monkeypatch):
    path = tmp_path / "orders.db"
    with monkeypatch.context() as patch:
        patch.setattr(opening, "make_tables", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            opening.create(path)
    assert names_in(tmp_path) == set()
    opening.create(path)
    assert names_in(tmp_path) == {"orders.db"}
