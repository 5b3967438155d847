"""Pages of orders for version 2: filters, a sort, and a keyset in the place of an offset.

A page is one SELECT. It walks the index that has the sort's order, status by status, from where
the page before ended; what the other filters compare stands in the same index, so that an order
that does not match costs a fraction of a microsecond. Where one filter alone leaves few orders,
which is counted before, these are read and sorted instead. So a page reads at worst one index
once, and which way it goes depends neither on statistics nor on the database's planner.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    String,
    bindparam,
    false,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from orders.domain import Status
from orders.store import events, orders_json
from orders.store.database.engine import Database
from orders.store.database.queries import Query
from orders.store.database.types import Instant, instant_of
from orders.store.tables import OrderRow

# So many orders are read and sorted in some milliseconds.
FEW = 20_000
# As many shapes as clients may think of would fill the memory.
_CACHED_STATEMENTS = 500
_FILTERS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "pet_id": ("pet_id", operator.eq),
    "reference": ("reference", operator.eq),
    "placed_from": ("placed_at", operator.ge),
    "placed_before": ("placed_at", operator.lt),
    "ships_from": ("ship_date", operator.ge),
    "ships_before": ("ship_date", operator.lt),
}
_EQUAL = ("reference", "pet_id")
_EVERY_STATUS = tuple(status.value for status in Status)
_Condition = ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which orders are wanted: those that match all filters that are set. From is inclusive."""

    statuses: tuple[Status, ...] = tuple(Status)
    pet_id: int | None = None
    reference: str | None = None
    placed_from: datetime | None = None
    placed_before: datetime | None = None
    ships_from: datetime | None = None
    ships_before: datetime | None = None

    def values(self) -> dict[str, Any]:
        """Return the filters that are set by name, but for the statuses."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: values[name] for name in _FILTERS if values[name] is not None}


class SortBy(Enum):
    """What orders can be sorted by. The value is the column."""

    ID = "id"
    PLACED_AT = "placed_at"
    SHIP_DATE = "ship_date"


@dataclass(frozen=True, slots=True)
class Sort:
    """An order of orders. Ties are broken by id; orders without a date come last both ways."""

    by: SortBy = SortBy.ID
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page ended: the last order's value of the sort (None: it had no date), and its id."""

    key: datetime | None
    id: int


@dataclass(frozen=True, slots=True)
class Page:
    """Orders as JSON texts, where the page ended while there is more, and the event it is as of."""

    orders: list[str]
    next: Position | None
    revision: int


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which page is wanted: `after` is where the page before ended, None for the first."""

    filters: Filters
    sort: Sort
    size: int
    after: Position | None = None


def read_page(database: Database, query: PageQuery) -> Page:
    """Return a page of orders.

    Raises:
        StoreUnavailable: the database can't be read.
    """
    parameters = query.filters.values()
    few = _few(database, _shape(query), parameters)
    if query.after is not None:
        parameters |= {"after_key": query.after.key, "after_id": query.after.id}
    # One more row says whether there is more. The first row is there even where no order is.
    rows = database.ask(_page(_shape(query), few), size=query.size + 1, **parameters)
    orders = [row[1:] for row in rows if row[1] is not None]
    shown = orders[: query.size]
    last = Position(instant_of(shown[-1][2]), shown[-1][1]) if len(orders) > query.size else None
    return Page([order[0] for order in shown], last, rows[0][0])


class _Start(Enum):
    """Where a page begins: at the first order, or after one with or without a date."""

    FIRST = "first"
    DATED = "dated"
    UNDATED = "undated"


@dataclass(frozen=True, slots=True)
class _Shape:
    """What statements depend on: names of filters, statuses, the sort and where a page begins."""

    names: frozenset[str]
    statuses: tuple[str, ...]
    sort: Sort
    start: _Start

    @property
    def is_by_id(self) -> bool:
        return self.sort.by is SortBy.ID

    @property
    def along(self) -> str | None:
        """The column that alone is filtered by, where its index has the sort's order."""
        alone = self.is_by_id and len(self.names) == 1 and self.statuses == _EVERY_STATUS
        return next((name for name in _EQUAL if alone and name in self.names), None)

    def of(self, column: str) -> list[str]:
        """Return the filters of a column."""
        return [name for name in _FILTERS if name in self.names and _FILTERS[name][0] == column]

    def after(self, column: Any, value: Any) -> _Condition:
        """Return the condition that something comes after a value in the sort's direction."""
        compare = operator.lt if self.sort.descending else operator.gt
        condition: _Condition = compare(column, value)
        return condition

    def ordered(self, *columns: Any) -> list[Any]:
        """Return columns in the sort's direction."""
        return [column.desc() for column in columns] if self.sort.descending else list(columns)


def _shape(query: PageQuery) -> _Shape:
    statuses = tuple(status.value for status in query.filters.statuses)
    start = _Start.FIRST
    if query.after is not None:
        start = _Start.UNDATED if query.after.key is None else _Start.DATED
    return _Shape(frozenset(query.filters.values()), statuses, query.sort, start)


class _Unindexed(FunctionElement[Any]):
    """A column by which SQLite chooses no index (https://www.sqlite.org/optoverview.html, 2)."""

    inherit_cache = True

    def __init__(self, column: Any) -> None:
        super().__init__(column)
        self.type = column.type


@compiles(_Unindexed)
def _as_it_is(element: _Unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(_Unindexed, "sqlite")
def _with_unary_plus(element: _Unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return f"+{compiler.process(element.clauses, **options)}"


def _few(database: Database, shape: _Shape, parameters: dict[str, Any]) -> str | None:
    """Return the column whose filters leave the fewest orders, None where none leaves few."""
    columns = {_FILTERS[name][0] for name in shape.names} - {shape.sort.by.value, shape.along}
    counts = {}
    for column in sorted(columns):
        names = shape.of(column)
        values = {name: parameters[name] for name in names} | {"most": FEW + 1}
        ((counts[column],),) = database.ask(_count(column, tuple(names), shape.statuses), **values)
    few = min(counts, key=counts.__getitem__, default=None)
    return few if few is not None and counts[few] <= FEW else None


@lru_cache(_CACHED_STATEMENTS)
def _count(column: str, names: tuple[str, ...], statuses: tuple[str, ...]) -> Query:
    """Return the statement that counts what a column's filters leave, up to `most`."""
    matches = select(OrderRow.id).where(*_matches(column, names, statuses)).limit(bindparam("most"))
    return Query(select(func.count()).select_from(matches.subquery()))


def _matches(
    column: str, names: tuple[str, ...], statuses: tuple[str, ...]
) -> Iterator[_Condition]:
    # Indexes of dates begin with the status.
    if column not in _EQUAL:
        yield _status_is_one_of(statuses, OrderRow.status)
    yield from (_condition(name, getattr(OrderRow, column)) for name in names)


@lru_cache(_CACHED_STATEMENTS)
def _page(shape: _Shape, few: str | None) -> Query:
    """Return the statement for a page: revision, JSON, id and value of the sort of each order."""
    ids = _walked(shape) if few is None else _gathered(shape, few)
    chosen = ids.order_by(*_last_without_date(shape, ids.selected_columns)).limit(bindparam("size"))
    page = chosen.subquery("page")
    revision = select(events.REVISION.label("revision")).subquery("newest")
    rows = revision.outerjoin(page, true()).outerjoin(OrderRow, OrderRow.id == page.c.order_id)
    shown = select(revision, orders_json.order_v2(), page.c.order_id, page.c.sort_key)
    return Query(shown.select_from(rows).order_by(*_last_without_date(shape, page.c)))


def _last_without_date(shape: _Shape, columns: Any) -> list[Any]:
    if shape.is_by_id:
        return shape.ordered(columns.order_id)
    return [columns.sort_key.is_(None), *shape.ordered(columns.sort_key, columns.order_id)]


def _walked(shape: _Shape) -> Select[Any]:
    """Return ids and values of the sort: the first of each part of the sort's index."""
    prefixes, others = _prefixes(shape)
    conditions = [*others, *_others(shape, {shape.along, shape.sort.by.value}, _unindexed)]
    parts = []
    for prefix in prefixes:
        for stretch, order in _stretches(shape):
            part = _entries(shape, OrderRow).where(prefix, *stretch, *conditions)
            parts.append(select(part.order_by(*order).limit(bindparam("size")).subquery()))
    return select(union_all(*parts).subquery()) if len(parts) > 1 else parts[0]


def _prefixes(shape: _Shape) -> tuple[list[_Condition], list[_Condition]]:
    """Return what the index to walk begins with, in turn, and what is to be said of the status."""
    if shape.along:
        return [_condition(shape.along, getattr(OrderRow, shape.along))], []
    if shape.is_by_id and shape.names:
        # The rows themselves have that order: reading all costs less than to look most of them up.
        is_wanted = [_unindexed("status") == each for each in _literals(shape.statuses)]
        return [true()], [or_(false(), *is_wanted)] if shape.statuses != _EVERY_STATUS else []
    return [OrderRow.status == each for each in _literals(shape.statuses)] or [false()], []


def _stretches(shape: _Shape) -> Iterator[tuple[list[_Condition], list[Any]]]:
    """Return what is left of an index: conditions and order of orders with and without a date."""
    order_id, key = OrderRow.id, getattr(OrderRow, shape.sort.by.value)
    id_after = [shape.after(order_id, _AFTER_ID)]
    if shape.is_by_id:
        yield [] if shape.start is _Start.FIRST else id_after, shape.ordered(order_id)
        return
    if shape.start is not _Start.UNDATED:
        yield list(_dated(shape, key)), shape.ordered(key, order_id)
    if shape.sort.by is SortBy.SHIP_DATE and not shape.of("ship_date"):
        rest = id_after if shape.start is _Start.UNDATED else []
        yield [key.is_(None), *rest], shape.ordered(order_id)


def _dated(shape: _Shape, key: Any) -> Iterator[_Condition]:
    names = shape.of(shape.sort.by.value)
    if shape.start is _Start.DATED:
        yield shape.after(tuple_(key, OrderRow.id), _AFTER)
        # The position lies inside the bounds, and takes the place of the one behind it.
        names = [name for name in names if name.endswith("_before") != shape.sort.descending]
    elif not names:
        yield key.is_not(None)
    yield from (_condition(name, key) for name in names)


def _gathered(shape: _Shape, few: str) -> Select[Any]:
    """Return ids and values of the sort of the orders that match, among those that `few` leaves."""
    matches = _matches(few, tuple(shape.of(few)), shape.statuses)
    columns = {column: getattr(OrderRow, column) for column in _READ}
    # With an offset, no database mixes its conditions with those around it.
    among = select(*columns.values()).where(*matches).offset(0).subquery("few").c
    wanted = _entries(shape, among).where(*_others(shape, {few}, among.__getitem__))
    wanted = wanted.where(_status_is_one_of(shape.statuses, among.status))
    if shape.start is _Start.FIRST:
        return wanted
    if shape.is_by_id:
        return wanted.where(shape.after(among.id, _AFTER_ID))
    key = among[shape.sort.by.value]
    if shape.start is _Start.UNDATED:
        return wanted.where(key.is_(None), shape.after(among.id, _AFTER_ID))
    return wanted.where(or_(shape.after(tuple_(key, among.id), _AFTER), key.is_(None)))


_AFTER_ID = bindparam("after_id", type_=BigInteger)
_AFTER = tuple_(bindparam("after_key", type_=Instant), _AFTER_ID)
_READ = ("id", "status", "pet_id", "reference", "placed_at", "ship_date")


def _entries(shape: _Shape, columns: Any) -> Select[Any]:
    order_id = columns.id
    key = literal_column("NULL") if shape.is_by_id else getattr(columns, shape.sort.by.value)
    return select(order_id.label("order_id"), key.label("sort_key"))


def _others(
    shape: _Shape, without: set[str | None], column_of: Callable[[str], Any]
) -> Iterator[_Condition]:
    for name, (column, _) in _FILTERS.items():
        if name in shape.names and column not in without:
            yield _condition(name, column_of(column))


def _unindexed(column: str) -> _Unindexed:
    return _Unindexed(getattr(OrderRow, column))


def _condition(name: str, column: Any) -> _Condition:
    condition: _Condition = _FILTERS[name][1](column, bindparam(name, type_=column.type))
    return condition


def _status_is_one_of(statuses: tuple[str, ...], column: Any) -> _Condition:
    is_one_of: _Condition = column.in_(_literals(statuses)) if statuses else false()
    return is_one_of


def _literals(statuses: tuple[str, ...]) -> list[Any]:
    return [literal_column(f"'{status}'", String) for status in statuses]
