"""Which of the project's files a warm request passes, and how often it crosses between them.

Run it as `python -m tests.bench.trace`, with `--pairs` to see who calls whom, how often. The
service runs in this process, as `python app.py` starts it; a client in a thread sends each request
until it is warm, and then a few times more. Calls and returns are seen in all threads
(sys.setprofile). A crossing is a call from one of the project's files into another, or the return
from it, also where libraries are between them. Chores in the background are left out by their
threads' name; of the traced requests the one with the fewest crossings counts, should another
second's work fall into some.
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
from contextlib import redirect_stderr, suppress
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
# The crossings, the files, and how often which function of one calls which of another.
Passed = tuple[int, list[str], list[tuple[str, int]]]
REQUESTS: dict[str, Request] = {
    "POST /v2/store/orders": ("POST", "/v2/store/orders", {"petId": 7, "quantity": 2}),
    "GET /v2/store/orders/{orderId}": ("GET", "/v2/store/orders/7", None),
    "GET /v2/store/orders": ("GET", "/v2/store/orders?status=pending&sort=-placedAt", None),
}
WARM, TRACED = 30, 15
# Beside requests, every half second.
BACKGROUND = "housekeeping"
# What goes on after an answer, such as its line in the log.
SETTLE_SECONDS = 0.05


class Trace:
    """What a request passed in all threads: the files, and the crossings between two of them."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: set[str] = set()
        self.crossings = 0
        self.pairs: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if not self.is_on or event not in ("call", "return"):
            return
        path = frame.f_code.co_filename
        if not path.startswith(OWN) or threading.current_thread().name == BACKGROUND:
            return
        self.files.add(path)
        caller = _caller(frame)
        if caller is not None and caller.f_code.co_filename != path:
            self.crossings += 1
            if event == "call":
                self.pairs[f"{_named(caller)} → {_named(frame)}"] += 1

    def begin(self) -> None:
        self.files, self.crossings, self.pairs = set(), 0, Counter()
        self.is_on = True

    def end(self) -> Passed:
        """Stop; return how many crossings there were, the files, and who called whom."""
        self.is_on = False
        files = sorted(str(Path(each).relative_to(ROOT)) for each in self.files)
        return self.crossings, files, self.pairs.most_common()


def _caller(frame: FrameType) -> FrameType | None:
    """Return the project's frame that called this one, through libraries or at once."""
    above = frame.f_back
    while above is not None and not above.f_code.co_filename.startswith(OWN):
        above = above.f_back
    return above


def _named(frame: FrameType) -> str:
    code = frame.f_code
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}"


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


def show(trace: Trace, port: int, key: str, *, with_pairs: bool) -> None:
    """Wait until the service listens, trace all requests, print what they passed, and end it."""
    try:
        while True:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(SETTLE_SECONDS)
        client = Client(port, key)
        for name, request in REQUESTS.items():
            crossings, files, pairs = traced(trace, client, request)
            print(f"{name}: {len(files)} files, {crossings} crossings")
            if with_pairs:
                print("".join(f"{count:4} {pair}\n" for pair, count in pairs))
            else:
                print("".join(f"  {each}\n" for each in files))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace", description=__doc__)
    parser.add_argument("--pairs", action="store_true", help="who calls whom, instead of the files")
    with_pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        environment = environment_for(Path(folder), ORDERS_PORT=str(port))
        key = run_flask(
            "keys", "issue", "trace", "--plan", "business", environment=environment
        ).stdout.strip()
        free.close()
        os.environ.update(environment)
        trace = Trace()
        client = threading.Thread(
            target=show, args=(trace, port, key), kwargs={"with_pairs": with_pairs}
        )
        client.start()
        threading.setprofile(trace)
        sys.setprofile(trace)
        with (Path(folder) / "log").open("w+", encoding="utf-8") as log:
            with redirect_stderr(log):  # a line for each request
                status = serve.main(create_app, with_demo=False)
            client.join()
            if status:
                log.seek(0)
                print(log.read(), file=sys.stderr)
        return status


if __name__ == "__main__":
    sys.exit(main())
