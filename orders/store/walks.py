"""How pages of orders can be found: indexes to walk, ranges to gather, and their conditions.

A walk reads an index of (a filter's column, the sort's column, id) from one position on. Other
filters are conditions on what it meets. `statements` has what is asked of the database for it, and
`paging` says when which is asked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    bindparam,
    literal_column,
    null,
    or_,
    tuple_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import NULLTYPE, TypeEngine

from orders.domain import Status
from orders.store.database.types import Instant
from orders.store.tables import OrderRow

# The columns that filters compare for equality, those that leave the fewest orders first.
_EQUAL = ("reference", "pet_id")
_FILTERS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "pet_id": ("pet_id", operator.eq),
    "reference": ("reference", operator.eq),
    "placed_from": ("placed_at", operator.ge),
    "placed_before": ("placed_at", operator.lt),
    "ships_from": ("ship_date", operator.ge),
    "ships_before": ("ship_date", operator.lt),
}
# The names of the filters that are given, the statuses that orders may have, and the sort.
Shape = tuple[frozenset[str], tuple[str, ...], "Sort"]
# What the columns about a day's orders begin with.
DAYS_OF = {"placed_at": "placed", "ship_date": "ships"}
_EVERY_STATUS = tuple(status.value for status in Status)


class _Told(ColumnElement[Any]):
    """An expression with a word to SQLite's planner, which chooses without statistics."""

    inherit_cache = False

    def __init__(self, expression: Any, word: str, type_: TypeEngine[Any] = NULLTYPE) -> None:
        self.told = expression
        self.word = word
        # Of a truth value, SQLAlchemy would ask whether it is 1.
        self.type = type_


@compiles(_Told)
def _as_it_is(element: _Told, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.told, **options)


@compiles(_Told, "sqlite")
def _with_the_word(element: _Told, compiler: SQLCompiler, **options: Any) -> str:
    return element.word.format(compiler.process(element.told, **options))


def _plain(column: Any) -> Any:
    # No index is chosen by it (https://www.sqlite.org/optoverview.html, section 2).
    return _Told(column, "+{}", column.type)


def _as_is(column: Any) -> Any:
    return column


class SortBy(Enum):
    """What orders can be sorted by. The value is the column."""

    ID = "id"
    PLACED_AT = "placed_at"
    SHIP_DATE = "ship_date"


@dataclass(frozen=True, slots=True)
class Sort:
    """An order of orders. Ties are broken by id, in the same direction."""

    by: SortBy = SortBy.ID
    falling: bool = False


class Part(Enum):
    """The orders that a walk goes over. Those without a date come last, whatever the direction."""

    ALL = "all"
    DATED = "dated"
    UNDATED = "undated"


@dataclass(frozen=True, slots=True)
class Walk:
    """An index to be walked: that of the column `along` and the sort's.

    `filters` are the names of those given, and `statuses` those that orders may have.
    """

    along: str
    sort: Sort
    filters: frozenset[str]
    statuses: tuple[str, ...]
    part: Part = Part.ALL

    @property
    def covers_all(self) -> bool:
        """Whether all that it meets is wanted, so that nothing has to be looked for."""
        return not self._others() and (self.along == "status" or self.statuses == _EVERY_STATUS)

    @property
    def column(self) -> Any:
        """The column that it is sorted by."""
        return getattr(OrderRow, self.sort.by.value)

    def in_part(self, part: Part) -> Walk:
        """Return the part of it with or without a date."""
        return replace(self, part=part)

    def has_range(self) -> bool:
        """Return whether orders without what it is sorted by are left out by a filter."""
        return any(_FILTERS[name][0] == self.sort.by.value for name in self.filters)

    def prefixes(self) -> Iterator[ColumnElement[bool]]:
        """Return what the index's first column is compared with: each begins a range of its own."""
        if self.along == "status":
            for status in self.statuses:
                yield OrderRow.status == status
        else:
            yield _condition(self.along)

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """Return the filters that are no part of the walk, each so that no index is used for it."""
        for name in sorted(self._others()):
            yield _condition(name, plain=True)
        if self.along != "status" and self.statuses != _EVERY_STATUS:
            yield _status_is_one_of(self.statuses)

    def other_ranges(self) -> list[str]:
        """Return the columns, other than the sort's, whose range is limited."""
        columns = {_FILTERS[name][0] for name in self.filters}
        return sorted(columns - {*_EQUAL, self.sort.by.value})

    def _others(self) -> frozenset[str]:
        ranges = {name for name in self.filters if _FILTERS[name][0] == self.sort.by.value}
        return self.filters - ranges - {self.along}

    def limits(self, *, started: bool, stopped: bool) -> Iterator[ColumnElement[bool]]:
        """Return where the range begins and ends."""
        if self.part is Part.UNDATED:
            # Or an index without it would look as good where the walk is stopped.
            yield _Told(OrderRow.ship_date.is_(None), "unlikely({})")
        elif self.part is Part.DATED and not started and not self.has_range():
            yield OrderRow.ship_date.is_not(None)
        falling = self.sort.falling
        # A position lies inside the range: it takes the place of the bound behind it.
        behind = "_before" if falling else "_from"
        for name in sorted(self.filters):
            bounds_sort = _FILTERS[name][0] == self.sort.by.value
            if bounds_sort and not (started and name.endswith(behind)):
                yield _condition(name)
        if started:
            yield self._compared(operator.lt if falling else operator.gt, "after")
        if stopped:
            yield self._compared(operator.ge if falling else operator.le, "until")

    def begins_after(self) -> ColumnElement[bool]:
        """Return the condition that an order comes after a position in this part, without index."""
        compare = operator.lt if self.sort.falling else operator.gt
        after = self._compared(compare, "after", _plain)
        is_undated = cast("ColumnElement[bool]", _plain(OrderRow.ship_date).is_(None))
        if self.part is Part.ALL:
            return after
        return after & is_undated if self.part is Part.UNDATED else after | is_undated

    def _compared(
        self, compare: Callable[[Any, Any], Any], position: str, of: Callable[[Any], Any] = _as_is
    ) -> ColumnElement[bool]:
        order_id = bindparam(f"{position}_id", type_=BigInteger)
        if self.is_by_id:
            compared = compare(of(OrderRow.id), order_id)
        else:
            key = bindparam(f"{position}_key", type_=Instant)
            compared = compare(tuple_(of(self.column), of(OrderRow.id)), tuple_(key, order_id))
        return cast("ColumnElement[bool]", compared)

    @property
    def is_by_id(self) -> bool:
        """Whether its order is by id alone."""
        return self.sort.by is SortBy.ID or self.part is Part.UNDATED

    def shown_key(self) -> ColumnElement[Any]:
        """Return what a position remembers of the sort besides the id."""
        # As the driver has it. By a text that is made of it, PostgreSQL would walk no index.
        return null() if self.is_by_id else self.column

    def order(self) -> list[ColumnElement[Any]]:
        """Return the order of its rows, by the names that these statements give the columns."""
        names = ["order_id"] if self.is_by_id else ["sort_key", "order_id"]
        columns: list[ColumnElement[Any]] = [literal_column(name) for name in names]
        return [column.desc() for column in columns] if self.sort.falling else columns


@dataclass(frozen=True, slots=True)
class Gathering:
    """A range to be read whole and then sorted: of the column `by`, within equal `walk.along`."""

    walk: Walk
    by: str

    def bounds(self) -> Iterator[ColumnElement[bool]]:
        """Return where the range begins and ends."""
        for name in sorted(self.walk.filters):
            if _FILTERS[name][0] == self.by:
                yield _condition(name)

    def conditions(self, start: Part | None) -> Iterator[ColumnElement[bool]]:
        """Return what the orders of a page must fulfil within `walk.along`."""
        walk = self.walk
        for name in sorted(walk.filters - {walk.along}):
            yield _condition(name, plain=_FILTERS[name][0] != self.by)
        if walk.along != "status" and walk.statuses != _EVERY_STATUS:
            yield _status_is_one_of(walk.statuses)
        if start is not None:
            yield walk.in_part(start).begins_after()


def all_walks(names: frozenset[str], statuses: tuple[str, ...], sort: Sort) -> list[Walk]:
    """Return the walks that can find what the filters of these names let through, best first."""
    return [Walk(along, sort, names, statuses) for along in _prefixes(names, statuses)]


def all_gatherings(names: frozenset[str], statuses: tuple[str, ...], sort: Sort) -> list[Gathering]:
    """Return the ranges of other columns than the sort's that can be gathered."""
    return [
        Gathering(walk, column)
        for walk in all_walks(names, statuses, sort)
        for column in walk.other_ranges()
    ]


def _prefixes(names: frozenset[str], statuses: tuple[str, ...]) -> list[str]:
    equal = [name for name in _EQUAL if name in names]
    return equal if equal and statuses == _EVERY_STATUS else [*equal, "status"]


def _condition(name: str, *, plain: bool = False) -> ColumnElement[bool]:
    column, compare = _FILTERS[name]
    mapped = getattr(OrderRow, column)
    compared: ColumnElement[bool] = compare(
        _plain(mapped) if plain else mapped, bindparam(name, type_=mapped.type)
    )
    return compared


def _status_is_one_of(statuses: tuple[str, ...]) -> ColumnElement[bool]:
    return or_(*(_plain(OrderRow.status) == status for status in statuses))
