"""What is sent: the body of a message, and the id by which a receiver knows it again.

An event's body is made of its row, which never changes, so that it is the same at each try. The
database makes the order's form, which is the feed's, too.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime

from orders.domain import format_instant
from orders.webhooks.deliveries import Event

PING = "ping"


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver gets: `id` is the same at each try."""

    id: str
    body: str


def of_event(event: Event, store_id: str) -> Message:
    """Return the message about an event of a store."""
    body = _body(event.type, event.at, event.order)
    return Message(f"evt_{store_id}_{event.id}", body)


def ping(endpoint_id: int, store_id: str, now: datetime) -> Message:
    """Return a message that tells nothing, to try an endpoint with."""
    message_id = f"ping_{store_id}_{secrets.token_hex(8)}"
    return Message(message_id, _body(PING, now, f'{{"webhook":{endpoint_id}}}'))


def _body(kind: str, at: datetime, data: str) -> str:
    # Neither a type nor an instant can hold anything that JSON would have to quote.
    return f'{{"type":"{kind}","timestamp":"{format_instant(at)}","data":{data}}}'
