"""The operations of version 2. It rejects unknown parameters."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from flask import request

from orders import domain
from orders.domain import OrderNotFound, Placement, ReferenceExists, Status
from orders.shop import ListedPage
from orders.store import apikeys as key_store
from orders.store import orders as order_store
from orders.store import orders_json, stats
from orders.store.idempotency import Written
from orders.store.orders import Changed, EventPage, Result
from orders.store.pages import FILTERS, Filters, PageQuery, Position, Sort, SortBy, read_page
from orders.strictjson import to_json
from orders.web import live, replies
from orders.web.access import ANY, current_call
from orders.web.api import ApiBlueprint
from orders.web.bodies import read_query, terms
from orders.web.openapi import document
from orders.web.refusals import MissingKey, ValidationFailed, body_of
from orders.web.replies import CREATED, NO_CONTENT, REPLAYED, Reply, write_reply
from orders.webhooks import endpoints
from schemas import v2 as schemas
from schemas.fields import Fault

VERSION = 2
_STATS = schemas.StatsSchema()
_SORTS = {
    "id": SortBy.ID,
    "placedAt": SortBy.PLACED_AT,
    "shipDate": SortBy.SHIP_DATE,
    "dueAt": SortBy.DUE_AT,
}
_CURSOR_DIGEST_BYTES = 12
# Version 1 shows a cancelled order as none.
_CHANGE_REFUSALS = (*document.CHANGE_REFUSALS, "order_already_cancelled")
_operation = partial(document.operation, stability="beta")
# A write to one order.
_write = partial(
    _operation,
    headers=("ETag", "Vary", "Idempotent-Replayed"),
    parameters=("If-Match", "If-None-Match of a write", "Idempotency-Key"),
)
# The parameters of writes to one order, and of those whose condition is about the list.
_order_terms = partial(terms, version=VERSION, strong=True)
_list_terms = partial(terms, version=VERSION, strong=False)

blueprint = ApiBlueprint("v2", __name__, url_prefix=f"/v{VERSION}", is_strict=True)


@blueprint.get("/store/orders", tags=["orders"])
@_operation(
    refusals=("precondition_failed",),
    headers=("Link",),
    parameters=("If-Match of a list",),
    has_etag=True,
)
@blueprint.arguments(schemas.OrdersQuerySchema, location="query")
@blueprint.response(
    200, schemas.OrderPageSchema, description="A page of orders, and the cursor of the next page."
)
def list_orders(parameters: dict[str, Any]) -> Reply:
    """Return a page of the orders that match the filters."""
    shop = current_call().shop
    query = _page_query(parameters, shop.store_id)
    unchanged = replies.if_current(lambda: order_store.revision(shop.database), varies=True)
    if unchanged is not None:
        return unchanged
    page = shop.pages.get(request.query_string, lambda: _read_listed_page(query))
    reply = replies.entity(page.body, page.revision, varies=True)
    if page.link is not None:
        reply.headers.append(("Link", page.link))
    return reply


def _page_query(parameters: Mapping[str, Any], store_id: str) -> PageQuery:
    """Return the query of the parameters of listOrders.

    ValidationFailed is raised where `after` is not a cursor of this store and query.
    """
    statuses = _statuses(parameters.get("status"), parameters.get("complete"))
    chosen = {name: parameters[name] for name in FILTERS if name in parameters}
    filters = Filters(statuses, **chosen)
    by, descending = parameters["sort"].removeprefix("-"), parameters["sort"].startswith("-")
    query = PageQuery(filters, Sort(_SORTS[by], descending), parameters["limit"])
    if "after" not in parameters:
        return query
    return replace(query, after=_read_cursor(parameters["after"], query, store_id))


def _read_listed_page(query: PageQuery) -> ListedPage:
    """Return the requested page as JSON, with a Link to the next."""
    shop = current_call().shop
    page = read_page(shop.database, query)
    orders = ",".join(page.orders)
    if page.next is None:
        return ListedPage(f'{{"orders":[{orders}]}}'.encode(), None, page.revision)
    cursor = _cursor(page.next, query, shop.store_id)
    body = f'{{"orders":[{orders}],"next":"{cursor}"}}'.encode()
    return ListedPage(body, _next_link(shop.settings.path_prefix, cursor), page.revision)


def _next_link(path_prefix: str, cursor: str) -> str:
    # https://www.rfc-editor.org/rfc/rfc8288
    parameters = read_query(request.query_string) | {"after": [cursor]}
    query = urlencode(parameters, doseq=True, quote_via=quote)
    return f'<{path_prefix}{request.environ["PATH_INFO"]}?{query}>; rel="next"'


def _statuses(wanted: frozenset[str] | None, complete: bool | None) -> tuple[Status, ...]:
    return tuple(
        status
        for status in Status
        if (wanted is None or status in wanted)
        and (complete is None or complete == (status is Status.SHIPPED))
    )


# A cursor is the position at which a page ended, with a digest of the position and the query, keyed
# by the store's id: it is invalid with another query, at another store, or if it was changed.


def _cursor(position: Position, query: PageQuery, store_id: str) -> str:
    key = None if position.key is None else domain.format_instant(position.key)
    facts = [key, position.id]
    text = json.dumps([*facts, _digest(facts, query, store_id)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str, query: PageQuery, store_id: str) -> Position:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded.encode("ascii"), b"-_", validate=True)
        *facts, digest = json.loads(text)
        if digest == _digest(facts, query, store_id):
            key, order_id = facts
            return Position(None if key is None else domain.parse_instant(key), order_id)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        pass
    raise ValidationFailed(
        {"after": "is not a cursor of this list: use `next` of its last page, or begin again"}
    )


def _digest(facts: list[Any], query: PageQuery, store_id: str) -> str:
    text = json.dumps([facts, repr(query.filters), repr(query.sort)])
    return hashlib.blake2b(
        text.encode(), key=store_id.encode(), digest_size=_CURSOR_DIGEST_BYTES
    ).hexdigest()


@blueprint.post("/store/orders", tags=["orders"])
@_operation(
    refusals=(*document.PLACE_REFUSALS, "reference_exists"),
    headers=("Location", "Idempotent-Replayed", "ETag", "Vary"),
    parameters=(*document.LIST_CONDITIONS, "Idempotency-Key"),
)
@blueprint.arguments(schemas.NewOrderSchema)
@blueprint.response(201, schemas.OrderSchema, description="The placed order.")
def place_order(placement: Placement) -> Reply:
    """Place an order."""
    call = current_call()
    new, is_unique = placement
    placed = call.shop.orders.place(new, _list_terms(call), is_unique=is_unique)
    return write_reply(placed, VERSION, CREATED)


@blueprint.post("/store/orders/batch", tags=["orders"])
@_operation(
    refusals=document.PLACE_REFUSALS,
    headers=("Idempotent-Replayed",),
    parameters=(*document.LIST_CONDITIONS, "Idempotency-Key"),
)
@blueprint.arguments(schemas.PlacementsSchema)
@blueprint.response(200, schemas.PlacementResultsSchema, description="The result for each order.")
def place_orders(placements: dict[str, Any]) -> Reply:
    """Place up to 100 orders, each independently."""
    call = current_call()
    placed = call.shop.orders.place_all(placements["orders"], _list_terms(call), show=_results)
    return _several(placed)


@blueprint.get("/store/orders/<id:orderId>", tags=["orders"])
@_operation(
    refusals=("order_not_found", "precondition_failed"), parameters=("If-Match",), has_etag=True
)
@blueprint.response(200, schemas.OrderSchema, description="The order.")
def get_order(orderId: str) -> Reply:
    """Return one order."""
    order_id = domain.parse_order_id(orderId)
    order = orders_json.one_order(current_call().shop.database, order_id, VERSION)
    if order is None:
        raise OrderNotFound(orderId)
    return replies.order_reply(order_id, order, strong=True)


@blueprint.delete("/store/orders/<id:orderId>", tags=["orders"])
@_write(refusals=(*_CHANGE_REFUSALS, "malformed_request", "idempotency_key_reused"))
@blueprint.response(204, description="Order cancelled successfully.")
def cancel_order(orderId: str) -> Reply:
    """Cancel one order by its identifier."""
    call = current_call()
    order_id = domain.parse_order_id(orderId)
    cancelled = call.shop.orders.cancel(order_id, _order_terms(call))
    return write_reply(cancelled, VERSION, NO_CONTENT)


@blueprint.post("/store/orders/<id:orderId>/ship", tags=["orders"])
@_write(refusals=(*document.BODY_REFUSALS, *_CHANGE_REFUSALS, "idempotency_key_reused"))
@blueprint.arguments(schemas.ShipmentSchema, location="optional_json", required=False)
@blueprint.response(
    200,
    schemas.OrderSchema,
    description="The shipped order.",
    example=schemas.OrderSchema.shipped_example,
)
def ship_order(shipment: dict[str, Any], orderId: str) -> Reply:
    """Ship one order."""
    call = current_call()
    order_id = domain.parse_order_id(orderId)
    at, tracking = shipment.get("ship_date"), shipment.get("tracking")
    shipped = call.shop.orders.ship(order_id, at, _order_terms(call), tracking=tracking)
    return write_reply(shipped, VERSION)


@blueprint.post("/store/orders/<id:orderId>/reopen", tags=["orders"])
@_write(refusals=(*document.REOPEN_REFUSALS, "malformed_request", "idempotency_key_reused"))
@blueprint.response(200, schemas.OrderSchema, description="The order, pending again.")
def reopen_order(orderId: str) -> Reply:
    """Make a shipped or cancelled order pending again."""
    call = current_call()
    order_id = domain.parse_order_id(orderId)
    return write_reply(call.shop.orders.reopen(order_id, _order_terms(call)), VERSION)


@blueprint.patch("/store/orders/<id:orderId>", tags=["orders"])
@_write(
    refusals=(
        *document.BODY_REFUSALS,
        *_CHANGE_REFUSALS,
        "idempotency_key_reused",
        "reference_exists",
    )
)
@blueprint.arguments(schemas.OrderPatchSchema, location="merge_patch")
@blueprint.response(200, schemas.OrderSchema, description="The order after the change.")
def change_order(fields: dict[str, Any], orderId: str) -> Reply:
    """Change an order that is pending, the note of any, or the tracking of one that has shipped."""
    call = current_call()
    order_id = domain.parse_order_id(orderId)
    return write_reply(call.shop.orders.change(order_id, fields, _order_terms(call)), VERSION)


@blueprint.post("/store/shipments", tags=["orders"])
@_operation(
    refusals=document.PLACE_REFUSALS,
    headers=("Idempotent-Replayed",),
    parameters=(*document.LIST_CONDITIONS, "Idempotency-Key"),
)
@blueprint.arguments(schemas.ShipmentsSchema)
@blueprint.response(200, schemas.ShipmentResultsSchema, description="The result for each order.")
def ship_orders(shipments: dict[str, Any]) -> Reply:
    """Ship up to 100 orders, each independently."""
    call = current_call()
    ids, at = shipments["order_ids"], shipments.get("ship_date")
    tracking = shipments.get("tracking", {})
    shipped = call.shop.orders.ship_all(
        ids, at, _list_terms(call), tracking=tracking, show=_results
    )
    return _several(shipped)


def _several(done: Written[str]) -> Reply:
    """Return the answer of a write to several orders."""
    return Reply(done.answer.encode(), headers=[REPLAYED] if done.replayed else [])


def _results(results: Sequence[Result | ReferenceExists]) -> str:
    return f'{{"results":[{",".join(map(_result, results))}]}}'


def _result(result: Result | ReferenceExists) -> str:
    """Return an order's result, with the id by which the request named it, if any."""
    if isinstance(result, Changed):
        return f'{{"orderId":{result.order_id},"order":{result.v2}}}'
    return f'{{"orderId":{result.order_id},"error":{body_of(result).decode()}}}'


@blueprint.get("/store/orders/<id:orderId>/events", tags=["events"])
@_operation(refusals=("order_not_found",))
@blueprint.arguments(schemas.HistoryQuerySchema, location="query")
@blueprint.response(
    200,
    schemas.HistoryPageSchema,
    description="Events of the order, oldest first, and the names of the keys that caused them.",
)
def list_order_events(query: dict[str, int], orderId: str) -> Reply:
    """Return the history of one order."""
    database, order_id = current_call().shop.database, domain.parse_order_id(orderId)
    page = order_store.read_history(database, order_id, query["after"], query["limit"])
    # An order has at least the event that made it.
    if not page.events and not order_store.read_history(database, order_id, 0, 1).events:
        raise OrderNotFound(orderId)
    return _event_page(page, key_store.actors_of(database, order_id))


@blueprint.get("/store/events", tags=["events"])
@_operation(refusals=("server_busy",), parameters=("Last-Event-ID",))
@blueprint.arguments(schemas.EventsQuerySchema, location="query")
@blueprint.response(
    200,
    schemas.EventPageSchema,
    description="Events, oldest first, where to continue, and whether there are more.",
)
def list_events(query: dict[str, Any]) -> Reply:
    """Return the events after a given one, or all that come as a stream."""
    call, types = current_call(), frozenset(query.get("type", ()))
    after, size = live.position_of(query["after"]), query["limit"]
    if live.wants_stream():
        _check_position(after)
        return live.stream(call, after, types)
    page = order_store.read_events(call.shop.database, after, size, types)
    if page.events or not query["wait"]:
        return _event_page(page)
    _check_position(page.next)
    return live.rest(call, page.next, types, size, query["wait"]) or _event_page(page)


def _event_page(page: EventPage, actors: Sequence[tuple[str, str]] | None = None) -> Reply:
    if not page.events:
        _check_position(page.next)
    body = live.event_page(page.events, page.next, more=page.more)
    if actors is not None:
        named = to_json([{"actor": actor, "name": name} for actor, name in actors])
        body = b'%b,"actors":%b}' % (body[:-1], named.encode())
    return replies.text_reply(body)


def _check_position(after: int) -> None:
    if after > (newest := order_store.revision(current_call().shop.database)):
        raise ValidationFailed({"after": Fault(f"is after the newest event, {newest}", "range")})


@blueprint.get("/store/stats", tags=["reports"])
@_operation()
@blueprint.arguments(schemas.StatsQuerySchema, location="query")
@blueprint.response(200, schemas.StatsSchema, description="The figures.")
def get_stats(query: dict[str, Any]) -> Reply:
    """Return the store's figures by status and by day."""
    shop = current_call().shop
    now, zone = shop.clock.now(), ZoneInfo(query["zone"])
    figures = stats.statistics(shop.database, now, query["days"], zone)
    standing = shop.backups and shop.backups.standing()
    paused = endpoints.paused(shop.database)
    report = {
        "by_status": figures.by_status,
        "days": [{"date": day, **asdict(each)} for day, each in figures.days.items()],
        # Left out where there are none.
        "backups": standing and {"last": standing.newest, "same_disk": standing.is_on_same_disk},
        "paused_webhooks": [{"id": each, "since": since} for each, since in paused] or None,
    }
    return replies.text_reply(to_json(_STATS.dump(report)).encode())


@blueprint.get("/usage", tags=["reports"])
@_operation(scope=ANY)
@blueprint.response(200, schemas.UsageSchema, description="The key and its windows.")
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
