"""The parts of `python -m bench` that read, judge and write. The measuring itself is .ci/run's."""

from __future__ import annotations

import sys

import pytest

from bench.speed import report, wrk
from bench.speed.measures import UnderLoad
from bench.speed.peers.all import BareFlask
from bench.speed.rounds import Course, Outcome
from bench.speed.stocks import Ask, Keys, Stocks
from bench.speed.works import OURS, RATE, Goal, Lane, Work

REPORT = """\
Running 10m test @ http://127.0.0.1:36207/v1/store/orders
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     4.41ms    3.05ms  34.20ms   88.97%
    Req/Sec     1.94k   346.96     2.46k    77.78%
  Latency Distribution
     50%  950.00us
     75%    4.96ms
     90%    7.41ms
     99%    1.25s
  3476 requests in 1.80s, 6.35MB read
  Non-2xx or 3xx responses: 12
Requests/sec:   1930.90
Transfer/sec:      3.53MB
"""


def test_a_report_of_wrk_is_read():
    errors = "  Socket errors: connect 0, read 2, write 1, timeout 3\n"
    # wrk puts a space behind whole seconds.
    spaced = REPORT.replace("1.25s", "1.25s ")
    load = wrk.parse(spaced.replace("  Non-2xx", errors + "  Non-2xx"))
    assert (load.requests, load.requests_per_second) == (3476, 1930.9)
    assert (load.p50, load.p99) == pytest.approx((0.95, 1250))
    assert (load.refused, load.broken) == (12, 6)


def test_any_other_output_of_wrk_is_a_failure():
    with pytest.raises(wrk.WrkFailed, match="unable to connect"):
        wrk.parse("unable to connect to 127.0.0.1:1 Connection refused\n")


LIST = Lane(OURS, UnderLoad("list", 200), Ask(20))
GET = Lane("the <other>", UnderLoad("list", 200), Ask(20), BareFlask)
FASTER = Goal(OURS, RATE, at_least=3, of=(GET.name, RATE), stretch=5)
STEADY = Goal(OURS, "p99_ms", at_most=10, of=(OURS, "p50_ms"))


def outcome(ours, theirs):
    """Return the outcome of a work in which this service and another had these rates."""
    work = Work("list", "listOrders", (LIST, GET), (FASTER, STEADY))
    figures = {"p50_ms": 1.0, "p99_ms": 11.0, "wrong": 0}
    rounds = {
        name: [{RATE: rate, **figures} for rate in rates]
        for name, rates in ((LIST.name, ours), (GET.name, theirs))
        if rates
    }
    return Outcome(work, rounds)


@pytest.mark.parametrize(
    ("ours", "theirs", "reached"),
    [
        ([300, 2, 900], [100, 100, 100], "yes"),
        ([299], [100], "**no**"),
        ([500], [100], "yes, and the stretch"),
        ([500], [], "not measured"),
    ],
)
def test_a_goal_is_judged_by_the_medians(ours, theirs, reached):
    goals = report.as_json(outcome(ours, theirs))["goals"]
    assert [goal["reached"] for goal in goals] == [reached, "**no**"]


def test_answers_that_were_not_meant_count_against_the_service_only():
    found = outcome([1], [1])
    found.rounds[GET.name][0]["wrong"] = 7
    found.failed = {GET.name}
    assert found.wrong == 0
    found.rounds[OURS][0]["wrong"] = 7
    found.failed |= {OURS}
    assert found.wrong == 8


class Broken(BareFlask):
    """A peer that ends at its start."""

    packages = ()

    def prepare(self):
        """Make no data."""

    def command(self):
        """Fail."""
        return [sys.executable, "-c", "raise SystemExit('broken')"]


def test_a_peer_that_does_not_start_is_left_out_and_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Stocks, "empty", tmp_path)
    monkeypatch.setattr(Stocks, "_keys", Keys("good", "spent", "unknown"))
    lanes = (
        Lane(Broken.name, UnderLoad("list", 200), Ask(20), Broken),
        Lane(OURS, lambda _: {RATE: 7}, Ask(20), None),
    )
    course = Course(Stocks(tmp_path, 1), 2, 0.01, lambda _: None)
    found = course.measure(Work("list", "listOrders", lanes))
    assert "broken" in found.left_out[Broken.name]
    assert found.medians(OURS) == {RATE: 7}
    assert found.wrong == 0


def test_the_document_has_every_work_goal_and_other_figure(tmp_path):
    found = outcome([300], [100])
    found.left_out["Datasette"] = "not installed"
    results = {
        "machine": {"cores": "2"},
        "versions": {"wrk": "4.1"},
        "method": {"rounds": 1, "seconds": 0.2, "short": True, "minutes": 3.2},
        "others": [{"words": "Pages", "command": "python -m pages", "printed": "9 ms"}],
        "works": [report.as_json(found)],
        "profile": {
            "getOrder": {
                "cpu_us": 200,
                "waited_us": 5,
                "layers": {"SQLAlchemy": {"cpu_us": 50, "waited_us": 5}},
                "load": {RATE: 2000, "cpu_us": 420},
            },
            "import": {
                "cpu_us": 30,
                "waited_us": 1,
                "layers": {"checking rows": {"cpu_us": 6, "waited_us": 0}},
                "load": {"rows_per_second": 25_000, "cpu_us": 35},
            },
        },
    }
    report.write(results, tmp_path)
    document = (tmp_path / "performance.md").read_text(encoding="utf-8")
    for line in (
        "figures mean nothing",
        f"| {OURS}: requests/s / the <other> | at least 3 (5 is the stretch) | 3 | yes |",
        f"| {OURS} | 300 | 1 | 11 |  |",
        "| the <other> | 100 | 1 | 11 | 3 |",
        "Left out: Datasette (not installed).",
        "| SQLAlchemy | 50 | 25% | 5 |",
        "| server, threads, sockets: above that | 220 |",
        "| **the whole command, 25,000 rows/s** | 35 |",
        "Pages: `python -m pages`\n\n```text\n9 ms\n```",
        "took 3 minutes",
        "| cores | 2 |",
    ):
        assert line in document
    assert "$" not in document
