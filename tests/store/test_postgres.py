"""The store on PostgreSQL: its own subject. Other tests run on it, too (`--database=postgres`)."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import urllib3

from orders.domain import Status
from orders.settings import Settings
from orders.store import events, listing
from orders.store.care import checks, opening
from orders.store.care.upkeep import InUse
from orders.store.databases import database_of
from orders.store.paging import Filters, PageQuery, Sort, SortBy, read_page
from orders.store.postgres import database as postgres_database
from orders.store.postgres import upkeep as postgres_upkeep
from tests.support.clocks import SetClock
from tests.support.databases import copy_database
from tests.support.machine import wait_until
from tests.support.service import ROOT, Service, environment_for, run_app, run_flask
from tests.support.stores import Client, Store, assert_error

pytestmark = pytest.mark.postgres

ORDERS = "/v1/store/orders"
WRITERS = 2
EACH = 150
# Places orders through an application of its own, as another process would.
_PLACE = """
import sys
from pathlib import Path
from app import create_app
from orders.domain import NewOrder, Origin
from orders.settings import Settings
from orders.web.services import services_of
services = services_of(create_app(Settings(instance=Path(sys.argv[1]), database_url=sys.argv[2])))
for number in range(int(sys.argv[3])):
    services.orders.place(NewOrder(1 + number, 1, None, None), Origin("cli"))
"""


@pytest.fixture
def name(server):
    """The name of a database with the tables and without orders."""
    made = server.create_store()
    yield made
    server.drop(made)


@pytest.fixture
def settings(tmp_path, server, name):
    given = Settings(instance=tmp_path / "instance", database_url=server.url(name))
    given.instance.mkdir(mode=0o700)
    return given


@pytest.fixture
def store(settings):
    made = Store(settings, SetClock())
    yield made
    made.services.database.close()


@pytest.fixture
def patient(store):
    """A client without limits to speak of."""
    return store.client(plan="enterprise", per_minute=10**9, per_day=10**9)


@pytest.fixture
def start(settings):
    """Start services over the test's database; they are stopped at the end of it."""
    started = []

    def start_one(instance=settings.instance, **environment):
        url = {"ORDERS_DATABASE_URL": settings.database_url}
        started.append(Service(instance, **url, **environment))
        return started[-1]

    yield start_one
    for service in started:
        if service.process.poll() is None:
            service.stop()


def have_orders(store, count):
    """Put many orders into the store, without events."""
    now = store.clock.now()
    store.execute(
        "INSERT INTO orders (pet_id, quantity, status, placed_at, updated_at) "
        "SELECT 1 + n % 100, 1, 'pending', :now + n * interval '1 minute', :now "
        "FROM generate_series(1, CAST(:count AS int)) AS n",
        now=now,
        count=count,
    )


# Faults of the connection and of the server.


def test_a_restart_of_the_server_is_noticed_by_nobody_who_asks_later(server, patient):
    assert patient.place().status_code == 201
    assert len(patient.get(ORDERS).get_json()) == 1
    server.restart()
    assert len(patient.get(ORDERS).get_json()) == 1
    server.restart()
    assert patient.place().status_code == 201
    server.restart()
    assert patient.get("/v1/pets/7").status_code == 404
    assert patient.get("/v2/store/orders?status=pending&sort=-placedAt").status_code == 200


def test_a_server_that_is_away_is_503_and_all_works_when_it_is_back(server, store, patient):
    patient.place()
    server.stop()
    try:
        answers = [
            patient.place(),
            patient.get(ORDERS),
            patient.get(f"{ORDERS}/1"),
            patient.get("/v2/store/events"),
            patient.ship(1),
        ]
        for answer in answers:
            assert_error(answer, 503, "store_unavailable")
            assert answer.headers["Retry-After"] == "5"
        assert patient.get("/readyz").status_code == 503
        assert patient.get("/healthz").status_code == 200
    finally:
        server.start()
    assert patient.get("/readyz").status_code == 200
    assert patient.place().status_code == 201
    assert [order["id"] for order in patient.get(ORDERS).get_json()] == [1, 2]


def test_connections_that_an_administrator_ends_are_noticed_by_nobody(server, name, patient):
    for number in range(1, 4):
        assert patient.place().status_code == 201
        assert len(patient.get(ORDERS).get_json()) == number
        assert server.end_connections(name)


def waiting_for_the_lock(server, name):
    return server.execute(
        "SELECT pid FROM pg_stat_activity "
        f"WHERE datname = '{name}' AND wait_event_type = 'Lock' AND wait_event = 'advisory'"
    )


def test_a_change_whose_connection_is_lost_before_its_commit_is_made_once(server, name, patient):
    with ThreadPoolExecutor(1) as threads, server.locked(name):
        placed = threads.submit(patient.place)
        wait_until(lambda: waiting_for_the_lock(server, name))
        ((process,),) = waiting_for_the_lock(server, name)
        server.execute(f"SELECT pg_terminate_backend({process})")
        # It waits again, over another connection.
        wait_until(lambda: waiting_for_the_lock(server, name) not in ([], [(process,)]))
    assert placed.result().status_code == 201
    assert len(patient.get(ORDERS).get_json()) == 1


def test_a_change_whose_commit_is_lost_is_not_made_again(server, name, store, patient):
    patient.place()
    # A trigger that ends the very connection that commits.
    store.execute(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
    )
    store.execute(
        "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION cut()"
    )
    before = server.execute("SELECT last_value FROM orders_id_seq", name)
    assert_error(patient.place(), 503, "store_unavailable")
    ((after,),) = server.execute("SELECT last_value FROM orders_id_seq", name)
    assert after == before[0][0] + 1
    store.execute("DROP TRIGGER cut ON orders")
    assert patient.place().status_code == 201


@pytest.mark.parametrize(
    "fault",
    [
        "RAISE EXCEPTION 'not now' USING ERRCODE = 'serialization_failure'",
        "RAISE EXCEPTION 'not now' USING ERRCODE = 'deadlock_detected'",
        "PERFORM pg_terminate_backend(pg_backend_pid())",
    ],
)
def test_a_change_that_fails_for_no_reason_of_its_own_is_made_once_more(store, patient, fault):
    patient.place()
    store.execute("CREATE SEQUENCE tries")
    store.execute(
        "CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF nextval('tries') = 1 THEN {fault}; END IF; RETURN NEW; END $$"
    )
    store.execute(
        "CREATE TRIGGER fail_once BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION fail_once()"
    )
    assert patient.place().status_code == 201
    assert len(patient.get(ORDERS).get_json()) == 2


def test_a_lock_that_lasts_is_503_and_keeps_nobody_from_reading(
    server, name, store, patient, monkeypatch
):
    patient.place()
    monkeypatch.setattr(postgres_database, "BUSY_SECONDS", 0.2)
    with server.locked(name):
        assert_error(patient.place(), 503, "store_unavailable")
        began = time.monotonic()
        assert_error(patient.place(), 503, "store_unavailable")
        # It has outlasted one request's patience, and is not waited for by the next.
        assert time.monotonic() - began < 0.2
        assert patient.get(ORDERS).status_code == 200
    assert patient.place().status_code == 201


def test_a_statement_that_takes_too_long_is_503(store, patient):
    patient.place()
    with store.database.write() as connection:
        connection.exec_driver_sql("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        with psycopg_patience(store, "50ms"):
            assert_error(patient.get(f"{ORDERS}/1"), 503, "store_unavailable")
    assert patient.get(f"{ORDERS}/1").status_code == 200


@contextmanager
def psycopg_patience(store, patience):
    """Have this thread's own connection wait for no longer than so for a statement."""
    driver = store.database._own_connection().driver_connection  # noqa: SLF001 - or 30 seconds
    driver.execute(f"SET statement_timeout = '{patience}'")
    try:
        yield
    finally:
        driver.execute("SET statement_timeout = '30s'")


def test_a_stream_whose_connection_is_lost_breaks_off(server, name, store, start):
    have_orders(store, 60_000)
    service = start()
    key = service.issue()
    with urllib3.PoolManager(retries=False) as http:
        headers = {"Authorization": f"Bearer {key}"}
        answer = http.request("GET", service.url + ORDERS, headers=headers, preload_content=False)
        first = answer.read(1_000)
        server.end_connections(name)
        with pytest.raises(urllib3.exceptions.ProtocolError):
            answer.read()
    assert first.startswith(b'[{"id":1,')
    assert len(service.request("GET", ORDERS, key).json()) == 60_000


def test_a_server_that_only_reads_is_503_for_changes(server, name, patient):
    assert patient.place().status_code == 201
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    server.end_connections(name)
    assert_error(patient.place(), 503, "store_unavailable")
    assert patient.get(ORDERS).status_code == 200
    # As when another server has taken over.
    server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert patient.place().status_code == 201


# Several processes.


def test_events_become_visible_in_the_order_of_their_ids_however_many_write(settings, store):
    instances = [settings.instance.with_name(f"writer-{number}") for number in range(WRITERS)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _PLACE, str(each), settings.database_url, str(EACH)], cwd=ROOT
        )
        for each in instances
    ]
    seen, last = [], 0
    while len(seen) < WRITERS * EACH:
        assert (
            any(writer.poll() is None for writer in writers)
            or events.revision(store.database) == (last or 0)
            or True
        )
        page = events.read_page(store.database, last, 200)
        seen += page.events
        last = page.last or last
        if all(writer.poll() is not None for writer in writers) and not page.events:
            break
    assert [writer.wait(30) for writer in writers] == [0, 0]
    ids = [row["id"] for row in store.events()]
    # Whoever stores the last id that it saw has missed none.
    assert [f'{{"id":{event_id},' for event_id in ids] == [
        text[: text.index(",") + 1] for text in seen
    ]
    assert len(ids) == WRITERS * EACH


def test_a_second_process_with_counters_of_its_own_refuses_to_start(
    settings, start, tmp_path, server
):
    first = start()
    second = {
        "ORDERS_INSTANCE": str(tmp_path / "second"),
        "ORDERS_DATABASE_URL": settings.database_url,
    }
    refused = run_app(**second)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "ORDERS_LIMITS_URL" in refused.stderr
    refused = run_flask("db", "upgrade", environment=environment_for(**_as_settings(second)))
    assert refused.returncode == 1
    assert "Stop it first" in refused.stderr
    # Even if it is killed, the lock is free.
    first.kill()
    start(tmp_path / "second")


def _as_settings(environment):
    others = {name: value for name, value in environment.items() if name != "ORDERS_INSTANCE"}
    return {"instance": Path(environment["ORDERS_INSTANCE"]), **others}


@pytest.fixture
def upkeep_of():
    """Return the care of the database of some settings, as another process has it."""
    made = []

    def make(settings):
        database, upkeep = database_of(settings, 4)
        made.append(database)
        return upkeep

    yield make
    for database in made:
        database.close()


def is_in_use(upkeep, *, alone):
    try:
        upkeep.hold(alone=alone).release()
    except InUse:
        return True
    return False


def test_whoever_serves_it_takes_the_lock_again_after_a_restart(server, settings, store, upkeep_of):
    hold = store.services.upkeep.hold(alone=True)
    assert is_in_use(upkeep_of(settings), alone=True)
    server.restart()
    assert hold.keep()
    assert is_in_use(upkeep_of(settings), alone=True)
    hold.release()


def test_whoever_serves_it_is_told_that_another_took_it_meanwhile(
    server, settings, store, upkeep_of
):
    hold = store.services.upkeep.hold(alone=True)
    server.restart()
    with upkeep_of(settings).hold(alone=True):
        assert not hold.keep()
    assert hold.keep()
    hold.release()


def test_those_who_count_together_serve_it_together_and_with_nobody_else(settings, upkeep_of):
    with upkeep_of(settings).hold(alone=False), upkeep_of(settings).hold(alone=False):
        assert is_in_use(upkeep_of(settings), alone=True)
    with upkeep_of(settings).hold(alone=True):
        assert is_in_use(upkeep_of(settings), alone=False)


def test_processes_that_start_at_the_same_time_make_the_tables_once(server, tmp_path):
    name = server.create()
    given = Settings(instance=tmp_path, database_url=server.url(name))
    made = [database_of(given, 1) for _ in range(4)]
    barrier = threading.Barrier(len(made))

    def prepare(upkeep):
        barrier.wait()
        upkeep.prepare()

    with ThreadPoolExecutor(len(made)) as threads:
        list(threads.map(prepare, [upkeep for _, upkeep in made]))
    for database, _ in made:
        database.close()
    assert server.execute("SELECT count(*) FROM store", name) == [(1,)]
    assert server.execute("SELECT version_num FROM alembic_version", name) == [
        (f"{checks.schema_version():04}",)
    ]


@pytest.fixture
def old(server, tmp_path):
    """Settings of a store whose tables are an older version's."""
    name = server.create()
    given = Settings(instance=tmp_path, database_url=server.url(name))
    database, _ = database_of(given, 1)
    with database.write() as connection:
        opening.run_migrations(connection, "0003")
    database.close()
    return given


def versions(given):
    with psycopg.connect(given.database_url.replace("+psycopg", "")) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchall()


def test_of_processes_that_start_at_the_same_time_one_brings_the_tables_up_to_date(old, upkeep_of):
    upkeeps = [upkeep_of(old) for _ in range(3)]
    with ThreadPoolExecutor(len(upkeeps)) as threads:
        list(threads.map(lambda upkeep: upkeep.prepare(), upkeeps))
    assert versions(old) == [(f"{checks.schema_version():04}",)]


def test_what_an_older_version_serves_is_not_brought_up_to_date(old, monkeypatch, upkeep_of):
    monkeypatch.setattr(postgres_upkeep, "BUSY_SECONDS", 0)
    with upkeep_of(old).hold(alone=False):
        with pytest.raises(checks.UnfitDatabase, match="Stop all of its services"):
            upkeep_of(old).prepare()
        assert versions(old) == [("0003",)]
    upkeep_of(old).prepare()
    upkeep_of(old).check()


# What a start says.


def refusal(tmp_path, url):
    done = run_app(ORDERS_INSTANCE=str(tmp_path / "refused"), ORDERS_DATABASE_URL=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_start_says_what_is_wrong_with_a_database_and_no_password(server, tmp_path):
    foreign = server.create()
    server.execute("CREATE TABLE diary (page text)", foreign)
    assert "not this program's" in refusal(tmp_path, server.url(foreign))
    newer = server.create_store()
    server.execute("UPDATE alembic_version SET version_num = '9999'", newer)
    assert "newer version" in refusal(tmp_path, server.url(newer))
    server.execute(
        "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    assert "UTF8" in refusal(tmp_path, server.url("latin"))
    assert '"nowhere" does not exist' in refusal(tmp_path, server.url("nowhere"))
    secret = "postgresql+psycopg://shop:hunter2@127.0.0.1:1/shop"  # pragma: allowlist secret
    said = refusal(tmp_path, secret)
    assert "127.0.0.1" in said
    assert "hunter2" not in said
    for url in (
        "postgresql+asyncpg://shop:hunter2@host/shop",  # pragma: allowlist secret
        "postgresql://shop:hunter2@host",  # pragma: allowlist secret
        "mysql://shop:hunter2@host/shop",  # pragma: allowlist secret
    ):
        assert "hunter2" not in refusal(tmp_path, url)


def test_a_database_in_which_this_user_may_make_no_tables_is_refused(server, tmp_path):
    name = server.create()
    server.execute("DROP ROLE IF EXISTS guest")
    server.execute("CREATE ROLE guest LOGIN")
    url = server.url(name).replace("postgres@", "guest@")
    assert "permission denied" in refusal(tmp_path, url)


# What is in the database.


def test_instants_are_timestamps_and_the_event_log_is_never_changed(server, name, patient):
    patient.place(shipDate="2026-12-01T09:00:00.123456+01:00")
    assert server.execute("SELECT pg_typeof(placed_at)::text FROM orders", name) == [
        ("timestamp with time zone",)
    ]
    (shipped,) = server.execute("SELECT ship_date AT TIME ZONE 'UTC' FROM orders", name)
    assert str(shipped[0]) == "2026-12-01 08:00:00.123000"
    for statement in (
        "UPDATE order_events SET actor = 'nobody'",
        "DELETE FROM order_events",
        "TRUNCATE order_events CASCADE",
    ):
        with pytest.raises(psycopg.errors.IntegrityError, match="never changed"):
            server.execute(statement, name)


def test_both_databases_give_the_same_bytes(store, tmp_path, empty_database):
    given = Settings(instance=tmp_path / "file")
    given.instance.mkdir()
    copy_database(empty_database, given.database_path)
    file = Store(given, SetClock())
    answers = [lived(each) for each in (file, store)]
    assert answers[0] == answers[1]
    file.database.close()


REFERENCES = (
    '"quoted" \\ and / and <b>',
    "Größe ñ 漢字 🐕",
    "\u2028 \u00a0 %s %% ? :x",
    "'",
)


def lived(store):
    """Let some things happen in a store; give all that it says of them, as bytes."""
    store.execute("UPDATE store SET store_id = 'the same'")  # of which cursors are made, too
    client = store.client(plan="enterprise", per_minute=10**9, per_day=10**9)
    client.version = 2
    for number, reference in enumerate(REFERENCES, start=1):
        client.place(
            2**63 - number,
            reference=reference,
            shipDate=("0001-01-01T00:00:00.001Z", "9999-12-31T23:59:59.999Z")[number % 2],
        )
        store.clock.advance(0.001 * number)
        client.place(number, quantity=2**31 - 1)
    client.ship(1)
    client.ship(2, shipDate="2020-02-29T12:00:00+05:30")
    client.cancel(3)
    paths = [
        ORDERS,
        f"{ORDERS}/1",
        "/v2/store/orders",
        "/v2/store/orders?sort=-shipDate&limit=3",
        "/v2/store/orders?status=pending&sort=placedAt",
        "/v2/store/orders/3",
        "/v2/store/orders/3/events",
        "/v2/store/stats?days=366",
        "/v2/store/events",
    ]
    said = [client.get(path).data for path in paths]
    # A request's id is another one each time.
    said[-3:] = [_without_request_ids(each) for each in said[-3:]]
    exported = store.app.test_cli_runner().invoke(args=["orders", "export"])
    return [*said, exported.stdout]


def _without_request_ids(data):
    head, *rest = data.split(b'"requestId":"')
    return b"".join([head, *(each[16:] for each in rest)])


class Explained:
    """A database that tells how each statement is planned before it answers."""

    def __init__(self, database):
        self._database = database
        self.snapshot = database.snapshot
        self.plans = []

    def ask(self, query, **parameters):
        with self._database.read() as connection:
            explaining = Explaining(connection.connection.driver_connection)
            rows = query.execute_on(explaining, connection.dialect, parameters)
            self.plans.append("\n".join(line for (line,) in rows.fetchall()))
        return self._database.ask(query, **parameters)


@dataclass
class Explaining:
    driver: object

    def execute(self, statement, parameters):
        return self.driver.execute(f"EXPLAIN {statement}", parameters)


WANTED = [
    Filters(),
    Filters(statuses=(Status.PENDING,)),
    Filters(statuses=(Status.PENDING, Status.SHIPPED)),
    Filters(pet_id=7),
    Filters(reference="order 7"),
]


def test_a_page_is_found_by_an_index(server, name, store):
    have_orders(store, 20_000)
    store.execute("UPDATE orders SET ship_date = placed_at, reference = 'order ' || id % 100")
    server.execute("VACUUM ANALYZE orders", name)
    explained = Explained(store.database)
    for wanted, by, falling in itertools.product(WANTED, SortBy, (False, True)):
        sort = Sort(by, falling)
        first = read_page(explained, PageQuery(wanted, sort, 50))
        read_page(explained, PageQuery(wanted, sort, 50, first.next))
    assert len(explained.plans) > 2 * len(WANTED)
    for plan in explained.plans:
        assert "Seq Scan on orders" not in plan, plan


def test_a_long_list_walks_an_index_too(server, name, store):
    have_orders(store, 20_000)
    server.execute("VACUUM ANALYZE orders", name)
    explained = Explained(store.database)
    explained.ask(listing._CHUNK, after=4_000, size=4_000)  # noqa: SLF001 - as it is streamed
    (plan,) = explained.plans
    assert "Seq Scan on orders" not in plan, plan


def test_ids_go_on_above_those_of_an_import(store, patient, tmp_path):
    file = tmp_path / "orders.csv"
    file.write_text("id,petId\n500,1\n,2\n")
    done = store.app.test_cli_runner().invoke(args=["orders", "import", str(file)])
    assert done.exit_code == 0, done.stderr
    assert patient.place().get_json()["id"] == 502


# The commands.


def command(store, *arguments):
    return store.app.test_cli_runner().invoke(args=list(map(str, arguments)))


def test_check_says_that_a_database_is_sound_or_what_is_wrong(server, name, store, patient):
    patient.place()
    patient.ship(1)
    patient.place()
    patient.cancel(2)
    done = command(store, "db", "check")
    assert (done.exit_code, done.stderr) == (0, f"{store.database.where} is sound.\n")
    for damage, complaint, mend in (
        ("UPDATE orders SET quantity = 9 WHERE id = 1", "its last event", "quantity = 1"),
        ("UPDATE order_days SET placed = placed + 1", "a day's figures", None),
    ):
        server.execute(damage, name)
        done = command(store, "db", "check")
        assert done.exit_code == 1
        assert complaint in done.stderr
        if mend:
            server.execute(f"UPDATE orders SET {mend} WHERE id = 1", name)
    server.execute("UPDATE order_days SET placed = placed - 1", name)
    server.execute("SELECT setval('order_events_id_seq', 1)", name)
    assert "assigned twice" in command(store, "db", "check").stderr


def test_copies_of_files_are_refused_with_what_to_do_instead(store, tmp_path):
    (tmp_path / "copy.db").write_bytes(b"")
    for arguments in (["backup", tmp_path / "new.db"], ["restore", tmp_path / "copy.db"]):
        done = command(store, "db", *arguments)
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1
        for word in ("pg_dump", "pg_restore", "flask db renew"):
            assert word in done.stderr


def test_a_database_that_was_put_back_misleads_nobody_once_it_is_renewed(
    server, name, store, patient, tmp_path
):
    patient.place()
    tag = patient.get(ORDERS).headers["ETag"]
    dump = tmp_path / "shop.dump"
    there = server.conninfo(name)
    run_program(server, "pg_dump", "--format=custom", f"--file={dump}", there)
    patient.place()
    store.database.close()
    back = ("--clean", "--if-exists", "--single-transaction", f"--dbname={there}")
    run_program(server, "pg_restore", *back, dump)
    again = Store(store.settings, SetClock())
    done = command(again, "db", "renew")
    assert done.exit_code == 0, done.stderr
    revoked = Client(again, patient.key_id, patient.secret)
    assert_error(revoked.get(ORDERS), 401, "invalid_api_key")
    new = again.client()
    answer = new.get(ORDERS, headers={"If-None-Match": tag})
    assert (answer.status_code, len(answer.get_json())) == (200, 1)
    assert new.place().get_json()["id"] > 1_000_000
    assert again.events()[-1]["id"] > 1_000_000
    assert command(again, "db", "check").exit_code == 0
    again.database.close()


def run_program(server, name, *arguments):
    subprocess.run([server.bin / name, *arguments], check=True, timeout=60)


def test_a_plain_install_does_not_load_the_driver(tmp_path):
    code = "import app, sys; app.create_app(); sys.exit('psycopg' in sys.modules)"
    environment = environment_for(tmp_path)
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=60)
