"""Schemathesis against the running service, over both documents, with its checks.

It runs as a program of its own, so that nothing of it is imported where it is not needed.

Where the contract decides otherwise than a check expects, the check is configured:

- `positive_data_acceptance` reads 422 as a rejection of valid data. An Idempotency-Key that is
  reused with another order is answered so by contract, so each value is sent once (`HOOKS`). Nor is
  any `after` or `Last-Event-ID` valid but a cursor of the same query or the id of an event, nor any
  `If-Match` but the ETag of that order, or `If-None-Match` of a write but that of another, nor any
  `zone` but a time zone's name, nor the `tracking` of other orders or of pending ones, nor most
  files of an import: where valid data are made, they are left out, and other tests send them.
  Nor is 1.0 an integer here, as it is for OpenAPI 3.1.
- `object_level_authorization` needs two users who may not see each other's objects. Here all keys
  see all orders of the one shop, so it is given none, and has nothing to compare.
- `negative_data_rejection` finds nothing to say of bodies of GET and DELETE, nor of version 1's
  query parameters, which the contract ignores: the document declares none, so none are made.
- `missing_test_data`, a warning, is a failure here: the catalogue can't be filled over HTTP, so
  there are pets, and half of the requested pets are these (`CONFIG_OF`).
- `use_after_free` expects what was deleted to be gone. In version 2, DELETE cancels an order, which
  is then shown as cancelled: it is the one check that is switched off (`CONFIG_OF`).
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orders import settings
from orders.clock import Clock
from orders.domain import Pet, PetStatus
from orders.store import pets
from orders.store.care import opening
from orders.system import make_private_folder
from tests.support.service import running
from tests.support.stores import Store

pytestmark = pytest.mark.schemathesis

EXAMPLES = 15  # for each operation
ENDLESS = "per_minute = 1000000000\nper_day = 1000000000\n"
# Requests with no key or a wrong one count against the free plan, by their address.
PLANS = f"[plans.free]\n{ENDLESS}[plans.endless]\n{ENDLESS}"
PETS = [Pet(1, "Rex", 1, PetStatus.AVAILABLE), Pet(2**63 - 1, "Mimi", 2, PetStatus.SOLD)]
CONFIG = f"""
# In one thread: in two, hypothesis upsets the parser of Python 3.11.
workers = 1
continue-on-failure = true
warnings = {{ fail-on = true }}
auth.openapi.bearer.bearer = "${{STORE_KEY}}"
dictionaries.pets.values = {[pet.id for pet in PETS]}
checks.enabled = true
checks.response_schema_conformance.validate-formats = true
checks.max_response_time = 5
generation.max-examples = {EXAMPLES}
generation.database = "none"
output.truncation.enabled = false

"""
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
""",
}
HOOKS = """
import uuid
import schemathesis

NAME = "Idempotency-Key"
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
    if value in sent:
        case.headers[NAME] = uuid.uuid4().hex
    sent.add(value)
    if case.meta and case.meta.generation.mode.is_positive:
        # To set another, or one where there is none, would make the case an invalid one.
        if isinstance(case.body, dict | list) and "json" in (case.media_type or ""):
            case.body = whole(case.body)
        for name in ("after", "column", "zone"):
            (case.query or {}).pop(name, None)
        for name in ("If-Match", "Last-Event-ID", *(["If-None-Match"] * (case.method != "GET"))):
            (case.headers or {}).pop(name, None)
        if isinstance(case.body, dict) and (case.method == "PATCH" or "orderIds" in case.body):
            case.body.pop("tracking", None)
        if case.path == "/imports" and isinstance(case.body, dict):
            case.body.update(file=b"petId\\n7\\n")
            case.body.pop("pets", None)
"""
# Of each operation, some of the statuses that it must be seen to answer with.
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
    },
}


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A running service with pets in it, and a key without limits to speak of."""
    instance = tmp_path_factory.mktemp("schemathesis") / "instance"
    make_private_folder(instance)
    (instance / "config.toml").write_text(PLANS)
    opening.create(instance / "orders.db")
    store = Store(settings.load({"ORDERS_INSTANCE": str(instance)}), Clock())
    _, secret = store.issue("endless")
    with store.database.write() as connection:
        pets.replace_all(connection, PETS)
    store.shop.end()
    with running(instance) as service:
        yield SimpleNamespace(service=service, secret=secret)


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


def test_no_check_fails_and_nothing_is_warned_of(report):
    assert (report.failures, report.errors, report.status) == ([], [], 0), report.output
    assert {name: each for name, each in report.warnings.items() if each} == {}, report.output


def test_no_operation_and_no_phase_is_left_out(report, version):
    assert report.complete
    assert report.operations["tested"] == report.operations["total"] == len(STATUSES[version])
    statuses = {name: phase["status"] for name, phase in report.phases.items()}
    assert statuses == dict.fromkeys(("examples", "coverage", "fuzzing", "stateful"), "success")


def test_each_operation_was_seen_to_succeed_and_to_refuse(report, endless, version):
    assert report.test_cases["generated"] > len(STATUSES[version]) * EXAMPLES
    met = collections.defaultdict(set)
    for line in endless.service.log:
        if words := re.search(rf" ([A-Z]+) /v{version}(/\S+) (\d{{3}}) ", line):
            shape = re.sub(r"^(/store/orders|/pets)/(?!batch)[^/]+", r"\1/*", words[2])
            met[f"{words[1]} {shape}"].add(int(words[3]))
    assert {name: met[name] & each for name, each in STATUSES[version].items()} == STATUSES[version]
    assert {status for statuses in met.values() for status in statuses if status >= 500} == set()
