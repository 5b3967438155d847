"""Which of the project's files a warm request passes, and how often it crosses between them.

Run it as `python -m tests.bench.trace`. The service runs in this process, as `python app.py` starts
it; a client in a thread sends each request until it is warm, and then a few
times more. Calls and returns are seen in all threads (sys.setprofile). A crossing is a call from
one of the project's files into another, or the return from it, also where libraries are between
them. Of the traced requests the one with the fewest crossings counts, as the background's work
falls into some of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType

from orders.application import create_app
from orders.cli import serve
from tests.support.service import environment_for, run_flask

ROOT = Path(__file__).resolve().parents[2]
OWN = tuple(str(ROOT / name) for name in ("orders", "schemas"))
# Method, path and body.
Request = tuple[str, str, dict[str, int] | None]
# The crossings, and the files.
Passed = tuple[int, list[str]]
REQUESTS: dict[str, Request] = {
    "POST /v2/store/orders": ("POST", "/v2/store/orders", {"petId": 7, "quantity": 2}),
    "GET /v2/store/orders/{orderId}": ("GET", "/v2/store/orders/7", None),
    "GET /v2/store/orders": ("GET", "/v2/store/orders?status=pending&sort=-placedAt", None),
}
WARM, TRACED = 30, 15
# What goes on after an answer, such as its line in the log.
SETTLE_SECONDS = 0.05


class Trace:
    """What a request passed in all threads: the files, and the crossings between two of them."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: set[str] = set()
        self.crossings: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if not self.is_on or event not in ("call", "return"):
            return
        path = frame.f_code.co_filename
        if not path.startswith(OWN):
            return
        self.files.add(path)
        caller = _caller(frame)
        if caller is not None and caller != path:
            self.crossings[(caller, path) if event == "call" else (path, caller)] += 1

    def begin(self) -> None:
        self.files, self.crossings = set(), Counter()
        self.is_on = True

    def end(self) -> Passed:
        """Stop; return how many crossings there were, and the files."""
        self.is_on = False
        files = sorted(str(Path(each).relative_to(ROOT)) for each in self.files)
        return self.crossings.total(), files


def _caller(frame: FrameType) -> str | None:
    """Return the project's file that called this one, through libraries or at once."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_filename.startswith(OWN):
            return above.f_code.co_filename
        above = above.f_back
    return None


class Client:
    """A client on a connection of its own, which is kept."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: dict[str, int] | None) -> None:
        self._connection.request(method, path, json.dumps(body) if body else None, self._headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise RuntimeError(f"{method} {path}: {answer.status} {said!r}")


def traced(trace: Trace, client: Client, request: Request) -> Passed:
    """Send a request until it is warm, and then traced; return what it passed."""
    for _ in range(WARM):
        client.ask(*request)
    found = []
    for _ in range(TRACED):
        time.sleep(SETTLE_SECONDS)
        trace.begin()
        client.ask(*request)
        time.sleep(SETTLE_SECONDS)
        found.append(trace.end())
    return min(found)


def show(trace: Trace, port: int, key: str) -> None:
    """Wait until the service listens, trace all requests, print what they passed, and end it."""
    try:
        while True:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(SETTLE_SECONDS)
        client = Client(port, key)
        for name, request in REQUESTS.items():
            crossings, files = traced(trace, client, request)
            print(f"{name}: {len(files)} files, {crossings} crossings")
            print("".join(f"  {each}\n" for each in files))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    argparse.ArgumentParser(prog="python -m tests.bench.trace", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        environment = environment_for(Path(folder), ORDERS_PORT=str(port))
        key = run_flask(
            "keys", "issue", "trace", "--plan", "business", environment=environment
        ).stdout.strip()
        free.close()
        os.environ.update(environment)
        trace = Trace()
        client = threading.Thread(target=show, args=(trace, port, key))
        client.start()
        threading.setprofile(trace)
        sys.setprofile(trace)
        status = serve.main(create_app, with_demo=False)
        client.join()
        return status


if __name__ == "__main__":
    sys.exit(main())
