"""Webhooks in the OpenAPI document.

OpenAPI 3.0 lacks the `webhooks` of 3.1. `x-webhooks` has the same shape.
"""

from __future__ import annotations

from typing import Any

from orders.domain import EventType, Status
from orders.webhooks import rules, sender

EXTENSION = "x-webhooks"
_SUMMARIES = {
    EventType.PLACED: "An order was placed.",
    EventType.SHIPPED: "An order was shipped.",
    EventType.CANCELLED: "An order was cancelled.",
    EventType.IMPORTED: "An order was imported. Sent only to endpoints added with this event.",
}
_STATUS_AFTER = {EventType.SHIPPED: Status.SHIPPED, EventType.CANCELLED: Status.CANCELLED}
_SIGNATURE = (
    "A signature for each valid secret, separated by spaces: `v1,` and the base64 of the "
    "HMAC-SHA256 of `<webhook-id>.<webhook-timestamp>.<body>`. Its key is the part of the secret "
    "after `whsec_`, decoded from base64 (Standard Webhooks 1.0)."
)
_HEADERS = {
    "webhook-id": (
        "The id of the message, the same at each attempt. Ignore messages whose id you have seen.",
        "evt_166f834250a12dbd_42",
    ),
    "webhook-timestamp": ("The time of this attempt, as a Unix timestamp.", "1796112000"),
    "webhook-signature": (_SIGNATURE, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
}
_DELIVERY = (
    "Sent to each endpoint in the order of events, at least once. A 2xx answer within "
    f"{sender.SECONDS:.0f} s accepts it; redirects are not followed. Otherwise it is retried after "
    "{delays} seconds, each plus up to a tenth. An endpoint that is down (no connection, no "
    "answer, 3xx, 408, 425, 429, 5xx) is paused after the last attempt, and at once after 410. Any "
    "other 4xx refuses the event; later events are sent after its second attempt."
)


def webhooks(order: dict[str, Any]) -> dict[str, Any]:
    """Describe the messages, by type of event.

    `order` is the schema of version 2's orders, or a reference to it.
    """
    return {each.value: {"post": _operation(each, order)} for each in EventType}


def _operation(event: EventType, order: dict[str, Any]) -> dict[str, Any]:
    delays = ", ".join(f"{seconds:,}" for seconds in rules.DELAYS)
    return {
        "operationId": "on" + "".join(part.capitalize() for part in event.split(".")),
        "summary": _SUMMARIES[event],
        "description": _DELIVERY.format(delays=delays),
        "x-stability": "beta",
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": description,
                "schema": {"type": "string"},
                "example": shown,
            }
            for name, (description, shown) in _HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _message(event, order),
                    "example": _example(event),
                }
            },
        },
        "responses": {
            "2XX": {"description": "Accepted."},
            "410": {"description": "No more events wanted: the endpoint is paused."},
            "4XX": {"description": "Refused: retried, without blocking later events."},
            "5XX": {"description": "Down: retried, and later events wait."},
        },
    }


def _example(event: EventType) -> dict[str, Any]:
    order = {
        "id": 41,
        "petId": 7,
        "quantity": 2,
        "shipDate": "2026-12-01T08:00:00.000Z",
        "complete": event is EventType.SHIPPED,
        "status": _STATUS_AFTER.get(event, Status.PENDING).value,
        "placedAt": "2026-11-30T16:05:00.000Z",
        "updatedAt": "2026-12-01T08:00:00.000Z",
        "reference": "R-1041",
    }
    return {"type": event.value, "timestamp": order["updatedAt"], "data": order}


def _message(event: EventType, order: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": {"type": "string", "enum": [event.value]},
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "The time of the event.",
            },
            "data": order,
        },
    }
