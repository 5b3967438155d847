"""/metrics for Prometheus, where ORDERS_METRICS is on: only then is this imported.

Requests are counted as they end; the state of the store, limits, webhooks, server, log and disk is
collected at scrape time. Labels have few values, all of them known here: a client's text is never
one.

A scrape waits at most a second for the database. Without an answer, `store_orders_database_up` is 0
and the metrics that only the database knows are those of the last scrape that had one.
"""

from __future__ import annotations

import logging
import math
import re
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from flask import request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from orders import VERSION
from orders.store import orders as order_store
from orders.store import stats
from orders.store.care import checks
from orders.store.database import sqlite
from orders.store.database.errors import Part, StoreUnavailable
from orders.web.access import Call
from orders.web.api import OrdersFlask
from orders.web.logs import log_queue
from orders.web.refusals import UnknownHost
from orders.web.replies import Reply
from orders.webhooks import deliveries, endpoints

log = logging.getLogger(__name__)

PREFIX = "store_orders_"
PATIENCE_SECONDS = 1.0

# In seconds, from the time of most answers to one that nobody waits for.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# The operation of requests without a route, or that the server could not read.
UNKNOWN = "unknown"
UNREADABLE = "unreadable"
NO_VERSION = "none"
# The plan of requests without a valid key, and of a key whose plan needs a restart.
NO_PLAN = "none"
OTHER = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_VERSION = re.compile(r"/+(v[12])(?:/|$)")
_TOO_MANY = 429
# The entries of Accept that the library can read: others would raise errors of its own.
_READABLE = re.compile(
    r"(?:application/openmetrics-text|text/plain)"
    r"(?:;(?:version=(?:0\.0\.1|0\.0\.4|1\.0\.0)|charset=utf-8|escaping=[a-z0-9-]+|q=[0-9.]+))*"
)


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self, app: OrdersFlask) -> None:
        self._app = app
        self._plans = app.shop.settings.plans
        self._registry = CollectorRegistry()
        operation = ("version", "operation")
        labels = (*operation, "method", "status")
        self._requests = self._counter("requests", "Requests answered.", *labels)
        self._seconds = Histogram(
            PREFIX + "http_request_duration_seconds",
            "From the last byte of a request received to the last of its answer handed over.",
            operation,
            registry=self._registry,
            buckets=BUCKETS,
        )
        self._waits = Histogram(
            PREFIX + "http_request_wait_seconds",
            "From the last byte of a request received to the start of answering it.",
            registry=self._registry,
            buckets=BUCKETS,
        )
        self._refusals = self._counter("refusals", "Answers of 400 and above.", "code")
        self._limited = self._counter("rate_limited", "Answers of 429, by plan.", "plan")
        # By the keys that there are. Names may change, and are nobody else's business.
        self._of_keys = {
            name: self._counter(f"key_{name}", description, "key")
            for name, description in (
                ("requests", "Requests answered, by the key's id."),
                ("refusals", "Answers of 400 and above, by the key's id."),
                ("seconds", "Time spent on answers, by the key's id."),
            )
        }
        # By kind of request: the library takes longer to find them.
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._registry.register(StateCollector(app))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def count(self, call: Call, status: int, ended: float) -> None:
        """Count an answer that has been sent. `ended` is in monotonic seconds."""
        # Without a route, the version is that of the client's path, reduced to known values.
        kind = (call.endpoint or _version_of(call.path), call.method, status)
        series = self._series.get(kind)
        if series is None:
            series = self._series_of(call, status)
            if call.method in _METHODS:
                self._series[kind] = series
        requests, seconds = series
        requests.inc()
        if not call.rests:
            seconds.observe(call.waited + ended - call.began)
        self._waits.observe(call.waited)
        if call.caller and call.caller.key:
            self._record_key(str(call.caller.key.id), call, ended)
        if call.refusal is not None:
            self._record_refusal(call, call.refusal, status)

    def _record_key(self, key: str, call: Call, ended: float) -> None:
        self._of_keys["requests"].labels(key).inc()
        self._of_keys["seconds"].labels(key).inc(0 if call.rests else ended - call.began)
        self._of_keys["refusals"].labels(key).inc(call.refusal is not None)

    def response(self, accept: str) -> Reply:
        """Return all metrics, in the best format that an Accept header allows."""
        entries = [entry.replace(" ", "") for entry in accept.split(",")]
        encode, content_type = choose_encoder(",".join(filter(_READABLE.fullmatch, entries)))
        return Reply(encode(self._registry), content_type=content_type)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}http_{name}", description, labels, registry=self._registry)

    def _record_refusal(self, call: Call, code: str, status: int) -> None:
        self._refusals.labels(code).inc()
        if status == _TOO_MANY:
            key = call.caller.key if call.caller else None
            plan = key.plan if key and key.plan in self._plans else NO_PLAN
            self._limited.labels(plan).inc()

    def _series_of(self, call: Call, status: int) -> tuple[Counter, Histogram]:
        operation = self._operation(call)
        method = call.method if call.method in _METHODS else OTHER
        requests = self._requests.labels(*operation, method, str(status))
        return requests, self._seconds.labels(*operation)

    def _operation(self, call: Call) -> tuple[str, str]:
        if call.endpoint is None:
            return _version_of(call.path), UNREADABLE if call.path == "-" else UNKNOWN
        view = self._app.view_functions[call.endpoint]
        documented = getattr(view, "_apidoc", {}).get("manual_doc", {})
        operation = documented.get("operationId")
        if operation is None:
            # All files of pages are one: `file /docs/`.
            return NO_VERSION, call.endpoint.partition(" ")[0]
        return _version_of(call.path), operation


def install(app: OrdersFlask) -> None:
    # The time at which each series began would be as many series again.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics, settings = Metrics(app), app.shop.settings
    app.answer_log.listeners.append(metrics.count)
    named = {"localhost", settings.host, urlsplit(settings.base_url).hostname}

    def view() -> Reply:
        if not _is_own(request.environ.get("HTTP_HOST", ""), named):
            raise UnknownHost
        return metrics.response(request.headers.get("Accept", ""))

    app.add_url_rule("/metrics", "metrics", view)


def _is_own(host: str, named: Container[str | None]) -> bool:
    """Return whether a Host header names this service: by a known name, or an address.

    Any other name may be one that somebody else's page is read by, and that was then pointed here
    (DNS rebinding). Programs that send none are no browsers.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in named or name.endswith(".localhost") or not host or bool(ip_address(name))
    except ValueError:
        return False


def _version_of(path: str) -> str:
    match = _VERSION.match(path)
    return match[1] if match else NO_VERSION


class BoundedQuery:
    """A query that may hang. It runs in a thread of its own, once at a time."""

    def __init__(self, query: Callable[[], list[Metric]]) -> None:
        self._query = query
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._result: list[Metric] | None = None

    def result(self, patience: float = PATIENCE_SECONDS) -> list[Metric] | None:
        """Return the result, or None if it fails or takes longer than `patience`, in seconds."""
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

    def __init__(self, app: OrdersFlask) -> None:
        self._app, self._shop = app, app.shop
        self._store = BoundedQuery(self._query_store)
        self._last: list[Metric] = []

    def describe(self) -> list[Metric]:
        """Name no metric in advance, so that registering queries nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._process()
        yield from self._limits()
        yield from self._disk()
        yield from self._backups()
        copy = self._shop.continuous_copy
        if copy is not None and (behind := copy.seconds_behind) is not None:
            yield _gauge("copy_behind_seconds", "Since the continuous copy had everything.", behind)
        store = None if self._shop.database.is_away else self._store.result()
        self._last = store or self._last
        damaged = self._shop.soundness == "damaged"
        yield _gauge("database_up", "Whether the database answers.", store is not None)
        can_write = store is not None and not self._shop.database.outages.cause(Part.WRITING)
        yield _gauge("database_writable", "0 while changes fail; /readyz says why.", can_write)
        yield _gauge("database_damaged", "Whether the check at the start found damage.", damaged)
        yield self._deliveries()
        yield from self._last

    def _process(self) -> Iterator[Metric]:
        facts = {
            "version": VERSION,
            "schema": str(checks.schema_version()),
            "sqlite": sqlite.sqlite_module().sqlite_version,
        }
        yield InfoMetricFamily(PREFIX + "build", "The versions that run here.", facts)
        yield _gauge("threads", "Threads of the process.", threading.active_count())
        differing = len(self._shop.differing)
        yield _gauge("processes_differing", "Processes that differ; /readyz says how.", differing)
        yield _counter("log_lines_dropped", "Log lines dropped, unread.", log_queue.dropped)
        followers = self._shop.feed.followers
        yield _gauge("http_followers", "Requests waiting for events.", followers)
        if (server := self._app.server) is not None:
            yield _gauge("http_connections", "Open connections.", server.connections)
            yield _gauge("http_requests_waiting", "Requests waiting for a thread.", server.waiting)

    def _limits(self) -> Iterator[Metric]:
        bans, counters = self._shop.bans, self._shop.counters
        yield _counter("bans", "Bans imposed.", bans.begun)
        yield _gauge("banned_keys", "Keys that are banned now.", bans.in_force)
        is_up = counters.check()
        yield _gauge("limits_store_up", "0 while counters are in memory only.", is_up)

    def _disk(self) -> Iterator[Metric]:
        settings = self._shop.settings
        files, folder = {"counters": settings.counters_path}, settings.instance
        if not settings.is_on_postgres:
            database = settings.database_path
            files |= {"database": database, "wal": sqlite.log_of(database)}
            folder = database.parent
        try:
            usage = shutil.disk_usage(folder)
            sizes = {name: path.stat().st_size for name, path in files.items() if path.exists()}
        except OSError:
            return
        yield _gauges("file_size_bytes", "Size of a file.", "file", sizes)
        yield _gauge("disk_free_bytes", "Free on the database's disk.", usage.free)
        yield _gauge("disk_size_bytes", "Size of the database's disk.", usage.total)

    def _backups(self) -> Iterator[Metric]:
        if (backups := self._shop.backups) is None:
            return
        standing, now = backups.standing(), self._shop.clock.now()
        newest = standing.newest
        age = max((now - newest).total_seconds(), 0) if newest else math.inf
        yield _gauge("backup_age_seconds", "Age of the newest backup.", age)
        yield _gauge("backup_sound", "0 if its last test restore failed.", standing.is_sound)
        has_failed = bool(standing.failure)
        yield _gauge("backup_failed", "1 if the last attempt failed.", has_failed)
        same_disk = standing.is_on_same_disk
        yield _gauge("backup_same_disk", "Whether they are on the database's disk.", same_disk)

    def _deliveries(self) -> Metric:
        family = CounterMetricFamily(
            PREFIX + "webhook_deliveries",
            "Attempts to deliver, by outcome.",
            labels=("endpoint", "outcome"),
        )
        for (endpoint, outcome), count in self._shop.outbox.courier.outcomes.items():
            family.add_metric((str(endpoint), outcome), count)
        return family

    def _query_store(self) -> list[Metric]:
        shop = self._shop
        began = time.perf_counter()
        with shop.database.read() as connection:
            newest = order_store.newest_event(connection)
            seconds = time.perf_counter() - began
            webhooks = self._webhooks(connection)
        counts = stats.statistics(shop.database, shop.clock.now(), 1).by_status
        return [
            _gauge("database_answer_seconds", "Duration of one query.", seconds),
            _gauge("last_event_id", "Id of the newest event.", newest),
            _gauges("orders", "Orders in the store.", "status", counts),
            *webhooks,
        ]

    def _webhooks(self, connection: Connection) -> list[Metric]:
        now, known = self._shop.clock.now(), self._shop.outbox.courier.scanned_to
        hooks = {str(each.id): each for each in endpoints.get_all(connection)}
        counts = deliveries.refused_counts(connection)
        paused = {name: hook.paused_at is not None for name, hook in hooks.items()}
        refused = {name: counts.get(hook.id, 0) for name, hook in hooks.items()}
        lags, ages = {}, {}
        for name, hook in hooks.items():
            lags[name], oldest = deliveries.backlog(connection, hook, known(hook))
            ages[name] = max((now - oldest).total_seconds(), 0) if oldest else 0
        return [
            _gauges("webhook_paused", "1 while it is paused.", "endpoint", paused),
            _gauges(
                "webhook_refused_events", "Rejected events, still retried.", "endpoint", refused
            ),
            _gauges("webhook_lag_events", "Size of the backlog.", "endpoint", lags),
            _gauges("webhook_lag_seconds", "Age of its oldest event.", "endpoint", ages),
        ]


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, description, value)


def _gauges(name: str, description: str, label: str, values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, description, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


def _counter(name: str, description: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, description, value)
