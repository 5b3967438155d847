"""Pages of orders for version 2: filters, a sort, and a keyset instead of an offset.

A page is one SELECT. It walks the index that has the sort's order, status by status, from where
the page before ended; what the other filters compare is in the same index, so that an order that
does not match costs a fraction of a microsecond. Where one filter alone leaves few orders (they
are counted first), those are read and sorted instead. So a page reads at worst one index once,
whatever the mix of filters, and needs no statistics. A search's words are in no index of a sort:
a word that many orders have is looked up in the first orders of the walk. Where that does not fill
the page, all orders with it are read, if they are fewer than the walk's.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import ColumnElement, bindparam, select

from orders import domain
from orders.domain import Status
from orders.store import orders_json
from orders.store.database import database as db
from orders.store.database.database import Database, Query
from orders.store.tables import order_words, orders

Conditions = list[ColumnElement[bool]]
ORDERS: Any = orders.c
# This number of orders is read and sorted in some milliseconds.
FEW = 20_000
# A search with more hits is first tried on this number of orders of the walk. If they don't fill
# the page, all hits are read and sorted, unless they are more than this, or than the walk's orders.
TRIED = 4_000
MANY = 400_000
# Statements are cached by their shape; clients could make shapes without end.
_CACHED_STATEMENTS = 500
_EVERY_STATUS = tuple(status.value for status in Status)
# An order of this status has a ship date: a constraint of the table.
_IS_SHIPPED = ORDERS.status == Status.SHIPPED.value
SEARCH = "search"
# The indexes of these begin with the status.
_BY_STATUS = ("placed_at", "ship_date")
# What people write in front of an order's number.
_NUMBER_SIGN = re.compile(r"^(?:#|no\.? ?#?)")
# Sorts after any word that begins with another.
_LAST = "\U0010ffff" * 64


# A filter's column (the search has none) and comparison.
Filter = tuple[str, Callable[[Any, Any], Any]]


def _between(name: str, column: str) -> dict[str, Filter]:
    """Return the two bounds of a column, by which of their names a walk knows where it ends."""
    return {f"{name}_from": (column, operator.ge), f"{name}_before": (column, operator.lt)}


FILTERS: dict[str, Filter] = {
    "pet_id": ("pet_id", operator.eq),
    "reference": ("reference", operator.eq),
    **_between("placed", "placed_at"),
    **_between("ships", "ship_date"),
    **_between("updated", "updated_at"),
    "dated": ("ship_date", lambda column, _: column.is_not(None)),
    "undated": ("ship_date", lambda column, _: column.is_(None)),
    SEARCH: (SEARCH, operator.eq),
}
# Filters whose own index has the order of ids, too.
_EQUAL = [
    name for name, (_, compare) in FILTERS.items() if compare is operator.eq and name != SEARCH
]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a page: orders match all that are set. From is inclusive.

    `search` is an order's number, with or without `#` or `No.`, or how a word of its texts begins
    (`domain.SEARCHED`), without case and accents.
    """

    statuses: tuple[Status, ...] = tuple(Status)
    pet_id: int | None = None
    reference: str | None = None
    placed_from: datetime | None = None
    placed_before: datetime | None = None
    ships_from: datetime | None = None
    ships_before: datetime | None = None
    updated_from: datetime | None = None
    updated_before: datetime | None = None
    dated: bool | None = None
    search: str | None = None

    @property
    def undated(self) -> bool | None:
        """Whether only orders without a shipDate match: the filter of `dated=false`."""
        return True if self.dated is False else None

    def values(self) -> dict[str, Any]:
        """Return the filters that are set by name, but for the statuses."""
        values = {name: getattr(self, name) for name in FILTERS} | {"dated": self.dated or None}
        return {name: each for name, each in values.items() if each is not None}

    def parameters(self) -> dict[str, Any]:
        values = self.values()
        if self.search is not None:
            word = domain.search_word(self.search)
            number = domain.parse_id(_NUMBER_SIGN.sub("", word)) or 0
            values |= {SEARCH: word, "search_end": word + _LAST, "search_id": number}
        return values


def condition(name: str, columns: Any, *, indexed: bool = True) -> Any:
    """Return the condition of a filter on some columns; by no index of SQLite, if so wanted."""
    name_of_column, compare = FILTERS[name]
    shown = (lambda each: each) if indexed else db.Unindexed
    if name == SEARCH:
        return _is_found(columns.id, shown(columns.id))
    column, value = columns[name_of_column], bindparam(name, type_=columns[name_of_column].type)
    met = compare(shown(column), value)
    # The index is of folded references.
    return (
        sa.and_(db.Folded(column) == db.Folded(value), met)
        if indexed and name == "reference"
        else met
    )


def left_by(column: str, names: list[str], statuses: tuple[str, ...]) -> Conditions:
    """Return the condition of a column's filters, in a form that its index serves."""
    if column == SEARCH:
        return [ORDERS.id.in_(_ids_found())]
    conditions = [condition(name, ORDERS) for name in names]
    if column in _BY_STATUS:
        conditions.append(status_is_one_of(statuses, ORDERS.status))
    return conditions


def _ids_found() -> Any:
    """Return the query for the ids that match the search, by number and by word."""
    number = sa.cast(bindparam("search_id", type_=sa.BigInteger), sa.BigInteger)
    return sa.union_all(select(number), ids_by_word())


def ids_by_word() -> Any:
    """Return the query for the ids of orders by a word: an order once for each such word."""
    return select(order_words.c.order_id).where(
        order_words.c.word >= bindparam(SEARCH, type_=sa.String),
        order_words.c.word < bindparam("search_end", type_=sa.String),
    )


def status_is_one_of(statuses: tuple[str, ...], column: Any) -> Any:
    literals = [sa.literal_column(f"'{status}'", sa.String) for status in statuses]
    return column.in_(literals) if literals else sa.false()


def _is_found(order_id: Any, shown: Any) -> ColumnElement[bool]:
    has_word = ids_by_word().where(order_words.c.order_id == order_id).exists()
    return sa.or_(shown == bindparam("search_id", type_=sa.BigInteger), has_word)


class SortBy(Enum):
    """What orders can be sorted by. The value is the column, but for DUE_AT."""

    ID = "id"
    PLACED_AT = "placed_at"
    SHIP_DATE = "ship_date"
    # The ship date, or when it was placed where there is none.
    DUE_AT = "due_at"

    @property
    def column(self) -> str:
        """The column that the sort's first walk follows, and whose filters bound it."""
        return "ship_date" if self is SortBy.DUE_AT else self.value


@dataclass(frozen=True, slots=True)
class Sort:
    """How orders are sorted. Ties are broken by id; orders without a date come last both ways."""

    by: SortBy = SortBy.ID
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page ended: the last order's value of the sort (None: it had no date), and its id."""

    key: datetime | None
    id: int


@dataclass(frozen=True, slots=True)
class Page:
    """Orders as JSON, where the page ended if there is more, and the newest event that it shows."""

    orders: list[str]
    next: Position | None
    revision: int


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The query for a page: `after` is where the page before ended, None for the first."""

    filters: Filters
    sort: Sort
    size: int
    after: Position | None = None


def read_page(database: Database, query: PageQuery) -> Page:
    values = query.filters.parameters()
    if query.after is not None:
        values |= {"after_key": query.after.key, "after_id": query.after.id}
    # One more row says whether there is more. The first row is there even where no order is.
    values["size"] = query.size + 1
    rows = _rows(database, _shape(query), values)
    found = [row[1:] for row in rows if row[1] is not None]
    shown = found[: query.size]
    last = Position(db.instant_of(shown[-1][2]), shown[-1][1]) if len(found) > query.size else None
    return Page([order[0] for order in shown], last, rows[0][0])


def _rows(database: Database, shape: _Shape, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    few = _selective_column(database, shape, values)
    if few is None and SEARCH in shape.names:
        rows = database.fetch_all(_page(shape, None, is_tried=True), tried=TRIED, **values)
        if len(rows) == values["size"]:
            return rows
        few = SEARCH if _are_less(database, shape, values) else None
    return database.fetch_all(_page(shape, few), **values)


def _are_less(database: Database, shape: _Shape, values: dict[str, Any]) -> bool:
    """Return whether fewer orders match the search than the statuses, and not too many."""
    ((hits,),) = database.fetch_all(_count(SEARCH, (), ()), most=MANY + 1, **values)
    if hits > MANY:
        return False
    if shape.statuses == _EVERY_STATUS:
        return True
    # No more are counted than decide. Counting what the other filters leave would take as long as
    # reading them.
    ((walked,),) = database.fetch_all(_count_statuses(shape.statuses), most=hits + 1)
    return bool(hits < walked)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a statement depends on besides values: filters' names, statuses, sort and start."""

    names: frozenset[str]
    statuses: tuple[str, ...]
    sort: Sort
    # The first page, or one after an order with or without a date.
    start: Literal["first", "dated", "undated"]

    @property
    def sole_filter(self) -> str | None:
        """The only column with a filter, if its index has the sort's order."""
        alone = self.sort.by is SortBy.ID and self.statuses == _EVERY_STATUS
        return next((name for name in _EQUAL if alone and self.names == {name}), None)

    def of(self, column: str) -> list[str]:
        return [name for name in FILTERS if name in self.names and FILTERS[name][0] == column]

    def is_after(self, column: Any, value: Any) -> Any:
        return column < value if self.sort.descending else column > value

    def ordered(self, *columns: Any) -> list[Any]:
        return [column.desc() for column in columns] if self.sort.descending else list(columns)


def _shape(query: PageQuery) -> _Shape:
    statuses = tuple(status.value for status in query.filters.statuses)
    names, sort = frozenset(query.filters.values()), query.sort
    if sort.by is SortBy.PLACED_AT and "undated" in names:
        # The same order, which has an index for those.
        sort = replace(sort, by=SortBy.DUE_AT)
    if query.after is None:
        return _Shape(names, statuses, sort, "first")
    return _Shape(names, statuses, sort, "dated" if query.after.key else "undated")


def _selective_column(database: Database, shape: _Shape, values: dict[str, Any]) -> str | None:
    """Return the column whose filters leave the fewest orders, None where none leaves few."""
    columns = {FILTERS[name][0] for name in shape.names} - {shape.sort.by.column, shape.sole_filter}
    counts = {}
    for column in sorted(columns):
        query = _count(column, tuple(shape.of(column)), shape.statuses)
        ((counts[column],),) = database.fetch_all(query, most=FEW + 1, **values)
    few = min(counts, key=counts.__getitem__, default=None)
    return few if few is not None and counts[few] <= FEW else None


@lru_cache(_CACHED_STATEMENTS)
def _count(column: str, names: tuple[str, ...], statuses: tuple[str, ...]) -> Query:
    """Return the statement that counts what a column's filters leave, up to `most`."""
    if column == SEARCH:
        # Words are counted, not orders: an order with several is counted several times.
        among = _ids_found().limit(bindparam("most"))
    else:
        among = _among(column, names, statuses, ("id",)).limit(bindparam("most"))
    return Query(select(sa.func.count()).select_from(among.subquery()))


@lru_cache(_CACHED_STATEMENTS)
def _count_statuses(statuses: tuple[str, ...]) -> Query:
    among = select(ORDERS.id).where(status_is_one_of(statuses, ORDERS.status))
    return Query(select(sa.func.count()).select_from(among.limit(bindparam("most")).subquery()))


def _among(
    column: str, names: tuple[str, ...], statuses: tuple[str, ...], read: tuple[str, ...]
) -> Any:
    """Return the query for the orders that a column's filters leave."""
    return select(*(ORDERS[name] for name in read)).where(*left_by(column, [*names], statuses))


@lru_cache(_CACHED_STATEMENTS)
def _page(shape: _Shape, few: str | None, *, is_tried: bool = False) -> Query:
    """Return the statement for a page: revision, JSON, id and value of the sort of each order.

    If it `is_tried`, the search is among the first orders that the other filters leave.
    """
    if is_tried:
        others = replace(shape, names=shape.names - {SEARCH})
        tried = _chosen(shape, _parts(others), "tried").subquery()
        hits = select(tried).where(_is_found(tried.c.order_id, tried.c.order_id))
        chosen = _limited(shape, hits, "size")
    elif few is not None:
        chosen = _limited(shape, _of_selected(shape, few), "size")
    else:
        chosen = _chosen(shape, _parts(shape), "size")
    page = chosen.subquery("page")
    newest = select(orders_json.REVISION.label("revision")).subquery("newest")
    rows = newest.outerjoin(page, sa.true()).outerjoin(orders, orders.c.id == page.c.order_id)
    shown = select(newest, orders_json.order_v2(), page.c.order_id, page.c.sort_key)
    return Query(shown.select_from(rows).order_by(*_last_without_date(shape, page.c)))


def _chosen(shape: _Shape, ranges: Iterator[sa.Select[Any]], limit: str) -> sa.Select[Any]:
    """Return the first of several walks together."""
    parts = [select(each.limit(bindparam(limit)).subquery()) for each in ranges]
    return _limited(
        shape, select(sa.union_all(*parts).subquery()) if len(parts) > 1 else parts[0], limit
    )


def _limited(shape: _Shape, ids: sa.Select[Any], limit: str) -> sa.Select[Any]:
    chosen = ids.order_by(*_last_without_date(shape, ids.selected_columns))
    return chosen.limit(bindparam(limit))


def _last_without_date(shape: _Shape, columns: Any) -> list[Any]:
    if shape.sort.by is SortBy.ID:
        return shape.ordered(columns.order_id)
    return [columns.sort_key.is_(None), *shape.ordered(columns.sort_key, columns.order_id)]


def _parts(shape: _Shape) -> Iterator[sa.Select[Any]]:
    """Return the walks of the sort's index: one for each status, with and without a date."""
    prefixes, others = _prefixes(shape)
    for name in sorted(shape.names):
        if FILTERS[name][0] not in {shape.sole_filter, shape.sort.by.column}:
            others.append(condition(name, ORDERS, indexed=False))
    for prefix in prefixes:
        may_lack_date = prefix is not _IS_SHIPPED
        yield from _stretches(shape, ORDERS, [prefix, *others], may_lack_date=may_lack_date)


def _prefixes(shape: _Shape) -> tuple[Conditions, Conditions]:
    """Return the beginnings of the index to walk, in turn, and the condition of the status."""
    if shape.sole_filter:
        return [condition(shape.sole_filter, ORDERS)], []
    if shape.sort.by is SortBy.ID and shape.names:
        # The rows themselves have that order: reading all costs less than looking most of them up.
        status = status_is_one_of(shape.statuses, db.Unindexed(ORDERS.status))
        return [sa.true()], [] if shape.statuses == _EVERY_STATUS else [status]
    return [_is(status) for status in shape.statuses] or [sa.false()], []


def _is(status: str) -> ColumnElement[bool]:
    is_status: ColumnElement[bool] = ORDERS.status == status
    return _IS_SHIPPED if status == Status.SHIPPED.value else is_status


def _of_selected(shape: _Shape, few: str) -> sa.Select[Any]:
    """Return the page's orders among those that the filters of a column leave, read once."""
    names = [name for name in sorted(shape.names) if FILTERS[name][0] != few]
    read = {"id", shape.sort.by.column, *_columns(names)}
    if shape.sort.by is SortBy.DUE_AT:
        read.add("placed_at")
    is_any = shape.statuses == _EVERY_STATUS
    if not is_any:
        read.add("status")
    # No more than is needed, which may all be in the index. With an offset, no database mixes these
    # conditions with the others.
    found = _among(few, tuple(shape.of(few)), shape.statuses, tuple(sorted(read)))
    if few == SEARCH:
        # Most orders are dated as they were placed: the first ones read are the page's, and none of
        # the rest has to be sorted.
        found = found.order_by(*shape.ordered(ORDERS.id))
    among = found.offset(0).subquery("few").c
    conditions = [condition(name, among) for name in names]
    if not is_any:
        conditions.append(status_is_one_of(shape.statuses, among.status))
    key = _key(shape.sort.by, among)
    wanted = select(among.id.label("order_id"), key.label("sort_key"))
    return wanted.where(*conditions, *_follows(shape, key, among.id))


def _key(by: SortBy, columns: Any) -> ColumnElement[Any]:
    if by is SortBy.ID:
        return sa.literal_column("NULL")
    if by is SortBy.DUE_AT:
        return sa.func.coalesce(columns.ship_date, columns.placed_at)
    key: ColumnElement[Any] = columns[by.column]
    return key


def _follows(shape: _Shape, key: Any, order_id: Any) -> Iterator[ColumnElement[bool]]:
    """Return the conditions for orders after the position, if the page has one."""
    after_key = bindparam("after_key", type_=db.Instant)
    after_id = bindparam("after_id", type_=sa.BigInteger)
    if shape.start == "dated":
        is_after = shape.is_after(sa.tuple_(key, order_id), sa.tuple_(after_key, after_id))
        yield sa.or_(is_after, key.is_(None))
    elif shape.start == "undated":
        yield shape.is_after(order_id, after_id)
        if shape.sort.by is not SortBy.ID:
            yield key.is_(None)


def _columns(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield "id" if name == SEARCH else FILTERS[name][0]


def _stretches(
    shape: _Shape, columns: Any, conditions: Conditions, *, may_lack_date: bool = True
) -> Iterator[sa.Select[Any]]:
    """Return ids and values of the sort: those with a date, then those without."""
    by = shape.sort.by
    if by is SortBy.ID:
        yield _by_id(shape, columns, conditions, sa.literal_column("NULL"), shape.start != "first")
        return
    may_lack_date &= by is not SortBy.PLACED_AT and shape.of("ship_date") in ([], ["undated"])
    if shape.start != "undated" and not (may_lack_date and "undated" in shape.names):
        yield _by_key(shape, columns, by.column, conditions)
    if not may_lack_date:
        return
    undated = [*conditions, columns.ship_date.is_(None)]
    if by is SortBy.DUE_AT:
        yield _by_key(shape, columns, "placed_at", undated)
    else:
        yield _by_id(shape, columns, undated, columns.ship_date, shape.start == "undated")


def _by_id(
    shape: _Shape, columns: Any, conditions: Conditions, key: Any, is_continued: bool
) -> sa.Select[Any]:
    """Return the walk of orders that have the same value of the sort, or none."""
    found = select(columns.id.label("order_id"), key.label("sort_key")).where(*conditions)
    if is_continued:
        found = found.where(shape.is_after(columns.id, bindparam("after_id", type_=sa.BigInteger)))
    if shape.sort.by is SortBy.ID:
        return found.order_by(*shape.ordered(columns.id))
    # By the key, too, which PostgreSQL doesn't know to be the same for all: it would sort them.
    return found.order_by(*shape.ordered(key, columns.id))


def _by_key(shape: _Shape, columns: Any, name: str, conditions: Conditions) -> sa.Select[Any]:
    """Return the walk along a column, within the bounds that its filters set."""
    key = columns[name]
    found = select(columns.id.label("order_id"), key.label("sort_key")).where(*conditions)
    return found.where(*_bounds(shape, columns, name)).order_by(*shape.ordered(key, columns.id))


def _bounds(shape: _Shape, columns: Any, column: str) -> Iterator[ColumnElement[bool]]:
    names, key = shape.of(column), columns[column]
    if shape.start == "dated":
        position = (
            bindparam("after_key", type_=db.Instant),
            bindparam("after_id", type_=sa.BigInteger),
        )
        yield shape.is_after(sa.tuple_(key, columns.id), sa.tuple_(*position))
        # The position lies inside the bounds, and takes the place of the one behind it.
        is_behind = "_from" if shape.sort.descending else "_before"
        names = [name for name in names if name.endswith((is_behind, "undated"))]
    elif not names:
        yield key.is_not(None)
    yield from (condition(name, columns) for name in names)
