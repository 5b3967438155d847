"""Webhooks for the interface description: a dictionary, to stand beside the paths.

OpenAPI 3.0 has no `webhooks`, which 3.1 brought. `x-webhooks` has the same shape: by its name, what
the service sends and how it takes the answers.
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
    EventType.IMPORTED: "An order was imported. Sent only where it was asked for by name.",
}
_STATUS_AFTER = {EventType.SHIPPED: Status.SHIPPED, EventType.CANCELLED: Status.CANCELLED}
_SIGNATURE = (
    "One signature for each secret that is in force, with blanks between: `v1,` and the base64 of "
    "the HMAC-SHA256 of `<webhook-id>.<webhook-timestamp>.<body>`, under the bytes that the secret "
    "has in base64 behind `whsec_` (Standard Webhooks 1.0)."
)
_HEADERS = {
    "webhook-id": (
        "Names the message, the same at each try: what came before with it need not be done again.",
        "evt_166f834250a12dbd_42",
    ),
    "webhook-timestamp": ("When this try was made, as a Unix time.", "1796112000"),
    "webhook-signature": (_SIGNATURE, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
}
_DELIVERY = (
    "Sent to each endpoint in the order of the events, at least once. An answer of 2xx within "
    f"{sender.SECONDS:.0f} s takes it; redirects are not followed. Anything else is tried again "
    "after {delays} seconds, and up to a tenth more; an endpoint that is down (no connection, no "
    "answer, 3xx, 408, 425, 429, 5xx) is paused after the last try, and 410 pauses it at once. Any "
    "other 4xx refuses the event, which lets those behind it pass after its second try."
)


def webhooks(order: dict[str, Any]) -> dict[str, Any]:
    """Describe what is sent, by the type of the event.

    `order` is the schema of an order in version 2's form, be it a reference.
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
            "2XX": {"description": "Taken."},
            "410": {"description": "Nothing more is wanted: the endpoint is paused."},
            "4XX": {"description": "Refused: tried again, and not in the way of others."},
            "5XX": {"description": "Down: tried again, and all that follows waits."},
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
                "description": "When it happened.",
            },
            "data": order,
        },
    }
