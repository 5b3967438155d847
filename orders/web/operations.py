"""What operations of both versions share: refusals, what they read of a request, and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flask import request

from orders import domain
from orders.domain import OrderNotFound, Origin
from orders.service import Written
from orders.store.idempotency import IdempotencyKey
from orders.web.call import NO_CONTENT, Reply, current_call
from orders.web.refusals import MalformedRequest
from orders.web.services import current_services

_IDEMPOTENCY_KEY = re.compile(r"[!-+\--~]{1,255}")

BODY_REFUSALS = (
    "malformed_request",
    "payload_too_large",
    "unsupported_media_type",
    "validation_failed",
)
PLACE_REFUSALS = (
    *BODY_REFUSALS,
    "insufficient_scope",
    "precondition_failed",
    "idempotency_key_reused",
)
CHANGE_REFUSALS = (
    "insufficient_scope",
    "order_not_found",
    "order_already_shipped",
    "order_already_cancelled",
    "precondition_failed",
)
# What a write to the list of all heeds.
LIST_CONDITIONS = ("If-Match of a list", "If-None-Match of a write to the list")
REPLAYED = ("Idempotent-Replayed", "true")


def parse_order_id(order_id: str) -> int:
    """Return the id of an order in a path, or raise OrderNotFound where none can have it."""
    number = domain.parse_id(order_id)
    if number is None:
        raise OrderNotFound(order_id)
    return number


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


def written(
    done: Written, version: int, status: int = 200, headers: Iterable[tuple[str, str]] = ()
) -> Reply:
    """Return the answer of a write to one order: the order as a version shows it, if any."""
    body = b"" if status == NO_CONTENT else done.order.shown(version)
    return Reply(body, status, [*headers, *([REPLAYED] if done.replayed else [])])


def location(order_id: int, version: int) -> tuple[str, str]:
    """Return the header that says where an order is."""
    return "Location", f"{current_services().path_prefix}/v{version}/store/orders/{order_id}"
