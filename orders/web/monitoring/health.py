"""Liveness and readiness endpoints for probes, which need no key."""

from __future__ import annotations

import time

from flask import Flask

from orders.store import events
from orders.store.database.engine import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.database.faults import Part
from orders.web.replies import Reply, json_reply
from orders.web.services import current_services

_PATIENCE_SECONDS = 1.0


def register(app: Flask) -> None:
    """Add /healthz and /readyz to an application."""
    app.add_url_rule("/healthz", "healthz", _healthz)
    app.add_url_rule("/readyz", "readyz", _readyz)


def _healthz() -> Reply:
    return json_reply({"status": "ok"})


def _readyz() -> Reply:
    services = current_services()
    _check_database(services.database)
    # Without their journal or Redis, limits are counted in memory: worth reporting, but no reason
    # to send clients elsewhere.
    trouble = services.limits.storage.trouble
    # Reads go on, which nobody would get from a process that is taken out.
    writing = services.database.faults.cause(Part.WRITING)
    differing = "; ".join(services.differing)
    return json_reply(
        {
            "status": "ready",
            "database": services.soundness,
            "writes": f"failing: {writing}" if writing else "ok",
            "counters": f"degraded: {trouble}" if trouble else "ok",
            "processes": f"differing: {differing}" if differing else "ok",
        }
    )


def _check_database(database: Database) -> None:
    # What this raises is answered 503 with the reason, like any request.
    database.answer_by(time.monotonic() + _PATIENCE_SECONDS)
    with database.read() as connection:
        events.newest_id(connection)
        if database.is_read_only(connection):
            raise StoreUnavailable("the database can't be written to")
