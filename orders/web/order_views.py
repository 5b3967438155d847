"""The operations on one order, which both versions have: place, get, cancel, ship."""

from __future__ import annotations

import re
from datetime import datetime

from flask import request

from orders import domain
from orders.domain import NewOrder, OrderNotFound, Origin
from orders.service import Written
from orders.store import listing
from orders.store.idempotency import IdempotencyKey
from orders.web import etags
from orders.web.api import ApiBlueprint
from orders.web.call import current_call
from orders.web.openapi.document import operation
from orders.web.refusals import MalformedRequest
from orders.web.replies import NO_CONTENT, Reply
from orders.web.services import current_services
from schemas.order import NewOrderSchema, OrderSchema, ShipmentSchema

_IDEMPOTENCY_KEY = re.compile(r"[!-+\--~]{1,255}")

BODY_REFUSALS = (
    "malformed_request",
    "payload_too_large",
    "unsupported_media_type",
    "validation_failed",
)
CHANGE_REFUSALS = (
    "insufficient_scope",
    "order_not_found",
    "order_already_shipped",
    "order_already_cancelled",
    "precondition_failed",
)
# From this version on, an order's ETag is strong and on the answers of writes, too; all writes, not
# only placing, heed an Idempotency-Key.
SINCE = 2
# What a write heeds: of the order, or of the list of all.
CONDITIONS = ("If-Match", "If-None-Match of a write")
LIST_CONDITIONS = ("If-Match of a list", "If-None-Match of a write to the list")
WRITE_HEADERS = ("ETag", "Vary", "Idempotent-Replayed")
REPLAYED = ("Idempotent-Replayed", "true")
_ORDERS = "/store/orders"
_ORDER = f"{_ORDERS}/<id:orderId>"
_TAGS = ["orders"]


def add_to(
    blueprint: ApiBlueprint,
    version: int,
    order: type[OrderSchema],
    new_order: type[NewOrderSchema],
    stability: str,
) -> None:
    """Add the operations to a version, with its form of orders."""
    _add_place(blueprint, version, order, new_order, stability)
    _add_get(blueprint, version, order, stability)
    _add_cancel(blueprint, version)
    _add_ship(blueprint, version, order, stability)


def _add_place(
    blueprint: ApiBlueprint,
    version: int,
    order: type[OrderSchema],
    new_order: type[NewOrderSchema],
    stability: str,
) -> None:
    @blueprint.post(_ORDERS, tags=_TAGS)
    @operation(
        refusals=(
            *BODY_REFUSALS,
            "insufficient_scope",
            "precondition_failed",
            "idempotency_key_reused",
        ),
        headers=("Location", "Idempotent-Replayed", *_since_2(version, "ETag", "Vary")),
        parameters=(*LIST_CONDITIONS, "Idempotency-Key"),
        stability=stability,
    )
    @blueprint.arguments(new_order)
    @blueprint.response(201, order, description="The placed order.")
    def place_order(new: NewOrder) -> Reply:
        """Place an order."""
        services = current_services()
        condition, key = etags.precondition_of_list(), idempotency_key(version)
        placed = services.orders.place(new, origin(), key, condition)
        reply = written(placed, version, 201)
        path = f"{services.path_prefix}/v{version}{_ORDERS}/{placed.order.order_id}"
        reply.headers.append(("Location", path))
        return reply


def _add_get(
    blueprint: ApiBlueprint, version: int, order: type[OrderSchema], stability: str
) -> None:
    @blueprint.get(_ORDER, tags=_TAGS)
    @operation(
        refusals=("order_not_found", "precondition_failed"),
        parameters=(*_strong(version, "If-Match"),),
        has_etag=True,
        stability=stability,
    )
    @blueprint.response(200, order, description="The order.")
    def get_order(orderId: str) -> Reply:  # noqa: N803 - named in the interface
        """Return one order."""
        order_id = parse_order_id(orderId)
        shown = listing.one_order(current_services().database, order_id, version)
        if shown is None:
            raise OrderNotFound(orderId)
        return etags.order_reply(order_id, shown, strong=version >= SINCE)


def _add_cancel(blueprint: ApiBlueprint, version: int) -> None:
    @blueprint.delete(_ORDER, tags=_TAGS)
    @operation(
        refusals=(
            *CHANGE_REFUSALS,
            *_since_2(version, "malformed_request", "idempotency_key_reused"),
        ),
        parameters=(*_strong(version, *CONDITIONS), *_since_2(version, "Idempotency-Key")),
        headers=_since_2(version, *WRITE_HEADERS),
        stability="beta",
    )
    @blueprint.response(204, description="Order cancelled successfully.")
    def cancel_order(orderId: str) -> Reply:  # noqa: N803 - named in the interface
        """Cancel one order by its identifier."""
        order_id = parse_order_id(orderId)
        condition = etags.precondition(strong=version >= SINCE)
        key = idempotency_key(version) if version >= SINCE else None
        cancelled = current_services().orders.cancel(order_id, origin(), condition, key)
        return written(cancelled, version, NO_CONTENT)


def _add_ship(
    blueprint: ApiBlueprint, version: int, order: type[OrderSchema], stability: str
) -> None:
    @blueprint.post(f"{_ORDER}/ship", tags=_TAGS)
    @operation(
        refusals=(
            *BODY_REFUSALS,
            *CHANGE_REFUSALS,
            *_since_2(version, "idempotency_key_reused"),
        ),
        parameters=(*_strong(version, *CONDITIONS), *_since_2(version, "Idempotency-Key")),
        headers=_since_2(version, *WRITE_HEADERS),
        stability=stability,
    )
    @blueprint.arguments(ShipmentSchema, location="optional_json", required=False)
    @blueprint.response(200, order, description="The shipped order.", example=order.shipped_example)
    def ship_order(
        shipment: dict[str, datetime],
        orderId: str,  # noqa: N803 - named in the interface
    ) -> Reply:
        """Ship one order."""
        order_id, at = parse_order_id(orderId), shipment.get("ship_date")
        condition = etags.precondition(strong=version >= SINCE)
        key = idempotency_key(version) if version >= SINCE else None
        shipped = current_services().orders.ship(order_id, at, origin(), condition, key)
        return written(shipped, version)


def parse_order_id(order_id: str) -> int:
    """Return the id of an order in a path, or raise OrderNotFound where none can have it."""
    number = domain.parse_id(order_id)
    if number is None:
        raise OrderNotFound(order_id)
    return number


def written(done: Written, version: int, status: int = 200) -> Reply:
    """Return the answer of a write to one order, in version 2 with its ETag."""
    order = done.order
    headers = etags.strong_headers(order.event_id) if version >= SINCE else []
    reply = Reply(b"" if status == NO_CONTENT else order.shown(version), status, headers)
    if done.replayed:
        reply.headers.append(REPLAYED)
    return reply


def _strong(version: int, *names: str) -> tuple[str, ...]:
    # Of an order's weak tag as of a list's, If-Match holds only as `*`.
    weak = {"If-Match": "If-Match of weak tags"}
    return names if version >= SINCE else tuple(weak.get(each, each) for each in names)


def _since_2(version: int, *names: str) -> tuple[str, ...]:
    return names if version >= SINCE else ()


def origin() -> Origin:
    """Return who changes an order by this request."""
    call = current_call()
    return Origin(call.key_name or "nobody", call.request_id)


def idempotency_key(version: int) -> IdempotencyKey | None:
    """Return the Idempotency-Key of this request, if it has one; it must be a valid one."""
    # A repeated header arrives as one with a comma in it.
    value = request.environ.get("HTTP_IDEMPOTENCY_KEY")
    if value is None:
        return None
    caller = current_call().caller
    if caller is None or caller.key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(value):
        raise MalformedRequest(
            "Send one Idempotency-Key, of 1 to 255 visible ASCII characters without a comma."
        )
    return IdempotencyKey(caller.key.id, version, value)
