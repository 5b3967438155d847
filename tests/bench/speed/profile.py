"""Where a request's time goes, or a command's: layer by layer, sampled many times a second.

The application answers one request after the other in this process, as waitress would ask it. A
timer interrupts it again and again, and each time the innermost function that belongs to a layer
takes the time since the time before: a long call into SQLite is interrupted only at its end.
Nothing is counted or wrapped, so that what is measured is what runs. What waitress, its threads and
the sockets add is the difference to the service under load; what starting adds to a command, that
to the whole command.
"""

from __future__ import annotations

import dis
import io
import itertools
import os
import shutil
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from flask import Flask
from werkzeug.test import EnvironBuilder, run_wsgi_app

from app import create_app
from orders import settings
from orders.web import logs
from orders.web.services import services_of
from tests.bench.speed import wrk
from tests.bench.speed.contestants import StoreOrders
from tests.bench.speed.measures import Setting, UnderLoad, exported, imported
from tests.bench.speed.stocks import Ask, Stock, Stocks
from tests.support.service import ROOT

ORDERS_IN_STORE = 20
_TO_CANCEL = 20_000
_SAMPLE_SECONDS = 0.0005
_PATH = "/v1/store/orders"
# The answer's status, and what `UnderLoad` calls it.
OPERATIONS = {
    "listOrders": ("list", 200),
    "notModified": ("unchanged", 304),
    "getOrder": ("get", 200),
    "placeOrder": ("place", 201),
    "cancelOrder": ("cancel", 204),
}
# By the command's name: how it is measured as a whole.
COMMANDS = {"import": imported, "export": exported}
_ROWS = 200_000
# Where Python looks for signals when a function is called and when a generator goes on.
_RESUME = dis.opmap["RESUME"]
_SITE = "/site-packages/"
_BENCH = str(ROOT / "tests" / "bench")
# By the end of a file's path; the first that fits, for the innermost function that fits any.
_FUNCTIONS = {
    ("sqlalchemy/engine/default.py", "do_execute"): "SQLite",
    ("sqlalchemy/engine/default.py", "do_commit"): "SQLite",
}
_FILES = (
    ("orders/web/access/auth.py", "keys"),
    ("orders/keys.py", "keys"),
    ("orders/store/keys.py", "keys"),
    ("orders/web/access/limits.py", "limits"),
    ("orders/web/access/bans.py", "limits"),
    ("orders/counters/", "limits"),
    ("orders/web/logs.py", "access log"),
    ("/logging/", "access log"),
    ("orders/web/api.py", "hooks and headers"),
    ("orders/web/call.py", "hooks and headers"),
    ("orders/web/", "views"),
    ("orders/files/formats.py", "reading the file"),
    ("orders/files/rows.py", "checking rows"),
    ("orders/files/staging.py", "staging rows (SQLite)"),
    ("orders/cli/", "the command, its file and progress"),
    ("orders/store/care/", "checking the store, scratch files, fsync"),
    ("orders/store/", "store (and SQLite, where the driver is asked directly)"),
    ("orders/", "use cases and rules"),
    ("schemas/", "schemas"),
    (f"{_SITE}marshmallow/", "schemas"),
    (f"{_SITE}webargs/", "schemas"),
    (f"{_SITE}apispec/", "schemas"),
    (f"{_SITE}flask_smorest/", "flask-smorest"),
    (f"{_SITE}sqlalchemy/", "SQLAlchemy"),
    (f"{_SITE}limits/", "limits"),
    (f"{_SITE}flask_limiter/", "limits"),
    (f"{_SITE}flask/", "Flask and Werkzeug"),
    (f"{_SITE}werkzeug/", "Flask and Werkzeug"),
)
_REST = "the measurement itself"


@dataclass
class Spent:
    """Seconds: of the processor, and waited (for the disk, a lock, or a processor)."""

    cpu: float = 0.0
    waited: float = 0.0

    def add(self, cpu: float, elapsed: float) -> None:
        """Add time that has gone by."""
        self.cpu += cpu
        self.waited += max(0.0, elapsed - cpu)


@dataclass
class Profile:
    """What a request takes in the process, layer by layer, and the figures under load.

    `sampled` is by layer, over many requests; `request` is one without sampling. Of a command it is
    what a row takes, and the figures of the command as a process of its own.
    """

    request: Spent
    sampled: dict[str, Spent]
    load: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it, in microseconds a request; the dearest layer first."""
        # Sampling costs, too: sampled times are scaled to those without it.
        cpu = self.request.cpu / (sum(each.cpu for each in self.sampled.values()) or 1)
        waited = self.request.waited / (sum(each.waited for each in self.sampled.values()) or 1)
        layers = {
            name: {"cpu_us": each.cpu * cpu * 1e6, "waited_us": each.waited * waited * 1e6}
            for name, each in self.sampled.items()
        }
        return {
            "cpu_us": self.request.cpu * 1e6,
            "waited_us": self.request.waited * 1e6,
            "layers": dict(sorted(layers.items(), key=lambda each: -sum(each[1].values()))),
            "load": self.load,
        }


def profile(operation: str, seconds: float, seed: int) -> Profile:
    """Sample the requests of an operation, or a command over many orders."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if operation in COMMANDS:
            return _of_command(operation, folder, seed)
        what, status = OPERATIONS[operation]
        pending = Ask(_TO_CANCEL, all_pending=True)
        stock = Stocks(folder, seed).get(pending if what == "cancel" else Ask(ORDERS_IN_STORE))
        shutil.copytree(stock.instance, folder / "instance")
        with _application(folder / "instance") as app:
            environs = _environs(app, stock, what)
            # What is made at the first requests is made then.
            _timed(app, environs, seconds / 4)
            request = _timed(app, environs, seconds / 2)
            layers = _sampled(lambda: _timed(app, environs, seconds))
        return Profile(request, layers, _load(stock, folder, what, status, seconds))


def _of_command(name: str, folder: Path, seed: int) -> Profile:
    stocks = Stocks(folder, seed)
    stock, empty = stocks.get(Ask(_ROWS)), stocks.empty
    source = empty if name == "import" else stock.instance
    target = [str(stock.file)] if name == "import" else [str(folder / "out.csv"), "--overwrite"]
    before = os.times()
    figures = COMMANDS[name](Setting(stock, folder, 0, empty))
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    work = _command(["orders", name, *target], source, folder / "plain")
    began, cpu_began = time.perf_counter(), time.thread_time()
    work()
    row = Spent()
    row.add((time.thread_time() - cpu_began) / _ROWS, (time.perf_counter() - began) / _ROWS)
    layers = _sampled(_command(["orders", name, *target], source, folder / "sampled"))
    load = {"cpu_us": cpu / _ROWS * 1e6, "rows_per_second": figures["rows_per_second"]}
    return Profile(row, layers, load)


def _command(arguments: list[str], source: Path, instance: Path) -> Callable[[], None]:
    """Return what runs a command in this process, over a copy of a folder of the service."""
    shutil.copytree(source, instance)
    app = create_app(settings.load({"ORDERS_INSTANCE": str(instance)}))

    def run() -> None:
        done = app.test_cli_runner().invoke(args=arguments)
        if done.exit_code:
            raise RuntimeError(done.stderr)

    return run


@contextmanager
def _application(instance: Path) -> Iterator[Flask]:
    app = create_app(settings.load({"ORDERS_INSTANCE": str(instance)}))
    with (instance / "log").open("wb", buffering=0) as log:
        writer = logs.configure("text", log.write)
        writer.start()
        services_of(app).begin()
        try:
            yield app
        finally:
            services_of(app).end()
            writer.stop()


def _environs(app: Flask, stock: Stock, what: str) -> Iterator[dict[str, Any]]:
    """Yield requests as waitress passes them to an application, without end."""
    headers = {"Authorization": f"Bearer {stock.keys.good}"}
    if what == "unchanged":
        headers["If-None-Match"] = app.test_client().get(_PATH, headers=headers).headers["ETag"]
    body = b'{"petId": 7, "quantity": 2}' if what == "place" else b""
    made = EnvironBuilder(
        method={"place": "POST", "cancel": "DELETE"}.get(what, "GET"),
        headers=headers,
        data=body or None,
        content_type="application/json" if body else None,
    ).get_environ()
    for number in itertools.count(1):
        path = {"get": f"{_PATH}/1", "cancel": f"{_PATH}/{number}"}.get(what, _PATH)
        own = {"PATH_INFO": path, "REQUEST_URI": path, "REMOTE_ADDR": "127.0.0.1"}
        yield {**made, **own, "wsgi.input": io.BytesIO(body)}


def _timed(app: Flask, environs: Iterator[dict[str, Any]], seconds: float) -> Spent:
    """Ask for so long; return what a request takes."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    count = 0
    while time.perf_counter() - began < seconds:
        body, status, _ = run_wsgi_app(app, next(environs), buffered=True)
        if not status.startswith(("2", "304")):
            raise RuntimeError(f"{status}: {b''.join(body)!r}")
        count += 1
    spent = Spent()
    spent.add((time.thread_time() - cpu_began) / count, (time.perf_counter() - began) / count)
    return spent


def _sampled(work: Callable[[], object]) -> dict[str, Spent]:
    """Sample the work again and again; return the time of each layer."""
    layers: defaultdict[str, Spent] = defaultdict(Spent)
    seen, cpu_seen = time.perf_counter(), time.thread_time()

    def sample(_: int, frame: FrameType | None) -> None:
        nonlocal seen, cpu_seen
        layers[_layer(frame)].add(time.thread_time() - cpu_seen, time.perf_counter() - seen)
        seen, cpu_seen = time.perf_counter(), time.thread_time()
        # Not repeated by itself: on a slow machine samples would overlap.
        signal.setitimer(signal.ITIMER_REAL, _SAMPLE_SECONDS)

    before = signal.signal(signal.SIGALRM, sample)
    # What waits for the disk goes on waiting.
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, _SAMPLE_SECONDS)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return layers


def _layer(frame: FrameType | None) -> str:
    # What went by before a function has begun, or a generator goes on, is its caller's.
    if frame is not None and frame.f_code.co_code[max(0, frame.f_lasti)] == _RESUME:
        frame = frame.f_back
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if _SITE in path or not path.startswith(_BENCH):
            for (file, function), layer in _FUNCTIONS.items():
                if name == function and path.endswith(file):
                    return layer
            own = path.removeprefix(f"{ROOT}/")
            for part, layer in _FILES:
                if own.startswith(part) or (part.startswith("/") and part in path):
                    return layer
        frame = frame.f_back
    return _REST


def _load(stock: Stock, folder: Path, what: str, status: int, seconds: float) -> dict[str, float]:
    """Return the service's figures under load; none where wrk is not installed."""
    if not wrk.is_installed():
        return {}
    own = folder / "service"
    own.mkdir()
    server = StoreOrders(stock, own)
    try:
        server.wait()
        return UnderLoad(what, status)(Setting(stock, folder, seconds, stock.instance, server))
    finally:
        server.stop()
