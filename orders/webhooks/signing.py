"""Secrets and signatures, by the rules of Standard Webhooks 1.0.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from orders.keys import WEBHOOK_PREFIX

# The rules allow 24 to 64.
_RANDOM_BYTES = 32
# How long the secret before a rotation signs, too.
GRACE = timedelta(hours=24)


def generate_secret() -> str:
    """Make a new secret from the operating system's random source."""
    return WEBHOOK_PREFIX + base64.b64encode(secrets.token_bytes(_RANDOM_BYTES)).decode()


def headers(
    message_id: str, at: datetime, body: str, with_secrets: Iterable[str]
) -> dict[str, str]:
    """Return the three headers of a message that is sent at a time, signed with each secret."""
    # Loaded only where something is signed: a start need not wait for it.
    from standardwebhooks import Webhook

    signatures = [Webhook(secret).sign(message_id, at, body) for secret in with_secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
