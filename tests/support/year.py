"""A year of a believable shop's orders as CSV, as `flask orders import` takes them.

With seasons, weekdays, opening hours, cancellations and late shipping.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orders.domain import Status, format_instant

COLUMNS = ("petId", "quantity", "shipDate", "status", "placedAt", "updatedAt", "reference")
YEAR = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[object, ...]

# How busy the months, the days of the week (from Monday) and the hours of the day are.
_MONTHS = (0.8, 0.8, 1.0, 1.2, 1.2, 1.0, 0.7, 0.7, 1.0, 1.0, 1.2, 1.9)
_WEEKDAYS = (0.9, 0.8, 0.9, 1.0, 1.3, 1.6, 0.4)
_HOURS = (1, 0, 0, 0, 0, 1, 2, 4, 7, 10, 11, 11, 9, 8, 9, 10, 11, 12, 12, 10, 9, 8, 5, 2)
_QUANTITIES = (1, 1, 1, 1, 1, 1, 2, 2, 3, 6)
_CANCELLED = 0.06
_LATE = 0.12
_DATE_IS_KNOWN = 0.8
_SUNDAY = 6


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


@dataclass(frozen=True, slots=True)
class Life:
    """An order and its fate. `shipped_at` and `cancelled_at` are None if that has not happened."""

    placed_at: datetime
    pet_id: int
    quantity: int
    expected: datetime | None
    shipped_at: datetime | None
    cancelled_at: datetime | None
    reference: str


def lives(
    count: int, begin: datetime, end: datetime, chance: random.Random, pets: int = 50
) -> Iterator[Life]:
    """Yield this many orders, placed from `begin` until before `end`, in the order of placing.

    Nothing has happened yet that would happen after `end`. Pets are numbered from 1. The same
    `chance` makes the same orders.
    """
    days = [begin + timedelta(days=day) for day in range(max(1, (end - begin).days))]
    busy = [_MONTHS[day.month - 1] * _WEEKDAYS[day.weekday()] for day in days]
    moments = (
        _moment(day, chance).replace(microsecond=0) for day in chance.choices(days, busy, k=count)
    )
    for number, placed_at in enumerate(sorted(min(moment, end) for moment in moments), start=1):
        yield _live(number, placed_at, end, chance, pets)


def _moment(day: datetime, chance: random.Random) -> datetime:
    (hour,) = chance.choices(range(24), _HOURS)
    return day.replace(hour=0, minute=0, second=0) + timedelta(
        hours=hour, seconds=chance.randrange(3600)
    )


def _live(
    number: int, placed_at: datetime, end: datetime, chance: random.Random, pets: int
) -> Life:
    expected = _working_day(placed_at + timedelta(days=chance.choice((1, 1, 2, 2, 3))))
    done_at = expected.replace(hour=9 + chance.randrange(8), minute=chance.randrange(60))
    if chance.random() < _LATE:
        done_at = _working_day(done_at + timedelta(days=chance.randint(2, 6)))
    cancelled_at = None
    if chance.random() < _CANCELLED:
        cancelled_at = placed_at + timedelta(minutes=chance.randrange(5, 24 * 60))
        done_at = end + timedelta(days=1)
    return Life(
        placed_at,
        # A few pets are what most people want.
        1 + int(pets * chance.random() ** 2),
        chance.choice(_QUANTITIES),
        expected if chance.random() < _DATE_IS_KNOWN else None,
        done_at if done_at < end else None,
        cancelled_at if cancelled_at and cancelled_at < end else None,
        f"{placed_at:%Y%m}-{number:06}",
    )


def _working_day(moment: datetime) -> datetime:
    return moment + timedelta(days=1) if moment.weekday() == _SUNDAY else moment
