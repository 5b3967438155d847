"""Measures version 2's pages of orders at 1,000 and at 1,000,000 orders, in steps and milliseconds.

Run it as `python -m bench.pages`. A step is one of SQLite's virtual machine: their number is the
same each time, whatever else the machine does. Of each sort and filter it reads the first page and
the last one, and tells the dearest. It ends with 1 where a page of one filter takes more steps than
any page of 50 orders should.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

from orders import demo
from orders.clock import Clock
from orders.domain import MAX_INT64, Status, format_instant
from orders.files.faults import Faults
from orders.files.rows import Cells
from orders.service import OrderService
from orders.store.care import opening
from orders.store.database.sqlite import SqliteDatabase
from orders.store.paging import Filters, PageQuery, Position, read_page
from orders.store.walks import Sort, SortBy

SIZE = 50
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
END = datetime(2026, 1, 1, tzinfo=UTC)
# One order in so many has a pet, and a reference, of those that are asked for.
RARE = 10_000
PETS = 20
WEEK = timedelta(days=7)
# What a page of 50 orders takes at most, in any store: about 75 steps for each, and as much again
# where those without a date follow.
MOST_STEPS = 7_500


class Steps:
    """Counts the steps that SQLite takes."""

    def __init__(self) -> None:
        """Count those of all connections that are opened from now on."""
        self.taken = 0
        event.listen(Pool, "connect", self._watch)

    def close(self) -> None:
        """Watch no more connections."""
        event.remove(Pool, "connect", self._watch)

    def _watch(self, connection: Any, _: object) -> None:
        connection.set_progress_handler(self._count, 1)

    def _count(self) -> None:
        self.taken += 1


def rows(number: int, chance: random.Random) -> Iterator[tuple[int, Cells]]:
    """Return the orders of two years, as the rows of a file."""
    for line, life in enumerate(demo.lives(number, BEGIN, END, chance), start=1):
        ship_date = life.shipped_at or life.expected
        status = Status.SHIPPED if life.shipped_at else Status.PENDING
        yield (
            line,
            {
                "petId": chance.randint(1, PETS) if line % 2 else PETS + 1 + line % RARE,
                "status": Status.CANCELLED.value if life.cancelled_at else status.value,
                "placedAt": format_instant(life.placed_at),
                "reference": f"R-{line % RARE}",
                **({"shipDate": format_instant(ship_date)} if ship_date else {}),
            },
        )


def filled(folder: Path, number: int, seed: int) -> SqliteDatabase:
    """Make a database of so many orders."""
    path = folder / f"{number}.db"
    opening.create(path)
    database = SqliteDatabase(path)
    OrderService(database, Clock()).import_orders(rows(number, random.Random(seed)), Faults())
    return database


@dataclass(frozen=True)
class Case:
    """A listing: its name, and what is asked."""

    name: str
    filters: Filters
    sort: Sort

    def begins(self, database: SqliteDatabase) -> dict[str, Position | None]:
        """Return where its first page and its last one begin."""
        backwards = Sort(self.sort.by, not self.sort.falling)
        if self.sort.by is SortBy.SHIP_DATE and self.filters.ships_from is None:
            # Those without a date come last both ways.
            last = Position(None, MAX_INT64 if self.sort.falling else 0)
        else:
            query = PageQuery(self.filters, backwards, SIZE // 2)
            last = read_page(database, query).next
        return {"first": None, "last": last}


EXACT = {
    "all": Filters(),
    "pending": Filters(statuses=(Status.PENDING,)),
    "not shipped": Filters(statuses=(Status.PENDING, Status.CANCELLED)),
    "a rare pet": Filters(pet_id=PETS + 1 + 4),
    "a frequent pet": Filters(pet_id=7),
    "a rare reference": Filters(reference="R-4"),
}
COMBINED = {
    "pet and shipped": Filters(pet_id=7, statuses=(Status.SHIPPED,)),
    "pet and pending": Filters(pet_id=7, statuses=(Status.PENDING,)),
    "pet and reference": Filters(pet_id=PETS + 1 + 4, reference="R-4"),
    "placed in the last week": Filters(placed_from=END - WEEK),
    "placed in the first week": Filters(placed_before=BEGIN + WEEK),
    "placed in the second year": Filters(placed_from=END - 52 * WEEK),
    "ships in the last week": Filters(ships_from=END - WEEK),
    "pet, in the last week": Filters(pet_id=7, placed_from=END - WEEK),
}


def cases(named: dict[str, Filters]) -> Iterator[Case]:
    """Return the listings of filters in each sort."""
    for name, filters in named.items():
        for by in SortBy:
            for falling in (False, True):
                sign = "-" if falling else ""
                yield Case(f"{name}, by {sign}{by.value}", filters, Sort(by, falling))


def steps_of(database: SqliteDatabase, steps: Steps, query: PageQuery) -> int:
    """Return the steps that a page takes. Reading it once before prepares its statements."""
    read_page(database, query)
    steps.taken = 0
    read_page(database, query)
    return steps.taken


def milliseconds_of(database: SqliteDatabase, query: PageQuery) -> float:
    """Return the least of five times that a page takes."""
    least = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        read_page(database, query)
        least = min(least, time.perf_counter() - begin)
    return least * 1000


def measure(databases: list[SqliteDatabase], steps: Steps, case: Case) -> dict[str, list[int]]:
    """Return the steps that the pages of a case take at each database, by which page it is."""
    begins = [case.begins(database) for database in databases]
    return {
        which: [
            steps_of(database, steps, PageQuery(case.filters, case.sort, SIZE, each[which]))
            for database, each in zip(databases, begins, strict=True)
        ]
        for which in ("first", "last")
    }


def main() -> int:
    """Measure; give 1 where a page of one filter costs more at a million orders."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--orders", type=int, default=1_000_000, help="in the larger store")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = (1_000, arguments.orders)
        for size in sizes:
            filled(Path(folder), size, arguments.seed).close()
        steps = Steps()
        counted = [SqliteDatabase(Path(folder) / f"{size}.db") for size in sizes]
        worst = {name: _worst(counted, steps, named) for name, named in KINDS.items()}
        steps.close()
        timed = SqliteDatabase(Path(folder) / f"{sizes[-1]}.db")
        for name, (case, which, taken) in worst.items():
            begin = case.begins(timed)[which]
            least = milliseconds_of(timed, PageQuery(case.filters, case.sort, SIZE, begin))
            print(
                f"{name}: at worst {taken[-1]:,} steps and {least:.2f} ms at {sizes[-1]:,} orders, "
                f"{taken[0]:,} steps at {sizes[0]:,} ({which} page of {case.name})"
            )
    case, which, taken = worst["one filter"]
    return int(taken[-1] > MOST_STEPS)


KINDS = {"one filter": EXACT, "several, or a range in another sort": COMBINED}


def _worst(
    databases: list[SqliteDatabase], steps: Steps, named: dict[str, Filters]
) -> tuple[Case, str, list[int]]:
    found: list[tuple[Case, str, list[int]]] = []
    for case in cases(named):
        if sys.stderr.isatty():
            print(f"\r{case.name:60}", end="", file=sys.stderr)
        found += [(case, *each) for each in measure(databases, steps, case).items()]
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return max(found, key=lambda each: each[2][-1])


if __name__ == "__main__":
    sys.exit(main())
