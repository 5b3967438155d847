"""Version 2: its resources. Each view says what it needs, and leaves the work to others."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from flask import Response, request

from orders.domain import NewOrder, Order, OrderNotFound
from orders.store import days, feed
from orders.web import conditional, order_views, pagination
from orders.web.api import ApiBlueprint
from orders.web.call import current_call
from orders.web.document import operation
from orders.web.refusals import MissingKey, ValidationFailed
from orders.web.services import current_services
from orders.webhooks import endpoints
from schemas.event import EventPageSchema, HistorySchema
from schemas.order_v2 import NewOrderSchema, OrderPageSchema, OrderSchema, ShipmentSchema
from schemas.query import EventsQuerySchema, OrdersQuerySchema, StatsQuerySchema
from schemas.report import StatsSchema, UsageSchema

VERSION = 2

ORDERS, EVENTS, REPORTS = ["orders"], ["events"], ["reports"]
NEW_ORDER = {
    "petId": 7,
    "quantity": 2,
    "shipDate": "2026-12-01T08:00:00Z",
    "reference": "R-1041",
}
SHIPMENT = {"shipDate": "2026-12-01T08:00:00Z"}
PENDING_ORDER = {
    "id": 41,
    "petId": 7,
    "quantity": 2,
    "shipDate": "2026-12-01T08:00:00.000Z",
    "complete": False,
    "status": "pending",
    "placedAt": "2026-11-28T16:05:00.000Z",
    "updatedAt": "2026-11-28T16:05:00.000Z",
    "reference": "R-1041",
}
SHIPPED_ORDER = {
    **PENDING_ORDER,
    "complete": True,
    "status": "shipped",
    "updatedAt": "2026-12-01T08:00:00.000Z",
}
PLACED_EVENT = {
    "id": 87,
    "type": "order.placed",
    "orderId": 41,
    "at": "2026-11-28T16:05:00.000Z",
    "actor": "key:2",
    "requestId": "8f3a0c1d5e7b9246",  # pragma: allowlist secret
    "order": PENDING_ORDER,
}
SHIPPED_EVENT = {
    **PLACED_EVENT,
    "id": 93,
    "type": "order.shipped",
    "at": "2026-12-01T08:00:00.000Z",
    "order": SHIPPED_ORDER,
}
STATS = {
    "byStatus": {"pending": 7, "shipped": 31, "cancelled": 2},
    "days": [{"date": "2026-12-01", "placed": 3, "shipped": 1, "cancelled": 0}],
}
USAGE = {
    "name": "the web shop",
    "plan": "free",
    "scopes": ["read", "write"],
    "windows": {
        "minute": {"limit": 60, "remaining": 59, "reset": 1_796_112_060},
        "day": {"limit": 1000, "remaining": 999, "reset": 1_796_198_400},
    },
}


blueprint = ApiBlueprint("v2", __name__, url_prefix=f"/v{VERSION}")


@blueprint.route("/store/orders", methods=["GET"], tags=ORDERS)
@operation(
    "listOrders",
    "Return a page of the orders that the filters let through.",
    refusals=("validation_failed",),
    headers=("Link",),
    tagged=True,
    stability="beta",
)
@blueprint.arguments(OrdersQuerySchema, location="query")
@blueprint.response(
    200,
    OrderPageSchema,
    description="A page of orders, and where the next one begins.",
    example={"orders": [PENDING_ORDER], "next": "WzQxLCI5ZjhlIl0"},
)
def list_orders(asked: dict[str, Any]) -> Response:
    """Return a page of orders."""
    services = current_services()
    query = pagination.page_query(asked, services.store_id)
    unchanged = conditional.still_good(lambda: feed.newest_id(services.database), varies=True)
    if unchanged is not None:
        return unchanged
    page = services.pages.get(request.query_string, lambda: pagination.listed(query))
    if page.link is not None:
        current_call().headers["Link"] = page.link
    return conditional.entity(page.body, page.revision, varies=True)


@blueprint.route("/store/orders", methods=["POST"], tags=ORDERS)
@operation(
    "placeOrder",
    "Place an order.",
    refusals=order_views.PLACE_REFUSALS,
    headers=("Location", "Idempotent-Replayed"),
    parameters=("Idempotency-Key",),
    stability="beta",
)
@blueprint.arguments(NewOrderSchema, example=NEW_ORDER)
@blueprint.response(201, OrderSchema, description="The order, placed.", example=PENDING_ORDER)
def place_order(new: NewOrder) -> Order:
    """Place an order; with an Idempotency-Key, at most once."""
    return order_views.place(new, VERSION)


@blueprint.route("/store/orders/<id:orderId>", methods=["GET"], tags=ORDERS)
@operation(
    "getOrder",
    "Return one order.",
    refusals=("order_not_found",),
    tagged=True,
    stability="beta",
)
@blueprint.response(200, OrderSchema, description="The order.", example=PENDING_ORDER)
def get_order(orderId: str) -> Response:  # noqa: N803 - named in the interface
    """Return an order, whatever became of it."""
    return order_views.get(orderId, VERSION)


@blueprint.route("/store/orders/<id:orderId>", methods=["DELETE"], tags=ORDERS)
@operation(
    "cancelOrder",
    "Cancel one order by its identifier.",
    refusals=(*order_views.CANCEL_REFUSALS, "order_already_cancelled"),
    stability="beta",
)
@blueprint.response(204, description="Order cancelled successfully.")
def cancel_order(orderId: str) -> Response:  # noqa: N803 - named in the interface
    """Cancel a pending order."""
    order_views.cancel(orderId)
    return Response(status=204)


@blueprint.route("/store/orders/<id:orderId>/ship", methods=["POST"], tags=ORDERS)
@operation(
    "shipOrder",
    "Ship one order.",
    refusals=(*order_views.SHIP_REFUSALS, "order_already_cancelled"),
    stability="beta",
)
@blueprint.arguments(ShipmentSchema, location="optional_json", required=False, example=SHIPMENT)
@blueprint.response(200, OrderSchema, description="The order, shipped.", example=SHIPPED_ORDER)
def ship_order(
    shipment: dict[str, datetime],
    orderId: str,  # noqa: N803 - named in the interface
) -> Order:
    """Ship a pending order, at the time given or now."""
    return order_views.ship(orderId, shipment)


@blueprint.route("/store/orders/<id:orderId>/events", methods=["GET"], tags=EVENTS)
@operation(
    "listOrderEvents",
    "Return the history of one order.",
    refusals=("order_not_found",),
    stability="beta",
)
@blueprint.response(
    200,
    HistorySchema,
    description="All events of the order, in the order in which they happened.",
    example={"events": [PLACED_EVENT, SHIPPED_EVENT]},
)
def list_order_events(orderId: str) -> Response:  # noqa: N803 - named in the interface
    """Return the history of an order. Each order has at least the event that made it."""
    events = feed.history(current_services().database, order_views.known(orderId))
    if not events:
        raise OrderNotFound(orderId)
    return _json(f'{{"events":[{",".join(events)}]}}')


@blueprint.route("/store/events", methods=["GET"], tags=EVENTS)
@operation(
    "listEvents",
    "Return the events that follow the last one that is known.",
    refusals=("validation_failed",),
    stability="beta",
)
@blueprint.arguments(EventsQuerySchema, location="query")
@blueprint.response(
    200,
    EventPageSchema,
    description="Events in the order in which they happened, and whether there are more.",
    example={"events": [PLACED_EVENT], "next": 87},
)
def list_events(asked: dict[str, int]) -> Response:
    """Return events. Whoever remembers the last id that they saw misses none."""
    database = current_services().database
    page = feed.read(database, asked["after"], asked["limit"])
    if page.last is None and asked["after"] > (newest := feed.newest_id(database)):
        raise ValidationFailed({"after": f"is beyond the newest event, which is {newest}"})
    more = f',"next":{page.last}' if page.more else ""
    return _json(f'{{"events":[{",".join(page.events)}]{more}}}')


@blueprint.route("/store/stats", methods=["GET"], tags=REPORTS)
@operation(
    "getStats",
    "Return figures of the store by status and by day.",
    refusals=("validation_failed",),
    stability="beta",
)
@blueprint.arguments(StatsQuerySchema, location="query")
@blueprint.response(200, StatsSchema, description="The figures, days in UTC.", example=STATS)
def get_stats(asked: dict[str, int]) -> dict[str, Any]:
    """Return how many orders there are, and what happened on the last days."""
    services = current_services()
    told = days.statistics(services.database, services.clock.now().date(), asked["days"])
    return {
        "by_status": told.by_status,
        "days": [
            {
                "date": day,
                "placed": each.placed,
                "shipped": each.shipped,
                "cancelled": each.cancelled,
            }
            for day, each in told.days.items()
        ],
        # What nobody need know while it is well is left out.
        "paused_webhooks": [
            {"id": endpoint_id, "since": since}
            for endpoint_id, since in endpoints.paused(services.database)
        ]
        or None,
    }


@blueprint.route("/usage", methods=["GET"], tags=REPORTS)
@operation("getUsage", "Return the key that was sent, and what it has left.", stability="beta")
@blueprint.response(200, UsageSchema, description="The key and its windows.", example=USAGE)
def get_usage() -> dict[str, Any]:
    """Return the key and its windows, of which this request has already taken."""
    call = current_call()
    if call.caller is None or call.caller.key is None or call.verdict is None:
        raise MissingKey
    key, wall = call.caller.key, call.judged_at
    windows = {
        window.name: {
            "limit": window.quota,
            "remaining": window.remaining,
            "reset": math.ceil(wall + window.resets_in),
        }
        for window in call.verdict.windows
    }
    return {"name": key.name, "plan": key.plan, "scopes": key.scopes, "windows": windows}


def _json(text: str) -> Response:
    return Response(text.encode(), content_type="application/json")
