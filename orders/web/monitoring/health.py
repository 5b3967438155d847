"""Endpoints for probes, which need no key, and a status file for `flask status`.

The file is beside the store and covers the last hour. It is rewritten in place, within blocks that
are allocated at the start, so a full disk does not stop it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orders import VERSION, apikeys, system
from orders.clock import Clock
from orders.domain import format_instant
from orders.store import orders as order_store
from orders.store.database.database import Database
from orders.store.database.errors import Part, StoreUnavailable
from orders.web import logs
from orders.web.access import Call, current_call
from orders.web.api import OrdersFlask
from orders.web.replies import Reply, json_reply

FILE = "status.json"
WRITTEN_EVERY_SECONDS = 5.0
# The file's size: it is padded with blanks.
_BYTES = 16 * 1024
_PATIENCE_SECONDS = 1.0
_MINUTES = 60
_MOST_KINDS = 20
_LONGEST_TEXT = 300
_FAILED = 500


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
    # Reads go on, which nobody would get from a process that is taken out.
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
    # What this raises is answered 503 with the reason, like any request.
    database.set_deadline(time.monotonic() + _PATIENCE_SECONDS)
    with database.read() as connection:
        order_store.newest_event(connection)
        if database.is_read_only(connection):
            raise StoreUnavailable("the database can't be written to")


@dataclass(slots=True)
class _Kind:
    """Failures of one kind: how many in which minute, when the last one was, of which request."""

    minutes: Counter[int] = field(default_factory=Counter)
    last: str = ""
    request: str | None = None


class Recent(logging.Handler):
    """The last hour's failures and waits, of answers and of the log. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._began = clock.now()
        self._guard = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        # By minute: the longest wait of a request before it was begun, and how many there were.
        self._waits: dict[int, tuple[float, int]] = {}

    def record_answer(self, call: Call, status: int, ended: float) -> None:
        minute = self._minute()
        with self._guard:
            longest, count = self._waits.get(minute, (0.0, 0))
            self._waits[minute] = max(longest, call.waited), count + 1
            if status >= _FAILED:
                self._record("answer", f"{status} {call.refusal}", call.request_id)

    def emit(self, record: logging.LogRecord) -> None:
        if logs.is_of_test_mode():
            return
        text = apikeys.redact(" ".join(record.getMessage().split()))[:_LONGEST_TEXT]
        with self._guard:
            self._record(record.levelname.lower(), text, None)

    def _record(self, source: str, text: str, request: str | None) -> None:
        self._forget()
        if len(self._kinds) >= _MOST_KINDS and (source, text) not in self._kinds:
            text = "other"
        kind = self._kinds.setdefault((source, text), _Kind())
        kind.minutes[self._minute()] += 1
        kind.last, kind.request = format_instant(self._clock.now()), request

    def _forget(self) -> None:
        oldest = self._minute() - _MINUTES
        for minute in [each for each in self._waits if each <= oldest]:
            del self._waits[minute]
        for name, kind in list(self._kinds.items()):
            for minute in [each for each in kind.minutes if each <= oldest]:
                del kind.minutes[minute]
            if not kind.minutes:
                del self._kinds[name]

    def _minute(self) -> int:
        return int(self._clock.monotonic() // 60)

    def facts(self) -> dict[str, Any]:
        with self._guard:
            self._forget()
            waits = self._waits.values()
            return {
                "started": format_instant(self._began),
                "failed": [
                    {
                        "source": source,
                        "what": text,
                        "count": kind.minutes.total(),
                        "last": kind.last,
                        "request": kind.request,
                    }
                    for (source, text), kind in self._kinds.items()
                ],
                "requests": sum(count for _, count in waits),
                "longestWaitMs": round(max((wait for wait, _ in waits), default=0.0) * 1000),
            }


class StatusFile:
    def __init__(self, app: OrdersFlask, addresses: list[str]) -> None:
        """Open the file, and write to it for the first time."""
        self._shop, self._addresses = app.shop, addresses
        self.recent = Recent(app.shop.clock)
        app.listeners.append(self.recent.record_answer)
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
