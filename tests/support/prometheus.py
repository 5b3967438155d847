"""A Prometheus that scrapes services, and the panels of the Grafana dashboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from tests.support.machine import begin, end, free_port, installed
from tests.support.service import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "store-orders.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
# Variables that Grafana fills in.
_VARIABLES = {"$__rate_interval": "15s", "$instance": ".+"}
_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{alerts}"]
scrape_configs:
  - job_name: store-orders
    static_configs: [{{targets: {targets}}}]
"""


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard; `box` is x, y, width and height in Grafana's grid."""

    title: str
    box: tuple[int, int, int, int]
    queries: tuple[str, ...]


def panels() -> list[Panel]:
    """Return the panels of the dashboard, and its rows, which have no queries."""
    return [
        Panel(
            panel["title"],
            tuple(panel["gridPos"][name] for name in "xywh"),
            tuple(target["expr"] for target in panel.get("targets", ())),
        )
        for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    ]


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = urllib3.PoolManager(retries=False)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression selects now."""
        for name, value in _VARIABLES.items():
            expression = expression.replace(name, value)
        series: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return series

    def has_scraped(self) -> bool:
        """Return whether it has scraped a service."""
        try:
            return bool(self.query("up == 1"))
        except (urllib3.exceptions.HTTPError, ValueError):
            return False

    def rules(self) -> list[dict[str, Any]]:
        """Return the alerting rules and their state."""
        groups = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _get(self, resource: str, **fields: Any) -> Any:
        url = f"{self._url}/api/v1/{resource}"
        answer = self._http.request("GET", url, fields=fields).json()
        if answer["status"] != "success":
            raise ValueError(answer["error"])
        return answer["data"]


@contextmanager
def watching(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes services, each named host:port, and keeps data in a folder."""
    address = f"127.0.0.1:{free_port()}"
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG.format(alerts=ALERTS, targets=json.dumps(targets)), encoding="utf-8")
    command = [
        installed("prometheus", package="prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    prometheus = Prometheus(f"http://{address}")
    process = begin(command, prometheus.has_scraped)
    try:
        yield prometheus
    finally:
        end(process)
