"""`flask db copy`: a shop moves from SQLite to PostgreSQL, and all is as it was."""

from __future__ import annotations

import gzip
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from orders.files.faults import Faults
from orders.settings import Settings
from orders.store.database import sqlite
from orders.store.tables import Base
from tests.support.clocks import SetClock
from tests.support.databases import copy_database
from tests.support.receiver import answer_with, receiving
from tests.support.service import ROOT, environment_for, run_app, run_flask
from tests.support.stores import Client, Store, assert_error
from tests.support.webhooks import Hooks

pytestmark = pytest.mark.postgres

LIST = "/v1/store/orders"
PAGES = "/v2/store/orders"
SECRET = "hunter2"  # pragma: allowlist secret
# Whoever wrote down a tag, a cursor or an address goes on with it.
ASKED = (
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
    """The name of a database in which there is nothing."""
    made = server.create()
    yield made
    server.drop(made)


@pytest.fixture
def store(tmp_path, empty_database, server, name):
    """A shop in an SQLite file, that knows where it is to go."""
    instance = tmp_path / "instance"
    instance.mkdir(mode=0o700)
    settings = Settings(instance=instance, copy_to=server.url(name), ban_after=2)
    copy_database(empty_database, settings.database_path)
    made = Store(settings, SetClock())
    yield made
    made.services.limits.storage.close()
    made.services.database.close()


@pytest.fixture
def patient(store):
    return store.client(plan="enterprise", per_minute=10**9, per_day=10**9)


def live(store, client):
    """Let the shop have lived: orders of each kind, pets, lost ids."""
    rows = [
        (2, {"petId": 7, "reference": "“Höhle” 🐢", "placedAt": "2025-02-28T23:59:59.999Z"}),
        (3, {"petId": 8, "status": "shipped", "shipDate": "1999-12-31T00:00:00+01:00"}),
        (4, {"petId": 7, "status": "cancelled", "reference": '\\N \\. "\t'.strip()}),
    ]
    store.services.orders.import_orders(rows, Faults())
    store.services.orders.import_pets([(2, {"id": 7, "name": "Ru\\x", "status": "sold"})], Faults())
    for pet in range(1, 6):
        store.clock.advance(30_000)
        assert client.place(pet, quantity=pet).status_code == 201
    client.ship(5, shipDate="2026-12-24T08:00:00.123Z")
    client.ship(6)
    client.cancel(7)
    # The newest orders were lost once; their ids were given.
    store.execute("UPDATE sqlite_sequence SET seq = seq + 50 WHERE name = 'orders'")


def command(store, *arguments):
    return store.app.test_cli_runner().invoke(args=list(map(str, arguments)))


def moved(store):
    """Move the shop as its README says; return it as it is started then."""
    store.services.end()
    done = command(store, "db", "copy")
    assert done.exit_code == 0, done.stderr
    after = Store(replace(store.settings, database_url=store.settings.copy_to), store.clock)
    after.services.begin()
    return after


def known_to(client, after):
    """Return a client with the same key, of the shop as it is after the move."""
    return Client(after, client.key_id, client.secret)


def answers(client):
    """Return all that a client may compare of some answers."""
    given = {}
    for path in ASKED:
        answer = client.get(path)
        kept = {name: answer.headers.get(name) for name in ("ETag", "Link", "Content-Type")}
        given[path] = answer.status_code, answer.data, kept
    return given


def refused(store, target=None):
    """Have the move refused; return the one line that says why."""
    if target is not None:
        store = Store(replace(store.settings, copy_to=target), store.clock)
    store.services.end()
    done = command(store, "db", "copy")
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(r"Error: [^\n]+\.\n", done.stderr), done.stderr
    assert SECRET not in done.stderr
    return done.stderr


def tables(server, name):
    """Return the names of the tables that a database has."""
    return server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)


# What is the same.


def test_the_same_questions_get_the_same_answers_byte_for_byte(store, patient):
    live(store, patient)
    before = answers(patient)
    assert {status for status, *_ in before.values()} == {200, 404}
    after = moved(store)
    assert answers(known_to(patient, after)) == before
    assert command(after, "db", "check").exit_code == 0
    after.services.end()


def test_a_list_that_a_client_remembers_is_still_good(store, patient):
    live(store, patient)
    tag = patient.get(LIST).headers["ETag"]
    page = patient.get(f"{PAGES}?limit=3&sort=-placedAt").get_json()
    rest = f"{PAGES}?limit=200&sort=-placedAt&after={page['next']}"
    expected = patient.get(rest).data
    client = known_to(patient, moved(store))
    answer = client.get(LIST, headers={"If-None-Match": tag})
    assert (answer.status_code, answer.data) == (304, b"")
    assert client.get(rest).data == expected
    assert client.place().status_code == 201
    assert client.get(LIST, headers={"If-None-Match": tag}).status_code == 200
    client.store.services.end()


def test_ids_go_on_above_all_that_were_given(store, patient):
    live(store, patient)
    last_key, _ = store.issue()
    store.execute("UPDATE sqlite_sequence SET seq = seq + 5 WHERE name = 'api_keys'")
    last_event = store.events()[-1]["id"]
    client = known_to(patient, moved(store))
    # 8 orders were imported and placed, and 50 were lost.
    assert client.place().get_json()["id"] == 59
    assert client.store.events()[-1]["id"] == last_event + 1
    assert client.store.issue()[0] == last_key + 6
    client.store.services.end()


def test_keys_are_what_they_were(store, patient):
    reader, revoked = store.client(scopes=["read"]), store.client()
    banned = store.client(plan="enterprise", per_minute=1, per_day=1_000)
    assert command(store, "keys", "revoke", revoked.key_id).exit_code == 0
    assert [banned.get(LIST).status_code for _ in range(3)] == [200, 429, 429]
    assert_error(banned.get(LIST), 429, "api_key_banned")
    after = moved(store)
    assert known_to(reader, after).get(LIST).status_code == 200
    assert_error(known_to(reader, after).place(), 403, "insufficient_scope")
    assert_error(known_to(revoked, after).get(LIST), 401, "invalid_api_key")
    store.clock.advance(100)
    assert_error(known_to(banned, after).get(LIST), 429, "api_key_banned")
    assert command(after, "keys", "unban", banned.key_id).exit_code == 0
    store.clock.advance(1)
    assert known_to(banned, after).get(LIST).status_code == 200
    after.services.end()


def test_a_retry_after_the_move_gives_the_first_answer_again(store, patient):
    # Keys that no two languages sort alike.
    first = {
        key: patient.place(7, headers={"Idempotency-Key": key}).data
        for key in ("b-1", "B-1", "_b", "a1", "A-1", "a-1", "ab", "a.b")
    }
    client = known_to(patient, moved(store))
    for key, body in first.items():
        again = client.place(7, headers={"Idempotency-Key": key})
        assert (again.status_code, again.data) == (201, body)
        assert again.headers["Idempotent-Replayed"] == "true"
    other = client.place(8, headers={"Idempotency-Key": "ab"})
    assert_error(other, 422, "idempotency_key_reused")
    client.store.services.end()


def test_a_webhook_goes_on_where_it_was(store, patient):
    with receiving() as receiver:
        hooks = Hooks(store)
        hooks.add(receiver.url)
        patient.place()
        hooks.deliver()
        receiver.answering = answer_with(400, b"not this one")
        patient.place()
        for _ in range(2):  # after which it is put aside
            hooks.deliver(301)
        patient.place()
        tries, secret = hooks.tries(), hooks.get().secret
        receiver.received.clear()
        receiver.answering = answer_with(204)
        after = moved(store)
        again = Hooks(after)
        assert (again.tries(), again.get().secret) == (tries, secret)
        assert again.refused().event_id == 2
        again.deliver(61)
        assert receiver.received[0].id == f"evt_{store.services.store_id}_3"
        while again.refused():
            again.deliver(3_600)
        assert [each.event for each in receiver.received] == [3, 2]
        after.services.end()


def test_tables_are_as_those_of_a_database_that_was_never_copied(store, patient, server, name):
    live(store, patient)
    moved(store).services.end()

    def schema(database):
        done = subprocess.run(
            [server.bin / "pg_dump", "--schema-only", server.conninfo(database)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return [line for line in done.stdout.splitlines() if "restrict" not in line]

    fresh = server.create_store()
    assert sorted(schema(name)) == sorted(schema(fresh))
    server.drop(fresh)
    # And the log keeps the days from here on.
    triggers = "SELECT tgname FROM pg_trigger WHERE tgenabled <> 'O' AND NOT tgisinternal"
    assert server.execute(triggers, name) == []
    known = "SELECT relname FROM pg_class JOIN pg_stats ON tablename = relname GROUP BY 1"
    assert ("orders",) in server.execute(known, name)


def test_a_shop_without_anything_moves_too(store):
    after = moved(store)
    assert after.client().get(LIST).get_json() == []
    after.services.end()


def test_a_database_with_empty_tables_is_taken(store, patient, server):
    patient.place()
    made = server.create_store()
    store.settings = replace(store.settings, copy_to=server.url(made))
    store.services.end()
    after = moved(Store(store.settings, store.clock))
    assert known_to(patient, after).get(f"{LIST}/1").status_code == 200
    assert after.services.store_id == store.services.store_id
    after.services.end()
    server.drop(made)


# What is told.


def test_the_summary_has_the_rows_of_each_table_and_what_to_do_next(store, patient):
    live(store, patient)
    store.services.end()
    done = command(store, "db", "copy")
    counted = dict(line.split() for line in done.stdout.splitlines()[1:])
    assert set(counted) == set(Base.metadata.tables)
    assert (counted["orders"], counted["order_events"]) == ("8", "11")
    copied, then, keep = done.stderr.splitlines()
    assert re.fullmatch(
        r"Copied \d+ rows to postgresql\S+ and compared each, in [\d.]+ s\.", copied
    )
    assert "set ORDERS_DATABASE_URL" in then
    assert str(store.database.path) in keep


def test_a_terminal_sees_how_far_it_is(store, patient):
    patient.place()
    store.services.end()
    terminal, end = pty.openpty()
    with begun(store, stderr=end) as process:
        os.close(end)
        process.stdout.read()
        told = os.read(terminal, 65_536)
    os.close(terminal)
    assert process.returncode == 0
    for label in (b"Checking", b"Copying", b"Verifying"):
        assert label in told
    assert b"100%" in told


def begun(store, **options):
    """Begin the command as a process of its own."""
    environment = environment_for(store.settings.instance, ORDERS_COPY_TO=store.settings.copy_to)
    return subprocess.Popen(
        [sys.executable, "-m", "flask", "db", "copy"],
        cwd=ROOT,
        env=environment,
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options),
    )


def test_the_old_file_is_not_served_any_more(store, patient):
    patient.place()
    moved(store).services.end()
    for arguments in (["db", "check"], ["keys", "list"], ["db", "upgrade"], ["db", "copy"]):
        done = command(store, *arguments)
        if arguments != ["db", "upgrade"]:
            assert done.exit_code == 1
            assert "moved to PostgreSQL" in done.stderr
            assert "ORDERS_DATABASE_URL" in done.stderr
    process = run_app(ORDERS_INSTANCE=str(store.settings.instance))
    assert process.returncode != 0
    assert "moved to PostgreSQL" in process.stderr


def test_a_restore_of_the_old_file_is_the_way_back(store, patient):
    patient.place()
    tag = patient.get(LIST).headers["ETag"]
    moved(store).services.end()
    path = store.settings.database_path
    done = command(store, "db", "restore", path)
    assert done.exit_code == 0, done.stderr
    back = Store(store.settings, store.clock)
    back.services.begin()
    # What became of keys and ids on the server is not known here.
    assert_error(known_to(patient, back).get(LIST), 401, "invalid_api_key")
    answer = back.client().get(LIST, headers={"If-None-Match": tag})
    assert (answer.status_code, len(answer.get_json())) == (200, 1)
    assert back.client().place().get_json()["id"] > 1_000_000
    back.services.end()


# What is refused.


def test_while_the_service_runs_nothing_is_copied(store, start, server, name):
    store.services.end()
    start(instance=store.settings.instance)
    assert "Stop it first" in refused(store)
    assert tables(server, name) == []


def test_while_a_command_writes_nothing_is_copied(store, server, name, monkeypatch):
    store.services.end()
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    with store.locked():
        assert "locked by another program" in refused(store)
    assert tables(server, name) == []


def test_nobody_writes_to_the_file_meanwhile(store, server, name, monkeypatch):
    # The copy waits for the server's lock, and has the file's.
    store.services.end()
    with server.locked(name), begun(store) as process:
        ends = time.monotonic() + 30
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'"
        while not server.execute(waiting):
            assert time.monotonic() < ends
            time.sleep(0.05)
        monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
        done = command(Store(store.settings, store.clock), "keys", "issue", "late", "--plan", "pro")
        assert (done.exit_code, "locked by another program" in done.stderr) == (1, True)
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_without_an_address_it_is_said_how_to_give_one(store):
    told = refused(store, "")
    assert "ORDERS_COPY_TO is not set" in told
    assert "postgresql+psycopg://" in told


@pytest.mark.parametrize(
    "url", [f"mysql://me:{SECRET}@db/orders", f"postgresql://me:{SECRET}@db", f"sqlite:///{SECRET}"]
)
def test_an_address_of_something_else_is_refused(store, url):
    environment = environment_for(store.settings.instance, ORDERS_COPY_TO=url)
    done = run_flask("db", "copy", environment=environment)
    assert done.returncode != 0
    assert re.fullmatch(r"Error: ORDERS_COPY_TO is not usable: [^\n]+\n", done.stderr)
    assert SECRET not in done.stderr


def test_the_address_is_no_matter_to_a_service(store, start, server, name):
    store.services.end()
    start(instance=store.settings.instance, ORDERS_COPY_TO=server.url(name))
    assert tables(server, name) == []


def test_a_server_that_is_not_there_is_told(store):
    assert "can't be reached" in refused(
        store, f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/orders"
    )


def test_a_wrong_password_is_told(store, server, name):
    server.execute("CREATE ROLE careful LOGIN PASSWORD 'right'")
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all careful scram-sha-256\n{before}")
    server.execute("SELECT pg_reload_conf()")
    try:
        url = f"postgresql+psycopg://careful:{SECRET}@/{name}?host={server.folder}"
        assert "password authentication failed" in refused(store, url)
    finally:
        rules.write_text(before)
        server.execute("SELECT pg_reload_conf()")
        server.execute("DROP ROLE careful")


def test_a_user_who_may_make_no_tables_is_told(store, server, name):
    server.execute("CREATE ROLE guest LOGIN")
    try:
        url = f"postgresql+psycopg://guest:{SECRET}@/{name}?host={server.folder}"
        assert "rejects this user" in refused(store, url)
    finally:
        server.execute("DROP ROLE guest")


def test_a_database_that_is_not_there_is_told(store, server):
    assert "does not exist" in refused(store, server.url("nowhere"))


def test_a_database_with_another_shop_is_left_as_it_is(store, server):
    made = server.create_store()
    settings = replace(store.settings, copy_to="", database_url=server.url(made))
    other = Store(settings, store.clock)
    other.client().place(9)
    other.services.database.close()
    before = server.execute("SELECT * FROM orders JOIN store ON true", made)
    assert "already has data" in refused(store, server.url(made))
    assert server.execute("SELECT * FROM orders JOIN store ON true", made) == before
    server.drop(made)


def test_a_database_with_this_shop_is_told_as_such(store, patient, server, name):
    patient.place()
    moved(store).services.end()
    path = store.settings.database_path
    with closing(sqlite.connect(path)) as connection:  # as if the mark had not come to the disk
        connection.execute("PRAGMA application_id = 0x534F7264")
    assert "already has this shop" in refused(Store(store.settings, store.clock))


def test_a_database_with_tables_of_somebody_else_is_left_as_it_is(store, server, name):
    server.execute("CREATE TABLE letters (id int)", name)
    assert "not this program's" in refused(store)
    assert tables(server, name) == [("letters",)]


def test_a_database_that_a_service_uses_is_refused(store, server):
    made = server.create_store()
    settings = replace(store.settings, copy_to="", database_url=server.url(made))
    other = Store(settings, store.clock)
    with other.services.upkeep.hold(alone=True):
        assert "A service uses" in refused(store, server.url(made))
    other.services.database.close()
    server.drop(made)


def test_a_shop_that_is_on_postgresql_already_is_not_copied(store, server, name):
    settings = replace(store.settings, database_url=server.url(name))
    assert "already" in refused(Store(settings, store.clock))


def test_a_shop_that_is_not_there_is_not_made(tmp_path, server, name):
    settings = Settings(instance=tmp_path / "none", copy_to=server.url(name))
    assert "orders.db" in refused(Store(settings, SetClock()))
    assert not settings.database_path.exists()


def test_a_damaged_file_is_not_copied(store, patient, server, name):
    live(store, patient)
    store.services.end()
    path = store.settings.database_path
    content = bytearray(path.read_bytes())
    content[8_192:12_000] = b"x" * 3_808
    path.write_bytes(content)
    assert "damaged" in refused(store)
    assert tables(server, name) == []


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("UPDATE pets SET name = 'a' || char(0)", "pets, id 7: "),
        ("UPDATE orders SET placed_at = 'long ago' WHERE id = 3", "orders, line 3, column placed_"),
        ("INSERT INTO webhook_refused VALUES (9, 1, 1, '2026-12-01T12:00:00.000Z')", "refused"),
    ],
)
def test_what_postgresql_does_not_take_is_named_and_nothing_is_kept(store, patient, damage, told):
    live(store, patient)
    store.services.end()
    with closing(sqlite.connect(store.settings.database_path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(damage)
    said = refused(store)
    assert "PostgreSQL rejects a row" in said
    assert told in said
    assert "long ago" not in said


# What the comparison finds.

_BEFORE = """
    CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$;
    CREATE TRIGGER meddle BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION meddle();
"""
_AFTER = """
    CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NULL; END $$;
    CREATE TRIGGER meddle AFTER INSERT ON {} FOR EACH STATEMENT EXECUTE FUNCTION meddle();
"""


@pytest.mark.parametrize(
    ("meddling", "told"),
    [
        (
            "NEW.quantity = NEW.quantity + (NEW.id = 6)::int; RETURN NEW;",
            "orders, id 6, differs in quantity",
        ),
        (
            "NEW.at = NEW.at + (NEW.id = 5)::int * interval '1 ms'; RETURN NEW;",
            "order_events, id 5, differs in at",
        ),
        ("RETURN CASE WHEN NEW.id <> 7 THEN NEW END;", "pets, id 7, is missing"),
        (
            "NEW.value = lower(NEW.value); RETURN NEW;",
            "idempotency_keys, key_id 1, version 1, value B, is missing",
        ),
        (
            "NEW.secret_hash = sha256(NEW.secret_hash); RETURN NEW;",
            "api_keys, id 1, differs in secret_hash",
        ),
    ],
)
def test_a_row_that_is_not_what_it_was_is_named_and_nothing_is_kept(
    store, patient, server, meddling, told
):
    table = told.split(",")[0]
    live(store, patient)
    patient.place(7, headers={"Idempotency-Key": "B"})
    made = server.create_store()
    server.execute(_BEFORE.format(meddling, table), made)
    assert told in refused(store, server.url(made))
    for each in Base.metadata.tables:
        count = 1 if each == "store" else 0
        assert server.execute(f"SELECT count(*) FROM {each}", made) == [(count,)], each
    assert server.execute("SELECT last_value, is_called FROM orders_id_seq", made) == [(1, False)]
    server.drop(made)


def test_a_row_too_many_is_named(store, patient, server):
    live(store, patient)
    made = server.create_store()
    more = "INSERT INTO pets VALUES (1, 'of nobody', NULL, 'sold');"
    server.execute(_AFTER.format(more, "order_events"), made)
    assert "pets, id 1, should not be there" in refused(store, server.url(made))
    server.drop(made)


# What is cut off.


def slow(server, name):
    """Have the server take its time for each order."""
    server.execute(_BEFORE.format("PERFORM pg_sleep(0.05); RETURN NEW;", "orders"), name)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_copy_that_is_ended_in_the_middle_leaves_nothing_and_can_be_made_again(
    store, patient, server, number
):
    for pet in range(1, 100):
        assert patient.place(pet).status_code == 201
    store.services.end()
    made = server.create_store()
    slow(server, made)
    store.settings = replace(store.settings, copy_to=server.url(made))
    with begun(store) as process:
        while not server.is_being_written(made):
            assert process.poll() is None
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode != 0
    while server.is_being_written(made):  # the server notices it at the next row that does not come
        time.sleep(0.05)
    for table in ("orders", "order_events", "api_keys"):
        assert server.execute(f"SELECT count(*) FROM {table}", made) == [(0,)]
    server.execute("DROP TRIGGER meddle ON orders", made)
    after = moved(Store(store.settings, store.clock))
    assert len(known_to(patient, after).get(LIST).get_json()) == 99
    after.services.end()
    server.drop(made)


def test_a_server_that_goes_away_in_the_middle_is_told(store, patient, server):
    for pet in range(1, 200):
        assert patient.place(pet).status_code == 201
    made = server.create_store()
    slow(server, made)

    def cut():
        while not server.is_being_written(made):
            time.sleep(0.02)
        server.end_connections(made)

    cutting = threading.Thread(target=cut)
    cutting.start()
    assert "can't be reached, or closed the connection" in refused(store, server.url(made))
    cutting.join()
    assert server.execute("SELECT count(*) FROM orders", made) == [(0,)]
    server.drop(made)


def test_many_more_rows_than_fit_in_a_batch_are_copied(store, patient):
    rows = ((line, {"petId": 1 + line % 50}) for line in range(2, 6_503))
    store.services.orders.import_orders(rows, Faults())
    listed = patient.get(LIST, headers={"Accept-Encoding": "gzip"})
    client = known_to(patient, moved(store))
    again = client.get(LIST, headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(again.data) == gzip.decompress(listed.data)
    assert len(gzip.decompress(again.data)) > 300_000
    client.store.services.end()
