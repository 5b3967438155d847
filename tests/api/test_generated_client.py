"""Clients generated from the service's own documents, in a few lines, against the real service."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import typing
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytestmark = pytest.mark.generated

ORDERS = {"list_orders", "place_order", "get_order", "ship_order", "cancel_order"}
OPERATIONS = {
    1: {"orders": ORDERS, "pets": {"get_pet"}},
    2: {
        "orders": {
            *ORDERS,
            *("change_order", "reopen_order", "ship_orders", "place_orders", "import_orders"),
        },
        "events": {"list_events", "list_order_events"},
        "reports": {"get_stats", "get_usage"},
        "keys": {
            *("list_keys", "issue_key", "change_key", "rotate_key", "revoke_key", "unban_key"),
        },
        "webhooks": {
            *("list_webhooks", "add_webhook", "change_webhook", "rotate_webhook"),
            *("remove_webhook", "ping_webhook", "pause_webhook", "resume_webhook"),
            *("list_deliveries", "redeliver"),
        },
        "administration": {"get_audit", "list_backups", "make_backup", "download_backup"},
    },
}
MODELS_OF_1 = {"Error", "ErrorCode", "NewOrder", "Order", "Pet", "PetStatus", "Shipment"}
NO_ORDER = 2**63 - 1


def package(version):
    return f"generated_store_client_v{version}"


class Generated:
    """The generated package of a version, bound to a service and a key."""

    def __init__(self, service, version, secret):
        self.version = version
        self.models = importlib.import_module(f"{package(version)}.models")
        self.client = importlib.import_module(package(version)).AuthenticatedClient(
            base_url=f"{service.url}/v{version}",
            token=secret,
            # Anything that the document does not describe is an error.
            raise_on_unexpected_status=True,
        )

    def call(self, operation, *arguments, **named):
        """Call an operation; return status, headers and the parsed body."""
        groups = OPERATIONS[self.version]
        group = next(group for group, names in groups.items() if operation in names)
        module = importlib.import_module(f"{package(self.version)}.api.{group}.{operation}")
        return module.sync_detailed(*arguments, client=self.client, **named)

    def new(self, pet_id=7, **order):
        """Return the model of a new order."""
        return self.models.NewOrder(pet_id, **order)

    def place(self, *order, **named):
        """Place an order; return the parsed body."""
        return self.call("place_order", body=self.new(*order, **named)).parsed

    def listed(self):
        """Return the listed orders; in version 2, a page, newest first."""
        if self.version == 1:
            return self.call("list_orders").parsed
        newest = self.models.ListOrdersSort.ID_DESCENDING
        return self.call("list_orders", sort=newest).parsed.orders


@contextmanager
def generated(service, version, folder):
    """Generate a client from the running service's document, and make it importable."""
    (folder / "config.json").write_text('{"post_hooks": []}')  # they would only reformat the code
    done = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate"),
            *("--url", f"{service.url}/openapi/v{version}.json"),
            *("--output-path", str(folder / package(version))),
            *("--meta", "none", "--config", str(folder / "config.json"), "--fail-on-warning"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == package(version)]:
        del sys.modules[name]


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def make(request, service, tmp_path_factory):
    """Make generated clients of a version for keys; their connections are closed at the end."""
    made = []

    def make_one(secret):
        made.append(Generated(service, request.param, secret))
        return made[-1]

    with generated(service, request.param, tmp_path_factory.mktemp("generated")):
        yield make_one
        for each in made:
            each.client.get_httpx_client().close()


@pytest.fixture(scope="module")
def shop(make, service):
    """A generated client whose key may read and write."""
    return make(service.issue())


only_version_2 = pytest.mark.parametrize("make", [2], indirect=True, ids=["v2"])


def assert_error(shop, answer, status, code):
    """Check that an answer was parsed as an Error of this status and code."""
    error = answer.parsed
    assert type(error) is shop.models.Error
    assert (answer.status_code, error.status) == (status, status)
    # Version 2's codes are any text: others may be added.
    assert error.code == (shop.models.ErrorCode(code) if shop.version == 1 else code)
    assert error.message


def test_each_operation_of_the_document_becomes_a_module(shop, service):
    api = Path(importlib.import_module(package(shop.version)).__file__).parent / "api"
    modules = {
        group.name: {path.stem for path in group.glob("*.py")} - {"__init__"}
        for group in api.iterdir()
        if group.is_dir() and group.name != "__pycache__"
    }
    assert modules == OPERATIONS[shop.version]
    document = json.loads(service.request("GET", f"/openapi/v{shop.version}.json").data)
    assert sum(len(names) for names in modules.values()) == sum(
        method in item
        for item in document["paths"].values()
        for method in ("get", "post", "patch", "delete")
    )
    if shop.version == 1:
        assert set(shop.models.__all__) == MODELS_OF_1


def test_an_order_is_placed_listed_shown_and_shipped(shop):
    expected = datetime(2026, 12, 1, 8, tzinfo=UTC)
    placed = shop.place(2**63 - 1, quantity=2, ship_date=expected)
    assert type(placed) is shop.models.Order
    if shop.version == 2:
        assert typing.get_type_hints(shop.models.Order)["id"] is int
    assert (placed.pet_id, placed.quantity, placed.ship_date) == (2**63 - 1, 2, expected)
    assert placed.complete is False
    assert placed in shop.listed()
    assert shop.call("get_order", placed.id).parsed == placed
    at = datetime(2026, 12, 2, 9, 30, tzinfo=UTC)
    shipped = shop.call("ship_order", placed.id, body=shop.models.Shipment(at)).parsed
    assert (shipped.id, shipped.complete, shipped.ship_date) == (placed.id, True, at)
    assert shipped in shop.listed()


def test_optional_fields_may_be_left_out(shop):
    placed, other = shop.place(), shop.place()
    unset = importlib.import_module(f"{package(shop.version)}.types").UNSET
    assert (placed.quantity, placed.ship_date) == (1, unset)
    assert shop.call("ship_order", placed.id).parsed.complete is True
    assert shop.call("cancel_order", other.id).status_code == 204


def test_a_placement_is_replayed_and_an_unchanged_list_is_304(shop):
    first, again = (
        shop.call("place_order", body=shop.new(), idempotency_key="generated-1") for _ in range(2)
    )
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.parsed == first.parsed
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    tag = shop.call("list_orders").headers["ETag"]
    again = shop.call("list_orders", if_none_match=tag)
    assert (again.status_code, again.parsed, again.content) == (304, None, b"")


@only_version_2
def test_the_pages_of_a_filtered_list_are_followed(shop):
    placed = [shop.place(reference="paged").id for _ in range(5)]
    shop.call("cancel_order", placed[1])
    query = {
        "reference": "paged",
        "status": [shop.models.ListOrdersStatusItem.PENDING],
        "sort": shop.models.ListOrdersSort.ID_DESCENDING,
        "limit": 2,
        "placed_from": datetime(2020, 1, 1, tzinfo=UTC),
    }
    page = shop.call("list_orders", **query).parsed
    seen = [order.id for order in page.orders]
    while page.next_:
        page = shop.call("list_orders", **query, after=page.next_).parsed
        seen += [order.id for order in page.orders]
    assert seen == [order_id for order_id in reversed(placed) if order_id != placed[1]]
    assert_error(shop, shop.call("list_orders", after="made up"), 422, "validation_failed")


@only_version_2
def test_events_are_followed_and_statistics_are_read(shop):
    page = shop.call("list_events").parsed
    while page.more:
        page = shop.call("list_events", after=page.next_).parsed
    last = page.next_
    before = shop.call("get_stats", days=1).parsed
    order = shop.place()
    after = shop.call("get_stats", days=1).parsed
    assert after.by_status.pending == before.by_status.pending + 1
    shop.call("ship_order", order.id)
    events = shop.call("list_events", after=last).parsed.events
    assert [(event.type_, event.order_id) for event in events] == [
        ("order.placed", order.id),
        ("order.shipped", order.id),
    ]
    assert events[0].order == order
    assert shop.call("list_order_events", order.id).parsed.events == events
    usage = shop.call("get_usage").parsed
    assert (usage.name, usage.plan, f"key:{usage.id}") == ("test", "business", events[0].actor)
    assert usage.windows.minute.limit == 1000


@only_version_2
def test_a_batch_is_placed_and_shipped_each_result_with_an_order_or_an_error(shop):
    models = shop.models
    unique = models.NewOrder(7, reference="together", unique_reference=True)
    placed, refused = shop.call(
        "place_orders", body=models.Placements([unique, unique])
    ).parsed.results
    assert (type(placed), type(refused)) == (models.Placed, models.NotPlaced)
    assert refused.order_id == placed.order.id
    assert refused.error.code == "reference_exists"
    sent = models.Shipments([placed.order_id, NO_ORDER])
    shipped, refused = shop.call("ship_orders", body=sent).parsed.results
    assert (type(shipped), type(refused)) == (models.Shipped, models.NotShipped)
    assert (shipped.order.status, refused.error.code) == ("shipped", "order_not_found")


@only_version_2
def test_additions_of_later_versions_are_read_as_they_are(shop):
    order = shop.place()
    (event,) = shop.call("list_order_events", order.id).parsed.events
    later = {**event.to_dict(), "type": "order.returned", "weather": "fine"}
    later["order"]["status"] = "returned"
    read = shop.models.Event.from_dict(later)
    assert (read.type_, read.order.status) == ("order.returned", "returned")
    error = shop.call("get_order", NO_ORDER).parsed.to_dict()
    fault = {"code": "phase_of_moon", "message": "is waning"}
    read = shop.models.Error.from_dict({**error, "code": "order_returned", "errors": [fault]})
    assert (read.code, read.errors[0].code) == ("order_returned", "phase_of_moon")


def test_errors_are_typed(shop):
    for operation in ("get_order", "cancel_order", "ship_order"):
        assert_error(shop, shop.call(operation, NO_ORDER), 404, "order_not_found")
    if shop.version == 1:
        assert_error(shop, shop.call("get_pet", NO_ORDER), 404, "pet_not_found")
    shipped = shop.place().id
    shop.call("ship_order", shipped)
    assert_error(shop, shop.call("cancel_order", shipped), 409, "order_already_shipped")
    invalid = shop.call("place_order", body=shop.new(0))
    assert_error(shop, invalid, 422, "validation_failed")
    assert "petId" in invalid.parsed.message
    unreadable = shop.call("place_order", body=shop.new(), idempotency_key="one, two")
    assert_error(shop, unreadable, 400, "malformed_request")


def test_errors_of_keys_and_limits_are_typed(make, service):
    reader, stranger = make(service.issue("free", "--scope", "read")), make("sok_unknown")
    answer = reader.call("place_order", body=reader.new())
    assert_error(reader, answer, 403, "insufficient_scope")
    assert_error(stranger, stranger.call("list_orders"), 401, "invalid_api_key")
    eager = make(service.issue("enterprise", "--per-minute", "1", "--per-day", "10"))
    assert eager.call("list_orders").status_code == 200
    answer = eager.call("list_orders")
    assert_error(eager, answer, 429, "rate_limit_exceeded")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
