"""What only PostgreSQL does. Other tests run on it, too (`--database=postgres`)."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

import psycopg
import pytest
import urllib3

from orders.domain import Status
from orders.settings import DEFAULT_PLANS, Plan, Settings
from orders.shop import database_of, difference, digests
from orders.store import orders as order_store
from orders.store import orders_json
from orders.store.care import checks
from orders.store.care.opening import InUse
from orders.store.database.errors import StoreUnavailable
from orders.store.pages import Filters, PageQuery, Sort, SortBy, read_page
from orders.store.postgres import database as postgres_database
from orders.store.postgres import upkeep as postgres_upkeep
from orders.web import access
from tests.support.clocks import SetClock
from tests.support.commands import command, rejected, said
from tests.support.databases import Explained, copy_database
from tests.support.machine import wait_until
from tests.support.service import ROOT, environment_for
from tests.support.stores import Client, Store, assert_error

pytestmark = pytest.mark.postgres

ORDERS = "/v1/store/orders"
WRITERS = 2
EACH = 150
# Places orders through an application of its own, as another process would.
_PLACE = """
import sys
from pathlib import Path
from orders.application import create_app
from orders.domain import NewOrder
from orders.service import BY_COMMAND
from orders.settings import DEFAULT_PLANS, Plan, Settings
shop = create_app(Settings(instance=Path(sys.argv[1]), database_url=sys.argv[2])).shop
for number in range(int(sys.argv[3])):
    shop.orders.place(NewOrder(1 + number, 1, None, None), BY_COMMAND)
"""


@pytest.fixture
def name(server):
    """Return the name of a database with the tables and without orders."""
    made = server.create_store()
    yield made
    server.drop(made)


@pytest.fixture
def settings(tmp_path, server, name):
    return Settings(instance=tmp_path / "instance", database_url=server.url(name))


@pytest.fixture
def upkeep_of():
    """Return the upkeep of these settings' database, as in another process."""
    with ExitStack() as databases:

        def make(settings):
            database, upkeep = database_of(settings, 4)
            databases.callback(database.close)
            return upkeep

        yield make


def have_orders(server, name, count):
    """Put many orders into a database, without events, and without a time limit for it."""
    server.execute(
        "INSERT INTO orders "
        "(pet_id, quantity, status, placed_at, updated_at, ship_date, reference) "
        "SELECT 1 + n % 100, 1, 'pending', at, at, at, 'order ' || n % 1000 "
        f"FROM generate_series(1, {count}) AS n, "
        "LATERAL (SELECT timestamptz '2026-12-01 12:00Z' + n * interval '1 minute') AS one (at)",
        name,
    )
    server.execute(
        "INSERT INTO order_words (order_id, word) SELECT id, reference FROM orders "
        "UNION ALL SELECT id, split_part(reference, ' ', 2) FROM orders",
        name,
    )


# Faults of the connection and of the server.


@pytest.mark.parametrize("interruption", ["restart", "end_connections"])
def test_lost_idle_connections_are_noticed_by_no_client(server, name, client, interruption):
    interrupt = {
        "restart": server.restart,
        "end_connections": lambda: server.end_connections(name),
    }[interruption]
    assert client.place().status_code == 201
    assert len(client.get(ORDERS).get_json()) == 1
    interrupt()
    assert len(client.get(ORDERS).get_json()) == 1
    interrupt()
    assert client.place().status_code == 201
    interrupt()
    assert client.get("/v1/pets/7").status_code == 404
    assert client.get("/v2/store/orders?status=pending&sort=-placedAt").status_code == 200


def test_a_server_that_is_away_is_503_and_everything_works_once_it_is_back(server, client):
    client.place()
    server.stop()
    try:
        for answer in (
            client.place(),
            client.get(ORDERS),
            client.get(f"{ORDERS}/1"),
            client.get("/v2/store/events"),
            client.ship(1),
        ):
            assert_error(answer, 503, "store_unavailable")
            assert answer.headers["Retry-After"] == "5"
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
    finally:
        server.start()
    assert client.get("/readyz").status_code == 200
    assert client.place().status_code == 201
    assert [order["id"] for order in client.get(ORDERS).get_json()] == [1, 2]


def test_a_change_whose_connection_is_lost_before_its_commit_is_made_once(server, name, client):
    with ThreadPoolExecutor(1) as threads, server.locked(name):
        placed = threads.submit(client.place)
        wait_until(lambda: server.waiting_writers(name))
        (process,) = server.waiting_writers(name)
        server.execute(f"SELECT pg_terminate_backend({process})")
        # It waits again, on another connection.
        wait_until(lambda: server.waiting_writers(name) not in ([], [process]))
    assert placed.result().status_code == 201
    assert len(client.get(ORDERS).get_json()) == 1


def test_a_change_whose_commit_is_lost_is_not_retried(server, name, client):
    client.place()
    server.add_trigger(
        name,
        "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL;",
        when="CONSTRAINT TRIGGER meddle AFTER INSERT ON {} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW",
    )
    ((before,),) = server.execute("SELECT last_value FROM orders_id_seq", name)
    assert_error(client.place(), 503, "store_unavailable")
    assert server.execute("SELECT last_value FROM orders_id_seq", name) == [(before + 1,)]
    server.execute("DROP TRIGGER meddle ON orders", name)
    assert client.place().status_code == 201


@pytest.mark.parametrize(
    "fault",
    [
        "RAISE EXCEPTION 'not now' USING ERRCODE = 'serialization_failure'",
        "RAISE EXCEPTION 'not now' USING ERRCODE = 'deadlock_detected'",
        "PERFORM pg_terminate_backend(pg_backend_pid())",
    ],
)
def test_a_change_that_fails_through_no_fault_of_its_own_is_retried_once(
    server, name, client, fault
):
    client.place()
    server.execute("CREATE SEQUENCE tries", name)
    server.add_trigger(name, f"IF nextval('tries') = 1 THEN {fault}; END IF; RETURN NEW;")
    assert client.place().status_code == 201
    assert len(client.get(ORDERS).get_json()) == 2


def test_a_lasting_lock_is_503_for_changes_and_does_not_block_reads(
    server, name, client, monkeypatch
):
    client.place()
    monkeypatch.setattr(postgres_database, "BUSY_SECONDS", 0.2)
    with server.locked(name):
        assert_error(client.place(), 503, "store_unavailable")
        # One request has timed out on the lock, so the next does not wait.
        monkeypatch.setattr(postgres_database, "BUSY_SECONDS", 25)
        began = time.monotonic()
        assert_error(client.place(), 503, "store_unavailable")
        assert time.monotonic() - began < 20
        assert client.get(ORDERS).status_code == 200
    assert client.place().status_code == 201


def test_a_locked_table_is_waited_for_once(server, name, client, monkeypatch):
    client.place()
    monkeypatch.setattr(postgres_database, "BUSY_SECONDS", 0.2)
    with psycopg.connect(server.conninfo(name)) as other:
        other.execute("LOCK TABLE orders")
        assert_error(client.get(f"{ORDERS}/1"), 503, "store_unavailable")
        monkeypatch.setattr(postgres_database, "BUSY_SECONDS", 25)
        monkeypatch.setattr(access, "DEADLINE_SECONDS", 25)
        began = time.monotonic()
        for answer in (client.get(ORDERS), client.get(f"{ORDERS}/1"), client.place()):
            assert_error(answer, 503, "store_unavailable")
            assert "locked" in answer.get_json()["message"]
        assert time.monotonic() - began < 20
    assert client.get(f"{ORDERS}/1").status_code == 200
    assert client.place().status_code == 201


def test_a_server_with_no_connections_left_is_reported_as_such(server, name, tmp_path):
    server.execute("CREATE ROLE shop LOGIN CONNECTION LIMIT 1")
    url = server.url(name).replace("postgres@", "shop@")
    with psycopg.connect(server.conninfo(name).replace("user=postgres", "user=shop")):
        database, _ = database_of(Settings(instance=tmp_path, database_url=url), 1)
        with pytest.raises(StoreUnavailable, match="accepts no more connections"):
            database.version()


def test_a_statement_that_takes_too_long_is_503(store, client):
    client.place()
    driver = store.database._own_connection().driver_connection  # noqa: SLF001 - or 30 seconds
    with store.database.write() as connection:
        connection.exec_driver_sql("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        driver.execute("SET statement_timeout = '50ms'")
        assert_error(client.get(f"{ORDERS}/1"), 503, "store_unavailable")
        driver.execute("SET statement_timeout = '30s'")
    assert client.get(f"{ORDERS}/1").status_code == 200


def test_a_stream_whose_connection_is_lost_is_cut_off(server, name, settings, store, start):
    have_orders(server, name, 60_000)
    service = start(ORDERS_DATABASE_URL=settings.database_url)
    key = service.issue()
    answer = service.request("GET", ORDERS, key, preload_content=False)
    assert answer.read(1_000).startswith(b'[{"id":1,')
    server.end_connections(name)
    with pytest.raises(urllib3.exceptions.ProtocolError):
        answer.read()
    assert len(service.request("GET", ORDERS, key).json()) == 60_000


def test_a_read_only_server_is_503_for_changes(server, name, client):
    assert client.place().status_code == 201
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    server.end_connections(name)
    assert_error(client.place(), 503, "store_unavailable")
    assert client.get(ORDERS).status_code == 200
    ready = client.get("/readyz")
    assert_error(ready, 503, "store_unavailable")
    assert "can't be written to" in ready.get_json()["message"]
    # As when another server has taken over.
    server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert client.place().status_code == 201


# Several processes.


def test_events_become_visible_in_the_order_of_their_ids_whoever_writes(settings, store):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _PLACE, str(each), settings.database_url, str(EACH)], cwd=ROOT
        )
        for each in (settings.instance.with_name(f"writer-{number}") for number in range(WRITERS))
    ]
    seen, last, is_done = [], 0, False
    while not is_done:
        have_ended = all(writer.poll() is not None for writer in writers)
        page = order_store.read_events(store.database, last, 200)
        seen += [json.loads(each)["id"] for each in page.events]
        last = page.next
        is_done = have_ended and not page.events
    assert [writer.wait() for writer in writers] == [0, 0]
    # A client that stores the last id it saw has missed none.
    assert seen == [row["id"] for row in store.events()]
    assert len(seen) == WRITERS * EACH


def test_a_second_process_with_counters_of_its_own_does_not_start(settings, start, forks, tmp_path):
    url = {"ORDERS_DATABASE_URL": settings.database_url}
    first = start(**url)
    second = {"instance": tmp_path / "second", **url}
    refused = forks.run("app.py", **second)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "ORDERS_LIMITS_URL" in refused.stderr
    refused = forks.run("flask", "db", "upgrade", **second)
    assert refused.returncode == 1
    assert "Stop it first" in refused.stderr
    # Even if it is killed, the lock is free.
    first.kill()
    start(**second)


def is_in_use(upkeep, *, alone):
    try:
        upkeep.acquire(alone=alone).release()
    except InUse:
        return True
    return False


def test_the_lock_is_acquired_again_after_a_restart_unless_another_process_has_it(
    server, settings, store, upkeep_of
):
    other = upkeep_of(settings)
    with store.shop.upkeep.acquire(alone=True) as lock:
        assert is_in_use(other, alone=True)
        server.restart()
        assert lock.ensure_held()
        assert is_in_use(other, alone=True)
        server.restart()
        with other.acquire(alone=True):
            assert not lock.ensure_held()
        assert lock.ensure_held()


def test_processes_that_count_together_serve_together_and_with_no_other(settings, upkeep_of):
    with upkeep_of(settings).acquire(alone=False), upkeep_of(settings).acquire(alone=False):
        assert is_in_use(upkeep_of(settings), alone=True)
    with upkeep_of(settings).acquire(alone=True):
        assert is_in_use(upkeep_of(settings), alone=False)


@pytest.fixture
def unfinished(server, tmp_path, next_program):
    """Return settings of a database with the tables of the version before, or with none."""

    def make(*, is_old):
        name = server.create_store() if is_old else server.create()
        if is_old:
            next_program()
        return Settings(instance=tmp_path, database_url=server.url(name))

    return make


def version_of(settings):
    with psycopg.connect(settings.database_url.replace("+psycopg", "")) as connection:
        ((version,),) = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        return int(version)


@pytest.mark.parametrize("is_old", [False, True])
def test_of_processes_that_start_at_the_same_time_one_makes_the_tables(
    unfinished, upkeep_of, is_old
):
    settings = unfinished(is_old=is_old)
    upkeeps = [upkeep_of(settings) for _ in range(4)]
    barrier = threading.Barrier(len(upkeeps))

    def prepare(upkeep):
        barrier.wait()
        upkeep.prepare()

    with ThreadPoolExecutor(len(upkeeps)) as threads:
        list(threads.map(prepare, upkeeps))
    assert version_of(settings) == checks.schema_version()
    upkeeps[0].check_whole()


def test_processes_with_different_settings_are_named(settings, start, tmp_path):
    # A Redis outage is the same for all processes.
    shared = {
        "ORDERS_DATABASE_URL": settings.database_url,
        "ORDERS_LIMITS_URL": "redis://127.0.0.1:1/0",
        "ORDERS_METRICS": "on",
    }
    first = start(**shared)
    other = start(instance=tmp_path / "other", ORDERS_BAN_AFTER="20", **shared)
    same = start(instance=tmp_path / "same", **shared)

    def told(service):
        return service.request("GET", "/readyz").json()["processes"]

    wait_until(lambda: told(other) != "ok" != told(same))
    assert re.fullmatch(r"differing: \S+:\d+ has other ban figures", told(same))
    assert (
        "\nstore_orders_processes_differing 1.0\n" in same.request("GET", "/metrics").data.decode()
    )
    (line,) = [line for line in same.log if "differ from this one" in line]
    assert told(same).removeprefix("differing: ") in line
    # Those that have begun earlier look again every ten seconds.
    wait_until(lambda: told(first) == told(same))


PLANS = {**DEFAULT_PLANS, "pro": Plan("pro", 1, 2)}
REDIS = "another Redis, or another database of it"
DIFFERENCES = [
    ({"ban_after": 20}, "other ban figures"),
    ({"ban_seconds": 10}, "other ban figures"),
    ({"plans": PLANS}, "other plans"),
    ({"plans": PLANS, "ban_window": 10}, "other plans, other ban figures"),
    ({"limits_url": "redis://elsewhere:6379/1"}, REDIS),
    ({"limits_url": "redis://shared/2"}, REDIS),
    ({"limits_url": "redis://shared/1?db=2"}, REDIS),
    ({"limits_url": "redis://shared"}, REDIS),
    ({"limits_url": "redis://:other@shared/?db=1", "host": "192.0.2.1", "port": 1}, None),
]


@pytest.mark.parametrize(("change", "words"), DIFFERENCES, ids=str)
def test_differences_between_processes_are_named(change, words):
    limits = Settings(limits_url="redis://:secret@shared/1")
    other = f"store-orders 1.0 {digests(replace(limits, **change))} shop:8081"
    said = f"shop:8081 has {words}" if words else ""
    assert difference(f"1.0 {digests(limits)}", other) == said
    newer = other.replace(" 1.0 ", " 1.1 ")
    said = f"shop:8081 has version 1.1{f', {words}' if words else ''}"
    assert difference(f"1.0 {digests(limits)}", newer) == said


def test_processes_of_other_programs_are_named_too():
    assert difference("1.0 a.b.c", "psql") == "psql is another program"


@pytest.mark.parametrize(
    "change",
    ["UPDATE alembic_version SET version_num = '9999'", "UPDATE store SET store_id = 'another'"],
    ids=["upgraded", "renewed"],
)
def test_a_process_notices_that_the_database_changed_while_it_was_cut_off(
    server, name, settings, start, change
):
    service = start(ORDERS_DATABASE_URL=settings.database_url)
    key = service.issue()
    assert service.request("POST", ORDERS, key, json={"petId": 7}).status == 201
    # Stopped, as it could otherwise end before it is asked.
    service.process.send_signal(signal.SIGSTOP)
    server.execute(change, name)
    server.end_connections(name)
    with ThreadPoolExecutor(1) as threads:
        placed = threads.submit(
            service.request, "POST", ORDERS, key, json={"petId": 7}, retries=False
        )
        service.process.send_signal(signal.SIGCONT)
        assert placed.exception() or placed.result().status == 503
    # It exits with a failure, so a supervisor starts it again.
    assert service.wait() == 1
    assert "upgraded, or renewed, by another program. This service stops." in "".join(service.log)
    assert server.execute("SELECT count(*) FROM orders", name) == [(1,)]


def test_a_stalled_writer_blocks_others_no_longer_than_their_own_time_limit(
    store, make_store, monkeypatch
):
    with store.database.write() as connection:
        (shown,) = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").one()
    assert shown == f"{postgres_database.BUSY_SECONDS - 1}s"
    monkeypatch.setattr(postgres_database, "_WRITER_IDLE", "300ms")
    client = make_store().client()
    with pytest.raises(StoreUnavailable), store.database.write() as connection:  # noqa: PT012
        connection.exec_driver_sql("UPDATE orders SET quantity = 2")
        assert client.place().status_code == 201
        connection.exec_driver_sql("SELECT 1")


def test_a_database_that_an_older_version_serves_is_not_upgraded(
    unfinished, monkeypatch, upkeep_of
):
    before = checks.schema_version()
    old = unfinished(is_old=True)
    monkeypatch.setattr(postgres_upkeep, "BUSY_SECONDS", 0)
    with upkeep_of(old).acquire(alone=False):
        with pytest.raises(checks.UnfitDatabase, match="Stop all of its services"):
            upkeep_of(old).prepare()
        assert version_of(old) == before
    upkeep_of(old).prepare()
    upkeep_of(old).check()


# Messages at a start.


@pytest.fixture
def refusal(forks, tmp_path):
    """Return the one line of a start that fails over a database."""

    def start(url):
        done = forks.run("app.py", instance=tmp_path / "refused", ORDERS_DATABASE_URL=url)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    return start


def test_a_start_reports_what_is_wrong_with_a_database_without_the_password(server, name, refusal):
    foreign = server.create()
    server.execute("CREATE TABLE diary (page text)", foreign)
    assert "not this program's" in refusal(server.url(foreign))
    for number, words in ((9999, "newer version"), (13, "before version 1.0.0")):
        server.execute(f"UPDATE alembic_version SET version_num = '{number:04}'", name)
        assert words in refusal(server.url(name))
    server.execute(
        "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    assert "UTF8" in refusal(server.url("latin"))
    assert '"nowhere" does not exist' in refusal(server.url("nowhere"))
    server.execute("CREATE ROLE guest LOGIN")
    empty = server.url(server.create()).replace("postgres@", "guest@")
    assert "permission denied" in refusal(empty)
    away = refusal("postgresql+psycopg://shop:hunter2@127.0.0.1:1/shop")  # pragma: allowlist secret
    assert "127.0.0.1" in away
    assert "hunter2" not in away


# What is in the database.


def test_instants_are_timestamps_and_the_event_log_rejects_changes(server, name, client):
    client.place(shipDate="2026-12-01T09:00:00.123456+01:00")
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


REFERENCES = (
    '"quoted" \\ and / and <b>',
    "Größe ñ 漢字 🐕",
    "\u2028 \u00a0 %s %% ? :x",
    "'",
)


def test_both_databases_return_the_same_bytes(store, tmp_path, empty_database):
    instance = tmp_path / "file"
    instance.mkdir()
    copy_database(empty_database, instance / "orders.db")
    file = Store(Settings(instance=instance), SetClock())
    assert responses_of(file) == responses_of(store)
    file.database.close()


def responses_of(store):
    """Place, ship and cancel orders; return the bytes of what the store then answers."""
    store.execute("UPDATE store SET store_id = 'the same'")  # cursors depend on it
    client = store.client().speaking(2)
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
    paths = (
        ORDERS,
        f"{ORDERS}/1",
        "/v2/store/orders",
        "/v2/store/orders?sort=-shipDate&limit=3",
        "/v2/store/orders?status=pending&sort=placedAt",
        "/v2/store/orders/3",
        "/v2/store/orders/3/events",
        "/v2/store/stats?days=366",
        "/v2/store/events",
    )
    # Each request has another id; of a server, the service makes no backups.
    request_id = re.compile(rb'(?<="requestId":")\w{16}|,"backups":[{][^}]*[}]')
    exported = command(store, "orders", "export").stdout
    return [*(request_id.sub(b"", client.get(path).data) for path in paths), exported]


FILTERS = [
    Filters(),
    Filters(statuses=(Status.PENDING,)),
    Filters(statuses=(Status.PENDING, Status.SHIPPED)),
    Filters(pet_id=7),
    Filters(reference="order 7"),
    Filters(search="ORDER 714"),
    Filters(search="#714"),
]


def test_pages_and_long_lists_are_read_by_an_index(server, name, store):
    have_orders(server, name, 20_000)
    server.execute("VACUUM ANALYZE orders, order_words", name)
    explained = Explained(store.database)
    for filters, by, descending in itertools.product(FILTERS, SortBy, (False, True)):
        sort = Sort(by, descending)
        first = read_page(explained, PageQuery(filters, sort, 50))
        read_page(explained, PageQuery(filters, sort, 50, first.next))
    explained.fetch_all(orders_json._CHUNK, after=4_000, size=4_000)  # noqa: SLF001 - as it is streamed
    assert len(explained.plans) > 2 * len(FILTERS)
    for plan in map(str, explained.plans):
        assert "Seq Scan on orders" not in plan, plan


# The commands.


def test_check_reports_whether_a_database_is_sound_and_what_is_wrong(server, name, store, client):
    client.place()
    client.ship(1)
    client.place()
    client.cancel(2)
    assert said(store, "db", "check") == f"{store.database.where} is sound.\n"
    for damage, complaint, repair in (
        (
            "UPDATE orders SET quantity = 9 WHERE id = 1",
            "its last event",
            "UPDATE orders SET quantity = 1 WHERE id = 1",
        ),
        (
            "UPDATE order_quarters SET placed = placed + 1",
            "a day's figures",
            "UPDATE order_quarters SET placed = placed - 1",
        ),
        (
            "INSERT INTO order_words (order_id, word) VALUES (1, 'a')",
            "db check --fix-search",
            "DELETE FROM order_words",
        ),
        ("SELECT setval('order_events_id_seq', 1)", "assigned twice", "SELECT 1"),
    ):
        server.execute(damage, name)
        assert complaint in rejected(store, "db", "check")
        server.execute(repair, name)


@pytest.mark.parametrize("subcommand", ["backup", "restore"])
def test_backup_and_restore_name_the_commands_to_use_instead(store, tmp_path, subcommand):
    (tmp_path / "copy.db").write_bytes(b"")
    message = rejected(store, "db", subcommand, tmp_path / "copy.db")
    for word in ("pg_dump", "pg_restore", "store-orders db renew"):
        assert word in message


def test_a_restored_database_misleads_no_client_once_it_is_renewed(
    server, name, store, tmp_path, caplog
):
    store.shop.upkeep.prepare()
    client = store.client()
    client.place()
    tag = client.get(ORDERS).headers["ETag"]
    dump, target = tmp_path / "shop.dump", server.conninfo(name)
    run = partial(subprocess.run, check=True, timeout=60)
    run([server.bin / "pg_dump", "--format=custom", f"--file={dump}", target])
    client.place()
    store.database.close()
    options = ("--clean", "--if-exists", "--single-transaction", f"--dbname={target}")
    run([server.bin / "pg_restore", *options, dump])
    restored = Store(store.settings, store.clock)
    assert caplog.messages == []
    restored.shop.upkeep.prepare()
    (warning,) = caplog.messages
    assert "was restored from a dump, or moved, and not renewed" in warning
    assert command(restored, "db", "renew").exit_code == 0
    restored.shop.upkeep.prepare()
    assert caplog.messages == [warning]
    revoked = Client(restored, client.key_id, client.secret)
    assert_error(revoked.get(ORDERS), 401, "invalid_api_key")
    new = restored.client()
    answer = new.get(ORDERS, headers={"If-None-Match": tag})
    assert (answer.status_code, len(answer.get_json())) == (200, 1)
    assert new.place().get_json()["id"] > 1_000_000
    assert restored.events()[-1]["id"] > 1_000_000
    said(restored, "db", "check")
    restored.database.close()


def test_test_mode_has_a_schema_and_locks_of_its_own(server, name, store, client):
    tested = store.test_client()
    assert client.place(7).get_json()["id"] == 1
    with server.locked(name):
        placed = [tested.place(9).get_json()["id"] for _ in range(2)]
    assert placed == [1, 2]
    assert server.execute("SELECT pet_id FROM public.orders", name) == [(7,)]
    assert server.execute("SELECT DISTINCT pet_id FROM test.orders", name) == [(9,)]


def test_test_mode_rejects_a_schema_with_other_tables(server, name, settings, store):
    url = f"{settings.database_url}&options=-csearch_path%3Dtest%2Cpublic"
    other = Store(replace(settings, database_url=url), SetClock())
    with closing(other.database):
        refusal = rejected(other, "keys", "issue", "test", "--plan", "free", "--test")
    assert "can't be of test mode alone" in refusal
    assert server.execute("SELECT to_regnamespace('test')", name) == [(None,)]


def test_a_plain_install_does_not_load_the_driver(tmp_path):
    code = (
        "import sys; from orders.application import create_app; create_app(); "
        "sys.exit('psycopg' in sys.modules)"
    )
    environment = environment_for(tmp_path)
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=60)
