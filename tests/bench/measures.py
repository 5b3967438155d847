"""How a thing is measured: each measure takes a setting and returns its figures, by name.

Names of figures end in their unit, but for counts. What they are called for readers is in `report`.
"""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import urllib3

from orders.store.database import sqlite
from tests.bench import wrk
from tests.bench.contestants import Contestant
from tests.bench.reader import Reader
from tests.bench.stocks import Stock
from tests.support import process as processes
from tests.support.service import environment_for, run_flask

Figures = dict[str, float]
_MIN_TIMES = 3


class WrongAnswer(Exception):
    """A contestant gave a wrong answer. The message says how."""


@dataclass
class Setting:
    """The surroundings of a measure: the stock, a folder to write in, and the contestant.

    `target` is None where the measure starts what it measures by itself.
    """

    stock: Stock
    folder: Path
    seconds: float
    empty: Path
    target: Contestant | None = None

    @property
    def server(self) -> Contestant:
        if self.target is None:
            raise ValueError("this measure needs a server")
        return self.target


Measure = Callable[[Setting], Figures]


@dataclass(frozen=True)
class UnderLoad:
    """Requests of one kind from some clients at a time, by wrk.

    `what` is list, unchanged, get, place, cancel, or a refusal: no_key, unknown_key, no_order,
    no_path, over_limit. `list_readers` other clients read the whole list over and over.
    """

    what: str
    status: int
    list_readers: int = 0
    clients: int = wrk.CLIENTS

    def __call__(self, setting: Setting) -> Figures:
        server, pid = setting.server, setting.server.process.pid
        request = _REQUESTS[self.what](server)
        if self.what != "cancel":
            _check(request, self.status, orders=server.stock.count if self.what == "list" else None)
        processes.forget_peak(pid)
        with ExitStack() as stack:
            if self.list_readers:
                stack.enter_context(wrk.going_on(server.lists(), self.list_readers))
            connections, cpu = processes.accepted_connections(), processes.cpu_seconds(pid)
            load = wrk.run(request, setting.seconds, self.clients)
            cpu = processes.cpu_seconds(pid) - cpu
            connections = processes.accepted_connections() - connections
        if self.what == "cancel":
            server.next_to_cancel += load.requests + wrk.CLIENTS
        meant_refused = load.requests if self.status >= 400 else 0
        return {
            "requests_per_second": load.requests_per_second,
            "request_us": 1e6 / load.requests_per_second,
            "p50_ms": load.p50,
            "p99_ms": load.p99,
            "cpu_us": cpu / load.requests * 1e6,
            "peak_mib": processes.peak_mib(pid),
            "connections": connections,
            "wrong": abs(load.refused - meant_refused) + load.broken,
        }


def whole_list(setting: Setting) -> Figures:
    """Measure the whole list to one client, over and over."""
    server, pid = setting.server, setting.server.process.pid
    request = server.lists()
    processes.forget_peak(pid)
    cpu = processes.cpu_seconds(pid)
    with closing(Reader(request.url)) as reader:
        answers = [reader.ask(request) for _ in _for_seconds(setting.seconds)]
    cpu = processes.cpu_seconds(pid) - cpu
    peak = processes.peak_mib(pid)
    seconds = statistics.median(answer.seconds for answer in answers)
    return {
        "seconds": seconds,
        "order_us": seconds / setting.stock.count * 1e6,
        "first_byte_ms": statistics.median(each.first_byte for each in answers) * 1e3,
        "requests_per_second": 1 / seconds,
        "cpu_us": cpu / len(answers) * 1e6,
        "peak_mib": peak,
        "grown_mib": peak - server.mib_at_rest,
        "wrong": sum(answer.status != 200 for answer in answers),
    }


def changed_list(setting: Setting) -> Figures:
    """Measure lists alone, to one client that places or cancels an order before each."""
    server, times, wrong = setting.server, [], 0
    with closing(Reader(server.url)) as reader:
        for _ in _for_seconds(setting.seconds):
            placed = reader.ask(server.places())
            listed = reader.ask(server.lists())
            placed_id = json.loads(placed.body)["id"]
            cancelled = reader.ask(replace(server.gets(placed_id), method="DELETE"))
            again = reader.ask(server.lists())
            times += [listed.seconds, again.seconds]
            statuses = (placed.status, listed.status, cancelled.status, again.status)
            wrong += statuses != (201, 200, 204, 200)
    return {"requests_per_second": 1 / statistics.median(times), "wrong": wrong}


def sqlite_alone(setting: Setting) -> Figures:
    """Measure SQLite's own `json_group_array` over the same rows, in this process."""
    path = setting.stock.instance / "orders.db"
    sql = (
        "SELECT json_group_array(json_object('id', id, 'petId', pet_id, 'quantity', quantity,"
        " 'shipDate', ship_date, 'complete', json(iif(status = 'shipped', 'true', 'false'))))"
        " FROM orders WHERE status <> 'cancelled'"
    )
    times = []
    with closing(sqlite.sqlite_module().connect(path)) as connection:
        for _ in _for_seconds(setting.seconds):
            began = time.perf_counter()
            connection.execute(sql).fetchone()
            times.append(time.perf_counter() - began)
    return {"seconds": statistics.median(times)}


def from_the_start(contestant: type[Contestant]) -> Measure:
    """Return the measure of a start: its first answer, and one client's answers from then on."""

    def measure(setting: Setting) -> Figures:
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            server = contestant(setting.stock, Path(folder))
            try:
                server.wait()
                seconds = time.perf_counter() - server.started
                megabytes = processes.resident_mib(server.process.pid) * 2**20 / 1e6
                load = wrk.run(server.places(), setting.seconds, clients=1)
            finally:
                server.stop()
        figures = {"seconds": seconds, "megabytes": megabytes}
        return {**figures, "p50_ms": load.p50, "p99_ms": load.p99}

    return measure


def imported(setting: Setting) -> Figures:
    """Measure `flask orders import` of the stock into an empty store: the whole command."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        instance = Path(shutil.copytree(setting.empty, Path(folder, "instance")))
        return _rows(setting, lambda: _flask(instance, "import", setting.stock.file))


def exported(setting: Setting) -> Figures:
    """Measure `flask orders export` of the stock as CSV: the whole command."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        target = Path(folder, "export.csv")
        return _rows(setting, lambda: _flask(setting.stock.instance, "export", target))


def imported_plainly(setting: Setting) -> Figures:
    """Measure a plain loop: the file by csv, `executemany` into a table with an index."""

    def load(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE orders (id INTEGER PRIMARY KEY, petId, quantity, shipDate, status, "
                "placedAt, updatedAt, reference)"
            )
            with setting.stock.file.open(encoding="utf-8", newline="") as file:
                connection.executemany(
                    "INSERT INTO orders (petId, quantity, shipDate, status, placedAt) "
                    "VALUES (:petId, :quantity, :shipDate, :status, :placedAt)",
                    csv.DictReader(file),
                )

    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        return _rows(setting, lambda: load(Path(folder, "plain.db")))


def exported_plainly(setting: Setting) -> Figures:
    """Measure a plain loop: the rows of the store's own table, by csv."""

    def write(path: Path) -> None:
        with closing(sqlite3.connect(setting.stock.instance / "orders.db")) as connection:
            rows = connection.execute("SELECT * FROM orders ORDER BY id")
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(rows)

    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        return _rows(setting, lambda: write(Path(folder, "plain.csv")))


def _rows(setting: Setting, work: Callable[[], object]) -> Figures:
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "rows_per_second": setting.stock.count / seconds}


def _flask(instance: Path, name: str, file: Path) -> None:
    done = run_flask("orders", name, str(file), environment=environment_for(instance))
    if done.returncode:
        raise WrongAnswer(done.stderr.strip())


def _unchanged(server: Contestant) -> wrk.Request:
    with closing(Reader(server.url)) as reader:
        tag = reader.ask(server.lists()).headers["ETag"]
    return server.lists(**{"If-None-Match": tag})


def _over_limit(server: Contestant) -> wrk.Request:
    request = server.gets(secret=server.stock.keys.spent)
    with closing(Reader(server.url)) as reader:
        reader.ask(request)
    return request


_REQUESTS: dict[str, Callable[[Contestant], wrk.Request]] = {
    "list": lambda server: server.lists(),
    "unchanged": _unchanged,
    "get": lambda server: server.gets(),
    "place": lambda server: server.places(),
    "cancel": lambda server: server.cancels(),
    "no_key": lambda server: server.gets(secret=None),
    "unknown_key": lambda server: server.gets(secret=server.stock.keys.unknown),
    "no_order": lambda server: server.gets(2**53),
    "no_path": lambda server: server.gets("none/such"),
    "over_limit": _over_limit,
}


def _check(request: wrk.Request, status: int, orders: int | None) -> None:
    answer = urllib3.request(
        request.method, request.url, headers=request.headers, body=request.body, retries=False
    )
    if answer.status != status:
        raise WrongAnswer(f"{request.method} {request.url}: {answer.status} {answer.data[:200]!r}")
    if orders is not None and len(answer.json()) != orders:
        raise WrongAnswer(f"{request.url} lists {len(answer.json())} orders, not {orders}")


def _for_seconds(seconds: float) -> Iterator[int]:
    """Count while there is time, but at least a few times."""
    ends = time.perf_counter() + seconds
    done = 0
    while done < _MIN_TIMES or time.perf_counter() < ends:
        yield done
        done += 1
