"""Events in version 2's form."""

from __future__ import annotations

from typing import Any, ClassVar

import marshmallow as ma

from orders.domain import MAX_INT64, EventType
from schemas.fields import CamelSchema, Flag, Instant, Int64, Nested, Text, identifier, items
from schemas.order import EXAMPLE_ID
from schemas.order_v2 import OrderSchema


class EventSchema(CamelSchema):
    """A change of an order. Ids rise in the order in which changes were made."""

    example: ClassVar[dict[str, Any]] = {
        "id": 87,
        "type": "order.placed",
        "orderId": EXAMPLE_ID,
        "at": "2026-11-28T16:05:00.000Z",
        "actor": "key:2",
        "requestId": "8f3a0c1d5e7b9246",  # pragma: allowlist secret
        "order": OrderSchema.example,
    }
    shipped_example: ClassVar[dict[str, Any]] = {
        **example,
        "id": 93,
        "type": "order.shipped",
        "at": "2026-12-01T08:00:00.000Z",
        "order": OrderSchema.shipped_example,
    }

    id = identifier("Unique event identifier.", required=True)
    type = Text("What happened.", required=True, validate=ma.validate.OneOf([*EventType]))
    order_id = identifier("The order that it happened to.", required=True)
    at = Instant("When it happened. May step back when the shop's clock does.", required=True)
    actor = Text(
        "Who caused it: `key:ID`, `cli` for commands, or `service` for what it does by itself.",
        required=True,
    )
    request_id = Text(
        "The request that caused it; null for commands.", required=True, allow_none=True
    )
    order = Nested("The order after the event.", nested=OrderSchema, required=True)


class EventPageSchema(CamelSchema):
    """A page of the event log, or of the history of an order."""

    example: ClassVar = {
        "events": [EventSchema.example, EventSchema.shipped_example],
        "next": 93,
        "more": False,
    }

    events = items(EventSchema)
    next = Int64(
        "What to send as `after` next time: the id of the page's last event; of an empty page, "
        "`after` as it was sent, or the newest event's where none of the types asked for follows.",
        0,
        MAX_INT64,
        required=True,
    )
    more = Flag("Whether there are more events already.", required=True)


class ActorSchema(CamelSchema):
    """The name of a key that caused events."""

    example: ClassVar = {"actor": "key:2", "name": "the web shop"}

    actor = Text("As events have it.", required=True)
    name = Text("The key's name.", required=True)


class HistoryPageSchema(EventPageSchema):
    """A page of the history of an order."""

    example: ClassVar = {**EventPageSchema.example, "actors": [ActorSchema.example]}

    actors = items(ActorSchema, "The keys that changed the order.")
