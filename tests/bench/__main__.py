"""How fast the service is, beside its peers, in one run: `python -m tests.bench --help`.

It needs wrk (apt-get install wrk), and leaves out peers that are not installed:
  pip install -e '.[bench]'
  npm install --prefix build/json-server json-server@0.17
It writes performance.json and performance.md: a full run, which takes about 25 minutes on two
cores, into docs/, any other into build/performance/.
Exit status 1: the service gave wrong answers; 2: wrk is missing. Goals that are missed are printed,
and change no exit status.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.speed import profile as profiles
from tests.bench.speed import report, wrk
from tests.bench.speed.machine import machine, versions
from tests.bench.speed.others import Other, others
from tests.bench.speed.rounds import Course, Outcome
from tests.bench.speed.stocks import Stocks
from tests.bench.speed.works import FULL, SHORT, works
from tests.support.service import ROOT

_PROFILED = ("listOrders", "notModified", "getOrder", "placeOrder", *profiles.COMMANDS)
_PROFILED_IN_SHORT = ("listOrders",)
_SHORT_SECONDS = 0.2


def main(arguments: list[str]) -> int:
    """Measure, profile or report; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "profile":
        return _profile(options)
    if options.command == "report":
        results = json.loads(options.file.read_text(encoding="utf-8"))
        report.write(results, options.file.parent)
        return 0
    if not wrk.is_installed():
        print(wrk.MISSING, file=sys.stderr)
        return 2
    # So that the servers end, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return _measure(options)


def _parser() -> argparse.ArgumentParser:
    names = [work.name for work in works(FULL)]
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="how often each is measured (7; short: 1)")
    parser.add_argument("--seconds", type=float, help="for how long, each time (1.5; short: 0.2)")
    parser.add_argument("--short", action="store_true", help="small data, to see that it works")
    parser.add_argument(
        "--only", action="append", metavar="WORK", choices=names, help=", ".join(names)
    )
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where to write")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same orders")
    commands = parser.add_subparsers(dest="command")
    words = "shows where a request's time goes, or a row's, layer by layer"
    one = commands.add_parser("profile", help=words, description=f"{words.capitalize()}.")
    one.add_argument("operation", choices=(*profiles.OPERATIONS, *profiles.COMMANDS))
    one.add_argument("--seconds", type=float, default=3)
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--json", action="store_true", help="for programs")
    words = "writes the document again from performance.json"
    again = commands.add_parser("report", help=words, description=f"{words.capitalize()}.")
    again.add_argument("file", type=Path)
    return parser


def _profile(options: argparse.Namespace) -> int:
    found = profiles.profile(options.operation, options.seconds, options.seed).as_json()
    print(json.dumps(found) if options.json else report.profile_table(options.operation, found))
    return 0


def _measure(options: argparse.Namespace) -> int:
    seconds = options.seconds or (_SHORT_SECONDS if options.short else 1.5)
    rounds = options.rounds or (1 if options.short else 7)
    began = time.monotonic()
    results: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "method": {"rounds": rounds, "seconds": seconds, "short": options.short},
    }
    with tempfile.TemporaryDirectory() as folder:
        course = Course(Stocks(Path(folder), options.seed), rounds, seconds, _status)
        outcomes = [
            _shown(course.measure(work))
            for work in works(SHORT if options.short else FULL)
            if not options.only or work.name in options.only
        ]
    results["works"] = [report.as_json(outcome) for outcome in outcomes]
    profiled = _PROFILED_IN_SHORT if options.short else _PROFILED
    results["profile"] = {name: _layers(name, seconds) for name in profiled if not options.only}
    wanted = () if options.only else others(short=options.short)
    results["others"] = [_of_other(each) for each in wanted]
    results["method"]["minutes"] = (time.monotonic() - began) / 60
    into = options.into or _where(options)
    report.write(results, into)
    wrong = sum(outcome.wrong for outcome in outcomes)
    print(f"Written: {into / 'performance.md'}. Wrong answers of the service: {wrong}.")
    return 1 if wrong else 0


def _where(options: argparse.Namespace) -> Path:
    # A part of the measure, or a short one, does not replace the whole one.
    is_whole = not (options.short or options.only)
    return ROOT / "docs" if is_whole else ROOT / "build" / "performance"


def _shown(outcome: Outcome) -> Outcome:
    """Print a work's goals and who was left out."""
    work = report.as_json(outcome)
    for goal in work["goals"]:
        value = "-" if goal["value"] is None else f"{goal['value']:.2f}"
        reached = goal["reached"].strip("*")
        _say(f"{work['title']}; {goal['what']}: {value}, {goal['bound']}: {reached}")
    for name, reason in work["left_out"].items():
        _say(f"{work['title']}: left out {name}: {reason}")
    return outcome


def _layers(operation: str, seconds: float) -> dict[str, Any]:
    """Profile in a process of its own: a measurement leaves nothing behind in this one."""
    _status(f"Profiling {operation}")
    command = [sys.executable, "-m", "bench", "profile", operation, "--json"]
    done = subprocess.run(
        [*command, "--seconds", str(seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _of_other(other: Other) -> dict[str, str]:
    _status(f"Running {other.command}")
    return other.run()


def _say(line: str) -> None:
    _status("")
    print(line, flush=True)


def _status(line: str) -> None:
    """Show the present step, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line[:100]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
