"""Liveness and readiness endpoints for probes, which need no key."""

from __future__ import annotations

import time

from flask import Flask

from orders.store import events
from orders.store.database.errors import StoreUnavailable
from orders.web.replies import Reply, json_reply
from orders.web.services import current_services

_PATIENCE_SECONDS = 1.0


def register(app: Flask) -> None:
    """Add /healthz and /readyz to an application."""

    def healthz() -> Reply:
        return json_reply({"status": "ok"})

    def readyz() -> Reply:
        services = current_services()
        services.database.answer_by(time.monotonic() + _PATIENCE_SECONDS)
        # Without a database this raises, and is answered 503 with the reason like any request.
        with services.database.read() as connection:
            events.newest_id(connection)
            if services.database.is_read_only(connection):
                raise StoreUnavailable("the database can't be written to")
        # Without their journal or Redis, limits are counted in memory: worth reporting, but no
        # reason to send clients elsewhere.
        trouble = services.limits.storage.trouble
        counters = f"degraded: {trouble}" if trouble else "ok"
        differing = ", ".join(services.differing)
        return json_reply(
            {
                "status": "ready",
                "database": services.soundness,
                "counters": counters,
                "processes": f"differing: {differing}" if differing else "ok",
            }
        )

    app.add_url_rule("/healthz", "healthz", healthz)
    app.add_url_rule("/readyz", "readyz", readyz)
