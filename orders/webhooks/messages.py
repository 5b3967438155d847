"""What is sent: the body of a message, and the id by which a receiver knows it again.

An event's body is made of its row, which never changes, so that it is the same at each try.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import datetime

from orders.domain import Order, format_instant
from orders.store.deliveries import Event

PING = "ping"


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver gets: `id` is the same at each try."""

    id: str
    body: str


def of_event(event: Event, store_id: str) -> Message:
    """Give the message about an event of a store."""
    body = _body(event.type, event.at, order_v2(event.order))
    return Message(f"evt_{store_id}_{event.id}", body)


def ping(endpoint_id: int, store_id: str, now: datetime) -> Message:
    """Give a message that tells nothing, to try an endpoint with."""
    message_id = f"ping_{store_id}_{secrets.token_hex(8)}"
    return Message(message_id, _body(PING, now, {"webhook": endpoint_id}))


def order_v2(order: Order) -> dict[str, object]:
    """Give an order in version 2's form. What is not known is left out."""
    form = {
        "id": order.id,
        "petId": order.pet_id,
        "quantity": order.quantity,
        "shipDate": order.ship_date and format_instant(order.ship_date),
        "complete": order.complete,
        "status": order.status.value,
        "placedAt": format_instant(order.placed_at),
        "updatedAt": format_instant(order.updated_at),
        "reference": order.reference,
    }
    return {name: value for name, value in form.items() if value is not None}


def _body(kind: str, at: datetime, data: dict[str, object]) -> str:
    told = {"type": kind, "timestamp": format_instant(at), "data": data}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))
