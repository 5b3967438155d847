"""What the versions share: placing, looking, shipping and cancelling, by whom, at most once."""

from __future__ import annotations

import re
from datetime import datetime

from flask import Response, request

from orders import domain
from orders.domain import NewOrder, Order, OrderNotFound, Origin
from orders.store import listing
from orders.store.idempotency import IdempotencyKey
from orders.web import conditional
from orders.web.call import current_call
from orders.web.refusals import MalformedRequest
from orders.web.services import current_services

_IDEMPOTENCY_KEY = re.compile(r"[!-+\--~]{1,255}")

BODY_REFUSALS = (
    "malformed_request",
    "payload_too_large",
    "unsupported_media_type",
    "validation_failed",
)
PLACE_REFUSALS = (*BODY_REFUSALS, "insufficient_scope", "idempotency_key_reused")
CANCEL_REFUSALS = ("insufficient_scope", "order_not_found", "order_already_shipped")
SHIP_REFUSALS = (*BODY_REFUSALS, *CANCEL_REFUSALS)


def place(new: NewOrder, version: int) -> Order:
    """Place an order; with an Idempotency-Key, at most once. Each version has keys of its own."""
    placed = current_services().orders.place(new, origin(), idempotency_key(version))
    headers = current_call().headers
    headers["Location"] = f"{orders_path(version)}/{placed.order.id}"
    if placed.replayed:
        headers["Idempotent-Replayed"] = "true"
    return placed.order


def get(order_id: str, version: int) -> Response:
    """Return an order as a version shows it, or 304.

    Raises:
        OrderNotFound: the version shows no such order.
    """
    found = listing.one_order(current_services().database, known(order_id), version)
    if found is None:
        raise OrderNotFound(order_id)
    unchanged = conditional.not_modified(found.revision, found.body)
    return unchanged or conditional.entity(found.body, found.revision)


def ship(order_id: str, shipment: dict[str, datetime]) -> Order:
    """Ship a pending order, at the time given or now."""
    return current_services().orders.ship(known(order_id), shipment.get("ship_date"), origin())


def cancel(order_id: str) -> None:
    """Cancel a pending order."""
    current_services().orders.cancel(known(order_id), origin())


def orders_path(version: int) -> str:
    """Return the path of a version's orders at the service's public address."""
    return f"{current_services().path_prefix}/v{version}/store/orders"


def known(order_id: str) -> int:
    """Return the number of an order from a path.

    Raises:
        OrderNotFound: no order can have it.
    """
    number = domain.parse_id(order_id)
    if number is None:
        raise OrderNotFound(order_id)
    return number


def origin() -> Origin:
    """Return who causes the change that this request makes."""
    call = current_call()
    return Origin(call.caller.actor if call.caller else "nobody", call.request_id)


def idempotency_key(version: int) -> IdempotencyKey | None:
    """Return the request's Idempotency-Key, or None.

    Raises:
        MalformedRequest: it is not 1 to 255 visible ASCII characters without a comma. A repeated
            header arrives with a comma.
    """
    value = request.headers.get("Idempotency-Key")
    caller = current_call().caller
    if value is None or caller is None or caller.key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(value):
        raise MalformedRequest(
            "Idempotency-Key must be 1 to 255 visible ASCII characters without a comma, once."
        )
    return IdempotencyKey(caller.key.id, version, value)
