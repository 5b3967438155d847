"""The dashboard's queries, asked of a real Prometheus that watches a real service, and drawn.

Run it as `python -m bench.dashboard [PICTURE.svg]`; it needs Prometheus (`apt-get install
prometheus`). A service with webhooks takes a small mixed load for a minute. Exits 1 where a query
of a panel gives nothing, or an alert can't be evaluated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.dashboard.drawing import draw, shown
from proofs.soak.load import ORDERS, Plan
from tests.support import stores as store
from tests.support.prometheus import Panel, Prometheus, Series, panels, watching
from tests.support.receiver import answer_with, receiving
from tests.support.service import ROOT, Service, running
from tests.support.wire import Wire

PLENTY = 1_000_000_000
STANDING = 300
CLIENTS = 4
REQUESTS_PER_SECOND = 60.0
_SETTLE_SECONDS = 3.0


def main() -> int:
    """Load a service, ask, print, draw, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", nargs="?", type=Path, help="where to write the SVG")
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, faults = ask(Path(folder), arguments.seconds)
    tell(found)
    if arguments.picture is not None:
        title = f"Store Orders: {arguments.seconds:.0f} seconds under a small load"
        arguments.picture.write_text(draw(title, found), encoding="utf-8")
    for fault in faults:
        print(f"at fault   {fault}")
    return 1 if faults else 0


def ask(folder: Path, seconds: float) -> tuple[dict[Panel, list[Series]], list[str]]:
    """Load a service for so long; return what each panel shows then, and what is at fault."""
    plan = f"[plans.pro]\nper_minute = {PLENTY}\nper_day = {PLENTY}\n"
    key, small = store.make(folder / "instance", [(PLENTY, PLENTY), (1, PLENTY)], free=PLENTY)
    config = folder / "instance" / "config.toml"
    config.write_text(config.read_text(encoding="utf-8") + plan, encoding="utf-8")
    with (
        running(folder / "instance", ORDERS_METRICS="on") as service,
        _webhooks(service),
        watching(folder, "{}:{}".format(*service.address)) as prometheus,
    ):
        standing = _furnish(service, key)
        since = time.time()
        fixed = (service.address, key, small, standing, CLIENTS, REQUESTS_PER_SECOND)
        _load(Plan(*fixed, seconds, "dashboard", str(folder / "records.json")))
        time.sleep(_SETTLE_SECONDS)
        found = {panel: prometheus.shown(panel, since) for panel in panels()}
        return found, [*_empty(found), *_broken(prometheus)]


def tell(found: dict[Panel, list[Series]]) -> None:
    """Print what each panel shows at the end."""
    for panel, series in found.items():
        if panel.kind == "row":
            print(f"\n{panel.title}")
            continue
        told = ", ".join(
            f"{each.name or '·'} {shown(each.points[-1][1], panel.unit)}" for each in series
        )
        print(f"  {panel.title}: {told or 'nothing'}")


@contextmanager
def _webhooks(service: Service) -> Iterator[None]:
    """Return the service three webhooks: one that answers, one that refuses, one that is down."""
    with receiving() as answers, receiving() as refuses:
        refuses.answering = answer_with(422)
        for url in (answers.url, refuses.url, "http://127.0.0.1:1/"):
            done = service.command("webhooks", "add", url, "--allow-private")
            if done.returncode != 0:
                raise AssertionError(done.stderr)
        yield


def _furnish(service: Service, key: str) -> list[int]:
    wire = Wire(service.address, key)
    for number in range(STANDING):
        wire.ask("POST", ORDERS, {"petId": number + 1})
    wire.close()
    return list(range(1, STANDING + 1))


def _load(plan: Plan) -> None:
    subprocess.run(
        [sys.executable, "-m", "proofs.soak.load"],
        cwd=ROOT,
        input=plan.to_json(),
        text=True,
        check=True,
    )


def _empty(found: dict[Panel, list[Series]]) -> list[str]:
    return [
        f"{panel.title}: nothing was found"
        for panel, series in found.items()
        if panel.queries and not series
    ]


def _broken(prometheus: Prometheus) -> list[str]:
    return [
        f"{rule['name']}: {rule.get('lastError') or rule['health']}"
        for rule in prometheus.rules()
        if rule["health"] != "ok"
    ]


if __name__ == "__main__":
    sys.exit(main())
