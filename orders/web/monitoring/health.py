"""Endpoints for probes, which need no key, and a status file for `flask status`.

The file is beside the store and covers the last hour. It is rewritten in place, within blocks that
are allocated at the start, so a full disk does not stop it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from orders import VERSION, system
from orders.domain import format_instant
from orders.store import orders as order_store
from orders.store.database.database import Database
from orders.store.database.errors import Part, StoreUnavailable
from orders.web.access import current_call
from orders.web.api import OrdersFlask
from orders.web.logs import Recent
from orders.web.replies import Reply, json_reply

FILE = "status.json"
WRITTEN_EVERY_SECONDS = 5.0
# The file's size: it is padded with blanks.
_BYTES = 16 * 1024
_PATIENCE_SECONDS = 1.0


def register(app: OrdersFlask) -> None:
    app.add_url_rule("/healthz", "healthz", _healthz)
    app.instant.add("/healthz")
    app.add_url_rule("/readyz", "readyz", _readyz)


def _healthz() -> Reply:
    return json_reply({"status": "ok"})


def _readyz() -> Reply:
    shop = current_call().shop
    _check_database(shop.database)
    # Without their journal or Redis, limits are counted in memory: worth reporting, but no reason
    # to send clients elsewhere.
    trouble = shop.counters.trouble
    # Reads go on; a process taken out of service would answer none.
    writing = shop.database.outages.cause(Part.WRITING)
    differing = "; ".join(shop.differing)
    return json_reply(
        {
            "status": "ready",
            "database": shop.soundness,
            "writes": f"failing: {writing}" if writing else "ok",
            "counters": f"degraded: {trouble}" if trouble else "ok",
            "processes": f"differing: {differing}" if differing else "ok",
        }
    )


def _check_database(database: Database) -> None:
    # An exception from here is answered 503 with the reason, like any request's.
    database.set_deadline(time.monotonic() + _PATIENCE_SECONDS)
    with database.read() as connection:
        order_store.newest_event(connection)
        if database.is_read_only(connection):
            raise StoreUnavailable("the database can't be written to")


class StatusFile:
    def __init__(self, app: OrdersFlask, addresses: list[str]) -> None:
        """Open the file, and write to it for the first time."""
        self._shop, self._addresses = app.shop, addresses
        self.recent = Recent(app.shop.clock)
        app.answer_log.listeners.append(self.recent.record_answer)
        logging.getLogger().addHandler(self.recent)
        self._file = system.open_private_file(app.shop.settings.instance / FILE)
        self.write()

    def write(self) -> float:
        """Write the state to status.json; return when to call this again."""
        facts = {**self._facts(), **self.recent.facts()}
        while len(text := json.dumps(facts).encode()) > _BYTES:
            facts["failed"].pop()
        self._overwrite(text)
        return WRITTEN_EVERY_SECONDS

    def close(self) -> None:
        """Say that the service has stopped, and close the file."""
        logging.getLogger().removeHandler(self.recent)
        self._overwrite(b"{}")
        os.close(self._file)

    def _overwrite(self, text: bytes) -> None:
        # On a full disk the service goes on, and what fails is logged where it matters.
        with suppress(OSError):
            system.overwrite(self._file, text.ljust(_BYTES))

    def _facts(self) -> dict[str, Any]:
        shop = self._shop
        copy = shop.continuous_copy
        return {
            "at": format_instant(shop.clock.now()),
            "version": VERSION,
            "addresses": self._addresses,
            "soundness": shop.soundness,
            "counters": shop.counters.trouble,
            "differing": list(shop.differing),
            "faults": shop.database.outages.causes,
            "copySecondsBehind": copy and copy.seconds_behind,
        }


def read(instance: Path) -> dict[str, Any]:
    """Return what the service in a folder wrote last; nothing where none ran or it has stopped."""
    try:
        facts = json.loads((instance / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
