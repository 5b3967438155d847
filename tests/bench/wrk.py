"""Runs wrk, which loads a server with requests over kept connections, and reads its report."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLIENTS = 8
_SCRIPT = Path(__file__).with_name("wrk.lua")
# wrk counts whole seconds only; it is interrupted instead, as by Ctrl-C.
_NEVER = "600s"
_GRACE_SECONDS = 30
_MOST_SECONDS = 30
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1_000.0, "m": 60_000.0}


class WrkFailed(Exception):
    """wrk printed no report. The message is what it printed instead."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, sent over and over. With `first`, paths end in numbers counted up from it."""

    method: str
    url: str
    headers: dict[str, str]
    body: str = ""
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The report of a run. Times are in milliseconds; `refused` are neither 2xx nor 3xx."""

    requests: int
    requests_per_second: float
    p50: float
    p99: float
    refused: int
    broken: int


def run(request: Request, seconds: float, clients: int = CLIENTS) -> Load:
    """Send the request from so many clients at a time, for so many seconds.

    Raises:
        WrkFailed: it could not.
    """
    process = _begin(request, clients)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        printed, _ = process.communicate(timeout=_GRACE_SECONDS)
    finally:
        process.kill()
    load = parse(printed)
    if load.requests:
        return load
    if seconds > _MOST_SECONDS:
        raise WrkFailed(f"no answer within {seconds} s")
    # On a busy machine a fraction of a second may pass without an answer.
    return run(request, 4 * seconds, clients)


@contextmanager
def going_on(request: Request, clients: int) -> Iterator[None]:
    process = _begin(request, clients)
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def _begin(request: Request, clients: int) -> subprocess.Popen[str]:
    command = ["wrk", "-t1", f"-c{clients}", "-d", _NEVER, "--timeout", "60s", "--latency"]
    for name, value in request.headers.items():
        command += ["-H", f"{name}: {value}"]
    command += ["-s", str(_SCRIPT), request.url, "--", request.method, request.body]
    if request.first is not None:
        command.append(str(request.first))
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def parse(printed: str) -> Load:
    """Read what wrk prints with --latency.

    Raises:
        WrkFailed: it is not that.
    """
    requests = re.search(r"(\d+) requests in ", printed)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    if requests is None or rate is None:
        raise WrkFailed(printed.strip())
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", printed)
    errors = re.search(r"Socket errors: (.*)", printed)
    return Load(
        int(requests[1]),
        float(rate[1]),
        _percentile(printed, 50),
        _percentile(printed, 99),
        int(refused[1]) if refused else 0,
        sum(map(int, re.findall(r"\d+", errors[1]))) if errors else 0,
    )


def _percentile(printed: str, percent: int) -> float:
    # Whole seconds are followed by a space, so that columns align.
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m) *$", printed, re.MULTILINE)
    if found is None:
        raise WrkFailed(printed.strip())
    return float(found[1]) * _MILLISECONDS[found[2]]
