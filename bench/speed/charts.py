"""Bar charts as SVG, light or dark as the reader's system is. No library: they are a few boxes."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 720
_LABELS = 190
_NUMBERS = 70
_BAR, _GAP, _TOP = 22, 10, 46
_STYLE = """
    text { font: 14px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600 }
    .unit { fill: #59636e }
    .bar { fill: #9aa4b0 }
    .ours { fill: #1a7f5a }
    .name.ours { font-weight: 600; fill: #1f2328 }
    @media (prefers-color-scheme: dark) {
      text, .name.ours { fill: #e6edf3 }
      .unit { fill: #9198a1 }
      .bar { fill: #59636e }
      .bar.ours { fill: #3fb988 }
    }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: what it is of, how long it is, and whether it is this service's."""

    label: str
    value: float
    is_ours: bool = False


def chart(title: str, unit: str, bars: list[Bar]) -> str:
    """Return a chart of horizontal bars, longest first, as the text of an SVG file."""
    longest = max(bar.value for bar in bars)
    height = _TOP + len(bars) * (_BAR + _GAP)
    described = "; ".join(f"{bar.label}: {number(bar.value)}" for bar in bars)
    ordered = sorted(bars, key=lambda bar: -bar.value)
    rows = [_row(bar, _TOP + nth * (_BAR + _GAP), longest) for nth, bar in enumerate(ordered)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
            f'  width="{WIDTH}" height="{height}" role="img" aria-labelledby="title figures">',
            f'  <title id="title">{escape(title)}</title>',
            f'  <desc id="figures">{escape(f"{unit}. {described}")}</desc>',
            f"  <style>{_STYLE}  </style>",
            f'  <text class="title" x="0" y="20">{escape(title)}</text>',
            f'  <text class="unit" x="{WIDTH}" y="20" text-anchor="end">{escape(unit)}</text>',
            *rows,
            "</svg>\n",
        ]
    )


def number(value: float) -> str:
    """Return a figure as people read it: three digits, or all digits of what is larger."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def _row(bar: Bar, top: int, longest: float) -> str:
    ours = " ours" if bar.is_ours else ""
    width = max(2.0, (WIDTH - _LABELS - _NUMBERS) * bar.value / longest) if longest else 2.0
    baseline = top + _BAR * 0.72
    return (
        f'  <text class="name{ours}" x="{_LABELS - 10}" y="{baseline:.0f}" '
        f'text-anchor="end">{escape(bar.label)}</text>\n'
        f'  <rect class="bar{ours}" x="{_LABELS}" y="{top}" width="{width:.1f}" '
        f'height="{_BAR}" rx="2"/>\n'
        f'  <text x="{_LABELS + width + 8:.1f}" y="{baseline:.0f}">{number(bar.value)}</text>'
    )
