"""The panels of a dashboard as SVG, light or dark as the reader's system is. No library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from xml.sax.saxutils import escape

from tests.support.prometheus import Panel, Series

WIDTH = 1440
_COLUMNS = 24
_ROW = 26
_GAP = 8
_PAD = 12
_LINES_NAMED = 6
_NAME_CHARACTERS = 34
_COLORS = ("#1a7f5a", "#0969da", "#bf8700", "#cf222e", "#8250df", "#57606a", "#bc4c00", "#1b7c83")
_STYLE = """
    text { font: 11px system-ui, sans-serif; fill: #1f2328 }
    .page { fill: #f6f8fa } .panel { fill: #ffffff; stroke: #d0d7de }
    .title { font-weight: 600; font-size: 12px } .row { font-weight: 600; font-size: 14px }
    .big { font-size: 26px; font-weight: 600; fill: #1a7f5a } .axis { fill: #59636e }
    .grid { stroke: #d0d7de; stroke-width: 0.5 } .line { fill: none; stroke-width: 1.4 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .page { fill: #0d1117 } .panel { fill: #161b22; stroke: #30363d }
      .big { fill: #3fb988 } .axis { fill: #9198a1 } .grid { stroke: #30363d }
    }
"""
_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"))


def draw(title: str, found: Mapping[Panel, list[Series]]) -> str:
    """Return the panels, with the series that were found for each, as the text of an SVG file."""
    height = max(_bottom(panel) for panel in found) * _ROW + 2 * _GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
            f'  width="{WIDTH}" height="{height}" role="img" aria-labelledby="title">',
            f'  <title id="title">{escape(title)}</title>',
            f"  <style>{_STYLE}  </style>",
            f'  <rect class="page" width="{WIDTH}" height="{height}"/>',
            *(_panel(panel, series) for panel, series in found.items()),
            "</svg>\n",
        ]
    )


def shown(value: float, unit: str) -> str:
    """Return a value as Grafana shows it in a unit, or nearly so."""
    if unit == "percentunit":
        return f"{value * 100:.3g}%"
    size = abs(value)
    step, letter = next((each for each in _STEPS if size >= each[0]), (1, ""))
    if unit == "s" and step > 1:
        step, letter = 1, ""
    text = f"{value / step:.3g} {letter}".strip()
    return text + {"s": "s", "bytes": "B", "reqps": "/s", "ops": "/s"}.get(unit, "")


def _bottom(panel: Panel) -> int:
    return panel.box[1] + panel.box[3]


def _panel(panel: Panel, series: list[Series]) -> str:
    x, y, columns, rows = panel.box
    left, top = x * WIDTH / _COLUMNS + _GAP / 2, y * _ROW + _GAP
    width, height = columns * WIDTH / _COLUMNS - _GAP, rows * _ROW - _GAP / 2
    inside: Callable[..., str] = {"row": _heading, "stat": _figure}.get(panel.kind, _lines)
    return (
        f'  <g transform="translate({left:.1f} {top:.1f})">\n'
        f"{inside(panel, series, width, height)}\n  </g>"
    )


def _heading(panel: Panel, _: list[Series], __: float, height: float) -> str:
    return f'    <text class="row" x="0" y="{height - 6:.1f}">{escape(panel.title)}</text>'


def _figure(panel: Panel, series: list[Series], width: float, height: float) -> str:
    told = shown(series[0].points[-1][1], panel.unit) if series else "no data"
    name = series[0].name if series else ""
    return (
        f"{_box(panel, width, height)}\n"
        f'    <text class="big" x="{_PAD}" y="{height / 2 + 14:.1f}">{told}</text>\n'
        f'    <text class="axis" x="{_PAD}" y="{height - 12:.1f}">{escape(name)}</text>'
    )


def _box(panel: Panel, width: float, height: float) -> str:
    return (
        f'    <rect class="panel" width="{width:.1f}" height="{height:.1f}" rx="3"/>\n'
        f'    <text class="title" x="{_PAD}" y="18">{escape(panel.title)}</text>'
    )


def _lines(panel: Panel, series: list[Series], width: float, height: float) -> str:
    named = min(len(series), _LINES_NAMED)
    left, right, top = 52.0, width - _PAD, 30.0
    bottom = height - 14 - 13 * ((named + 1) // 2)
    most = max((value for each in series for _, value in each.points), default=0.0) or 1.0
    grid = []
    for part in (0.0, 0.5, 1.0):
        level = bottom - part * (bottom - top)
        told = shown(part * most, panel.unit)
        grid.append(f'    <path class="grid" d="M{left} {level:.1f}H{right:.1f}"/>')
        grid.append(
            f'    <text class="axis" x="{left - 6}" y="{level + 4:.1f}" text-anchor="end">{told}'
            "</text>"
        )
    times = [at for each in series for at, _ in each.points]
    first, last = min(times, default=0.0), max(times, default=1.0)
    drawn = []
    for number, each in enumerate(series):
        points = " ".join(
            f"{left + (at - first) / (last - first or 1) * (right - left):.1f},"
            f"{bottom - value / most * (bottom - top):.1f}"
            for at, value in each.points
        )
        color = _COLORS[number % len(_COLORS)]
        drawn.append(f'    <polyline class="line" stroke="{color}" points="{points}"/>')
    return "\n".join(
        [_box(panel, width, height), *grid, *drawn, *_names(panel, series, width, bottom + 18)]
    )


def _names(panel: Panel, series: list[Series], width: float, top: float) -> list[str]:
    names = []
    for number, each in enumerate(islice(series, _LINES_NAMED)):
        x, y = _PAD + (number % 2) * width / 2, top + 13 * (number // 2)
        told = f"{each.name[:_NAME_CHARACTERS]} {shown(each.points[-1][1], panel.unit)}"
        color = _COLORS[number % len(_COLORS)]
        names.append(
            f'    <rect x="{x:.1f}" y="{y - 8:.1f}" width="8" height="8" rx="2" fill="{color}"/>\n'
            f'    <text x="{x + 12:.1f}" y="{y:.1f}">{escape(told)}</text>'
        )
    return names
