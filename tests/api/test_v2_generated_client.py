"""A client generated from version 2's document: it pages, filters and follows events."""

from __future__ import annotations

import importlib
import subprocess
import sys
from datetime import UTC, datetime

import pytest

pytestmark = pytest.mark.generated

PACKAGE = "generated_store_client_v2"
GROUPS = {
    "orders": ("list_orders", "place_order", "get_order", "ship_order", "cancel_order"),
    "events": ("list_events", "list_order_events"),
    "reports": ("get_stats", "get_usage"),
}


class Generated:
    """The generated package, bound to a service and a key."""

    def __init__(self, package, service, secret):
        self.models = importlib.import_module(f"{PACKAGE}.models")
        self.client = package.AuthenticatedClient(
            base_url=f"{service.url}/v2", token=secret, raise_on_unexpected_status=True
        )

    def ask(self, operation, *arguments, **named):
        """Ask an operation; return what was made of the body."""
        group = next(group for group, names in GROUPS.items() if operation in names)
        module = importlib.import_module(f"{PACKAGE}.api.{group}.{operation}")
        return module.sync_detailed(*arguments, client=self.client, **named).parsed

    def place(self, **order):
        """Place an order; return it."""
        return self.ask("place_order", body=self.models.NewOrder(7, **order))


@pytest.fixture(scope="module")
def shop(service, tmp_path_factory):
    """A generated client whose key may read and write."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "config.json").write_text('{"post_hooks": []}')  # which would only reformat it
    done = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate"),
            *("--url", f"{service.url}/openapi/v2.json"),
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
    generated = Generated(importlib.import_module(PACKAGE), service, service.issue())
    yield generated
    generated.client.get_httpx_client().close()
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_it_goes_through_the_pages_of_a_filtered_list(shop):
    placed = [shop.place(reference="paged").id for _ in range(5)]
    shop.ask("cancel_order", placed[1])
    asked = {
        "reference": "paged",
        "status": [shop.models.ListOrdersStatusItem.PENDING],
        "sort": shop.models.ListOrdersSort.VALUE_1,
        "limit": 2,
        "placed_from": datetime(2020, 1, 1, tzinfo=UTC),
    }
    assert asked["sort"].value == "-id"
    page = shop.ask("list_orders", **asked)
    seen = [order.id for order in page.orders]
    while page.next_:
        page = shop.ask("list_orders", **asked, after=page.next_)
        seen += [order.id for order in page.orders]
    assert seen == [order_id for order_id in reversed(placed) if order_id != placed[1]]


def test_it_follows_the_events(shop):
    page = shop.ask("list_events")
    while page.next_:
        page = shop.ask("list_events", after=page.next_)
    last = page.events[-1].id if page.events else 0
    order = shop.place()
    shop.ask("ship_order", order.id)
    told = shop.ask("list_events", after=last).events
    assert [(event.type_.value, event.order_id) for event in told] == [
        ("order.placed", order.id),
        ("order.shipped", order.id),
    ]
    assert told[0].order == order
    assert shop.ask("list_order_events", order.id).events == told


def test_it_reads_the_figures(shop):
    before = shop.ask("get_stats", days=1)
    shop.place()
    after = shop.ask("get_stats", days=1)
    assert after.by_status.pending == before.by_status.pending + 1
    usage = shop.ask("get_usage")
    assert (usage.name, usage.plan) == ("test", "business")
    assert usage.windows.minute.limit == 1000


def test_what_is_refused_is_an_error_of_its_type(shop):
    refused = shop.ask("list_orders", after="made up")
    assert type(refused) is shop.models.Error
    assert refused.code is shop.models.ErrorCode.VALIDATION_FAILED
    order = shop.place()
    shop.ask("cancel_order", order.id)
    assert shop.ask("ship_order", order.id).code.value == "order_already_cancelled"
