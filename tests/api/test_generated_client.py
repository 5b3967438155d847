"""A client generated from the service's own document, in a few lines, against the real service."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytestmark = pytest.mark.generated

PACKAGE = "generated_store_client"
OPERATIONS = {
    "orders": {"list_orders", "place_order", "get_order", "ship_order", "cancel_order"},
    "pets": {"get_pet"},
}
NO_ORDER = 2**63 - 1


class Generated:
    """The generated package, bound to a service and a key."""

    def __init__(self, package, service, secret):
        self.package, self.models = package, importlib.import_module(f"{PACKAGE}.models")
        self.client = package.AuthenticatedClient(
            base_url=f"{service.url}/v1",
            token=secret,
            # Whatever the document does not tell of is an error.
            raise_on_unexpected_status=True,
        )

    def ask(self, operation, *arguments, **named):
        """Ask an operation; give status, headers and what was made of the body."""
        group = next(group for group, names in OPERATIONS.items() if operation in names)
        module = importlib.import_module(f"{PACKAGE}.api.{group}.{operation}")
        return module.sync_detailed(*arguments, client=self.client, **named)

    def place(self, pet_id=7, **order):
        """Place an order; return what was made of the body."""
        return self.ask("place_order", body=self.models.NewOrder(pet_id, **order)).parsed


@pytest.fixture(scope="module")
def package(service, tmp_path_factory):
    """Generate the client from the running service's document, and import it."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "config.json").write_text('{"post_hooks": []}')  # which would only reformat it
    done = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate"),
            *("--url", f"{service.url}/openapi/v1.json"),
            *("--output-path", str(folder / PACKAGE)),
            *("--meta", "none", "--config", str(folder / "config.json"), "--fail-on-warning"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module(PACKAGE)
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def make(package, service):
    """Make generated clients for keys; their connections are closed at the end."""
    made = []

    def make_one(secret):
        made.append(Generated(package, service, secret))
        return made[-1]

    yield make_one
    for each in made:
        each.client.get_httpx_client().close()


@pytest.fixture(scope="module")
def shop(make, service):
    """A generated client whose key may read and write."""
    return make(service.issue())


def assert_refused(shop, answer, status, code):
    """Check that an answer was parsed as an Error of this status and code."""
    error = answer.parsed
    assert type(error) is shop.models.Error
    assert (answer.status_code, error.status) == (status, status)
    assert error.code is shop.models.ErrorCode(code)
    assert error.message


# What is generated.


def test_each_operation_of_the_document_becomes_a_module(package, service):
    api = Path(package.__file__).parent / "api"
    modules = {
        group.name: {path.stem for path in group.glob("*.py")} - {"__init__"}
        for group in api.iterdir()
        if group.is_dir() and group.name != "__pycache__"
    }
    assert modules == OPERATIONS
    document = json.loads(service.request("GET", "/openapi/v1.json").data)
    assert sum(len(names) for names in OPERATIONS.values()) == sum(
        method in item
        for item in document["paths"].values()
        for method in ("get", "post", "delete")
    )


def test_each_schema_of_the_document_becomes_a_model(package):
    models = set(importlib.import_module(f"{PACKAGE}.models").__all__)
    assert models == {"Error", "ErrorCode", "NewOrder", "Order", "Pet", "PetStatus", "Shipment"}


# What can be done with it.


def test_an_order_is_placed_listed_looked_at_and_shipped(shop):
    expected = datetime(2026, 12, 1, 8, tzinfo=UTC)
    placed = shop.place(2**63 - 1, quantity=2, ship_date=expected)
    assert type(placed) is shop.models.Order
    assert (placed.pet_id, placed.quantity, placed.ship_date) == (2**63 - 1, 2, expected)
    assert placed.complete is False
    assert placed in shop.ask("list_orders").parsed
    assert shop.ask("get_order", placed.id).parsed == placed
    at = datetime(2026, 12, 2, 9, 30, tzinfo=UTC)
    shipped = shop.ask("ship_order", placed.id, body=shop.models.Shipment(at)).parsed
    assert (shipped.id, shipped.complete, shipped.ship_date) == (placed.id, True, at)
    assert shipped in shop.ask("list_orders").parsed


def test_an_order_is_shipped_without_a_word(shop):
    placed = shop.place()
    answer = shop.ask("ship_order", placed.id)
    assert (answer.status_code, answer.parsed.complete) == (200, True)


def test_an_order_is_cancelled(shop):
    placed = shop.place()
    assert shop.ask("cancel_order", placed.id).status_code == 204
    assert placed.id not in [order.id for order in shop.ask("list_orders").parsed]
    assert_refused(shop, shop.ask("get_order", placed.id), 404, "order_not_found")


def test_what_is_left_out_is_left_out_and_not_null(shop):
    placed = shop.place()
    unset = importlib.import_module(f"{PACKAGE}.types").UNSET
    assert (placed.quantity, placed.ship_date) == (1, unset)


def test_an_order_that_is_sent_again_is_placed_once(shop):
    body = shop.models.NewOrder(7)
    first, again = (
        shop.ask("place_order", body=body, idempotency_key="generated-1") for _ in range(2)
    )
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.parsed == first.parsed
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"


def test_a_list_that_is_known_already_is_not_sent_again(shop):
    shop.place()
    tag = shop.ask("list_orders").headers["ETag"]
    again = shop.ask("list_orders", if_none_match=tag)
    assert (again.status_code, again.parsed, again.content) == (304, None, b"")


# Errors are typed.


def test_an_order_that_is_not_there_is_an_error_of_its_type(shop):
    assert_refused(shop, shop.ask("get_order", NO_ORDER), 404, "order_not_found")
    assert_refused(shop, shop.ask("cancel_order", NO_ORDER), 404, "order_not_found")
    assert_refused(shop, shop.ask("ship_order", NO_ORDER), 404, "order_not_found")


def test_an_order_that_has_shipped_is_an_error_of_its_type(shop):
    order_id = shop.place().id
    assert shop.ask("ship_order", order_id).status_code == 200
    assert_refused(shop, shop.ask("cancel_order", order_id), 409, "order_already_shipped")
    assert_refused(shop, shop.ask("ship_order", order_id), 409, "order_already_shipped")


def test_a_pet_that_is_not_there_is_an_error_of_its_type(shop):
    assert_refused(shop, shop.ask("get_pet", NO_ORDER), 404, "pet_not_found")


def test_an_order_that_makes_no_sense_is_an_error_of_its_type(shop):
    answer = shop.ask("place_order", body=shop.models.NewOrder(0))
    assert_refused(shop, answer, 422, "validation_failed")
    assert "petId" in answer.parsed.message


def test_a_value_that_placed_another_order_is_an_error_of_its_type(shop):
    first, other = (
        shop.ask("place_order", body=shop.models.NewOrder(pet_id), idempotency_key="generated-2")
        for pet_id in (7, 8)
    )
    assert first.status_code == 201
    assert_refused(shop, other, 422, "idempotency_key_reused")


def test_a_header_that_cannot_be_read_is_an_error_of_its_type(shop):
    answer = shop.ask("place_order", body=shop.models.NewOrder(7), idempotency_key="one, two")
    assert_refused(shop, answer, 400, "malformed_request")


def test_a_key_that_may_only_read_gets_an_error_of_its_type(make, service):
    reader = make(service.issue("free", "--scope", "read"))
    answer = reader.ask("place_order", body=reader.models.NewOrder(7))
    assert_refused(reader, answer, 403, "insufficient_scope")


def test_a_key_that_is_not_known_gets_an_error_of_its_type(make):
    stranger = make("sok_unknown")
    assert_refused(stranger, stranger.ask("list_orders"), 401, "invalid_api_key")


def test_a_key_over_its_limit_gets_an_error_of_its_type(make, service):
    figures = ("--per-minute", "1", "--per-day", "10")
    eager = make(service.issue("enterprise", *figures))
    assert eager.ask("list_orders").status_code == 200
    answer = eager.ask("list_orders")
    assert_refused(eager, answer, 429, "rate_limit_exceeded")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
