"""A Prometheus of one's own, which watches services, and what a dashboard would ask of it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

ROOT = Path(__file__).resolve().parent.parent.parent
DASHBOARD = ROOT / "deploy" / "grafana" / "store-orders.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
SCRAPED_EVERY = 1
_START_SECONDS = 30
# What Grafana fills in.
_FILLED_IN = {"$__rate_interval": "15s", "$instance": ".+"}
_CONFIG = """
global: {{scrape_interval: {every}s, evaluation_interval: {every}s}}
rule_files: ["{alerts}"]
scrape_configs:
  - job_name: store-orders
    static_configs: [{{targets: {targets}}}]
"""


@dataclass(frozen=True)
class Query:
    """A query of a panel, and how its series are named: `{{label}}` stands for a label's value."""

    expression: str
    legend: str

    @property
    def filled_in(self) -> str:
        """The expression as Prometheus takes it."""
        expression = self.expression
        for name, value in _FILLED_IN.items():
            expression = expression.replace(name, value)
        return expression

    def name(self, labels: dict[str, str]) -> str:
        """Name a series."""
        name = self.legend
        for label, value in labels.items():
            name = name.replace("{{" + label + "}}", value)
        return name


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard; `box` is x, y, width and height in Grafana's grid."""

    title: str
    kind: str
    unit: str
    box: tuple[int, int, int, int]
    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Series:
    """A line: its name, and its points as Unix times and values."""

    name: str
    points: list[tuple[float, float]]


def panels(dashboard: Path = DASHBOARD) -> list[Panel]:
    """Return the panels of a dashboard, and its rows, which have no queries."""
    return [
        Panel(
            told["title"],
            told["type"],
            told.get("fieldConfig", {}).get("defaults", {}).get("unit", ""),
            (at["x"], at["y"], at["w"], at["h"]),
            tuple(Query(each["expr"], each["legendFormat"]) for each in told.get("targets", ())),
        )
        for told in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]
        for at in (told["gridPos"],)
    ]


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        """Take where it answers."""
        self._url = url
        self._http = urllib3.PoolManager(retries=False)

    def series(self, query: Query, since: float, until: float) -> list[Series]:
        """Return what a query gives of each second in between."""
        asked = {"query": query.filled_in, "start": since, "end": until, "step": SCRAPED_EVERY}
        return [
            Series(
                query.name(each["metric"]),
                [(float(at), float(value)) for at, value in each["values"]],
            )
            for each in self._ask("query_range", **asked)["result"]
        ]

    def shown(self, panel: Panel, since: float) -> list[Series]:
        """Return what a panel shows of the time since then."""
        until = time.time()
        return [each for query in panel.queries for each in self.series(query, since, until)]

    def is_ready(self) -> bool:
        """Return whether it has read a service once."""
        try:
            return bool(self._ask("query", query="up == 1")["result"])
        except (urllib3.exceptions.HTTPError, ValueError):
            return False

    def rules(self) -> list[dict[str, Any]]:
        """Return the alerts, and how they stand."""
        groups = self._ask("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _ask(self, what: str, **fields: Any) -> Any:
        told = self._http.request("GET", f"{self._url}/api/v1/{what}", fields=fields).json()
        if told["status"] != "success":
            raise ValueError(told["error"])
        return told["data"]


@contextmanager
def watching(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """Let a Prometheus watch services, each given as host:port, until left. It writes to a folder.

    Raises:
        FileNotFoundError: there is no Prometheus on this machine.
        TimeoutError: it does not answer.
    """
    program = shutil.which("prometheus")
    if program is None:
        raise FileNotFoundError("Prometheus is missing: apt-get install prometheus")
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = f"127.0.0.1:{one.getsockname()[1]}"
    config = folder / "prometheus.yml"
    config.write_text(
        _CONFIG.format(every=SCRAPED_EVERY, alerts=ALERTS, targets=json.dumps(targets)),
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=error",
        ]
    )
    try:
        yield _when_ready(Prometheus(f"http://{address}"))
    finally:
        process.terminate()
        process.wait()


def _when_ready(prometheus: Prometheus) -> Prometheus:
    ends = time.monotonic() + _START_SECONDS
    while not prometheus.is_ready():
        if time.monotonic() > ends:
            raise TimeoutError("Prometheus does not answer, or can't read the service")
        time.sleep(0.1)
    return prometheus
