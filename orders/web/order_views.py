"""The operations on one order, which both versions have: place, get, cancel, ship."""

from __future__ import annotations

import re
from datetime import datetime

from flask import request

from orders import domain
from orders.domain import NewOrder, Order, OrderNotFound, Origin
from orders.store import listing
from orders.store.idempotency import IdempotencyKey
from orders.web import conditional
from orders.web.api import ApiBlueprint
from orders.web.call import current_call
from orders.web.document import operation
from orders.web.refusals import MalformedRequest
from orders.web.replies import NO_CONTENT, Reply
from orders.web.services import current_services
from schemas.order import NewOrderSchema, OrderSchema, ShipmentSchema

_IDEMPOTENCY_KEY = re.compile(r"[!-+\--~]{1,255}")

_BODY = (
    "malformed_request",
    "payload_too_large",
    "unsupported_media_type",
    "validation_failed",
)
_CANCEL = (
    "insufficient_scope",
    "order_not_found",
    "order_already_shipped",
    "order_already_cancelled",
    "precondition_failed",
)
# From this version on, an order's ETag is strong.
STRONG_SINCE = 2
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
        refusals=(*_BODY, "insufficient_scope", "idempotency_key_reused"),
        headers=("Location", "Idempotent-Replayed"),
        parameters=("Idempotency-Key",),
        stability=stability,
    )
    @blueprint.arguments(new_order)
    @blueprint.response(201, order, description="The placed order.")
    def place_order(new: NewOrder) -> Order:
        """Place an order."""
        placed = current_services().orders.place(new, _origin(), _idempotency_key(version))
        headers = current_call().headers
        path = f"{current_services().path_prefix}/v{version}{_ORDERS}"
        headers["Location"] = f"{path}/{placed.order.id}"
        if placed.replayed:
            headers["Idempotent-Replayed"] = "true"
        return placed.order


def _add_get(
    blueprint: ApiBlueprint, version: int, order: type[OrderSchema], stability: str
) -> None:
    @blueprint.get(_ORDER, tags=_TAGS)
    @operation(
        refusals=("order_not_found", "precondition_failed"),
        parameters=("If-Match",),
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
        return conditional.order_reply(order_id, shown, strong=version >= STRONG_SINCE)


def _add_cancel(blueprint: ApiBlueprint, version: int) -> None:
    @blueprint.delete(_ORDER, tags=_TAGS)
    @operation(refusals=_CANCEL, parameters=("If-Match",), stability="beta")
    @blueprint.response(204, description="Order cancelled successfully.")
    def cancel_order(orderId: str) -> Reply:  # noqa: N803 - named in the interface
        """Cancel one order by its identifier."""
        condition = conditional.precondition(strong=version >= STRONG_SINCE)
        current_services().orders.cancel(parse_order_id(orderId), _origin(), condition)
        return Reply(status=NO_CONTENT)


def _add_ship(
    blueprint: ApiBlueprint, version: int, order: type[OrderSchema], stability: str
) -> None:
    @blueprint.post(f"{_ORDER}/ship", tags=_TAGS)
    @operation(refusals=(*_BODY, *_CANCEL), parameters=("If-Match",), stability=stability)
    @blueprint.arguments(ShipmentSchema, location="optional_json", required=False)
    @blueprint.response(200, order, description="The shipped order.", example=order.shipped_example)
    def ship_order(
        shipment: dict[str, datetime],
        orderId: str,  # noqa: N803 - named in the interface
    ) -> Order:
        """Ship one order."""
        order_id, at = parse_order_id(orderId), shipment.get("ship_date")
        condition = conditional.precondition(strong=version >= STRONG_SINCE)
        return current_services().orders.ship(order_id, at, _origin(), condition)


def parse_order_id(order_id: str) -> int:
    """Return the id of an order in a path.

    Raises:
        OrderNotFound: no order can have this id.
    """
    number = domain.parse_id(order_id)
    if number is None:
        raise OrderNotFound(order_id)
    return number


def _origin() -> Origin:
    call = current_call()
    return Origin(call.key_name or "nobody", call.request_id)


def _idempotency_key(version: int) -> IdempotencyKey | None:
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
