"""A year of a shop's orders as CSV, as `flask orders import` takes them."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from orders.demo import Life, lives
from orders.domain import Status, format_instant

COLUMNS = ("petId", "quantity", "shipDate", "status", "placedAt", "updatedAt", "reference")
YEAR = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[object, ...]


def rows(count: int, seed: int) -> Iterator[Row]:
    """Return the cells of so many orders; the same seed makes the same year."""
    return map(_row, lives(count, *YEAR, random.Random(seed)))


def write(path: Path, orders: Iterable[Row]) -> None:
    """Write a file of orders."""
    with path.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(orders)


def _row(life: Life) -> Row:
    status = Status.PENDING
    if life.cancelled_at:
        status = Status.CANCELLED
    elif life.shipped_at:
        status = Status.SHIPPED
    ship_date = life.shipped_at or life.expected
    updated_at = life.cancelled_at or life.shipped_at or life.placed_at
    return (
        life.pet_id,
        life.quantity,
        format_instant(ship_date) if ship_date else "",
        status.value,
        format_instant(life.placed_at),
        format_instant(updated_at),
        life.reference,
    )
