"""Tables on a terminal."""

from __future__ import annotations

from datetime import datetime

import click

from orders import domain


def time_text(instant: datetime | None) -> str | None:
    """Return an instant as the API writes it, or None."""
    return None if instant is None else domain.format_instant(instant)


def print_table(rows: list[dict[str, object]]) -> None:
    """Print rows that have the same names, of which there is one at least, in columns."""
    cells = [list(rows[0])] + [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    text = ",".join(value) if isinstance(value, list) else str(value)
    # An endpoint's answer is not to steer a terminal.
    return "".join(each if each.isprintable() else " " for each in text)
