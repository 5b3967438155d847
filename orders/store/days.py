"""What is asked of the table of days: what happened on each, and where its orders lie.

The event log keeps it, by triggers (migration 0004), so that a year's figures are a year's rows
however many orders there are; what an import brings is noted here. An order is placed on the day
of `placedAt`, shipped on that of `shipDate`, and cancelled on that of the cancelling event; an
imported one on that of `updatedAt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    String,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal_column,
    select,
    union_all,
    update,
)

from orders import domain
from orders.domain import Status
from orders.store.database.engine import Database
from orders.store.database.queries import Query
from orders.store.tables import DayRow

COLUMNS = [column.name for column in DayRow.__table__.columns]
_COUNTS = COLUMNS[1:4]
_BOUNDS = COLUMNS[4:]


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


def _widened(name: str) -> Any:
    column, new = (
        getattr(DayRow, name),
        bindparam(f"new_{name}", type_=DayRow.__table__.c[name].type),
    )
    is_beyond = column > new if "_min_" in name else column < new
    return case((column.is_(None) | is_beyond, new), else_=column)


_ADD = Query(
    update(DayRow)
    .where(DayRow.day == bindparam("new_day"))
    .values(
        {name: getattr(DayRow, name) + bindparam(f"new_{name}") for name in _COUNTS}
        | {name: _widened(name) for name in _BOUNDS}
    )
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


def note_all(connection: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Note what is known of imported orders: rows of `COLUMNS`."""
    for row in rows:
        _add(connection, dict(zip(COLUMNS, row, strict=True)))


def _add(connection: Connection, known: dict[str, object]) -> None:
    new = {f"new_{name}": value for name, value in known.items()}
    # Two writers can't both find no row: only one writes at a time.
    if _ADD.execute(connection, **new).rowcount == 0:
        _BEGIN.execute(connection, **new)


def day_of(instant: datetime) -> str:
    """Return the day of an instant in UTC, as the table has it."""
    return domain.format_instant(instant)[:10]


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
