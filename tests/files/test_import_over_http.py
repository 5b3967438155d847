"""Files imported over HTTP, by the rules of the command."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orders import apikeys
from orders.apikeys import SCOPES
from orders.cli import orders as commands
from orders.files.shops import SHOPS
from orders.files.spreadsheets import DATE_ORDERS
from orders.service import IfKnown
from orders.web.bodies import LARGEST_IMPORT
from schemas import imports as parameters
from tests.support.stores import assert_error

IMPORTS = "/v2/imports"
INVALID = (422, "validation_failed")
GOOD = "petId,quantity,reference,item\n7,2,WEB-1,Collar\n8,1,WEB-2,Leash\n"


@pytest.fixture
def owner(store):
    return store.client(scopes=SCOPES).speaking(2)


def send(client, text, query="", name="orders.csv", headers=None, **more):
    """Import a file with this text or these bytes; `more` holds the texts of other parts."""
    content = text if isinstance(text, bytes) else text.encode()
    parts = {part: (io.BytesIO(each.encode()), f"{part}.csv") for part, each in more.items()}
    data = {"file": (io.BytesIO(content), name), **parts}
    return client.post(f"{IMPORTS}?{query}", data=data, headers=headers or {})


def test_imported_orders_are_listed_and_their_events_name_the_key(owner, store):
    response = send(owner, GOOD)
    assert response.get_json() == {"orders": 2, "remarks": []}
    orders = owner.get("/v2/store/orders").get_json()["orders"]
    assert [(each["reference"], each["item"]) for each in orders] == [
        ("WEB-1", "Collar"),
        ("WEB-2", "Leash"),
    ]
    events = owner.get("/v2/store/events").get_json()["events"]
    assert [(each["type"], each["actor"]) for each in events] == [("order.imported", "key:1")] * 2
    assert {each["requestId"] for each in events} == {response.headers["X-Request-Id"]}


def test_a_dry_run_shows_the_first_orders_and_every_fault_and_imports_nothing(owner, store):
    report = send(owner, GOOD + "x,1,,\n9,0,,\n", "dryRun=true").get_json()
    assert [each["reference"] for each in report["first"][:2]] == ["WEB-1", "WEB-2"]
    assert [(each["line"], each["column"]) for each in report["faults"]] == [
        (4, "petId"),
        (5, "quantity"),
    ]
    assert report["faultCount"] == 2
    assert not store.events()


def test_a_file_with_a_fault_is_rejected_as_a_whole_and_the_line_named(owner, store):
    response = send(owner, GOOD + "x,1,,\n")
    assert_error(response, *INVALID)
    (fault,) = response.get_json()["errors"]
    assert fault["field"] == "line 4, petId"
    assert not store.events()


def test_a_file_without_an_extension_is_csv(owner):
    assert send(owner, GOOD, name="file").get_json() == {"orders": 2, "remarks": []}


@pytest.mark.parametrize("query", ["", "dryRun=true"])
def test_a_file_that_is_no_table_of_orders_is_rejected_without_naming_command_options(
    owner, store, query
):
    for name, content in {
        "book.xlsx": b"PK\x03\x04",
        "orders.csv": b"PK\x03\x04\x81\x8d",
        "other.csv": b"name\nRex\n",
        "sku.csv": b"Name,Lineitem name\n#1,Leash\n",
    }.items():
        text = send(owner, content, query, name).get_data(as_text=True)
        assert '"line' in text, name
        assert "--" not in text, name
    assert not store.events()


def test_the_parameters_are_the_options_of_the_command(owner):
    assert set(parameters.SHOPS) == set(SHOPS)
    assert set(parameters.DATE_ORDERS) == set(DATE_ORDERS)
    assert set(parameters.IF_KNOWN) == {each.value for each in IfKnown}
    options = {each.name for each in commands.import_orders.params} - {"file", "pets", "test"}
    assert set(parameters.ImportQuerySchema().fields) | {"columns"} == options | {"column"}


def test_headings_dates_and_pets_are_read_as_the_parameters_say(owner):
    table = "SKU,Bestellt,ref,extra\nLE-1,22.11.2026 10:00,A-1,x\n"
    query = (
        "column=petId=SKU&column=placedAt=Bestellt&column=reference=ref&ignoreOthers=true"
        "&dates=dmy&zone=Europe/Berlin"
    )
    report = send(owner, table, query, pets="sku,petId\nLE-1,12\n").get_json()
    assert report["orders"] == 1
    (order,) = owner.get("/v2/store/orders").get_json()["orders"]
    assert (order["petId"], order["placedAt"]) == (12, "2026-11-22T09:00:00.000Z")


def test_a_file_sent_again_with_the_same_idempotency_key_is_imported_once(owner, store):
    headers = {"Idempotency-Key": "file-1"}
    first, again = (send(owner, GOOD, headers=headers) for _ in range(2))
    assert first.data == again.data
    assert again.headers["Idempotent-Replayed"] == "true"
    assert len(store.events()) == 2
    for changed in (
        send(owner, GOOD + "9,1,,\n", headers=headers),
        send(owner, GOOD, "ifKnown=skip", headers=headers),
    ):
        assert_error(changed, 422, "idempotency_key_reused")
    assert len(store.events()) == 2


def test_known_references_are_rejected_skipped_or_imported(owner, store):
    send(owner, GOOD)
    refused = send(owner, GOOD, "ifKnown=refuse")
    assert_error(refused, *INVALID)
    skipped = send(owner, GOOD, "ifKnown=skip").get_json()
    assert (skipped["orders"], [each["rows"] for each in skipped["remarks"]]) == (0, [2])
    assert send(owner, GOOD).get_json()["orders"] == 2
    assert len(store.events()) == 4


def test_a_form_without_a_file_or_with_another_part_is_rejected(owner, store):
    for data, field in (
        ({}, "file"),
        ({"file": "a text"}, "file"),
        ({"file": (io.BytesIO(GOOD.encode()), "a.csv"), "other": "x"}, "other"),
    ):
        response = owner.post(IMPORTS, data=data, content_type="multipart/form-data")
        assert_error(response, *INVALID)
        assert field in {each["field"] for each in response.get_json()["errors"]}
    broken = owner.post(IMPORTS, data=b"--x", content_type="multipart/form-data")
    assert broken.status_code in {415, 422}
    assert_error(owner.post(IMPORTS, json={}), 415, "unsupported_media_type")
    assert not store.events()


def test_one_file_is_imported_at_a_time(owner, store, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    read = commands.formats.read

    def slow(*arguments):
        begun.set()
        assert go_on.wait(30)
        return read(*arguments)

    monkeypatch.setattr(commands.formats, "read", slow)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(send, owner, GOOD)
        assert begun.wait(30)
        second = send(owner, GOOD)
        go_on.set()
        assert first.result().status_code == 200
    assert_error(second, 503, "server_busy")
    assert second.headers["Retry-After"]
    assert len(store.events()) == 2


def test_only_a_valid_key_may_send_a_long_body_and_only_to_imports(start):
    service = start()  # its own service, as this creates a test store
    key = service.issue("business", "--scope", "admin")
    long = b"petId,item\n" + (b"7," + b"x" * 200 + b"\n") * 1_000

    def post(path, key=key, content=long):
        fields = {"file": ("orders.csv", content)}
        headers = {"Authorization": f"Bearer {key}"}
        return service.http.request("POST", service.url + path, fields=fields, headers=headers)

    assert post(f"{IMPORTS}?dryRun=true").json()["orders"] == 1_000
    test_key = service.issue("business", "--scope", "admin", "--test")
    post("/v2/store/orders", test_key)  # opens the test store
    in_test_mode = post(f"{IMPORTS}?dryRun=true", test_key)
    assert (in_test_mode.status, in_test_mode.json().get("orders")) == (200, 1_000)
    assert post(f"{IMPORTS}?dryRun=true", apikeys.generate()).status == 401
    assert post("/v2/store/orders").json()["code"] == "payload_too_large"
    too_long = post(IMPORTS, content=b"7" * LARGEST_IMPORT)
    assert too_long.json()["code"] == "payload_too_large"
    assert f"{LARGEST_IMPORT:,}" in too_long.json()["message"]
