"""Metrics collected at scrape time: of the store, limits, webhooks, server, log and disk.

A scrape waits at most a second for the database. Without an answer, `store_orders_database_up` is 0
and the metrics that only the database knows are those of the last scrape that had one.
"""

from __future__ import annotations

import logging
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from orders import VERSION
from orders.store import days, events
from orders.store.care import checks
from orders.store.database import sqlite
from orders.store.database.errors import StoreUnavailable
from orders.store.database.faults import Part
from orders.web.logs import log_queue
from orders.web.services import Services
from orders.webhooks import deliveries, endpoints

log = logging.getLogger(__name__)

PREFIX = "store_orders_"
PATIENCE_SECONDS = 1.0

Result = TypeVar("Result")


class BoundedQuery(Generic[Result]):
    """A query that may hang. It runs in a thread of its own, once at a time."""

    def __init__(self, query: Callable[[], Result]) -> None:
        """Prepare; nothing is queried yet."""
        self._query = query
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._result: Result | None = None

    def result(self, patience: float = PATIENCE_SECONDS) -> Result | None:
        """Return the result, or None if it fails or takes more than so many seconds."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(patience)
        return None if thread.is_alive() else self._result

    def _run(self) -> None:
        self._result = None
        try:
            self._result = self._query()
        except StoreUnavailable as error:
            log.debug("Metrics of the store are unavailable: %s", error)
        except Exception:
            log.exception("The metrics of the store could not be collected.")


class StateCollector(Collector):
    """The metrics of one application that are not counted request by request."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = BoundedQuery(self._query_store)
        self._last: list[Metric] = []

    def describe(self) -> list[Metric]:
        """Name no metric in advance, so that registering queries nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as they are now."""
        yield from self._process()
        yield from self._limits()
        yield from self._disk()
        yield from self._backups()
        copy = self._services.continuous_copy
        if copy is not None and (behind := copy.seconds_behind) is not None:
            yield _gauge("copy_behind_seconds", "Since the continuous copy was whole.", behind)
        store = None if self._services.database.is_away else self._store.result()
        self._last = store or self._last
        damaged = self._services.soundness == "damaged"
        yield _gauge("database_up", "Whether the database answers.", store is not None)
        can_write = store is not None and not self._services.database.faults.cause(Part.WRITING)
        yield _gauge("database_writable", "Whether changes can be written.", can_write)
        yield _gauge("database_damaged", "Whether the check at the start found damage.", damaged)
        yield self._deliveries()
        yield from self._last

    def _process(self) -> Iterator[Metric]:
        facts = {
            "version": VERSION,
            "schema": str(checks.schema_version()),
            "sqlite": sqlite.sqlite_module().sqlite_version,
        }
        yield InfoMetricFamily(PREFIX + "build", "What runs here.", facts)
        yield _gauge("threads", "Threads of the process.", threading.active_count())
        differing = len(self._services.differing)
        yield _gauge("processes_differing", "Others over this store that differ.", differing)
        yield _counter("log_lines_dropped", "Log lines not written in time.", log_queue.dropped)
        if (server := self._services.server) is not None:
            yield _gauge("http_connections", "Open connections.", server.connections)
            yield _gauge("http_requests_waiting", "Requests waiting for a thread.", server.waiting)

    def _limits(self) -> Iterator[Metric]:
        limits = self._services.limits
        yield _counter("bans", "Bans imposed.", limits.bans.begun)
        yield _gauge("banned_keys", "Keys that are banned now.", limits.bans.in_force)
        is_up = limits.storage.check()
        yield _gauge("limits_store_up", "0 while counters are in memory only.", is_up)

    def _disk(self) -> Iterator[Metric]:
        settings = self._services.settings
        files, folder = {"counters": settings.counters_path}, settings.instance
        if not settings.is_on_postgres:
            database = settings.database_path
            wal = database.with_name(database.name + "-wal")
            files, folder = {**files, "database": database, "wal": wal}, database.parent
        try:
            usage = shutil.disk_usage(folder)
            sizes = {name: path.stat().st_size for name, path in files.items() if path.exists()}
        except OSError:
            return
        yield _gauges("file_size_bytes", "Size of a file.", "file", sizes)
        yield _gauge("disk_free_bytes", "Free on the database's disk.", usage.free)
        yield _gauge("disk_size_bytes", "Size of the database's disk.", usage.total)

    def _backups(self) -> Iterator[Metric]:
        if (backups := self._services.backups) is None:
            return
        standing, now = backups.standing(), self._services.clock.now()
        newest = standing.newest
        age = max((now - newest).total_seconds(), 0) if newest else math.inf
        yield _gauge("backup_age_seconds", "Age of the newest backup.", age)
        yield _gauge("backup_sound", "Whether it is sound, by the last drill.", standing.is_sound)
        has_failed = bool(standing.failure)
        yield _gauge("backup_failed", "Whether the last attempt to make one failed.", has_failed)
        same_disk = standing.is_on_same_disk
        yield _gauge("backup_same_disk", "Whether they are on the database's disk.", same_disk)

    def _deliveries(self) -> Metric:
        words, labels = "Attempts to deliver, by outcome.", ("endpoint", "outcome")
        family = CounterMetricFamily(PREFIX + "webhook_deliveries", words, labels=labels)
        for (endpoint, outcome), count in self._services.outbox.courier.outcomes.items():
            family.add_metric((str(endpoint), outcome), count)
        return family

    def _query_store(self) -> list[Metric]:
        services = self._services
        began = time.perf_counter()
        with services.database.read() as connection:
            newest = events.newest_id(connection)
            seconds = time.perf_counter() - began
            webhooks = self._webhooks(connection)
        counts = days.statistics(services.database, services.clock.now(), 1).by_status
        return [
            _gauge("database_answer_seconds", "Duration of one query.", seconds),
            _gauge("last_event_id", "Id of the newest event.", newest),
            _gauges("orders", "Orders in the store.", "status", counts),
            *webhooks,
        ]

    def _webhooks(self, connection: Connection) -> list[Metric]:
        now, known = self._services.clock.now(), self._services.outbox.courier.scanned_to
        hooks = {str(each.id): each for each in endpoints.get_all(connection)}
        counts = deliveries.refused_counts(connection)
        paused = {name: hook.paused_at is not None for name, hook in hooks.items()}
        refused = {name: counts.get(hook.id, 0) for name, hook in hooks.items()}
        lags, ages = {}, {}
        for name, hook in hooks.items():
            lags[name], oldest = deliveries.backlog(connection, hook, known(hook))
            ages[name] = max((now - oldest).total_seconds(), 0) if oldest else 0
        return [
            _gauges("webhook_paused", "Whether it is paused.", "endpoint", paused),
            _gauges("webhook_refused_events", "Rejected, to be retried.", "endpoint", refused),
            _gauges("webhook_lag_events", "Size of the backlog.", "endpoint", lags),
            _gauges("webhook_lag_seconds", "Age of the oldest event of it.", "endpoint", ages),
        ]


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, words, value)


def _gauges(name: str, words: str, label: str, values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, words, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, words, value)
