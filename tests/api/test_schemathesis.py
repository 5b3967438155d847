"""Schemathesis against the running service, over both documents, with its checks.

It runs in a process of its own, so that other tests need not import it.

Where the contract differs from a check's expectation, the check is configured:

- `positive_data_acceptance` reads 422 as a rejection of valid data. An Idempotency-Key that is
  reused with another order gets a 422 by contract, so each value is sent once (`HOOKS`). Some
  values that fit the schema are not valid: an `after` that is no cursor of the same query, a
  `Last-Event-ID` that is no event's id, an `If-Match` that is not the order's ETag, an
  `If-None-Match` of a write that is, a `zone` that is no time zone, the `tracking` of another order
  or of a pending one, and most files of an import. Generated valid data leave them out; other tests
  send them. Nor is 1.0 an integer here, as it is in OpenAPI 3.1.
- `object_level_authorization` needs two users who may not see each other's objects. Here all keys
  see all orders of the one shop, so no second user is configured, and nothing is compared.
- `negative_data_rejection` does not apply to bodies of GET and DELETE, nor to version 1's query
  parameters, which the contract ignores: the document declares none, so none are generated.
- `missing_test_data`, a warning, is a failure here: the catalogue can't be filled over HTTP, so
  there are pets, and half of the requested pets are these (`CONFIG_OF`).
- `use_after_free` expects a deleted order to be gone. In version 2, DELETE cancels an order, which
  is then shown as cancelled: it is switched off there (`CONFIG_OF`).
- The document does not say which files `/imports` accepts: neither acceptance nor rejection is
  checked.
- `unsupported_method` and `allow_header_conformance` are switched off for `/store/orders/batch`,
  where other methods than POST are those of `/store/orders/{orderId}`, which has no such order.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from orders import settings
from orders.apikeys import SCOPES
from orders.clock import Clock
from orders.domain import NewOrder, Pet, PetStatus
from orders.service import BY_COMMAND
from orders.store import apikeys as key_store
from orders.store import pets
from orders.store.care import opening
from orders.system import make_private_folder
from orders.webhooks.service import WebhookService
from tests.support.service import SOURCE, running
from tests.support.stores import Store

pytestmark = pytest.mark.schemathesis

EXAMPLES = 15  # for each operation
ENDLESS = "per_minute = 1000000000\nper_day = 1000000000\n"
# Requests without a key or with an invalid one count by address, against the free plan.
PLANS = f"[plans.free]\n{ENDLESS}[plans.endless]\n{ENDLESS}"
OWN_KEY = 1
# Ids that may be changed at will, and ids that may be removed: each is removed or revoked once.
CHANGED, GONE = range(2, 5), range(5, 35)
EVENTS = range(1, 4)
FAR = datetime(9999, 1, 1, tzinfo=UTC)
PETS = [Pet(1, "Rex", 1, PetStatus.AVAILABLE), Pet(2**63 - 1, "Mimi", 2, PetStatus.SOLD)]
CONFIG = f"""
# In one thread: in two, hypothesis upsets the parser of Python 3.11.
workers = 1
continue-on-failure = true
warnings = {{ fail-on = true }}
auth.openapi.bearer.bearer = "${{STORE_KEY}}"
dictionaries.pets.values = {[pet.id for pet in PETS]}
dictionaries.changed.values = {[*CHANGED]}
dictionaries.gone.values = {[*GONE]}
dictionaries.events.values = {[*EVENTS]}
checks.enabled = true
checks.response_schema_conformance.validate-formats = true
checks.max_response_time = 5
generation.max-examples = {EXAMPLES}
generation.database = "none"
output.truncation.enabled = false

"""
# For each operation that takes an id, the dictionary above from which most of the ids come.
TAKEN_FROM = {
    "changeKey": {"keyId": "changed"},
    "rotateKey": {"keyId": "gone"},
    "revokeKey": {"keyId": "gone"},
    "unbanKey": {"keyId": "changed"},
    "changeWebhook": {"webhookId": "changed"},
    "rotateWebhook": {"webhookId": "gone"},
    "removeWebhook": {"webhookId": "gone"},
    "pauseWebhook": {"webhookId": "changed"},
    "resumeWebhook": {"webhookId": "changed"},
    "pingWebhook": {"webhookId": "changed"},
    "listDeliveries": {"webhookId": "changed"},
    "redeliver": {"webhookId": "changed", "eventId": "events"},
}
CONFIG_OF = {
    1: """
[[operations]]
include-operation-id = "getPet"
parameters = { "path.petId" = { dictionary = "pets", probability = 0.5 } }
""",
    2: """
checks.use_after_free.enabled = false
[[operations]]
include-operation-id = "listEvents"
parameters = { "query.wait" = 0 }
[[operations]]
include-operation-id = "importOrders"
checks.negative_data_rejection.enabled = false
checks.positive_data_acceptance.enabled = false
[[operations]]
include-operation-id = "placeOrders"
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false
"""
    + "".join(
        f"""
[[operations]]
include-operation-id = "{operation}"
parameters = {{ {
            ", ".join(
                f'"path.{name}" = {{ dictionary = "{values}", probability = 0.8 }}'
                for name, values in parameters.items()
            )
        } }}
"""
        for operation, parameters in TAKEN_FROM.items()
    ),
}
# No webhook's receiver is resolved or connected to, whatever its URL.
OFFLINE = """
import socket

look_up, connect = socket.getaddrinfo, socket.socket.connect

def numbers_alone(host, port, family=0, type=0, proto=0, flags=0):
    return look_up(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)

def refused(connection, address):
    if connection.family != socket.AF_UNIX and address[0] != "127.0.0.1":
        raise ConnectionRefusedError("a test reaches no other machine")
    connect(connection, address)

socket.getaddrinfo, socket.socket.connect = numbers_alone, refused
"""
HOOKS = """
import os
import re
import uuid
from pathlib import Path

import schemathesis

NAME = "Idempotency-Key"
VALID = re.compile(r"[!-+\\--~]{1,255}")
sent = set()

def whole(part):
    if isinstance(part, dict):
        return {name: whole(each) for name, each in part.items()}
    if isinstance(part, list):
        return [whole(each) for each in part]
    return int(part) if isinstance(part, float) and part.is_integer() else part

@schemathesis.hook
def before_call(context, case, kwargs):
    value = (case.headers or {}).get(NAME)
    if value in sent and VALID.fullmatch(str(value)):
        case.headers[NAME] = uuid.uuid4().hex
    sent.add(value)
    if str((case.path_parameters or {}).get("keyId")) == os.environ["STORE_KEY_ID"]:
        # It would go, or be replaced, and nothing more be allowed.
        case.path_parameters["keyId"] = 2
    if case.meta and case.meta.generation.mode.is_positive:
        # To set another, or one where there is none, would make the case an invalid one.
        if isinstance(case.body, dict | list) and "json" in (case.media_type or ""):
            case.body = whole(case.body)
        for name in ("after", "column", "zone"):
            (case.query or {}).pop(name, None)
        for name in ("If-Match", "Last-Event-ID", *(["If-None-Match"] * (case.method != "GET"))):
            (case.headers or {}).pop(name, None)
        for order in orders_in(case.body):
            if order.get("uniqueReference"):
                order.setdefault("reference", uuid.uuid4().hex)
        if isinstance(case.body, dict) and (case.method == "PATCH" or "orderIds" in case.body):
            case.body.pop("tracking", None)
        if case.path == "/imports" and isinstance(case.body, dict):
            case.body.update(file=b"petId\\n7\\n")
            case.body.pop("pets", None)
        if case.path.startswith("/keys") and isinstance(case.body, dict):
            fit_key(case.body)
        if case.path == "/webhooks" and isinstance(case.body, dict):
            case.body["url"] = f"https://{uuid.uuid4().hex}.example/hook"
        if case.path == "/backups/{name}":
            (case.headers or {}).pop("Range", None)
            names = [each.name for each in Path(os.environ["BACKUPS"]).glob("orders-*.db")]
            case.path_parameters["name"] = max(names, default="none")

def orders_in(body):
    found = body.get("orders", [body]) if isinstance(body, dict) else []
    return [each for each in found if isinstance(each, dict)]

def fit_key(body):
    if "name" in body:
        body["name"] = "a shop"
    if "plan" in body:
        body["plan"] = "endless"
    for name in ("perMinute", "perDay"):
        body.pop(name, None)
"""
COLLECTIONS = "/store/orders|/pets|/keys|/webhooks|/deliveries|/backups"
# Statuses that each operation must return at least once.
STATUSES = {
    1: {
        "GET /store/orders": {200, 401},
        "POST /store/orders": {201, 400, 401, 415, 422},
        "GET /store/orders/*": {200, 401, 404},
        "POST /store/orders/*/ship": {200, 401, 404, 409, 422},
        "DELETE /store/orders/*": {204, 401, 404, 409},
        "GET /pets/*": {200, 401, 404},
    },
    2: {
        "GET /store/orders": {200, 401, 422},
        "POST /store/orders": {201, 400, 401, 415, 422},
        "GET /store/orders/*": {200, 401, 404},
        "POST /store/orders/*/ship": {200, 401, 404, 409, 422},
        "DELETE /store/orders/*": {204, 401, 404, 409},
        "GET /store/orders/*/events": {200, 401, 404},
        "GET /store/events": {200, 401, 422},
        "PATCH /store/orders/*": {200, 401, 404, 415, 422},
        "POST /store/orders/*/reopen": {200, 401, 404},
        "POST /store/shipments": {200, 401, 415, 422},
        "POST /store/orders/batch": {200, 401, 415, 422},
        "POST /imports": {200, 401, 422},
        "GET /store/stats": {200, 401, 422},
        "GET /usage": {200, 401},
        "GET /keys": {200, 401},
        "POST /keys": {201, 401, 415, 422},
        "PATCH /keys/*": {200, 401, 404, 415, 422},
        "DELETE /keys/*": {204, 401, 404},
        "POST /keys/*/rotate": {200, 401, 404, 409, 422},
        "POST /keys/*/unban": {401, 404, 409},
        "GET /webhooks": {200, 401},
        "POST /webhooks": {201, 401, 415, 422},
        "PATCH /webhooks/*": {200, 401, 404, 415, 422},
        "DELETE /webhooks/*": {204, 401, 404},
        "POST /webhooks/*/rotate": {200, 401, 404},
        "POST /webhooks/*/pause": {200, 401, 404},
        "POST /webhooks/*/resume": {200, 401, 404, 422},
        "POST /webhooks/*/ping": {200, 401, 404},
        "GET /webhooks/*/deliveries": {200, 401, 404, 422},
        "POST /webhooks/*/deliveries/*/redeliver": {202, 401, 404},
        "GET /audit": {200, 401, 422},
        "GET /backups": {200, 401},
        "POST /backups": {201, 401},
        "GET /backups/*": {200, 401},
    },
}


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A running service with pets in its store, and a key with practically no limits."""
    instance = tmp_path_factory.mktemp("schemathesis") / "instance"
    make_private_folder(instance)
    (instance / "config.toml").write_text(PLANS)
    opening.create(instance / "orders.db")
    store = Store(settings.load({"ORDERS_INSTANCE": str(instance)}), Clock())
    _, secret = store.issue("endless", scopes=SCOPES)
    with store.database.write() as connection:
        pets.replace_all(connection, PETS)
    for number in range(2, GONE.stop):
        assert store.issue("endless")[0] == number
    with store.database.write() as connection:
        for key_id in CHANGED:
            key_store.change(connection, key_id, banned_until=FAR)
    add_webhooks(store)
    for _ in EVENTS:
        store.shop.orders.place(NewOrder(1, 1, None, None), BY_COMMAND)
    store.shop.end()
    (instance / "sitecustomize.py").write_text(OFFLINE)
    with running(instance, ORDERS_BACKUPS="backups", PYTHONPATH=f"{instance}:{SOURCE}") as service:
        yield SimpleNamespace(service=service, secret=secret, backups=instance / "backups")


def add_webhooks(store):
    """Add webhooks with the ids that the run takes, whose receivers have no address."""
    with store.database.write() as connection:
        webhooks = WebhookService(connection, store.clock.now(), None)
        for number in range(1, GONE.start + 15):
            webhooks.add(f"https://{number}.example/hook", ())


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def report(endless, version, tmp_path_factory):
    """The report of a run over a version, with its output and its status."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "schemathesis.toml").write_text(CONFIG + CONFIG_OF[version])
    (folder / "hooks.py").write_text(HOOKS)
    done = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("schemathesis")), "--no-color", "run"),
            *(f"{endless.service.url}/openapi/v{version}.json", "--url"),
            *(f"{endless.service.url}/v{version}", "--report", "json"),
            *("--report-json-path", "report.json"),
        ],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "STORE_KEY": endless.secret,
            "STORE_KEY_ID": str(OWN_KEY),
            "BACKUPS": str(endless.backups),
            "SCHEMATHESIS_HOOKS": "hooks",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (folder / "report.json").exists(), done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text())
    return SimpleNamespace(**report, status=done.returncode, output=done.stdout + done.stderr)


def test_no_check_fails_and_there_are_no_warnings(report):
    assert (report.failures, report.errors, report.status) == ([], [], 0), report.output
    assert {name: each for name, each in report.warnings.items() if each} == {}, report.output


def test_no_operation_and_no_phase_is_left_out(report, version):
    assert report.complete
    assert report.operations["tested"] == report.operations["total"] == len(STATUSES[version])
    statuses = {name: phase["status"] for name, phase in report.phases.items()}
    assert statuses == dict.fromkeys(("examples", "coverage", "fuzzing", "stateful"), "success")


def test_each_operation_both_succeeded_and_refused(report, endless, version):
    assert report.test_cases["generated"] > len(STATUSES[version]) * EXAMPLES
    met = collections.defaultdict(set)
    for line in endless.service.log:
        if words := re.search(rf" ([A-Z]+) /v{version}(/\S+) (\d{{3}}) ", line):
            shape = re.sub(rf"({COLLECTIONS})/(?!batch)[^/]+", r"\1/*", words[2])
            met[f"{words[1]} {shape}"].add(int(words[3]))
    assert {name: met[name] & each for name, each in STATUSES[version].items()} == STATUSES[version]
    assert {status for statuses in met.values() for status in statuses if status >= 500} == set()
