"""The figures as JSON, and docs/performance.md with how they compare with the goals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.works import Goal, Work
from tests.support.service import ROOT

DOCUMENT = ROOT / "docs" / "performance.md"
# The text between these lines is regenerated.
_MEASURED = re.compile(r"(?<=<!-- measured -->\n).*(?=<!-- end -->)", re.DOTALL)
_HEAD = "| work | requests/s beside, or what is named | goal | measured |\n|---|---|---|--:|"
_OWN = "Store Orders: "
# The figures' names for readers.
FIGURES = {
    "requests_per_second": "requests/s",
    "rows_per_second": "rows/s",
    "request_us": "µs a request",
    "order_us": "µs an order",
    "first_byte_ms": "first byte, ms",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "grown_mib": "memory above the start, MiB",
    "megabytes": "memory after it, MB",
}
Json = dict[str, Any]


def write(results: Json, works: tuple[Work, ...], folder: Path) -> None:
    """Write performance.json and performance.md into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    (folder / "performance.json").write_text(raw, encoding="utf-8")
    measured = "\n".join(_lines(results, works)) + "\n"
    text = _MEASURED.sub(lambda _: measured, DOCUMENT.read_text(encoding="utf-8"))
    (folder / DOCUMENT.name).write_text(text, encoding="utf-8")


def _lines(results: Json, works: tuple[Work, ...]) -> Iterator[str]:
    yield _HEAD
    for work in works:
        if work.name in results["works"]:
            yield from goal_lines(work, results["works"][work.name])
    yield ""
    method = results["method"]
    if method["short"]:
        yield "**The short form, over small data: it shows that it works, and means nothing.**\n"
    yield f"Medians of {method['rounds']} rounds of {method['seconds']:g} s each."
    yield f"Machine: {_pairs(results['machine'])}. Versions are in performance.json."


def goal_lines(work: Work, found: Json) -> Iterator[str]:
    """Yield the rows of a work's goals: its title in the first, and bold what is not reached."""
    for number, goal in enumerate(work.goals):
        title = "" if number else work.title
        value = value_of(goal, found["lanes"])
        shown = "not measured" if value is None else _shown(value)
        if value is not None and not goal.is_reached(value):
            shown = f"**{shown}**"
        yield f"| {title} | {_what(goal)} | {_bound(goal)} | {shown} |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def value_of(goal: Goal, lanes: Json) -> float | None:
    """Return a goal's figure or ratio; None where it was not measured."""
    value, of = (
        lanes.get(lane, {}).get("median", {}).get(figure)
        for lane, figure in ((goal.lane, goal.figure), goal.of or ("", ""))
    )
    if goal.of is None or value is None:
        return value
    return value / of if of else None


def _bound(goal: Goal) -> str:
    return f"≥ {goal.at_least:g}" if goal.at_most is None else f"≤ {goal.at_most:g}"


def _what(goal: Goal) -> str:
    text = f"{goal.lane}: {FIGURES.get(goal.figure, goal.figure)}".removeprefix(_OWN)
    if goal.of is None:
        return text
    lane, figure = goal.of
    if goal.figure == figure == "requests_per_second" and text == FIGURES[figure]:
        return lane
    return f"{text} / {FIGURES[figure] if lane == goal.lane else lane}"


def _pairs(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
