"""The contestants: what all have in common, and the service. The others are in `peers.all`.

Each is a process of its own over data of its own, which are made from the same orders, and writes
its log, where it has one, to a file.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, ClassVar

import urllib3

from tests.bench.speed import wrk
from tests.bench.speed.stocks import Stock
from tests.support import process as processes
from tests.support.service import INHERITED, ROOT, environment_for, launch

START_SECONDS = 60
_POLL_SECONDS = 0.005
_STOP_SECONDS = 40
_ORDERS = "/v1/store/orders"
_NEW_ORDER = '{"petId": 7, "quantity": 2}'


class Contestant:
    """A server to be measured. Subclasses say how it is prepared and started."""

    name: ClassVar[str]
    # One line for readers.
    about: ClassVar[str]
    # Packages whose versions are shown.
    packages: ClassVar[tuple[str, ...]] = ()
    list_path: ClassVar[str] = _ORDERS
    is_ours: ClassVar[bool] = False

    def __init__(self, stock: Stock, folder: Path) -> None:
        """Prepare its data in an empty folder, and start it. `wait` returns once it answers."""
        self.stock, self.folder = stock, folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # From here on, no measure has cancelled orders.
        self.next_to_cancel = 1
        self.prepare()
        self.mib_at_rest = 0.0
        # By time.perf_counter.
        self.started = time.perf_counter()
        with (folder / "log").open("w", encoding="utf-8") as log:
            self.process = self.launch(log)

    @classmethod
    def missing(cls) -> str | None:
        """Say what is not installed; None where all is."""
        absent = [each for each in cls.packages if importlib.util.find_spec(each) is None]
        return (
            f"{' and '.join(absent)} not installed: pip install -e '.[bench]'" if absent else None
        )

    def prepare(self) -> None:
        """Make its data."""

    def command(self) -> list[str]:
        """Return the command that serves."""
        raise NotImplementedError

    def launch(self, log: IO[str]) -> subprocess.Popen[str]:
        """Start to serve; return the process."""
        return subprocess.Popen(
            self.command(), cwd=ROOT, env=INHERITED, stdout=log, stderr=log, text=True
        )

    def headers(self, secret: str | None) -> dict[str, str]:
        """Return the headers of a request with this key."""
        return {"Authorization": f"Bearer {secret}"} if secret else {}

    def wait(self) -> None:
        """Wait until it answers for an order.

        Raises:
            RuntimeError: it does not; with its log.
        """
        ends = time.monotonic() + START_SECONDS
        headers = self.headers(self.stock.keys.good)
        while time.monotonic() < ends and self.process.poll() is None:
            try:
                # Not a pool: a connection that is kept would be one of those measured.
                answer = urllib3.request(
                    "GET",
                    f"{self.url}{self.order_path(1)}",
                    headers={**headers, "Connection": "close"},
                    retries=False,
                )
            except urllib3.exceptions.HTTPError:
                time.sleep(_POLL_SECONDS)
            else:
                if answer.status == 200:
                    return
                break
        log = (self.folder / "log").read_text(encoding="utf-8")
        raise RuntimeError(f"{self.name} did not start: {log[-2000:]}")

    def settle(self) -> None:
        """Wait until it only answers requests, and note its memory then."""
        self.mib_at_rest = processes.resident_mib(self.process.pid)

    def order_path(self, order_id: int) -> str:
        """Return the path of an order."""
        return f"{self.list_path}/{order_id}"

    def stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    # Requests.

    def lists(self, **headers: str) -> wrk.Request:
        """Request all orders."""
        return self._request("GET", self.list_path, **headers)

    def gets(self, order_id: int = 1, secret: str | None = "") -> wrk.Request:
        """Request an order; with the good key unless another or None is named."""
        return self._request("GET", self.order_path(order_id), secret=secret)

    def nowhere(self) -> wrk.Request:
        """Request a missing path."""
        return self._request("GET", "/v1/store/nowhere")

    def places(self) -> wrk.Request:
        """Place an order."""
        json_body = {"Content-Type": "application/json"}
        return self._request("POST", self.list_path, body=_NEW_ORDER, **json_body)

    def cancels(self) -> wrk.Request:
        """Cancel orders, one after the other."""
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
        return wrk.Request(
            method, self.url + path, {**self.headers(secret), **headers}, body, first
        )


class StoreOrders(Contestant):
    """The service, with all it has: keys, both windows, journal, headers, access log."""

    name = "Store Orders"
    is_ours = True
    about = "this service, with keys, limits and their journal, all headers, its access log"

    def prepare(self) -> None:
        """Take a copy of the instance."""
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
