"""The figures as JSON, and from the JSON docs/performance.md."""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Any

from tests.bench.speed.peers.all import EVERYBODY
from tests.bench.speed.rounds import Outcome
from tests.bench.speed.works import OURS, RATE, Goal, Work

# The figures' names for readers, in the order of a table's columns.
FIGURES = {
    "requests_per_second": "requests/s",
    "rows_per_second": "rows/s",
    "seconds": "seconds",
    "request_us": "µs a request",
    "order_us": "µs an order",
    "first_byte_ms": "first byte, ms",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "cpu_us": "CPU, µs a request",
    "peak_mib": "peak memory, MiB",
    "grown_mib": "memory above the start, MiB",
    "megabytes": "memory after it, MB",
    "connections": "connections",
    "wrong": "wrong answers",
}
_TEMPLATE = Path(__file__).with_name("performance.template.md")
# The rate, and the words of a profile's last rows.
_OF_REQUESTS = (
    RATE,
    "in the process, one client",
    "server, threads, sockets",
    "under load, {} requests/s",
)
_OF_ROWS = (
    "rows_per_second",
    "a row, in a process that has started",
    "start and end of the process",
    "the whole command, {} rows/s",
)
_NAME = "performance"
_OTHER = "{words}: `{command}`\n\n```text\n{printed}\n```"
Json = dict[str, Any]


def as_json(outcome: Outcome) -> Json:
    """Return a work and its figures as JSON."""
    work = outcome.work
    return {
        "name": work.name,
        "title": work.title,
        "note": work.note,
        "lanes": {
            lane.name: {
                "orders": lane.stock.count,
                "median": outcome.medians(lane.name),
                "rounds": outcome.rounds[lane.name],
            }
            for lane in work.lanes
            if lane.name in outcome.rounds
        },
        "left_out": outcome.left_out,
        "goals": [_goal(work, goal, outcome.value(goal)) for goal in work.goals],
    }


def write(results: Json, folder: Path) -> None:
    """Write performance.json and performance.md into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{_NAME}.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (folder / f"{_NAME}.md").write_text(document(results), encoding="utf-8")


def document(results: Json) -> str:
    """Return the whole document."""
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        rounds=results["method"]["rounds"],
        seconds=f"{results['method']['seconds']:g}",
        minutes=f"{results['method']['minutes']:.0f}",
        short="" if not results["method"]["short"] else _SHORT,
        goals="\n".join(goal_lines(results)),
        works="\n\n".join(_section(work) for work in results["works"]),
        profiles="\n\n".join(
            profile_table(name, each) for name, each in results["profile"].items()
        ),
        others="\n\n".join(_OTHER.format(**each) for each in results["others"]),
        contestants="\n".join(f"| {each.name} | {each.about} |" for each in EVERYBODY),
        machine=_pairs(results["machine"]),
        versions=_pairs(results["versions"]),
    )


_SHORT = (
    "\n**This is the short form, over small data and for fractions of a second: it shows that the "
    "measure works, and its figures mean nothing.**\n"
)


def number(value: float) -> str:
    """Return a figure as people read it: three digits, or all digits of what is larger."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goal_lines(results: Json) -> list[str]:
    """Return the rows of the table of goals."""
    return [
        f"| {goal['work']} | {goal['what']} | {goal['bound']} | "
        f"{'' if goal['value'] is None else number(goal['value'])} | {goal['reached']} |"
        for work in results["works"]
        for goal in work["goals"]
    ]


def profile_table(operation: str, profile: Json) -> str:
    """Return an operation's layers as a table."""
    whole, load = profile["cpu_us"], profile["load"]
    rows = [
        _row(name, each["cpu_us"], f"{each['cpu_us'] / whole:.0%}", each["waited_us"])
        for name, each in profile["layers"].items()
    ]
    rate, work, above, all_of_it = _OF_ROWS if "rows_per_second" in load else _OF_REQUESTS
    rows.append(_row(f"**{work}**", whole, "", profile["waited_us"]))
    if load:
        rows.append(_row(f"{above}: above that", load["cpu_us"] - whole))
        rows.append(_row(f"**{all_of_it.format(number(load[rate]))}**", load["cpu_us"]))
    head = ["| layer | CPU, µs | share | waited, µs |", "|---|--:|--:|--:|"]
    return "\n".join([f"### {operation}", "", *head, *rows])


def _row(name: str, cpu: float, share: str = "", waited: float | None = None) -> str:
    cells = [name, number(cpu), share, "" if waited is None else number(waited)]
    return f"| {' | '.join(cells)} |"


def _goal(work: Work, goal: Goal, value: float | None) -> Json:
    reached = "not measured"
    if value is not None:
        reached = "yes" if goal.is_reached(value) else "**no**"
        if goal.stretch is not None and value >= goal.stretch:
            reached = "yes, and the stretch"
    bound = f"at least {goal.at_least:,g}" if goal.at_least is not None else None
    bound = bound or f"at most {goal.at_most:,g}"
    if goal.stretch is not None:
        bound += f" ({goal.stretch:g} is the stretch)"
    return {
        "work": work.title,
        "what": _what(goal),
        "bound": bound,
        "value": value,
        "reached": reached,
    }


def _what(goal: Goal) -> str:
    """Return a goal in words: `A: requests/s / B`."""
    text = f"{goal.lane}: {FIGURES[goal.figure]}"
    if goal.of is None:
        return text
    lane, figure = goal.of
    if lane == goal.lane:
        return f"{text} / {FIGURES[figure]}"
    return f"{text} / {lane}"


def _section(work: Json) -> str:
    lines = [f"### {work['title']}", ""]
    lines += _table(work["lanes"])
    lines += [f"\nLeft out: {name} ({reason})." for name, reason in work["left_out"].items()]
    if work["note"]:
        lines += ["", work["note"]]
    return "\n".join(lines)


def _table(lanes: Json) -> list[str]:
    medians = {name: lane["median"] for name, lane in lanes.items()}
    columns = [
        name
        for name in FIGURES
        if any(name in each for each in medians.values())
        and (name != "wrong" or any(each.get(name) for each in medians.values()))
    ]
    ours = medians.get(OURS, {}).get(RATE)
    compares = ours is not None and len(medians) > 1
    head = ["", *(FIGURES[name] for name in columns), *(["ours / theirs"] if compares else [])]
    rows = [f"| {' | '.join(head)} |", f"|---{'|--:' * (len(head) - 1)}|"]
    for lane, figures in medians.items():
        cells = [lane, *(number(figures[name]) if name in figures else "" for name in columns)]
        if compares:
            is_other = lane != OURS and figures.get(RATE)
            cells.append(number(ours / figures[RATE]) if is_other else "")
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _pairs(facts: dict[str, str]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in facts.items())
