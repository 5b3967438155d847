"""The table of days: how many orders were placed, shipped and cancelled on each.

Triggers on the event log keep it (migration 0005), so that a year's figures are a year's rows
however many orders there are; what an import brings is added here. An order is placed on the day
of `placedAt`, shipped on that of `shipDate`, and cancelled on that of the cancelling event; an
imported one on that of `updatedAt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    String,
    bindparam,
    cast,
    func,
    insert,
    literal_column,
    select,
    union_all,
    update,
)

from orders.domain import Status
from orders.store.database.engine import Database
from orders.store.database.queries import Query
from orders.store.tables import DayRow

COLUMNS = [column.name for column in DayRow.__table__.columns]
_COUNTS = COLUMNS[1:]


@dataclass(frozen=True, slots=True)
class Happened:
    """How many orders were placed, shipped and cancelled on a day."""

    placed: int = 0
    shipped: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """How many orders there are of each status, and what happened on the days asked for."""

    by_status: dict[Status, int]
    days: dict[date, Happened]


_ADD = Query(
    update(DayRow)
    .where(DayRow.day == bindparam("new_day"))
    .values({name: getattr(DayRow, name) + bindparam(f"new_{name}") for name in _COUNTS})
)
_BEGIN = Query(insert(DayRow).values({name: bindparam(f"new_{name}") for name in COLUMNS}))
# PostgreSQL's sums of large integers are decimals.
_SUMS = [cast(func.coalesce(func.sum(getattr(DayRow, name)), 0), BigInteger) for name in _COUNTS]
# One statement, so that all is of the same moment. The first row has the sums of all days.
_DAYS = Query(
    union_all(
        select(literal_column("''"), *_SUMS),
        select(DayRow.day, *(getattr(DayRow, name) for name in _COUNTS)).where(
            DayRow.day.between(bindparam("first", type_=String), bindparam("last", type_=String))
        ),
    )
)


def add_all(connection: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Add the counts of imported orders: rows of `COLUMNS`."""
    for row in rows:
        new = {f"new_{name}": value for name, value in zip(COLUMNS, row, strict=True)}
        # Two writers can't both find no row: only one writes at a time.
        if _ADD.execute(connection, **new).rowcount == 0:
            _BEGIN.execute(connection, **new)


def statistics(database: Database, last: date, number: int) -> Statistics:
    """Return how many orders there are of each status, and what happened on the last days.

    `number` is of how many days, and `last` is the last of them.

    Raises:
        StoreUnavailable: the database can't be read.
    """
    wanted = [last - timedelta(days=ago) for ago in reversed(range(number))]
    rows = database.ask(_DAYS, first=wanted[0].isoformat(), last=last.isoformat())
    counted = {row[0]: Happened(*row[1:]) for row in rows}
    ever = counted[""]
    return Statistics(
        {
            Status.PENDING: ever.placed - ever.shipped - ever.cancelled,
            Status.SHIPPED: ever.shipped,
            Status.CANCELLED: ever.cancelled,
        },
        {day: counted.get(day.isoformat(), Happened()) for day in wanted},
    )
