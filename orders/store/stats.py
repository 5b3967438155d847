"""Figures by day: how many orders were placed, shipped and cancelled.

Triggers on the event log count in quarters of an hour, of which the days of every time zone are
made, so that a year's figures are a year's rows however many orders there are; what an import
brings is added here. An order is placed at `placedAt`, shipped at `shipDate`, and cancelled at the
cancelling event; an imported one at `updatedAt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, insert, select, text, true
from sqlalchemy.sql.expression import FromClause

from orders.domain import Status
from orders.store.database.database import Database, Query
from orders.store.tables import EVER, order_quarters

_BEGIN = datetime(1, 1, 1, tzinfo=UTC)
_QUARTER = timedelta(minutes=15)
COLUMNS = [column.name for column in order_quarters.columns]
_COUNTS = [getattr(order_quarters.c, name) for name in COLUMNS[1:]]


@dataclass(frozen=True, slots=True)
class Happened:
    placed: int = 0
    shipped: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of orders by status, and of what happened on each day."""

    by_status: dict[Status, int]
    days: dict[date, Happened]


@dataclass(slots=True)
class _Span:
    """Days of one length in quarters of an hour: the first day, its beginning; how many."""

    day: int
    first: int
    width: int
    number: int


def begin(connection: Connection) -> None:
    """Add the row of all quarters, which the triggers count in, to an empty table."""
    nothing = dict.fromkeys(COLUMNS, 0)
    connection.execute(insert(order_quarters).values(nothing | {"quarter": EVER}))


def add_all(connection: Connection, counted: FromClause) -> None:
    """Add the counts of imported orders: a table like that of quarters."""
    rows = select(counted).where(true())
    # Only the dialect in use is loaded: loading both takes a twentieth of a start's time.
    dialect: Any = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    adding = dialect.insert(order_quarters).from_select(COLUMNS, rows)
    sums = {each.key: each + adding.excluded[each.key] for each in _COUNTS}
    connection.execute(adding.on_conflict_do_update(index_elements=[COLUMNS[0]], set_=sums))


def statistics(database: Database, now: datetime, number: int, zone: tzinfo = UTC) -> Statistics:
    """Return counts of orders by status, and what happened on the last `days`."""
    today = now.astimezone(zone).date()
    wanted = [today - timedelta(days=ago) for ago in reversed(range(number))]
    spans = _spans([_quarter(day, zone) for day in [*wanted, today + timedelta(days=1)]])
    values = {
        f"{name}_{nth}": getattr(span, name)
        for nth, span in enumerate(spans)
        for name in _Span.__slots__
    }
    rows = database.fetch_all(_statement(len(spans)), **values)
    counted = {nth: Happened(*map(int, counts.split())) for nth, counts in rows if counts}
    ever = counted.get(EVER, Happened())
    return Statistics(
        {
            Status.PENDING: ever.placed - ever.shipped - ever.cancelled,
            Status.SHIPPED: ever.shipped,
            Status.CANCELLED: ever.cancelled,
        },
        {day: counted.get(nth, Happened()) for nth, day in enumerate(wanted)},
    )


def _quarter(day: date, zone: tzinfo) -> int:
    begins = datetime.combine(day, time(), zone).astimezone(UTC)
    return (begins - _BEGIN) // _QUARTER


def _spans(begins: Sequence[int]) -> list[_Span]:
    """Return the days as spans: where clocks change, a day is longer or shorter than others."""
    spans: list[_Span] = []
    for day, (first, end) in enumerate(pairwise(begins)):
        if spans and spans[-1].width == end - first:
            spans[-1].number += 1
        else:
            spans.append(_Span(day, first, end - first, 1))
    return spans


_SPAN = ", ".join(f"CAST(:{name}_{{nth}} AS bigint)" for name in _Span.__slots__)
# A sum for each day: grouping would sort the quarters. All is of the same moment, as it is one
# statement.
_COUNTED = f"""
    WITH RECURSIVE days (day, first, width, number) AS (
        VALUES {{spans}}
        UNION ALL SELECT day + 1, first + width, width, number - 1 FROM days WHERE number > 1
    )
    SELECT day, (
        SELECT sum(placed) || ' ' || sum(shipped) || ' ' || sum(cancelled) FROM order_quarters
        WHERE quarter >= first AND quarter < first + width
    ) FROM days
    UNION ALL SELECT quarter, placed || ' ' || shipped || ' ' || cancelled FROM order_quarters
        WHERE quarter = {EVER}
"""  # noqa: S608 # nosec B608 - our own names


@cache
def _statement(number: int) -> Query:
    """Return the statement for the totals, and the counts of each day in some spans."""
    spans = ", ".join(f"({_SPAN.format(nth=nth)})" for nth in range(number))
    return Query(text(_COUNTED.format(spans=spans)))
