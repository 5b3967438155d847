"""One try: a message signed and sent, and the line about it in the log of deliveries."""

from __future__ import annotations

from datetime import datetime

from orders import keys
from orders.webhooks import rules, signing
from orders.webhooks.endpoints import Delivery, Endpoint
from orders.webhooks.messages import Message
from orders.webhooks.sender import Answer, Sender


def send(sender: Sender, endpoint: Endpoint, message: Message, at: datetime) -> Answer:
    """Sign a message for an endpoint and send it; return what came back."""
    signed = signing.headers(message.id, at, message.body, endpoint.secrets(at))
    return sender.post(
        endpoint.url, signed, message.body.encode(), allow_private=endpoint.allow_private
    )


def delivery_of(endpoint: Endpoint, event_id: int | None, at: datetime, answer: Answer) -> Delivery:
    """Return the line of the log of deliveries about a try."""
    return Delivery(
        endpoint.id,
        event_id,
        at,
        rules.outcome_of(answer.status).value,
        answer.status,
        answer.fault and keys.redact(answer.fault),
        round(answer.seconds * 1000),
        keys.redact(answer.text),
    )
