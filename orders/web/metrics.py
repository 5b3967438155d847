"""What Prometheus reads at /metrics, where ORDERS_METRICS is on.

Requests are counted as they end; what can be asked at any time is asked by `gauges` when somebody
reads. Labels have few values, all of them known here: a client's text is never one.
"""

from __future__ import annotations

import re

from flask import Flask, Response, request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from orders.web.call import Call
from orders.web.gauges import Gauges
from orders.web.server.server import Server
from orders.web.services import Services
from orders.web.tallies import Labels, Tallies, Tally

# What has no route, and what the server could not read as a request.
UNKNOWN = "unknown"
UNREADABLE = "unreadable"
NO_VERSION = "none"
# The plan of requests without a valid key, and of a key whose plan needs a restart.
NO_PLAN = "none"
OTHER = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_VERSION = re.compile(r"/+(v[12])(?:/|$)")
_TOO_MANY = 429
# The entries of Accept that the library can read: others would be errors of its own.
_READABLE = re.compile(
    r"(?:application/openmetrics-text|text/plain)"
    r"(?:;(?:version=(?:0\.0\.1|0\.0\.4|1\.0\.0)|charset=utf-8|escaping=[a-z0-9-]+|q=[0-9.]+))*"
)


class Metrics:
    """Counts what it is told of, and gives it in the formats that Prometheus reads."""

    def __init__(self, app: Flask, services: Services) -> None:
        """Set up a registry of its own: there may be many applications in a process."""
        self._app = app
        self._plans = services.settings.plans
        self._registry = registry = CollectorRegistry()
        self._requests = Tallies(registry)
        self._known: dict[tuple[str, str, int], Tally] = {}
        self._refusals = Counter(
            "store_orders_http_refusals", "Answers of 400 and above.", ["code"], registry=registry
        )
        self._limited = Counter(
            "store_orders_http_rate_limited",
            "Answers of 429, by the plan that was exceeded.",
            ["plan"],
            registry=registry,
        )
        self._gauges = Gauges(services, registry)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

    def watch(self, server: Server) -> None:
        """Return of a server's connections, too."""
        self._gauges.server = server

    def note(self, call: Call, status: int, ended: float) -> None:
        """Count an answer that has gone out. `ended` is in monotonic seconds."""
        # What has no route has a version by its path, which is the client's: cut to what is known.
        key = (call.endpoint or _version_of(call.path), call.method, status)
        tally = self._known.get(key)
        if tally is None:
            tally = self._requests.of(self._labels(call, status))
            if call.method in _METHODS:
                self._known[key] = tally
        self._requests.add(tally, ended - call.began)
        if call.refusal is not None:
            self._note_refusal(call, call.refusal, status)

    def answer(self, accept: str) -> Response:
        """Return all metrics, in the best format that an Accept header asks for."""
        entries = [entry.replace(" ", "") for entry in accept.split(",")]
        encode, content_type = choose_encoder(",".join(filter(_READABLE.fullmatch, entries)))
        return Response(encode(self._registry), content_type=content_type)

    def _note_refusal(self, call: Call, code: str, status: int) -> None:
        self._refusals.labels(code).inc()
        if status == _TOO_MANY:
            key = call.caller.key if call.caller else None
            plan = key.plan if key and key.plan in self._plans else NO_PLAN
            self._limited.labels(plan).inc()

    def _labels(self, call: Call, status: int) -> Labels:
        method = call.method if call.method in _METHODS else OTHER
        return *self._named(call), method, str(status)

    def _named(self, call: Call) -> tuple[str, str]:
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
    """Add /metrics to an application, and let its shop tell of its answers."""
    # When each series began: as many series again, which nothing here asks for.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = Metrics(app, services)
    log = services.note_answer

    def tell(call: Call, status: int, ended: float) -> None:
        log(call, status, ended)
        metrics.note(call, status, ended)

    services.metrics, services.note_answer = metrics, tell
    app.add_url_rule(
        "/metrics", "metrics", lambda: metrics.answer(request.headers.get("Accept", ""))
    )


def _version_of(path: str) -> str:
    found = _VERSION.match(path)
    return found[1] if found else NO_VERSION
