"""The views of version 2, with those of `order_views`."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any
from zoneinfo import ZoneInfo

from flask import request

from orders.domain import OrderNotFound
from orders.store import days, events
from orders.store.events import Changed, EventPage, Outcome
from orders.web import compression, etags, order_views, pagination
from orders.web.api import ApiBlueprint
from orders.web.bodies import read_query
from orders.web.call import current_call
from orders.web.openapi.document import operation
from orders.web.refusals import MissingKey, ValidationFailed, body_of
from orders.web.replies import Reply, to_json
from orders.web.services import current_services
from orders.webhooks import endpoints
from schemas.base import UNKNOWN_PARAMETER
from schemas.event import EventPageSchema
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

blueprint = ApiBlueprint("v2", __name__, url_prefix=f"/v{VERSION}")
_WITH_PARAMETERS = {"v2.list_orders", "v2.list_order_events", "v2.list_events", "v2.get_stats"}


@blueprint.before_request
def refuse_parameters() -> None:
    """Refuse a query of operations that have no parameters; their schemas do so for others."""
    query = request.query_string
    if query and request.endpoint not in _WITH_PARAMETERS and request.method != "OPTIONS":
        unknown = read_query(query)
        if unknown:
            raise ValidationFailed(dict.fromkeys(unknown, UNKNOWN_PARAMETER))


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
    unchanged = etags.if_current(lambda: events.revision(services.database), varies=True)
    if unchanged is not None:
        return unchanged
    page = services.pages.get(request.query_string, lambda: pagination.read_listed_page(query))
    if page.link is not None:
        current_call().headers["Link"] = page.link
    return etags.entity(page.body, page.revision, varies=True)


order_views.add_to(blueprint, VERSION, OrderSchema, NewOrderSchema, stability="beta")


@blueprint.patch("/store/orders/<id:orderId>", tags=["orders"])
@operation(
    refusals=(
        *order_views.BODY_REFUSALS,
        *order_views.CHANGE_REFUSALS,
        "idempotency_key_reused",
    ),
    headers=order_views.WRITE_HEADERS,
    parameters=(*order_views.CONDITIONS, "Idempotency-Key"),
    stability="beta",
)
@blueprint.arguments(OrderPatchSchema, location="merge_patch")
@blueprint.response(200, OrderSchema, description="The order after the change.")
def change_order(fields: dict[str, Any], orderId: str) -> Reply:  # noqa: N803 - named in the interface
    """Change an order that is pending, or the note of any."""
    order_id = order_views.parse_order_id(orderId)
    condition = etags.precondition(strong=True)
    key = order_views.idempotency_key(VERSION)
    changed = current_services().orders.change(
        order_id, fields, order_views.origin(), condition, key
    )
    return order_views.written(changed, VERSION)


@blueprint.post("/store/shipments", tags=["orders"])
@operation(
    refusals=(
        *order_views.BODY_REFUSALS,
        "insufficient_scope",
        "precondition_failed",
        "idempotency_key_reused",
    ),
    headers=("Idempotent-Replayed",),
    parameters=(*order_views.LIST_CONDITIONS, "Idempotency-Key"),
    stability="beta",
)
@blueprint.arguments(ShipmentsSchema)
@blueprint.response(200, ShipmentResultsSchema, description="What became of each order.")
def ship_orders(shipments: dict[str, Any]) -> Reply:
    """Ship up to 100 orders, each of which ships or not by itself."""
    condition, key = etags.precondition_of_list(), order_views.idempotency_key(VERSION)
    shipped = current_services().orders.ship_all(
        shipments["order_ids"], shipments.get("ship_date"), order_views.origin(), condition, key
    )
    results = ",".join(map(_shipment, shipped.outcomes))
    headers = [order_views.REPLAYED] if shipped.replayed else []
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
    database, order_id = current_services().database, order_views.parse_order_id(orderId)
    page = events.read_history(database, order_id, query["after"], query["limit"])
    # An order has at least the event that made it.
    if not page.events and not events.read_history(database, order_id, 0, 1).events:
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
    return _event_page(events.read_page(database, query["after"], query["limit"], types))


def _event_page(page: EventPage) -> Reply:
    if not page.events and page.next > (newest := events.revision(current_services().database)):
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
    figures = days.statistics(services.database, now, query["days"], zone)
    standing = services.backups and services.backups.standing()
    paused = endpoints.paused(services.database)
    stats = {
        "by_status": figures.by_status,
        "days": [{"date": day, **asdict(each)} for day, each in figures.days.items()],
        # Left out where there are none.
        "backups": standing and {"last": standing.newest, "same_disk": standing.is_on_same_disk},
        "paused_webhooks": [{"id": each, "since": since} for each, since in paused] or None,
    }
    return _json(to_json(_STATS.dump(stats)))


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
