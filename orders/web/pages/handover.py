"""Hands keys over to browsers: `POST /console/key` answers a key, once, for a code.

A first start opens an address with such a code after `#key=`, and so does a phone, which scans one.
The address does not contain the key itself: browsers write addresses into their history, which they
synchronize, before a page can change them. A code works once, and not after it has expired.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from flask import Flask, current_app, request
from werkzeug.exceptions import BadRequest, NotFound

from orders.apikeys import is_of_test_mode, is_well_formed
from orders.strictjson import to_json
from orders.urls import is_loopback
from orders.web.access import current_call
from orders.web.api import OrdersFlask
from orders.web.refusals import InvalidKey
from orders.web.replies import Reply

# A browser that has to start first, and a person with a phone, take a while.
SECONDS = 300.0
_EXTENSION = "store-orders-handovers"


@dataclass
class Handover:
    """A key to hand over until `ends`, in monotonic seconds. `done` is called when it was."""

    secret: str = field(repr=False)
    ends: float
    done: Callable[[], None]


def register(app: Flask) -> None:
    app.extensions[_EXTENSION] = {}
    app.add_url_rule("/console/key", "handover", _hand_over, methods=["POST"])
    app.add_url_rule("/console/phone", "phone", _show_to_phone, methods=["POST"])


def offer(app: Flask, now: float, secret: str, done: Callable[[], None] = lambda: None) -> str:
    """Return a code for which a key will be handed over. `now` is in monotonic seconds.

    A key has one code: an earlier one opens nothing any more.
    """
    waiting: dict[str, Handover] = app.extensions[_EXTENSION]
    for code, each in [*waiting.items()]:
        if each.ends <= now or each.secret == secret:
            waiting.pop(code, None)
    code = secrets.token_hex(16)
    waiting[code] = Handover(secret, now + SECONDS, done)
    return code


def take(app: Flask, now: float, code: str) -> str | None:
    """Return the key that waits for a code, the first time that this is called with it."""
    handover = app.extensions[_EXTENSION].pop(code, None)
    if handover is None:
        return None
    handover.done()
    return handover.secret if now < handover.ends else None


def _hand_over() -> Reply:
    code = request.get_data().decode("latin-1")
    secret = take(current_app, current_call().shop.clock.monotonic(), code)
    if secret is None:
        raise NotFound
    return _reply({"key": secret})


def _show_to_phone() -> Reply:
    secret = request.get_data().decode("latin-1")
    if not is_well_formed(secret):
        raise BadRequest
    shop = current_call().shop
    if is_of_test_mode(secret):
        shop = cast("OrdersFlask", current_app).test_mode.find() or shop
    # Any page that the shop's browser shows can send this, too.
    if shop.keyring.find(secret) is None:
        raise InvalidKey
    base = shop.settings.base_url.removesuffix("v1")
    if not is_for_phones(base):
        return _reply({"address": None})
    address = f"{base}#key={offer(current_app, shop.clock.monotonic(), secret)}"
    return _reply({"address": base} | _qr_code(address))


def is_for_phones(address: str) -> bool:
    """Return whether other devices can reach an address, and a key may cross to them: by TLS."""
    parts = urlsplit(address)
    return parts.scheme == "https" and not is_loopback(parts.hostname or "")


def _qr_code(text: str) -> dict[str, object]:
    # As an SVG path: each dark run of a row is a line of one module's width.
    import segno  # few starts need it

    rows = segno.make_qr(text, error="m").matrix
    runs = (
        f"M{x} {y + 0.5}h1"
        for y, row in enumerate(rows)
        for x, is_dark in enumerate(row)
        if is_dark
    )
    return {"modules": len(rows), "path": "".join(runs)}


def _reply(facts: dict[str, object]) -> Reply:
    return Reply(to_json(facts).encode(), 200, [("Cache-Control", "no-store")])
