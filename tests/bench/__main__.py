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
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import report
from tests.bench.machine import machine, versions
from tests.bench.rounds import Course
from tests.bench.stocks import Stocks
from tests.bench.works import FULL, SHORT, works
from tests.support.service import ROOT


def main() -> int:
    """Measure or report; return the exit status."""
    options = _parser().parse_args()
    if options.again:
        results = json.loads(options.again.read_text(encoding="utf-8"))
        report.write(results, works(FULL), options.again.parent)
        return 0
    if shutil.which("wrk") is None:
        print("wrk is needed and not installed: apt-get install wrk", file=sys.stderr)
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
    add = parser.add_argument
    add("--rounds", type=int, help="how often each is measured (7; short: 1)")
    add("--seconds", type=float, help="for how long, each time (1.5; short: 0.2)")
    add("--short", action="store_true", help="small data, to see that it works")
    add("--only", action="append", metavar="WORK", choices=names, help=", ".join(names))
    add("--into", type=Path, metavar="FOLDER", help="where to write")
    add("--seed", type=int, default=1, help="the same seed makes the same orders")
    add("--again", type=Path, metavar="FILE", help="only write the document of a performance.json")
    return parser


def _measure(options: argparse.Namespace) -> int:
    seconds = options.seconds or (0.2 if options.short else 1.5)
    rounds = options.rounds or (1 if options.short else 7)
    chosen = works(SHORT if options.short else FULL)
    began = time.monotonic()
    results = {"machine": machine(), "versions": versions(), "works": {}}
    with tempfile.TemporaryDirectory() as folder:
        course = Course(Stocks(Path(folder), options.seed), rounds, seconds, _status)
        for work in chosen:
            if not options.only or work.name in options.only:
                found = results["works"][work.name] = course.measure(work)
                _status("")
                print(*report.goal_lines(work, found), sep="\n", flush=True)
                for name, reason in found["left_out"].items():
                    print(f"left out: {name}: {reason}", flush=True)
    minutes = (time.monotonic() - began) / 60
    results["method"] = {"rounds": rounds, "seconds": seconds, "short": options.short}
    results["method"]["minutes"] = minutes
    # A part of the measure, or a short one, does not replace the whole one.
    is_whole = not (options.short or options.only)
    into = options.into or ROOT / ("docs" if is_whole else "build/performance")
    report.write(results, chosen, into)
    print(f"Written: {into / 'performance.md'}. Wrong answers of the service: {course.wrong}.")
    return 1 if course.wrong else 0


def _status(line: str) -> None:
    """Show the present step, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line[:100]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
