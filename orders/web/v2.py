"""The operations of version 2. It rejects unknown parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from flask import request

from orders.domain import NewOrder, OrderNotFound
from orders.service import Written
from orders.store import lists, stats
from orders.store import orders as order_store
from orders.store.orders import Changed, EventPage, Outcome
from orders.strictjson import to_json
from orders.web import compression, etags, pagination
from orders.web.api import ApiBlueprint
from orders.web.call import NO_CONTENT, Reply, current_call
from orders.web.openapi.document import operation
from orders.web.operations import (
    BODY_REFUSALS,
    CHANGE_REFUSALS,
    LIST_CONDITIONS,
    PLACE_REFUSALS,
    REPLAYED,
    idempotency_key,
    location,
    origin,
    parse_order_id,
    written,
)
from orders.web.refusals import MissingKey, ValidationFailed, body_of
from orders.web.services import current_services
from orders.webhooks import endpoints
from schemas.event import EventPageSchema
from schemas.order import ShipmentSchema
from schemas.order_v2 import (
    NewOrderSchema,
    OrderPageSchema,
    OrderPatchSchema,
    OrderSchema,
    ShipmentResultsSchema,
    ShipmentsSchema,
)
from schemas.query import (
    EventsQuerySchema,
    HistoryQuerySchema,
    OrdersQuerySchema,
    StatsQuerySchema,
)
from schemas.report import StatsSchema, UsageSchema

VERSION = 2
_STATS = StatsSchema()
# What a write to an order heeds, and the headers of its answer.
_CONDITIONS = ("If-Match", "If-None-Match of a write", "Idempotency-Key")
_WRITE_HEADERS = ("ETag", "Vary", "Idempotent-Replayed")

blueprint = ApiBlueprint("v2", __name__, url_prefix=f"/v{VERSION}", is_strict=True)


@blueprint.get("/store/orders", tags=["orders"])
@operation(
    refusals=("precondition_failed",),
    headers=("Link",),
    parameters=("If-Match of a list",),
    has_etag=True,
    stability="beta",
)
@blueprint.arguments(OrdersQuerySchema, location="query")
@blueprint.response(
    200, OrderPageSchema, description="A page of orders, and the cursor of the next page."
)
def list_orders(parameters: dict[str, Any]) -> Reply:
    """Return a page of the orders that match the filters."""
    services = current_services()
    query = pagination.page_query(parameters, services.store_id)
    unchanged = etags.if_current(lambda: order_store.revision(services.database), varies=True)
    if unchanged is not None:
        return unchanged
    page = services.pages.get(request.query_string, lambda: pagination.read_listed_page(query))
    if page.link is not None:
        current_call().headers["Link"] = page.link
    return etags.entity(page.body, page.revision, varies=True)


@blueprint.post("/store/orders", tags=["orders"])
@operation(
    refusals=PLACE_REFUSALS,
    headers=("Location", "Idempotent-Replayed", "ETag", "Vary"),
    parameters=(*LIST_CONDITIONS, "Idempotency-Key"),
    stability="beta",
)
@blueprint.arguments(NewOrderSchema)
@blueprint.response(201, OrderSchema, description="The placed order.")
def place_order(new: NewOrder) -> Reply:
    """Place an order."""
    condition, key = etags.precondition_of_list(), idempotency_key(VERSION)
    placed = current_services().orders.place(new, origin(), key, condition)
    return _written(placed, 201, [location(placed.order.order_id, VERSION)])


@blueprint.get("/store/orders/<id:orderId>", tags=["orders"])
@operation(
    refusals=("order_not_found", "precondition_failed"),
    parameters=("If-Match",),
    has_etag=True,
    stability="beta",
)
@blueprint.response(200, OrderSchema, description="The order.")
def get_order(orderId: str) -> Reply:  # noqa: N803 - named in the interface
    """Return one order."""
    order_id = parse_order_id(orderId)
    order = lists.one_order(current_services().database, order_id, VERSION)
    if order is None:
        raise OrderNotFound(orderId)
    return etags.order_reply(order_id, order, strong=True)


@blueprint.delete("/store/orders/<id:orderId>", tags=["orders"])
@operation(
    refusals=(*CHANGE_REFUSALS, "malformed_request", "idempotency_key_reused"),
    headers=_WRITE_HEADERS,
    parameters=_CONDITIONS,
    stability="beta",
)
@blueprint.response(204, description="Order cancelled successfully.")
def cancel_order(orderId: str) -> Reply:  # noqa: N803 - named in the interface
    """Cancel one order by its identifier."""
    order_id, condition = parse_order_id(orderId), etags.precondition(strong=True)
    key = idempotency_key(VERSION)
    cancelled = current_services().orders.cancel(order_id, origin(), condition, key)
    return _written(cancelled, NO_CONTENT)


@blueprint.post("/store/orders/<id:orderId>/ship", tags=["orders"])
@operation(
    refusals=(*BODY_REFUSALS, *CHANGE_REFUSALS, "idempotency_key_reused"),
    headers=_WRITE_HEADERS,
    parameters=_CONDITIONS,
    stability="beta",
)
@blueprint.arguments(ShipmentSchema, location="optional_json", required=False)
@blueprint.response(
    200, OrderSchema, description="The shipped order.", example=OrderSchema.shipped_example
)
def ship_order(shipment: dict[str, datetime], orderId: str) -> Reply:  # noqa: N803 - as documented
    """Ship one order."""
    order_id, condition = parse_order_id(orderId), etags.precondition(strong=True)
    at, key = shipment.get("ship_date"), idempotency_key(VERSION)
    return _written(current_services().orders.ship(order_id, at, origin(), condition, key))


@blueprint.patch("/store/orders/<id:orderId>", tags=["orders"])
@operation(
    refusals=(*BODY_REFUSALS, *CHANGE_REFUSALS, "idempotency_key_reused"),
    headers=_WRITE_HEADERS,
    parameters=_CONDITIONS,
    stability="beta",
)
@blueprint.arguments(OrderPatchSchema, location="merge_patch")
@blueprint.response(200, OrderSchema, description="The order after the change.")
def change_order(fields: dict[str, Any], orderId: str) -> Reply:  # noqa: N803 - named in the interface
    """Change an order that is pending, or the note of any."""
    order_id, condition = parse_order_id(orderId), etags.precondition(strong=True)
    key = idempotency_key(VERSION)
    return _written(current_services().orders.change(order_id, fields, origin(), condition, key))


def _written(done: Written, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    etag = etags.strong_headers(done.order.event_id)
    return written(done, VERSION, status, [*etag, *headers])


@blueprint.post("/store/shipments", tags=["orders"])
@operation(
    refusals=PLACE_REFUSALS,
    headers=("Idempotent-Replayed",),
    parameters=(*LIST_CONDITIONS, "Idempotency-Key"),
    stability="beta",
)
@blueprint.arguments(ShipmentsSchema)
@blueprint.response(200, ShipmentResultsSchema, description="What became of each order.")
def ship_orders(shipments: dict[str, Any]) -> Reply:
    """Ship up to 100 orders, each of which ships or not by itself."""
    condition, key = etags.precondition_of_list(), idempotency_key(VERSION)
    shipped = current_services().orders.ship_all(
        shipments["order_ids"], shipments.get("ship_date"), origin(), condition, key
    )
    results = ",".join(map(_shipment, shipped.outcomes))
    headers = [REPLAYED] if shipped.replayed else []
    return Reply(f'{{"results":[{results}]}}'.encode(), headers=headers)


def _shipment(outcome: Outcome) -> str:
    if isinstance(outcome, Changed):
        return f'{{"orderId":{outcome.order_id},"order":{outcome.v2}}}'
    return f'{{"orderId":{outcome.order_id},"error":{body_of(outcome).decode()}}}'


@blueprint.get("/store/orders/<id:orderId>/events", tags=["events"])
@operation(refusals=("order_not_found",), stability="beta")
@blueprint.arguments(HistoryQuerySchema, location="query")
@blueprint.response(200, EventPageSchema, description="Events of the order, oldest first.")
def list_order_events(query: dict[str, int], orderId: str) -> Reply:  # noqa: N803 - as documented
    """Return the history of one order."""
    database, order_id = current_services().database, parse_order_id(orderId)
    page = order_store.read_history(database, order_id, query["after"], query["limit"])
    # An order has at least the event that made it.
    if not page.events and not order_store.read_history(database, order_id, 0, 1).events:
        raise OrderNotFound(orderId)
    return _event_page(page)


@blueprint.get("/store/events", tags=["events"])
@operation(stability="beta")
@blueprint.arguments(EventsQuerySchema, location="query")
@blueprint.response(
    200,
    EventPageSchema,
    description="Events, oldest first, where to go on, and whether there are more.",
)
def list_events(query: dict[str, Any]) -> Reply:
    """Return the events after a given one."""
    database, types = current_services().database, query.get("type", ())
    return _event_page(order_store.read_events(database, query["after"], query["limit"], types))


def _event_page(page: EventPage) -> Reply:
    database = current_services().database
    if not page.events and page.next > (newest := order_store.revision(database)):
        raise ValidationFailed({"after": f"is after the newest event, {newest}"})
    more = "true" if page.more else "false"
    return _json(f'{{"events":[{",".join(page.events)}],"next":{page.next},"more":{more}}}')


@blueprint.get("/store/stats", tags=["reports"])
@operation(stability="beta")
@blueprint.arguments(StatsQuerySchema, location="query")
@blueprint.response(200, StatsSchema, description="The figures.")
def get_stats(query: dict[str, Any]) -> Reply:
    """Return the store's figures by status and by day."""
    services = current_services()
    now, zone = services.clock.now(), ZoneInfo(query["zone"])
    figures = stats.statistics(services.database, now, query["days"], zone)
    standing = services.backups and services.backups.standing()
    paused = endpoints.paused(services.database)
    report = {
        "by_status": figures.by_status,
        "days": [{"date": day, **asdict(each)} for day, each in figures.days.items()],
        # Left out where there are none.
        "backups": standing and {"last": standing.newest, "same_disk": standing.is_on_same_disk},
        "paused_webhooks": [{"id": each, "since": since} for each, since in paused] or None,
    }
    return _json(to_json(_STATS.dump(report)))


@blueprint.get("/usage", tags=["reports"])
@operation(stability="beta")
@blueprint.response(200, UsageSchema, description="The key and its windows.")
def get_usage() -> dict[str, Any]:
    """Return the API key in use, and what is left of its limits."""
    call = current_call()
    if call.caller is None or call.caller.key is None or call.verdict is None:
        raise MissingKey
    key, wall = call.caller.key, call.judged_at
    windows = {
        window.quota.name: {
            "limit": window.quota.limit,
            "remaining": window.remaining,
            "reset": math.ceil(wall + window.ends_in),
        }
        for window in call.verdict.windows
    }
    return {
        "id": key.id,
        "name": key.name,
        "plan": key.plan,
        "scopes": key.scopes,
        "expires": key.expires_at,
        "windows": windows,
    }


def _json(text: str) -> Reply:
    return compression.json_reply(text.encode())
