"""Is the process there, and can it serve? For whoever watches it; no key is needed."""

from __future__ import annotations

from flask import Flask, Response, jsonify

from orders.store import events
from orders.web.services import current_services


def register(app: Flask) -> None:
    """Add /healthz and /readyz to an application."""

    def healthz() -> Response:
        return jsonify(status="ok")

    def readyz() -> Response:
        services = current_services()
        # Away is told as any request is told of it: 503, with the reason.
        with services.database.read() as connection:
            events.newest_id(connection)
        # Without their journal or Redis the limits go on in memory: worth knowing, no reason to
        # send clients elsewhere.
        trouble = services.limits.storage.trouble
        counters = f"degraded: {trouble}" if trouble else "ok"
        return jsonify(status="ready", database=services.soundness, counters=counters)

    app.add_url_rule("/healthz", "healthz", healthz)
    app.add_url_rule("/readyz", "readyz", readyz)
