"""/metrics for Prometheus, where ORDERS_METRICS is on.

Requests are counted as they end; `collector` adds the state at scrape time. Labels have few values,
all of them known here: a client's text is never one.
"""

from __future__ import annotations

import re
from collections.abc import Container
from ipaddress import ip_address
from urllib.parse import urlsplit

from flask import Flask, request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from orders.web.call import Call
from orders.web.monitoring.collector import PREFIX, StateCollector
from orders.web.refusals import UnknownHost
from orders.web.replies import Reply
from orders.web.services import Services

# In seconds, from the time of most answers to one that nobody waits for.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Operations without a route, and of what the server could not read as a request.
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

    def __init__(self, app: Flask, services: Services) -> None:
        self._app = app
        self._plans = services.settings.plans
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
            name: self._counter(f"key_{name}", words, "key")
            for name, words in (
                ("requests", "Requests answered, by the key's id."),
                ("refusals", "Answers of 400 and above, by the key's id."),
                ("seconds", "Time spent on answers, by the key's id."),
            )
        }
        # Of each kind of request: the library takes longer to find them.
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._registry.register(StateCollector(services))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def note(self, call: Call, status: int, ended: float) -> None:
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
        seconds.observe(call.waited + ended - call.began)
        self._waits.observe(call.waited)
        if call.caller and call.caller.key:
            self._note_key(str(call.caller.key.id), call, ended)
        if call.refusal is not None:
            self._note_refusal(call, call.refusal, status)

    def _note_key(self, key: str, call: Call, ended: float) -> None:
        self._of_keys["requests"].labels(key).inc()
        self._of_keys["seconds"].labels(key).inc(ended - call.began)
        self._of_keys["refusals"].labels(key).inc(call.refusal is not None)

    def response(self, accept: str) -> Reply:
        """Return all metrics, in the best format that an Accept header allows."""
        entries = [entry.replace(" ", "") for entry in accept.split(",")]
        encode, content_type = choose_encoder(",".join(filter(_READABLE.fullmatch, entries)))
        return Reply(encode(self._registry), content_type=content_type)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}http_{name}", words, labels, registry=self._registry)

    def _note_refusal(self, call: Call, code: str, status: int) -> None:
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
        return call.endpoint.partition(".")[0], operation


def install(app: Flask, services: Services) -> None:
    """Add /metrics to an application, and count its answers."""
    # The time at which each series began would be as many series again.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics, log_answer = Metrics(app, services), services.note_answer
    settings = services.settings

    def note(call: Call, status: int, ended: float) -> None:
        log_answer(call, status, ended)
        metrics.note(call, status, ended)

    services.note_answer = note
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
