"""What can be asked at any time, asked when Prometheus reads: the store, the limits, webhooks.

A reader waits for the database for a second at most. Without an answer `store_orders_database_up`
is 0, and what only the database knows is left out: the rest is told as ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from orders.store.care import checks
from orders.store.database import sqlite
from orders.store.database.errors import StoreUnavailable
from orders.web import measures
from orders.web.logs import log_queue
from orders.web.measures import Backlog, StoreMeasures
from orders.web.server.server import Server
from orders.web.services import Services

log = logging.getLogger(__name__)

PREFIX = "store_orders_"
PATIENCE_SECONDS = 1.0

Answer = TypeVar("Answer")
Rows = Sequence[tuple[Sequence[str], float]]


class Question(Generic[Answer]):
    """Something that may take long to answer. It is asked in a thread of its own, one at a time."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        """Take what asks."""
        self._ask = ask
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._answer: Answer | None = None

    def answer(self, patience: float = PATIENCE_SECONDS) -> Answer | None:
        """Return the answer, or None where the store is away or so many seconds do not suffice."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(patience)
        return None if thread.is_alive() else self._answer

    def _run(self) -> None:
        self._answer = None
        try:
            self._answer = self._ask()
        except StoreUnavailable as error:
            log.debug("Metrics can't tell of the store: %s", error)
        except Exception:
            log.exception("What metrics tell of the store could not be asked.")


class Gauges(Collector):
    """The metrics of one shop that are not counted request by request."""

    def __init__(self, services: Services, registry: CollectorRegistry) -> None:
        """Take the shop. Asks nothing yet."""
        self._shop = services
        self._store = Question(self._ask_store)
        self.server: Server | None = None
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Name nothing beforehand, so that registering asks nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Ask everything."""
        yield from self._build()
        yield from self._of_server()
        yield from self._of_limits()
        yield from self._of_disk()
        words = "Log lines that could not be written in time."
        yield _counter("log_lines_dropped", words, [((), log_queue.dropped)])
        told = self._store.answer()
        yield _gauge("database_up", "Whether the database answers.", told is not None)
        yield _gauge(
            "database_damaged",
            "Whether the check at the start found damage.",
            self._shop.soundness == "damaged",
        )
        yield self._deliveries()
        if told is not None:
            yield from _of_store(told[0])
            yield from _of_webhooks(*told, self._shop.clock.now())

    def _ask_store(self) -> tuple[StoreMeasures, list[Backlog]]:
        services = self._shop
        measured = measures.measure(services.database, services.clock.now().date())
        looked_up_to = services.outbox.courier.looked_up_to
        return measured, [
            measures.backlog(services.database, each, looked_up_to(each))
            for each in measured.endpoints
        ]

    def _build(self) -> Iterator[Metric]:
        facts = {
            "version": _program_version(),
            "schema": str(checks.schema_version()),
            "sqlite": sqlite.sqlite_module().sqlite_version,
        }
        yield InfoMetricFamily(PREFIX + "build", "What runs here.", facts)

    def _of_server(self) -> Iterator[Metric]:
        yield _gauge("threads", "Threads of the process.", threading.active_count())
        if self.server is not None:
            yield _gauge("http_connections", "Open connections.", self.server.connections)
            yield _gauge(
                "http_requests_waiting",
                "Connections with a request that no thread has begun to answer.",
                self.server.waiting,
            )

    def _of_limits(self) -> Iterator[Metric]:
        limits = self._shop.limits
        yield _counter("bans", "Bans begun.", [((), limits.bans.begun)])
        yield _gauge("banned_keys", "Keys that are banned now.", limits.bans.in_force)
        yield _gauge(
            "limits_store_up",
            "Whether the limits' counters are kept: if not, they are counted in memory.",
            limits.storage.check(),
        )

    def _of_disk(self) -> Iterator[Metric]:
        settings = self._shop.settings
        files, folder = {"counters": settings.counters_path}, settings.instance
        if not settings.is_on_postgres:
            database = settings.database_path
            files["database"], folder = database, database.parent
            files["wal"] = database.with_name(database.name + "-wal")
        found = measures.disk(files, folder)
        if found is not None:
            sizes = [((name,), size) for name, size in found.files.items()]
            yield _gauge("file_size_bytes", "Size of a file.", sizes, "file")
            yield _gauge("disk_free_bytes", "Free on the database's disk.", found.free)
            yield _gauge("disk_size_bytes", "Size of the database's disk.", found.size)

    def _deliveries(self) -> Metric:
        counted = self._shop.outbox.courier.outcomes.items()
        rows = [((str(endpoint), outcome), count) for (endpoint, outcome), count in counted]
        return _counter(
            "webhook_deliveries",
            "Tries to deliver, by what came of them.",
            rows,
            "endpoint",
            "outcome",
        )


def _of_store(told: StoreMeasures) -> Iterator[Metric]:
    yield _gauge(
        "database_answer_seconds", "How long the database took for one question.", told.seconds
    )
    yield _gauge("last_event_id", "Id of the newest event.", told.newest_event)
    orders = [((status.value,), count) for status, count in told.orders.items()]
    yield _gauge("orders", "Orders in the store.", orders, "status")


def _of_webhooks(told: StoreMeasures, backlogs: list[Backlog], now: datetime) -> Iterator[Metric]:
    names = [((str(each.id),), each) for each in told.endpoints]
    paused = [(name, float(each.paused_at is not None)) for name, each in names]
    yield _gauge("webhook_paused", "Whether nothing is sent to it.", paused, "endpoint")
    aside = [(name, told.refused.get(each.id, 0)) for name, each in names]
    yield _gauge("webhook_refused_events", "Events that it refused so far.", aside, "endpoint")
    behind = [((str(each.endpoint.id),), each) for each in backlogs]
    counts = [(name, each.events) for name, each in behind]
    yield _gauge("webhook_lag_events", "Events that wait for it.", counts, "endpoint")
    ages = [(name, _age(each.oldest, now)) for name, each in behind]
    yield _gauge(
        "webhook_lag_seconds", "Age of the oldest event that waits for it.", ages, "endpoint"
    )


def _age(oldest: datetime | None, now: datetime) -> float:
    return max((now - oldest).total_seconds(), 0.0) if oldest else 0.0


def _gauge(name: str, words: str, value: float | Rows, *labels: str) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, words, labels=labels)
    for label_values, each in [((), value)] if isinstance(value, (int, float)) else value:
        family.add_metric(label_values, each)
    return family


def _counter(name: str, words: str, rows: Rows, *labels: str) -> Metric:
    family = CounterMetricFamily(PREFIX + name, words, labels=labels)
    for label_values, value in rows:
        family.add_metric(label_values, value)
    return family


@cache
def _program_version() -> str:
    try:
        return version("store-orders")
    except PackageNotFoundError:  # it runs from a checkout that nobody installed
        return "unknown"
