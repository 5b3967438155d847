"""Makes a year of a shop's orders as CSV, ready for `flask orders import`.

Run it as `python -m bench.year 10000 > year.csv`.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from datetime import UTC, datetime

from orders.domain import Status, format_instant
from orders.year import Life, lives


def main() -> None:
    """Write the year to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="how many orders")
    parser.add_argument("--year", type=int, default=2025)
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same year")
    arguments = parser.parse_args()
    begin = datetime(arguments.year, 1, 1, tzinfo=UTC)
    end = datetime(arguments.year + 1, 1, 1, tzinfo=UTC)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(
        ("petId", "quantity", "shipDate", "status", "placedAt", "updatedAt", "reference")
    )
    for life in lives(arguments.count, begin, end, random.Random(arguments.seed)):
        writer.writerow(row_of(life))


def row_of(life: Life) -> tuple[object, ...]:
    """Return the cells of an order."""
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


if __name__ == "__main__":
    main()
