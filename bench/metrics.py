"""What metrics cost: requests with them and without, in turns, and reading them.

Run it as `python -m bench.metrics`. Everything is in one process and without a network, so that
microseconds can be seen: a request for one order, answered by the application itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flask import Flask

from app import create_app
from orders.settings import Settings
from orders.web.services import services_of
from tests.support import stores as store

PLENTY = 1_000_000_000
ROUNDS = 60
A_ROUND = 100
READINGS = 100


def main() -> int:
    """Measure and print; return the exit status."""
    argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        instance = Path(folder) / "instance"
        (key,) = store.make(instance, [(PLENTY, PLENTY)])
        settings = replace(Settings(), instance=instance)
        off, on = (create_app(replace(settings, metrics=each)) for each in (False, True))
        place(off, key)
        without, with_them = times(lambda: look(off, key), lambda: look(on, key))
        reading = each_takes(lambda: on.test_client().get("/metrics", buffered=True), READINGS)
        for app in (off, on):
            services_of(app).database.close()
    print(f"a request  {without * 1e6:.1f} µs without, {with_them * 1e6:.1f} µs with metrics")
    print(f"counting   {(with_them - without) * 1e6:.1f} µs a request")
    print(f"reading    {reading * 1e3:.1f} ms")
    return 0


def times(*works: Callable[[], object]) -> list[float]:
    """Return the seconds of a processor that each takes, in the best of many rounds in turns."""
    rounds = [[each_takes(work, A_ROUND) for work in works] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*rounds, strict=True)]


def each_takes(work: Callable[[], object], times: int) -> float:
    """Return the seconds of a processor that something takes when it is done so often."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def place(app: Flask, key: str) -> None:
    """Place the order that is looked at."""
    headers = {"Authorization": f"Bearer {key}"}
    app.test_client().post("/v1/store/orders", json={"petId": 7}, headers=headers).close()


def look(app: Flask, key: str) -> None:
    """Ask for one order, as a server would: no more is made of it than must be."""
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/v1/store/orders/1",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {key}",
        "wsgi.url_scheme": "http",
    }
    answer = app.wsgi_app(environ, lambda *_: None)
    b"".join(answer)
    answer.close()


if __name__ == "__main__":
    sys.exit(main())
