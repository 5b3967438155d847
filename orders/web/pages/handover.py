"""Hands a key over to the browser that a start opens: `POST /console/key`, once, for a code.

The address that is opened has the code after `#key=`, and not the key itself: browsers write an
address into their history before a page can take anything out of it, and synchronize that.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from flask import Flask, current_app, request
from werkzeug.exceptions import NotFound

from orders.clock import Clock
from orders.strictjson import to_json
from orders.web.api import OrdersFlask
from orders.web.replies import Reply

# A browser that has to start first takes a while.
SECONDS = 300.0
_PATH = "/console/key"
_EXTENSION = "store-orders-handover"


class Handover:
    """A key that waits to be handed over. `code` is what it is given for."""

    def __init__(self, secret: str, clock: Clock, done: Callable[[], None]) -> None:
        """Wait from now on. `done` is called when the key is handed over."""
        self.code = secrets.token_hex(24)
        self._clock, self._done = clock, done
        self._ends = clock.monotonic() + SECONDS
        # Taken out by one of several at a time.
        self._waiting = [secret]

    def take(self, code: bytes) -> str | None:
        """Return the key, the first time that this is called with the code, while it waits."""
        if not hmac.compare_digest(code, self.code.encode()):
            return None
        try:
            secret = self._waiting.pop()
        except IndexError:
            return None
        self._done()
        return secret if self._clock.monotonic() < self._ends else None


def register(app: Flask) -> None:
    """Add the path to an application, which has no key to hand over yet."""
    app.add_url_rule(_PATH, "handover", _hand_over, methods=["POST"])


def offer(app: OrdersFlask, secret: str, done: Callable[[], None]) -> str:
    """Have a key handed over, in the place of any other; return the code."""
    app.extensions[_EXTENSION] = handover = Handover(secret, app.shop.clock, done)
    return handover.code


def _hand_over() -> Reply:
    handover: Handover | None = current_app.extensions.get(_EXTENSION)
    secret = handover.take(request.get_data()) if handover else None
    if secret is None:
        raise NotFound
    return Reply(to_json({"key": secret}).encode(), 200, [("Cache-Control", "no-store")])
