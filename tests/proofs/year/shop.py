"""The shop of the year: the application in this process, on a clock and a disk of ours.

Everything is the project's own, but for threads: what a service does in the background is done here
between requests, so that a seed replays it.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest import mock
from wsgiref.util import setup_testing_defaults

import urllib3

from orders import system
from orders.clock import Clock
from orders.domain import EventType
from orders.settings import Settings
from orders.store.care.backups import Backups
from orders.store.database.errors import StoreUnavailable
from orders.webhooks import endpoints, sender
from orders.webhooks.endpoints import NewEndpoint
from orders.webhooks.outbox import Courier
from tests.proofs.power_cut import apsw_driver
from tests.proofs.power_cut.__main__ import own_driver
from tests.proofs.power_cut.disk import LOSSES, Disk
from tests.support.receiver import Handler, Received, Receiver
from tests.support.service import app_with_shared_routes

WANTED = EventType.CANCELLED
# Whose rows an upgrade leaves as they are.
TABLES = ("api_keys", "store", "pets", "orders", "order_events", "idempotency_keys")
DAY = 86_400.0
BEGIN = 1_000.0


class YearClock(Clock):
    """A clock that the year moves."""

    def __init__(self) -> None:
        self.wall, self.run = 1_798_761_600.0, BEGIN

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        """Return how long the year has been running."""
        return self.run

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.run += seconds


@dataclass(slots=True)
class Answer:
    """An answer, as the clients of `tests.proofs.core` read it."""

    status: int = 0
    headers: urllib3.HTTPHeaderDict = field(default_factory=urllib3.HTTPHeaderDict)
    data: bytes = b""

    def begin(self, status: str, headers: list[tuple[str, str]], *_: object) -> None:
        """Take the head, as WSGI hands it over."""
        self.status, self.headers = int(status[:3]), urllib3.HTTPHeaderDict(headers)

    def json(self) -> Any:
        return json.loads(self.data)


class _Trouble(threading.Event):
    """Set while the power is off, or a sent message can't be recorded, which a courier awaits."""

    def __init__(self, shop: Shop) -> None:
        super().__init__()
        self._shop = shop

    def is_set(self) -> bool:
        return super().is_set() or self._shop.is_dark

    def wait(self, _: float | None = None) -> bool:
        self.set()
        return True


class Subscriber:
    """Who the webhook's messages are for: how often each was accepted, and when last."""

    def __init__(self, receiver: Receiver) -> None:
        self.url = receiver.url
        self.accepted: Counter[int] = Counter()
        self.at: dict[int, float] = {}
        self.status = HTTPStatus.NO_CONTENT
        self.now = 0.0
        receiver.answering = self._answer

    def _answer(self, handler: Handler, received: Received) -> None:
        handler.server.received.clear()
        handler.server.arrivals.queue.clear()
        if self.status is HTTPStatus.NO_CONTENT:
            self.accepted[received.event] += 1
            self.at[received.event] = self.now
        handler.answer(self.status)


class Shop:
    """The application over an instance folder. Closed at first."""

    def __init__(self, folder: Path, subscriber: Subscriber, chance: Random) -> None:
        self.settings = Settings(instance=folder)
        self.path = self.settings.database_path
        self.subscriber = subscriber
        self.clock = YearClock()
        # The processor's seconds of each start.
        self.starts: list[float] = []
        self.disk: Disk | None = None
        self._chance = chance
        system.make_private_folder(folder)

    def open(self) -> None:
        began = time.process_time()
        self._app = app_with_shared_routes(self.settings, self.clock)
        self.parts = self._app.shop
        self.parts.upkeep.prepare()
        self.parts.begin()
        self.backups = cast("Backups", self.parts.backups)
        self._trouble = _Trouble(self)
        self._courier = Courier(
            self.parts.database,
            self.parts.changes,
            self.clock,
            self.parts.outbox.sender,
            store_id=lambda: self.parts.store_id,
            stopped=self._trouble,
            chance=self._chance,
        )
        self.starts.append(time.process_time() - began)

    def close(self) -> None:
        self.parts.end()

    def request(self, method: str, path: str, headers: dict[str, str], **body: Any) -> Answer:
        """Send a request, with a body if one is given as `json`.

        Raises:
            ProtocolError: the power went meanwhile.
        """
        sent = json.dumps(body["json"]).encode() if body else b""
        path, _, query = path.partition("?")
        environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path}
        environ |= {
            "QUERY_STRING": query,
            "wsgi.input": io.BytesIO(sent),
            "wsgi.errors": sys.stderr,
        }
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": headers[name] for name in headers}
        environ |= (
            {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": f"{len(sent)}"} if body else {}
        )
        setup_testing_defaults(environ)
        answer = Answer()
        with closing(self._app(environ, answer.begin)) as parts:
            answer.data = b"".join(parts)
        if self.is_dark:
            raise urllib3.exceptions.ProtocolError("the power is off")
        return answer

    def tend(self) -> None:
        """Do what the service does in the background, all at once."""
        try:
            self._tend()
        except Exception as error:
            # In the dark, SQLite reads what it believes to have written.
            is_full = self.disk is not None and self.disk.is_full
            if not self.is_dark and not (is_full and isinstance(error, StoreUnavailable)):
                raise

    @property
    def is_dark(self) -> bool:
        return self.disk is not None and self.disk.is_off

    def _tend(self) -> None:
        self.parts.counters.flush()
        self.parts.write_keys()
        self.parts.database.long_reads.tend()
        self.backups.tend()
        self.subscriber.now = self.clock.monotonic()
        self._trouble.clear()
        for each in self.endpoints():
            self._courier.deliver(each.id)
        self.parts.outbox.sweep()

    def endpoints(self) -> list[endpoints.Endpoint]:
        with self.parts.database.read() as connection:
            return endpoints.get_all(connection)

    def has_messages_waiting(self) -> bool:
        """Return whether a message is to be sent again."""
        with self.parts.database.read() as connection:
            is_aside = connection.exec_driver_sql("SELECT 1 FROM webhook_refused").first()
        return bool(is_aside) or any(each.tries for each in self.endpoints())

    def subscribe(self) -> None:
        new = NewEndpoint(self.subscriber.url, (WANTED,), sender.generate_secret(), True)
        with self.parts.database.write() as connection:
            endpoints.add(connection, new, self.clock.now())

    @contextmanager
    def on_a_disk_of_ours(self) -> Iterator[Disk]:
        """Stop, and go on meanwhile on a disk that can fail; start again on the machine's."""
        self.close()
        disk = self.disk = Disk(self.path, self._chance)
        with own_driver(None):
            apsw_driver.layer = disk.name
            self.open()
            yield disk
            with suppress(Exception) if disk.is_off else nullcontext():
                self.close()
            self.parts.database.close()
            if disk.is_off:
                disk.power_up(self._chance.choice(LOSSES))
        disk.unregister()
        self.disk = None
        self.open()

    @contextmanager
    def no_room(self, disk: Disk) -> Iterator[None]:
        """Let a disk of ours be full meanwhile, and the machine's seem so."""
        disk.is_full = True
        with mock.patch.object(shutil, "disk_usage", return_value=mock.Mock(free=0)):
            yield
        disk.is_full = False


def columns(connection: Any, table: str) -> str:
    """Return the names of a table's columns, as a statement lists them."""
    return ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall())
