"""Webhooks in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from orders.domain import PERSONAL, EventType, Status, name_in_api
from orders.settings import TEST_HEADER
from orders.webhooks import sender

_ASKED_FOR = "Sent only to endpoints added with this event."
_SUMMARIES = {
    EventType.PLACED: "An order was placed.",
    EventType.CHANGED: "An order was changed.",
    EventType.SHIPPED: "An order was shipped.",
    EventType.CANCELLED: "An order was cancelled.",
    EventType.REOPENED: f"A shipped or cancelled order is pending again. {_ASKED_FOR}",
    EventType.IMPORTED: f"An order was imported. {_ASKED_FOR}",
    EventType.FORGOTTEN: "An order's personal data was deleted: its reference, note, shipTo and "
    f"tracking are gone. Remove them from what you keep, too. {_ASKED_FOR}",
}
_STATUS_AFTER = {
    EventType.SHIPPED: Status.SHIPPED,
    EventType.CANCELLED: Status.CANCELLED,
    EventType.FORGOTTEN: Status.SHIPPED,
}
_PERSONAL = {name_in_api(name) for name in PERSONAL}
_SIGNATURE = (
    "A signature for each valid secret, separated by spaces: `v1,` and the base64 of the "
    "HMAC-SHA256 of `<webhook-id>.<webhook-timestamp>.<body>`. Its key is the part of the secret "
    "after `whsec_`, decoded from base64 (Standard Webhooks 1.0)."
)
_ID = (
    "The message's id, the same at each attempt. Ignore messages whose id you have seen. That of "
    "an event is `evt_`, the store's id, `_` and the event's own id, by which it is in listEvents; "
    "that of a ping begins with `ping_`."
)
_PARAMETERS = [
    {
        "name": name,
        "in": "header",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    }
    for name, description, example in (
        ("webhook-id", _ID, "evt_166f834250a12dbd_42"),
        ("webhook-timestamp", "The time of this attempt, as a Unix timestamp.", "1796112000"),
        ("webhook-signature", _SIGNATURE, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    )
]
_MODE = {
    "name": TEST_HEADER[0],
    "in": "header",
    "description": "Present if the endpoint belongs to test mode.",
    "schema": {"type": "string"},
    "example": TEST_HEADER[1],
}
_RESPONSES = {
    "2XX": "Accepted.",
    "410": "No more events wanted: the endpoint is paused.",
    "4XX": "Refused: retried, without blocking later events.",
    "5XX": "Down: retried, and later events wait.",
}
_TYPE = "Messages of other types may be added: answer them with 2xx, too."
_DELAYS = ", ".join(f"{seconds:,}" for seconds in sender.DELAYS)
_DELIVERY = (
    "Sent to each endpoint in the order of events, at least once. A 2xx answer within "
    f"{sender.SECONDS:.0f} s accepts it; redirects are not followed. Otherwise it is retried after "
    f"{_DELAYS} seconds, each plus up to a tenth; where a 429 or 503 asks for more with "
    "Retry-After, that is respected up to an hour. An endpoint that is down (no connection, no "
    "answer, 3xx, 408, 425, 429, 5xx) is paused after the last attempt, and at once after 410. Any "
    "other 4xx refuses the event; later events are sent after its second attempt."
)
_PING_SUMMARY = "A test, sent by the command `webhooks ping ID`."
_PING = "Not about an event. Sent once, whatever types the endpoint wants; a 2xx answer accepts it."
_PING_DATA = {
    "type": "object",
    "required": ["webhook"],
    "properties": {
        "webhook": {"type": "integer", "format": "int64", "description": "The endpoint's id."}
    },
}
# The members of an event beside its type, time and order, as in the event feed.
_FACTS: dict[str, dict[str, Any]] = {
    "eventId": {
        "type": "integer",
        "format": "int64",
        "description": "The event's id in listEvents.",
        "examples": [42],
    },
    "actor": {
        "type": "string",
        "description": "Who changed the order: `key:` and an API key's id, `cli`, or `service`.",
        "examples": ["key:2"],
    },
    "requestId": {
        "type": ["string", "null"],
        "description": "X-Request-Id of the answer to that request; null for commands.",
        "examples": ["9f86d081884c7d65"],  # pragma: allowlist secret
    },
}
_AT = "2026-12-01T08:00:00.000Z"


def webhooks(order: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    """Describe the messages, by type of event.

    `order` is the schema of version 2's orders, or a reference to it.
    """
    events = {
        each.value: _operation(
            each.value,
            _SUMMARIES[each],
            _DELIVERY,
            _message(each.value, _FACTS, order),
            _example(each, example),
        )
        for each in EventType
    }
    ping = {"type": sender.PING, "timestamp": _AT, "data": {"webhook": 5}}
    described = _message(sender.PING, {}, _PING_DATA)
    return events | {sender.PING: _operation(sender.PING, _PING_SUMMARY, _PING, described, ping)}


def _operation(
    kind: str, summary: str, description: str, message: dict[str, Any], example: dict[str, Any]
) -> dict[str, Any]:
    post = {
        "operationId": "on" + "".join(part.capitalize() for part in kind.split(".")),
        "summary": summary,
        "description": description,
        "x-stability": "beta",
        "security": [],
        "parameters": [*_PARAMETERS, _MODE],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": message, "example": example}},
        },
        "responses": {status: {"description": text} for status, text in _RESPONSES.items()},
    }
    return {"post": post}


def _example(event: EventType, order: dict[str, Any]) -> dict[str, Any]:
    status = _STATUS_AFTER.get(event, Status.PENDING)
    data = {**order, "complete": status is Status.SHIPPED, "status": status.value, "updatedAt": _AT}
    if event is EventType.SHIPPED:
        data["tracking"] = "JD0146000041"
    if event is EventType.FORGOTTEN:
        data = {name: each for name, each in data.items() if name not in _PERSONAL}
    facts = {name: described["examples"][0] for name, described in _FACTS.items()}
    return {"type": event.value, "timestamp": _AT, **facts, "data": data}


def _message(kind: str, facts: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "timestamp", *facts, "data"],
        "properties": {
            "type": {"type": "string", "enum": [kind], "description": _TYPE},
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "The time of the event, or of the ping.",
            },
            **facts,
            "data": data,
        },
    }
