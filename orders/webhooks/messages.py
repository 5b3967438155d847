"""Webhook messages: their bodies and ids, and their signatures by Standard Webhooks 1.0.

An event's body is made from its row, which never changes, so each attempt sends the same bytes. The
database makes the order's JSON, the same as in the event feed.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from orders.domain import format_instant
from orders.keys import WEBHOOK_PREFIX
from orders.webhooks.deliveries import Event

PING = "ping"
# Standard Webhooks allows 24 to 64.
_SECRET_BYTES = 32
# How long the previous secret signs, too, after a rotation.
GRACE = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Message:
    """A message; its `id` is the same at each attempt."""

    id: str
    body: str

    def signed_headers(self, at: datetime, with_secrets: Iterable[str]) -> dict[str, str]:
        """Return the three webhook headers of an attempt, signed with each of the secrets."""
        # Imported only when needed, which keeps starts fast.
        from standardwebhooks import Webhook

        signatures = [Webhook(secret).sign(self.id, at, self.body) for secret in with_secrets]
        return {
            "webhook-id": self.id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": " ".join(signatures),
        }


def generate_secret() -> str:
    """Return a new secret from the operating system's random source."""
    return WEBHOOK_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def of_event(event: Event, store_id: str) -> Message:
    """Return the message about an event of a store."""
    body = _body(event.type, event.at, event.order)
    return Message(f"evt_{store_id}_{event.id}", body)


def ping(endpoint_id: int, store_id: str, now: datetime) -> Message:
    """Return a test message, which is about no event."""
    message_id = f"ping_{store_id}_{secrets.token_hex(8)}"
    return Message(message_id, _body(PING, now, f'{{"webhook":{endpoint_id}}}'))


def _body(kind: str, at: datetime, data: str) -> str:
    # Neither types nor instants contain characters that JSON would have to escape.
    return f'{{"type":"{kind}","timestamp":"{format_instant(at)}","data":{data}}}'
