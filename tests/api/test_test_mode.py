"""Test mode: keys sok_test_… use a store of their own, chosen by the key's prefix alone."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import closing

import pytest
from flask import g

from orders import apikeys
from orders.settings import SettingsError, load
from orders.shop import database_of
from orders.store import apikeys as key_store
from orders.store.apikeys import NewKey
from orders.store.database.database import BUSY_SECONDS
from orders.web.access import Call
from orders.web.api import ServingPolicy
from orders.web.bodies import IMPORTS, LARGEST_IMPORT
from orders.web.monitoring.health import StatusFile
from tests.support.clocks import WHERE_COUNTED
from tests.support.commands import command, rejected, said
from tests.support.faults import locked
from tests.support.live import Stream
from tests.support.machine import PATIENCE_SECONDS, wait_until
from tests.support.stores import BOTH_VERSIONS, Client, assert_error, logged

LIST = "/v2/store/orders"
EVENTS = "/v2/store/events"
MODE = "Store-Mode"


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Make requests wait until the test store is open, however busy the machine is."""
    monkeypatch.setattr("orders.shop._PATIENCE_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def live(store):
    return store.client().speaking(2)


@pytest.fixture
def tested(store):
    """A client with a key of test mode."""
    return store.test_client().speaking(2)


def issued_to(service):
    """Issue a key of test mode to a service; return it once its store is open."""
    key = service.issue("business", "--test")
    wait_until(lambda: service.request("GET", LIST, key).status == 200)
    return key


def stranger(store):
    return Client(store, None, apikeys.generate(is_test=True)).speaking(2)


def insert(database, secret, now):
    """Insert a key into a table, whatever its secret's prefix."""
    with database.write() as connection:
        return key_store.issue(connection, NewKey("test", "pro", ("read", "write")), secret, now)


# Nothing of one store is visible in the other.


def test_test_keys_have_orders_ids_and_events_of_their_own(live, tested):
    assert tested.secret.startswith("sok_test_")
    for count in range(1, 4):
        assert tested.place(pet_id=9).get_json()["id"] == count
    assert live.place(pet_id=7).get_json()["id"] == 1
    for _ in range(2):  # then cached
        assert [each["petId"] for each in live.get(LIST).get_json()["orders"]] == [7]
        assert [each["petId"] for each in tested.get(LIST).get_json()["orders"]] == [9, 9, 9]
    assert [len(each.get(EVENTS).get_json()["events"]) for each in (live, tested)] == [1, 3]
    assert_error(live.order(3), 404, "order_not_found")
    figures = live.get("/v2/store/stats").get_json()["byStatus"]
    assert figures == {"pending": 1, "shipped": 0, "cancelled": 0}


@BOTH_VERSIONS
def test_a_test_key_works_in_both_versions(store, version):
    client = store.test_client().speaking(version)
    order_id = client.place(pet_id=9).get_json()["id"]
    assert client.order(order_id).get_json()["petId"] == 9
    assert client.ship(order_id).get_json()["complete"]
    assert client.get(client.orders).status_code == 200
    assert_error(client.cancel(order_id), 409, "order_already_shipped")


def test_no_etag_is_valid_in_the_other_store(live, tested):
    etags = [each.place().headers["ETag"] for each in (live, tested)]
    for client, foreign in zip((live, tested), reversed(etags), strict=True):
        assert client.order(1, headers={"If-None-Match": foreign}).status_code == 200
        path = f"{LIST}/1/ship"
        assert_error(client.post(path, headers={"If-Match": foreign}), 412, "precondition_failed")
        mine = client.get(LIST).headers["ETag"]
        other = tested if client is live else live
        assert other.get(LIST, headers={"If-None-Match": mine}).status_code == 200
        assert client.get(LIST, headers={"If-None-Match": mine}).status_code == 304


def test_no_cursor_is_valid_in_the_other_store(live, tested):
    for client in (live, tested):
        for _ in range(2):
            client.place()
    for client, other in ((live, tested), (tested, live)):
        cursor = client.get(f"{LIST}?limit=1").get_json()["next"]
        assert client.get(f"{LIST}?limit=1&after={cursor}").status_code == 200
        assert_error(other.get(f"{LIST}?limit=1&after={cursor}"), 422, "validation_failed")


def test_no_idempotency_key_is_shared_with_the_other_store(live, tested):
    again = {"Idempotency-Key": "same"}
    placed = [each.place(pet_id=7, headers=again) for each in (live, tested)]
    assert [each.status_code for each in placed] == [201, 201]
    assert not any("Idempotent-Replayed" in each.headers for each in placed)
    assert tested.place(pet_id=7, headers=again).headers["Idempotent-Replayed"] == "true"
    assert len(live.get(LIST).get_json()["orders"]) == 1


def test_no_event_position_is_valid_in_the_other_store(live, tested):
    for _ in range(5):
        live.place()
    assert_error(tested.get(f"{EVENTS}?after=5"), 422, "validation_failed")
    asked = {"Last-Event-ID": "5", "Accept": "text/event-stream"}
    assert_error(tested.get(f"{EVENTS}?after=0&wait=1", headers=asked), 422, "validation_failed")


@pytest.mark.parametrize("counting", WHERE_COUNTED)
def test_limits_and_bans_are_separate(make_store):
    store = make_store(ban_after=2)
    live, tested = store.client(plan="free"), store.test_client("free")
    assert live.key_id == tested.key_id == 1
    assert [tested.get(LIST).status_code for _ in range(61)] == [200] * 60 + [429]
    store.clock.advance(2)
    assert_error(tested.get(LIST), 429, "api_key_banned")
    answer = live.get(LIST)
    assert (answer.status_code, answer.headers["X-RateLimit-Remaining"]) == (200, "59")
    banned = [store.app.shop.bans.in_force, store.app.test_mode.shop.bans.in_force]
    assert banned == [0, 1]


# The prefix alone decides.


def test_a_test_key_in_the_live_stores_table_is_invalid(store):
    secret = apikeys.generate(is_test=True)
    insert(store.database, secret, store.clock.now())
    assert_error(Client(store, 1, secret).get(LIST), 401, "invalid_api_key")


def test_a_key_without_the_prefix_in_the_test_stores_table_is_invalid(store, tested):
    assert tested.get(LIST).status_code == 200
    secret = apikeys.generate()
    insert(store.app.test_mode.shop.database, secret, store.clock.now())
    assert_error(Client(store, 2, secret).get(LIST), 401, "invalid_api_key")


def test_before_test_mode_is_used_an_unknown_test_key_creates_no_store(store):
    client = stranger(store)
    assert_error(client.get(LIST), 401, "invalid_api_key")
    assert client.get(LIST).headers["X-RateLimit-Remaining"] == "58"
    assert not (store.settings.instance / "test").exists()
    assert store.app.test_mode.shop is None


def test_a_rotated_key_stays_in_test_mode(store, tested):
    tested.place()
    before, tested.secret = tested.secret, rotated(store, "keys", "rotate", "1", "--test")
    assert tested.secret.startswith("sok_test_")
    store.clock.advance(1)
    assert len(tested.get(LIST).get_json()["orders"]) == 1
    tested.secret = before
    assert_error(tested.get(LIST), 401, "invalid_api_key")


def rotated(store, *arguments):
    done = command(store, *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def test_an_admin_key_of_test_mode_administers_test_mode_alone(store):
    live = store.client(scopes=("read", "write", "admin")).speaking(2)
    tested = store.test_client("business", "--scope", "admin").speaking(2)
    new = {"name": "made by a test key", "plan": "free"}
    issued = tested.post("/v2/keys", json=new).get_json()
    rotated = tested.post(f"/v2/keys/{issued['id']}/rotate").get_json()
    for each in (issued, rotated):
        assert each["secret"].startswith("sok_test_")
    assert Client(store, None, rotated["secret"]).get(LIST).headers[MODE] == "test"
    names = [each["name"] for each in live.get("/v2/keys").get_json()["keys"]]
    assert new["name"] not in names
    # A live key has the same id.
    assert tested.delete(f"/v2/keys/{issued['id']}").status_code == 204
    assert not live.post("/v2/keys", json=new).get_json()["secret"].startswith("sok_test_")
    assert len(tested.get("/v2/keys").get_json()["keys"]) == 2


# How answers show it.


def test_every_answer_to_a_test_key_says_so(store, live, tested):
    reader = store.test_client("free", "--scope", "read").speaking(2)
    answers = [
        tested.place(),
        tested.order(1),
        tested.head(f"{LIST}/1"),
        tested.options(LIST),
        tested.get("/v1/store/orders"),
        tested.get("/v1/pets/1"),
        tested.order(9),
        tested.get("/v2/nothing"),
        tested.put(LIST),
        tested.get(f"{LIST}?unknown=1"),
        tested.post(LIST, data="{"),
        reader.place(),
        stranger(store).get(LIST),
        *(reader.get(LIST) for _ in range(60)),
    ]
    assert {each.status_code for each in answers} == {
        *(200, 201, 204, 401, 403, 404, 405, 415, 422, 429)
    }
    assert {each.headers.get(MODE) for each in answers} == {"test"}
    others = live.place(), live.order(9), store.anonymous().get(LIST), tested.get("/readyz")
    assert {each.headers.get(MODE) for each in others} == {None}


def test_a_test_prefix_elsewhere_in_the_header_is_not_a_test_key(store):
    for sent in (f"Basic {apikeys.TEST_PREFIX}", f"Bearer x{apikeys.TEST_PREFIX}"):
        answer = store.anonymous().get(LIST, headers={"Authorization": sent})
        assert (answer.status_code, MODE in answer.headers) == (401, False)


def test_refusals_by_the_server_itself_say_so_too(start):
    service = start()  # its own service, as this creates a test store
    key = service.issue("pro", "--test")
    coded = {"Transfer-Encoding": "gzip"}
    answer = service.request("POST", LIST, key, headers=coded)
    assert (answer.status, answer.headers[MODE]) == (501, "test")
    assert MODE not in service.request("POST", LIST, service.issue(), headers=coded).headers


# Nothing of it in the live store's metrics, log and status.


def test_no_metric_counts_requests_of_test_mode(make_store):
    store = make_store(metrics=True)
    live, tested = store.client().speaking(2), store.test_client().speaking(2)
    live.place()
    before = figures(store)
    for _ in range(3):
        tested.place()
        stranger(store).get(LIST)
    assert figures(store) == before


def figures(store):
    text = store.anonymous().get("/metrics").get_data(as_text=True)
    # Metrics of the process, the machine, and of scrapes change by themselves.
    others = ("process_", "python_", "#", "store_orders_http_request_wait")
    lines = (line for line in text.splitlines() if not line.startswith(others))
    names = ("_threads ", "_disk_free_bytes ", "_answer_seconds ", 'operation="metrics"')
    return {line for line in lines if not any(name in line for name in names)}


def test_log_lines_of_test_mode_are_marked(make_store):
    store = make_store(ban_after=1)
    for style, prefix in (("text", "warning: test mode: Key"), ("json", '"mode": "test"')):
        with logged(style) as log:
            tested = store.test_client("free")
            for _ in range(62):
                tested.get("/v1/store/orders").close()
            lines = log.getvalue()
        (ban,) = (line for line in lines.splitlines() if "is banned" in line)
        assert prefix in ban
        assert f"test:key:{tested.key_id}" in lines
        assert tested.secret not in lines


@pytest.mark.sqlite_only("damages the file")
def test_a_damaged_test_store_stops_nothing_else(store, live, databases):
    tested = store.test_client().speaking(2)
    (store.settings.instance / "test/orders.db").write_bytes(b"no database" * 1000)
    with logged() as log:
        for _ in range(3):
            assert_error(tested.get(LIST), 503, "store_unavailable")
        assert tested.get(LIST).headers[MODE] == "test"
        assert log.getvalue().count("test mode: It can't be opened") == 1
    assert live.place().status_code == 201
    ready = store.anonymous().get("/readyz").get_json()
    assert (ready["status"], ready["database"]) == ("ready", "ok")


@pytest.mark.sqlite_only("locks the file")
def test_a_change_to_a_locked_test_store_holds_a_worker_only_briefly(store, live, tested):
    tested.place()
    with locked(store.settings.in_test_mode().database_path):
        began = time.monotonic()
        assert_error(tested.place(), 503, "store_unavailable")
        assert time.monotonic() - began < BUSY_SECONDS / 2
        assert live.place().status_code == 201
    assert tested.place().status_code == 201


# Commands.


def test_commands_reach_the_test_store_by_an_option(store, live, tested, tmp_path):
    live.place(pet_id=7)
    tested.place(pet_id=9)
    shown = {
        ("keys", "list"): "sok_test_",
        ("orders", "show", "1"): "petId      9",
        ("events", "tail"): "order.placed",
        ("orders", "export"): ",9,",
        ("audit",): "key.issued",
    }
    for words, text in shown.items():
        done = command(store, *words, "--test")
        assert (done.exit_code, text in done.stdout) == (0, True), done.output
    assert "sok_test_" not in command(store, "keys", "list").stdout
    assert "key.issued" not in command(store, "audit").stdout
    groups = ("keys", "webhooks", "orders", "pets", "events")
    for group in groups:
        for each in store.app.cli.commands[group].commands:
            assert "--test" in command(store, group, each, "--help").stdout
    assert "--test" not in command(store, "db", "backup", "--help").stdout


def test_the_path_of_the_test_store_cannot_be_the_live_database(tmp_path):
    at = tmp_path / "test" / "orders.db"
    environ = {"ORDERS_INSTANCE": str(tmp_path), "ORDERS_DATABASE_URL": f"sqlite:///{at}"}
    with pytest.raises(SettingsError, match="kept for test mode"):
        load(environ)


def test_failures_in_test_mode_are_left_out_of_the_live_status(store, live, tested):
    status = StatusFile(store.app, [])
    try:
        for count, client in enumerate((live, tested)):
            client.place().close()
            with store.app.test_request_context("/v2/store/orders"):
                g.call = Call(store.shop, 0.0, True, "-", "GET", "/v2/x", client is tested)
                logging.getLogger("orders").warning("It fails.")
            assert status.recent.facts()["requests"] == 1, count
            assert sum(each["count"] for each in status.recent.facts()["failed"]) == 1
    finally:
        store.app.answer_log.listeners.remove(status.recent.record_answer)
        status.close()


def test_a_phone_is_signed_in_with_a_test_key(make_store):
    store = make_store(base_url="https://shop.example.com/v1")
    tested = store.test_client()
    phone = store.anonymous()
    address = phone.post("/console/phone", data=tested.secret.encode()).get_json()["address"]
    assert address == "https://shop.example.com/"
    unknown = apikeys.generate(is_test=True).encode()
    assert_error(phone.post("/console/phone", data=unknown), 401, "invalid_api_key")


# Resetting.


def test_a_reset_empties_the_test_store_while_it_is_used(store, live, tested):
    live.place()
    again = {"Idempotency-Key": "again"}
    for _ in range(3):
        tested.place()
    tested.place(headers=again)
    tested.ship(1)
    stale = tested.get(LIST).headers["ETag"]
    message = said(store, "test", "reset")
    assert message == "Test mode is empty: 4 orders are gone. Its keys and webhooks stay.\n"
    assert tested.get(LIST, headers={"If-None-Match": stale}).get_json() == {"orders": []}
    assert tested.get("/v1/store/orders").get_json() == []
    assert tested.get(EVENTS).get_json() == {"events": [], "next": 0, "more": False}
    assert sum(tested.get("/v2/store/stats").get_json()["byStatus"].values()) == 0
    placed = tested.place(headers=again)
    assert (placed.get_json()["id"], placed.headers.get("Idempotent-Replayed")) == (5, None)
    (event,) = tested.get(EVENTS).get_json()["events"]
    assert event["id"] == 6
    assert len(live.get(LIST).get_json()["orders"]) == 1
    shop = store.app.test_mode.shop
    shop.upkeep.check_whole()
    with pytest.raises(Exception, match="never changed"), shop.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM order_events")
    assert "store.emptied" in command(store, "audit", "--test").stdout
    assert "store.emptied" not in command(store, "audit").stdout


def test_without_a_test_store_there_is_nothing_to_reset(store):
    assert "There is no store for test mode yet" in rejected(store, "test", "reset")
    assert "There is no store for test mode yet" in rejected(store, "keys", "list", "--test")


def test_event_streams_continue_after_a_reset_and_new_ones_see_nothing_older(start):
    service = start()
    key = issued_to(service)
    order = {"json": {"petId": 7}}
    with Stream(service.address, key, "after=0") as early:
        for _ in range(3):
            service.request("POST", LIST, key, **order)
        assert [each["id"] for each in early.events(3)] == [1, 2, 3]
        service.output("test", "reset")
        service.request("POST", LIST, key, **order)
        assert [each["id"] for each in early.events(1)] == [4]
        with Stream(service.address, key, "after=0") as late:
            assert [each["id"] for each in late.events(1)] == [4]


# Webhooks.


def test_webhook_messages_of_test_mode_are_marked_and_only_its_own(start, receiver):
    service = start()
    live, tested = service.issue(), issued_to(service)
    for options in ((), ("--test",)):
        service.output("webhooks", "add", receiver.url, "--allow-private", *options)
    order = {"json": {"petId": 7}}
    assert service.request("POST", LIST, tested, **order).status == 201
    first = receiver.arrivals.get(timeout=10)
    assert (first.headers["store-mode"], first.json["eventId"]) == ("test", 1)
    assert service.request("POST", LIST, live, **order).status == 201
    second = receiver.arrivals.get(timeout=10)
    assert "store-mode" not in second.headers
    assert (first.event, second.event) == (1, 1)
    assert first.id != second.id
    service.output("webhooks", "ping", "1", "--test")
    assert receiver.arrivals.get(timeout=10).headers["store-mode"] == "test"
    assert receiver.arrivals.empty()


def test_orders_imported_by_a_command_are_sent_before_any_test_request(start, receiver, tmp_path):
    service = start()
    service.issue("business", "--test")
    added = ("--event", "order.imported", "--allow-private", "--test")
    service.output("webhooks", "add", receiver.url, *added)
    file = tmp_path / "orders.csv"
    file.write_text("petId\n7\n", encoding="utf-8")
    service.output("orders", "import", str(file), "--test")
    assert receiver.arrivals.get(timeout=15).headers["store-mode"] == "test"


def test_a_reset_during_a_delivery_ends_only_that_delivery(start, receiver):
    service = start()
    key = issued_to(service)
    service.output("webhooks", "add", receiver.url, "--allow-private", "--test")
    emptied = threading.Event()

    def answering(handler, received):
        if received.event == 1:
            service.output("test", "reset")
            emptied.set()
        handler.answer(200)

    receiver.answering = answering
    assert service.request("POST", LIST, key, json={"petId": 7}).status == 201
    assert emptied.wait(10)
    assert service.request("POST", LIST, key, json={"petId": 7}).status == 201
    assert [receiver.arrivals.get(timeout=4).event for _ in range(2)] == [1, 2]
    service.stop()
    assert "Traceback" not in "".join(service.log)


# Both stores under load.


def test_concurrent_load_on_both_stores_mixes_nothing(start, tmp_path, databases):
    service = start()
    keys = {7: service.issue("business"), 9: issued_to(service)}
    before = {pet: windows(service, key) for pet, key in keys.items()}
    counts, failures = 60, []

    def work(pet, number):
        for turn in range(counts):
            headers = {"Idempotency-Key": f"{number}-{turn}"}
            placed = service.request("POST", LIST, keys[pet], json={"petId": pet}, headers=headers)
            order = json.loads(placed.data)
            shipped = service.request("POST", f"{LIST}/{order['id']}/ship", keys[pet])
            page = json.loads(service.request("GET", f"{LIST}?limit=5", keys[pet]).data)
            pets = {each["petId"] for each in page["orders"]}
            if (placed.status, shipped.status, pets) != (201, 200, {pet}):
                failures.append((pet, placed.status, shipped.status, pets))

    threads = [threading.Thread(target=work, args=(pet, each)) for each in range(2) for pet in keys]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    for pet, key in keys.items():
        assert before[pet] - windows(service, key) == 2 * counts * 3 + 1
    service.stop()
    settings = databases.settings(tmp_path / "instance")
    for pet, where in ((7, settings), (9, settings.in_test_mode())):
        assert facts(where) == {
            "orders": [(pet, "shipped", 2 * counts, 1, 2 * counts)],
            "events": [(pet, 4 * counts, 1, 4 * counts)],
            "keys": [(1,)],
            "idempotency": [(2 * counts,)],
        }


def windows(service, key):
    answer = json.loads(service.request("GET", "/v2/usage", key).data)
    return answer["windows"]["day"]["remaining"]


def facts(settings):
    queries = {
        "orders": "SELECT pet_id, status, count(*), min(id), max(id) FROM orders GROUP BY 1, 2",
        "events": "SELECT pet_id, count(*), min(id), max(id) FROM order_events GROUP BY 1",
        "keys": "SELECT count(*) FROM api_keys",
        "idempotency": "SELECT count(*) FROM idempotency_keys",
    }
    database, _ = database_of(settings, 1)
    with closing(database), database.read() as connection:
        return {
            name: [tuple(row) for row in connection.exec_driver_sql(query)]
            for name, query in queries.items()
        }


def test_test_mode_has_no_thread_before_its_first_key(store, live):
    live.place()
    stranger(store).get(LIST)
    assert not threads_of_test_mode()
    assert store.test_client().get("/v1/store/orders").status_code == 200
    assert threads_of_test_mode()
    store.app.test_mode.stop()
    assert not threads_of_test_mode()


def threads_of_test_mode():
    return [each.name for each in threading.enumerate() if each.name.startswith("test mode")]


@pytest.mark.sqlite_only
def test_an_import_is_not_cut_off_while_the_test_store_opens(store):
    policy = ServingPolicy(store.app, lambda: None)
    headers = {"AUTHORIZATION": f"Bearer {apikeys.generate(is_test=True)}"}
    assert policy.body_bytes("POST", IMPORTS, headers) < LARGEST_IMPORT
    headers = {"AUTHORIZATION": f"Bearer {store.test_client().secret}"}
    assert store.app.test_mode.shop is None
    assert policy.body_bytes("POST", IMPORTS, headers) == LARGEST_IMPORT
