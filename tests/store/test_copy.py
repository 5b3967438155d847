"""`flask db copy`: a shop moves from SQLite to PostgreSQL, and everything is as it was."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from orders.files.rows import Faults
from orders.settings import Settings
from orders.store.database import sqlite
from orders.store.tables import METADATA
from tests.support.commands import command, messages, rejected, said
from tests.support.faults import overwrite
from tests.support.machine import wait_until
from tests.support.service import ROOT, environment_for
from tests.support.stores import Client, Store, assert_error

pytestmark = pytest.mark.postgres

LIST = "/v1/store/orders"
PAGES = "/v2/store/orders"
SECRET = "hunter2"  # pragma: allowlist secret
PATHS = (
    LIST,
    f"{LIST}/1",
    f"{LIST}/3",
    f"{LIST}/4",
    "/v1/pets/7",
    f"{PAGES}?limit=3",
    f"{PAGES}?sort=-placedAt&limit=200",
    f"{PAGES}?status=shipped&sort=shipDate",
    f"{PAGES}?reference=%E2%80%9CH%C3%B6hle%E2%80%9D%20%F0%9F%90%A2",
    f"{PAGES}?petId=7&sort=-shipDate",
    f"{PAGES}/2/events",
    "/v2/store/events?after=0&limit=200",
    "/v2/store/events?after=2&limit=2",
    "/v2/store/stats?days=30",
)


@pytest.fixture
def name(server):
    """Return the name of an empty database."""
    return server.create()


@pytest.fixture
def settings(tmp_path, server, name):
    """Return the settings of a shop in an SQLite file that is to be moved."""
    return Settings(instance=tmp_path / "instance", copy_to=server.url(name), ban_after=2)


@pytest.fixture
def move(make_store):
    """Move a shop as the README describes; return the shop started after the move."""
    moved = []

    def run(store):
        store.shop.end()
        done = command(store, "db", "copy")
        assert done.exit_code == 0, done.stderr
        moved.append(
            Store(replace(store.settings, database_url=store.settings.copy_to), store.clock)
        )
        moved[-1].shop.begin()
        return moved[-1]

    yield run
    for store in moved:
        store.shop.end()


@pytest.fixture
def busy(store, client):
    """Return the shop with orders of each kind, pets, a used Idempotency-Key and lost ids."""
    rows = [
        (2, {"petId": 7, "reference": "“Höhle” 🐢", "placedAt": "2025-02-28T23:59:59.999Z"}),
        (3, {"petId": 8, "status": "shipped", "shipDate": "1999-12-31T00:00:00+01:00"}),
        (4, {"petId": 7, "status": "cancelled", "reference": '\\N \\. "'}),
    ]
    store.shop.orders.import_orders(rows, Faults())
    store.shop.orders.import_pets([(2, {"id": 7, "name": "Ru\\x", "status": "sold"})], Faults())
    for pet in range(1, 6):
        store.clock.advance(30_000)
        placed = client.place(pet, quantity=pet, headers={"Idempotency-Key": f"B{pet}"})
        assert placed.status_code == 201
    client.ship(5, shipDate="2026-12-24T08:00:00.123Z")
    client.ship(6)
    client.cancel(7)
    # The newest orders and keys were lost once, but not their ids.
    store.execute("UPDATE sqlite_sequence SET seq = seq + 50 WHERE name = 'orders'")
    store.execute("UPDATE sqlite_sequence SET seq = seq + 5 WHERE name = 'api_keys'")
    return store


def same(client, store):
    """Return a client with the same key, of another store."""
    return Client(store, client.key_id, client.secret)


def elsewhere(store, url):
    """Return the same shop, to be moved to another database."""
    return Store(replace(store.settings, copy_to=url), store.clock)


def refusal(store, url=None):
    """Check that the move fails; return the one line that says why."""
    # A store that does not exist was never served.
    if store.settings.database_path.exists():
        store.shop.end()
    message = rejected(store if url is None else elsewhere(store, url), "db", "copy")
    assert SECRET not in message
    return message


def begun(store, **options):
    """Begin the move in a process of its own."""
    environment = environment_for(store.settings.instance, ORDERS_COPY_TO=store.settings.copy_to)
    return subprocess.Popen(
        [sys.executable, "-m", "flask", "db", "copy"],
        cwd=ROOT,
        env=environment,
        # What runs the tests may ignore Ctrl-C, as a shell has it of what is in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options),
    )


def tables(server, name):
    """Return the names of a database's tables."""
    return server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)


# What stays the same.


def test_clients_get_the_same_answers_byte_for_byte_and_ids_continue(busy, client, move):
    def answers(client):
        for path in (*PATHS, rest):
            answer = client.get(path)
            headers = [answer.headers.get(name) for name in ("ETag", "Link", "Content-Type")]
            # The service makes no backups of a server.
            yield answer.status_code, re.sub(rb',"backups":[{][^}]*[}]', b"", answer.data), headers

    cursor = client.get(f"{PAGES}?limit=3&sort=-placedAt").get_json()["next"]
    rest = f"{PAGES}?limit=200&sort=-placedAt&after={cursor}"
    before = list(answers(client))
    assert {status for status, *_ in before} == {200, 404}
    tag = {"If-None-Match": client.get(LIST).headers["ETag"]}
    last_event = busy.events()[-1]["id"]
    after = move(busy)
    client = same(client, after)
    assert list(answers(client)) == before
    said(after, "db", "check")
    answer = client.get(LIST, headers=tag)
    assert (answer.status_code, answer.data) == (304, b"")
    # 8 orders were imported and placed, and 50 were lost.
    assert client.place().get_json()["id"] == 59
    assert after.events()[-1]["id"] == last_event + 1
    assert after.issue()[0] == client.key_id + 6
    assert client.get(LIST, headers=tag).status_code == 200


def test_a_retry_after_the_move_replays_the_first_answer(store, client, move):
    # Keys whose sort order differs between languages.
    first = {
        key: client.place(7, headers={"Idempotency-Key": key}).data
        for key in ("b-1", "B-1", "_b", "a1", "A-1", "a-1", "ab", "a.b")
    }
    client = same(client, move(store))
    for key, body in first.items():
        again = client.place(7, headers={"Idempotency-Key": key})
        assert (again.status_code, again.data) == (201, body)
        assert again.headers["Idempotent-Replayed"] == "true"
    other = client.place(8, headers={"Idempotency-Key": "ab"})
    assert_error(other, 422, "idempotency_key_reused")


def test_the_schema_is_that_of_a_database_made_by_a_start(busy, move, server, name):
    move(busy)

    def schema(database):
        dump = [server.bin / "pg_dump", "--schema-only", "--no-comments", server.conninfo(database)]
        done = subprocess.run(dump, check=True, capture_output=True, text=True, timeout=60)
        return sorted(line for line in done.stdout.splitlines() if "restrict" not in line)

    assert schema(name) == schema(server.create_store())
    triggers = "SELECT tgname FROM pg_trigger WHERE tgenabled <> 'O' AND NOT tgisinternal"
    assert server.execute(triggers, name) == []
    analyzed = "SELECT relname FROM pg_class JOIN pg_stats ON tablename = relname GROUP BY 1"
    assert ("orders",) in server.execute(analyzed, name)


def test_a_shop_without_orders_moves_into_a_database_with_empty_tables(store, move, server):
    after = move(elsewhere(store, server.url(server.create_store())))
    assert after.client().get(LIST).get_json() == []
    assert after.shop.store_id == store.shop.store_id
    (act,) = json.loads(command(after, "audit", "--json").stdout)
    assert (act["action"], act["subject"].startswith("to postgresql")) == ("store.copied", True)


# Reports.


def test_test_mode_is_not_copied_and_starts_empty(store, move, server, name):
    tested = store.test_client()
    assert tested.place().status_code == 201
    store.app.test_mode.stop()
    moved = move(store)
    assert server.execute("SELECT to_regnamespace('test')", name) == [(None,)]
    assert_error(same(tested, moved).get(LIST), 401, "invalid_api_key")
    assert moved.test_client().place().get_json()["id"] == 1
    moved.app.test_mode.stop()


def test_the_summary_has_the_rows_of_each_table_and_the_next_steps(busy):
    busy.shop.end()
    done = command(busy, "db", "copy")
    counted = dict(line.split() for line in done.stdout.splitlines()[1:])
    assert set(counted) == set(METADATA.tables)
    assert (counted["orders"], counted["order_events"]) == ("8", "11")
    copied, then, keep = messages(done).splitlines()
    assert re.fullmatch(
        r"Copied \d+ rows to postgresql\S+ and compared each, in [\d.]+ s\.", copied
    )
    assert "set ORDERS_DATABASE_URL" in then
    assert str(busy.database.path) in keep


def test_the_old_file_is_not_served_until_it_is_restored(store, client, move, forks):
    client.place()
    tag = client.get(LIST).headers["ETag"]
    move(store)
    for arguments in (["db", "check"], ["keys", "list"], ["db", "copy"]):
        message = rejected(store, *arguments)
        assert "moved to PostgreSQL" in message
        assert "ORDERS_DATABASE_URL" in message
    start = forks.run("app.py", instance=store.settings.instance)
    assert start.returncode != 0
    assert "moved to PostgreSQL" in start.stderr
    assert command(store, "db", "restore", store.database.path).exit_code == 0
    back = Store(store.settings, store.clock)
    # What happened to keys and ids on the server is not known here.
    assert_error(same(client, back).get(LIST), 401, "invalid_api_key")
    new = back.client()
    answer = new.get(LIST, headers={"If-None-Match": tag})
    assert (answer.status_code, len(answer.get_json())) == (200, 1)
    assert new.place().get_json()["id"] > 1_000_000
    back.shop.end()


# Rejections.


def test_a_shop_that_is_served_is_not_copied(store, start, server, name):
    store.shop.end()
    start(ORDERS_COPY_TO=server.url(name))  # which is of no concern to a service
    assert "Stop it first" in refusal(store)
    assert tables(server, name) == []


def test_a_file_that_another_program_writes_is_not_copied(store, server, name, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    with store.locked():
        assert "locked by another program" in refusal(store)
    assert tables(server, name) == []


def test_the_file_is_locked_while_it_is_copied(store, server, name, monkeypatch):
    # The copy waits for the server's lock, and has the file's.
    store.shop.end()
    with server.locked(name), begun(store) as process:
        wait_until(lambda: server.waiting_writers(name))
        monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
        late = Store(store.settings, store.clock)
        assert "locked by another program" in rejected(late, "keys", "issue", "x", "--plan", "pro")
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def roles(server):
    """Make a user that can create no tables, and one that needs a password."""
    server.execute("CREATE ROLE guest LOGIN")
    server.execute("CREATE ROLE careful LOGIN PASSWORD 'right'")
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"local all careful scram-sha-256\n{rules.read_text()}")
    server.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "ORDERS_COPY_TO is not set"),
        ("postgresql+psycopg://me:{secret}@127.0.0.1:1/orders", "can't be reached"),
        ("postgresql+psycopg://careful:{secret}@/{name}?host={folder}", "authentication failed"),
        ("postgresql+psycopg://guest:{secret}@/{name}?host={folder}", "rejects this user"),
        ("postgresql+psycopg://postgres@/nowhere?host={folder}", "does not exist"),
    ],
)
@pytest.mark.usefixtures("roles")
def test_a_target_that_cannot_be_used_is_rejected(store, server, name, url, words):
    assert words in refusal(store, url.format(secret=SECRET, name=name, folder=server.folder))


@pytest.fixture
def other(settings, clock, server):
    """Return another shop, whose database is on the server."""
    url = server.url(server.create_store())
    store = Store(replace(settings, copy_to="", database_url=url), clock)
    yield store
    store.shop.database.close()


def test_a_database_with_another_shop_is_left_as_it_is(store, other):
    other.client().place(9)
    before = other.rows("SELECT * FROM orders JOIN store ON true")
    assert "already has data" in refusal(store, other.settings.database_url)
    assert other.rows("SELECT * FROM orders JOIN store ON true") == before


def test_a_database_that_a_service_uses_is_rejected(store, other):
    with other.shop.upkeep.acquire(alone=True):
        assert "A service uses" in refusal(store, other.settings.database_url)


def test_a_database_with_this_shop_is_recognised(store, client, move):
    client.place()
    move(store)
    with closing(sqlite.connect(store.database.path)) as connection:
        # As if the mark had not reached the disk.
        connection.execute("PRAGMA application_id = 0x534F7264")
    assert "already has this shop" in refusal(Store(store.settings, store.clock))


def test_a_database_with_foreign_tables_is_left_as_it_is(store, server, name):
    server.execute("CREATE TABLE letters (id int)", name)
    assert "not this program's" in refusal(store)
    assert tables(server, name) == [("letters",)]


def test_a_shop_that_is_on_postgresql_or_missing_is_not_copied(settings, clock, server, name):
    moved = replace(settings, database_url=server.url(name))
    assert "already" in refusal(Store(moved, clock))
    assert "orders.db" in refusal(Store(settings, clock))
    assert not settings.database_path.exists()


def test_a_damaged_file_is_not_copied(busy, server, name):
    busy.shop.end()
    overwrite(busy.database.path, 3, b"x" * 3_808)
    assert "damaged" in refusal(busy)
    assert tables(server, name) == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE pets SET name = 'a' || char(0)", "pets, id 7: "),
        ("UPDATE orders SET placed_at = 'long ago' WHERE id = 3", "orders, line 3, column placed_"),
        ("INSERT INTO webhook_refused VALUES (9, 1, 1, '2026-12-01T12:00:00.000Z')", "refused"),
    ],
)
def test_a_row_that_postgresql_rejects_is_named_without_its_values(busy, damage, words):
    busy.shop.end()
    with closing(sqlite.connect(busy.database.path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(damage)
    message = refusal(busy)
    assert "PostgreSQL rejects a row" in message
    assert words in message
    assert "long ago" not in message


# Findings of the comparison.


@pytest.mark.parametrize(
    ("table", "body", "words"),
    [
        ("orders", "NEW.quantity = NEW.quantity + (NEW.id = 6)::int;", "id 6, differs in quantity"),
        (
            "order_events",
            "NEW.at = NEW.at + (NEW.id = 5)::int * interval '1 ms';",
            "id 5, differs in at",
        ),
        ("pets", "IF NEW.id = 7 THEN RETURN NULL; END IF;", "id 7, is missing"),
        (
            "idempotency_keys",
            "NEW.value = lower(NEW.value);",
            "key_id 1, version 1, value B3, is missing",
        ),
        (
            "api_keys",
            "NEW.secret_hash = sha256(NEW.secret_hash);",
            "id 1, differs in secret_hash",
        ),
        (
            "pets",
            "IF NEW.id = 7 THEN INSERT INTO pets VALUES (1, 'of nobody', NULL, 'sold'); END IF;",
            "id 1, should not be there",
        ),
    ],
)
def test_a_row_that_differs_is_named_and_nothing_is_kept(busy, server, table, body, words):
    name = server.create_store()
    server.add_trigger(name, f"{body} RETURN NEW;", table)
    assert f"{table}, {words}" in refusal(busy, server.url(name))
    for each in METADATA.tables:
        count = 1 if each in {"store", "order_quarters"} else 0
        assert server.execute(f"SELECT count(*) FROM {each}", name) == [(count,)], each
    assert server.execute("SELECT last_value, is_called FROM orders_id_seq", name) == [(1, False)]


# Interruptions.


@pytest.fixture
def slow(server):
    """Return the name of a database that takes its time for each order."""
    name = server.create_store()
    server.add_trigger(name, "PERFORM pg_sleep(0.05); RETURN NEW;")
    return name


@pytest.mark.parametrize("number", ["SIGKILL", "SIGINT"])
def test_a_move_that_is_killed_leaves_nothing_behind_and_can_be_retried(
    store, move, server, slow, number
):
    client = store.client()
    for pet in range(1, 100):
        assert client.place(pet).status_code == 201
    store.shop.end()
    store = elsewhere(store, server.url(slow))
    with begun(store) as process:
        wait_until(lambda: server.is_being_written(slow))
        process.send_signal(signal.Signals[number])
        process.communicate(timeout=30)
    assert process.returncode != 0
    # The server notices it at the next row that does not come.
    wait_until(lambda: not server.is_being_written(slow))
    for table in ("orders", "order_events", "api_keys"):
        assert server.execute(f"SELECT count(*) FROM {table}", slow) == [(0,)]
    server.execute("DROP TRIGGER meddle ON orders", slow)
    assert len(same(client, move(store)).get(LIST).get_json()) == 99


def test_a_server_that_goes_away_meanwhile_is_reported(store, client, server, slow):
    for pet in range(1, 200):
        assert client.place(pet).status_code == 201

    def cut():
        wait_until(lambda: server.is_being_written(slow))
        server.end_connections(slow)

    cutting = threading.Thread(target=cut)
    cutting.start()
    assert "can't be reached, or closed the connection" in refusal(store, server.url(slow))
    cutting.join()
    assert server.execute("SELECT count(*) FROM orders", slow) == [(0,)]


def test_more_rows_than_fit_in_a_batch_are_copied(store, client, move):
    rows = ((line, {"petId": 1 + line % 50}) for line in range(2, 6_503))
    store.shop.orders.import_orders(rows, Faults())
    before = client.get(LIST).get_json()
    assert len(before) == 6_501
    assert same(client, move(store)).get(LIST).get_json() == before
