"""The contestants: the service and its peers, each as its own documentation shows it.

Each is a process of its own over data of its own, which are made from the same orders, and writes
its log, where it has one, to a file.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, ClassVar

import urllib3

from tests.bench import wrk
from tests.bench.peers import bare, tables
from tests.bench.stocks import Stock
from tests.support import process as processes
from tests.support.machine import free_port
from tests.support.service import INHERITED, ROOT, environment_for, launch

START_SECONDS = 60
_POLL_SECONDS = 0.005
_STOP_SECONDS = 40
_JSON = {"Content-Type": "application/json"}


class Contestant:
    """A server to be measured. Subclasses say how it is prepared and started."""

    name: ClassVar[str]
    # Packages that it needs, whose versions are shown.
    packages: ClassVar[tuple[str, ...]] = ()
    list_path: ClassVar[str] = "/v1/store/orders"

    def __init__(self, stock: Stock, folder: Path) -> None:
        self.stock, self.folder, self.port = stock, folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # From here on, no measure has cancelled orders.
        self.next_to_cancel = 1
        self.prepare()
        self.mib_at_rest = 0.0
        self.started = time.perf_counter()
        with (folder / "log").open("w", encoding="utf-8") as log:
            self.process = self.launch(log)

    @classmethod
    def missing(cls) -> str | None:
        """Return what is not installed; None where all is."""
        absent = [each for each in cls.packages if importlib.util.find_spec(each) is None]
        return f"{absent} not installed: pip install -e '.[bench]'" if absent else None

    def prepare(self) -> None:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def launch(self, log: IO[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(), cwd=ROOT, env=INHERITED, stdout=log, stderr=log, text=True
        )

    def wait(self) -> None:
        """Wait until it answers for an order.

        Raises:
            RuntimeError: it does not; with its log.
        """
        ends, request = time.monotonic() + START_SECONDS, self.gets()
        # Not a pool: a connection that is kept would be one of those measured.
        headers = {**request.headers, "Connection": "close"}
        while time.monotonic() < ends and self.process.poll() is None:
            try:
                answer = urllib3.request("GET", request.url, headers=headers, retries=False)
            except urllib3.exceptions.HTTPError:
                time.sleep(_POLL_SECONDS)
            else:
                if answer.status == 200:
                    return
                break
        log = (self.folder / "log").read_text(encoding="utf-8")
        raise RuntimeError(f"{self.name} did not start: {log[-2000:]}")

    def settle(self) -> None:
        """Wait until it only answers requests, and record its memory then."""
        self.mib_at_rest = processes.resident_mib(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    # Requests, with the good key unless another or None is named.

    def lists(self, **headers: str) -> wrk.Request:
        return self._request("GET", self.list_path, **headers)

    def gets(self, order_id: int | str = 1, secret: str | None = "") -> wrk.Request:
        return self._request("GET", f"{self.list_path}/{order_id}", secret=secret)

    def places(self) -> wrk.Request:
        return self._request("POST", self.list_path, body='{"petId": 7, "quantity": 2}', **_JSON)

    def cancels(self) -> wrk.Request:
        return self._request("DELETE", self.list_path, first=self.next_to_cancel)

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: str = "",
        first: int | None = None,
        secret: str | None = "",
        **headers: str,
    ) -> wrk.Request:
        secret = self.stock.keys.good if secret == "" else secret
        key = {"Authorization": f"Bearer {secret}"} if secret else {}
        return wrk.Request(method, self.url + path, {**key, **headers}, body, first)


class StoreOrders(Contestant):
    """The service, with all it has: keys, both windows, journal, headers, access log."""

    name = "Store Orders"

    def prepare(self) -> None:
        shutil.copytree(self.stock.instance, self.folder / "instance")

    def launch(self, log: IO[str]) -> subprocess.Popen[str]:
        """Start to serve as its users do, except that no key is ever banned."""
        environment = environment_for(
            self.folder / "instance", ORDERS_PORT=str(self.port), ORDERS_BAN_AFTER="1000000000"
        )
        return launch(environment, log=log)

    def settle(self) -> None:
        """Wait until a large database has been checked, which goes on behind the start."""
        while urllib3.request("GET", f"{self.url}/readyz").json()["database"] != "ok":
            time.sleep(0.1)
        super().settle()


class _PythonPeer(Contestant):
    module: ClassVar[str]

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, str(self.folder), str(self.port)]

    def prepare(self) -> None:
        tables.fill(self.folder, self.stock.orders(), self.stock.keys.good)


class BareFlask(_PythonPeer):
    """Flask views on waitress that answer bytes made before."""

    name = "bare Flask on waitress"
    module = "tests.bench.peers.bare"
    packages = ("flask", "waitress")

    def prepare(self) -> None:
        shown = [json_of(order) for order in self.stock.orders()]
        (self.folder / bare.LIST).write_text(f"[{','.join(shown)}]", encoding="utf-8")
        (self.folder / bare.ORDER).write_text(shown[0], encoding="utf-8")


class PlainStack(_PythonPeer):
    """The stack of this service, written plainly."""

    name = "the same stack, plainly"
    module = "tests.bench.peers.plain_stack"
    packages = ("flask_smorest", "sqlalchemy", "marshmallow", "flask_limiter", "waitress")


class FastApi(_PythonPeer):
    """FastAPI with slowapi and SQLAlchemy under uvicorn."""

    name = "FastAPI with slowapi"
    module = "tests.bench.peers.fastapi_slowapi"
    packages = ("fastapi", "slowapi", "uvicorn", "uvloop", "httptools", "sqlalchemy")


class JsonServer(Contestant):
    """json-server over a file of the orders."""

    name = "json-server"
    list_path = "/orders"
    program: ClassVar = ROOT / "build/json-server/node_modules/json-server/lib/cli/bin.js"

    @classmethod
    def missing(cls) -> str | None:
        if shutil.which("node") and cls.program.exists():
            return None
        return "not installed: npm install --prefix build/json-server json-server@0.17"

    def prepare(self) -> None:
        shown = ",".join(map(json_of, self.stock.orders()))
        (self.folder / "db.json").write_text(f'{{"orders":[{shown}]}}', encoding="utf-8")

    def command(self) -> list[str]:
        serve = ["node", str(self.program), str(self.folder / "db.json")]
        return [*serve, "--host", "127.0.0.1", "--port", str(self.port)]


EVERYBODY = (StoreOrders, BareFlask, PlainStack, FastApi, JsonServer)


def json_of(order: dict[str, Any]) -> str:
    known = {name: value for name, value in order.items() if value is not None}
    return json.dumps(known, separators=(",", ":"))
