"""Pages of orders: which index is walked, how far, and what is done where none fits.

A page is the next rows of an index that has a filter's column first and then the sort's, after
the last row of the page before (a keyset): it costs the same wherever it is and however many orders
there are. Without such a filter it is merged from the three statuses. Where such a walk covers all
filters, which one filter and any range of the sort's own column always are, that is all.

Other combinations leave something to be looked for, and no index could have them all. Then there
are several ways to a page: to walk one index or another and take what fits, or to gather a range
of another column whole and sort it. All are tried in turns, each turn four times as far as the
one before, until one is through. So a page costs at most a few times what its best way costs,
which is never more than the fewest orders that one of its filters leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Protocol, cast

from orders.domain import MAX_INT64, Status
from orders.store import events, statements, walks
from orders.store.database.engine import Database
from orders.store.database.queries import Query
from orders.store.database.types import instant_of
from orders.store.days import day_of
from orders.store.walks import Gathering, Part, Sort, SortBy, Walk

# How many entries of an index are looked at in the first turn, and how much more in each next.
FIRST_STRETCH = 100
GROWTH = 4
_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"
_Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which orders are wanted: those that all filters given let through. From is inclusive."""

    statuses: tuple[Status, ...] = tuple(Status)
    pet_id: int | None = None
    reference: str | None = None
    placed_from: datetime | None = None
    placed_before: datetime | None = None
    ships_from: datetime | None = None
    ships_before: datetime | None = None

    def given(self) -> dict[str, Any]:
        """Return the filters by name, but for the statuses."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        del named["statuses"]
        return {name: value for name, value in named.items() if value is not None}

    def days_of(self, column: str) -> tuple[str, str]:
        """Return the first and last day on which a wanted order can have been placed or ship."""
        since, before = self._range(column)
        return day_of(since) if since else _FIRST_DAY, day_of(before) if before else _LAST_DAY

    def bound(self, sort: Sort) -> datetime | None:
        """Return where the orders wanted begin in a sort, None where nothing says so."""
        since, before = self._range(sort.by.value)
        return before if sort.falling else since

    def _range(self, column: str) -> tuple[datetime | None, datetime | None]:
        if column == "placed_at":
            return self.placed_from, self.placed_before
        if column == "ship_date":
            return self.ships_from, self.ships_before
        return None, None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page ended: what the last order was sorted by (None: it had no date), and its id."""

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
    """What is asked of a page: `after` is where the page before ended, None for the first."""

    filters: Filters
    sort: Sort
    size: int
    after: Position | None = None

    @property
    def wanted(self) -> int:
        """How many orders are read: one more tells whether there is more."""
        return self.size + 1


def read_page(database: Database, query: PageQuery) -> Page:
    """Return a page of orders.

    Raises:
        StoreUnavailable: the database can't be read.
    """
    shape = _shape(query)
    best = walks.all_walks(*shape)[0] if query.filters.statuses else None
    if best and best.covers_all:
        # One statement, which says with each row which event it is as of, does for most pages.
        parts = _parts(best, query.after)
        rows = _Reading(database.ask, query).rows(*parts[0], query.wanted)
        if len(rows) == query.wanted or (rows and len(parts) == 1):
            return _page(query, rows, rows[0][3])
    with database.snapshot() as connection:

        def ask(statement: Query, **parameters: Any) -> _Rows:
            rows: _Rows = statement.execute(connection, **parameters).fetchall()
            return rows

        revision = events.newest_id(connection)
        reading = _Reading(ask, query)
        if best is None:
            return _page(query, [], revision)
        if best.covers_all:
            return _page(query, _Walking(reading, best).to_the_end(), revision)
        return _page(query, _search(reading, shape), revision)


def _search(reading: _Reading, shape: walks.Shape) -> _Rows:
    ways: list[_Way] = [_Walking(reading, walk) for walk in walks.all_walks(*shape)]
    ways += [_Gathered(reading, gathering) for gathering in walks.all_gatherings(*shape)]
    stretch = FIRST_STRETCH
    while True:
        for way in ways:
            if way.go_on(stretch):
                return way.rows
        stretch *= GROWTH


class _Reading:
    """Statements of one page, with their parameters."""

    def __init__(self, ask: Callable[..., _Rows], query: PageQuery) -> None:
        self.query = query
        self._ask = ask
        self._given = query.filters.given()

    def rows(
        self, walk: Walk, start: Position | None, size: int, stop: Position | None = None
    ) -> _Rows:
        statement = statements.rows(walk, started=start is not None, stopped=stop is not None)
        return self._asked(statement, after=start, until=stop, size=size)

    def entry_after(self, walk: Walk, start: Position | None, skipped: int) -> Position | None:
        statement = statements.entry_after(walk, started=start is not None)
        found = self._asked(statement, after=start, skipped=skipped)
        return _position(*found[0]) if found else None

    def skip(self, walk: Walk, start: Position | None) -> tuple[bool, Position | None]:
        """Return whether a walk can meet what is wanted after a position, and from which one on.

        Where the orders of the days wanted lie in the sort, the table of days knows.
        """
        for column in walk.other_ranges():
            first_day, last_day = self.query.filters.days_of(column)
            statement = statements.next_place(walk, column, started=start is not None)
            found = self._asked(statement, after=start, first_day=first_day, last_day=last_day)
            ((place,),) = found
            if place is None:
                return False, start
            start = self._further(walk, start, place)
        return True, start

    def _further(self, walk: Walk, start: Position | None, place: Any) -> Position | None:
        """Return the position just before a place, or where the walk is if that is further on."""
        falling = walk.sort.falling
        if walk.is_by_id:
            there = Position(None, place + 1 if falling else place - 1)
            ahead = start is None or (there.id < start.id if falling else there.id > start.id)
        else:
            key = cast("datetime", instant_of(place))
            there = Position(key, MAX_INT64 if falling else 0)
            here = start.key if start else self.query.filters.bound(walk.sort)
            ahead = here is None or (key < here if falling else key > here)
        return there if ahead else start

    def number_in(self, gathering: Gathering, most: int) -> int:
        ((number,),) = self._asked(statements.number_in(gathering), most=most)
        return int(number)

    def gathered(self, gathering: Gathering) -> _Rows:
        after = self.query.after
        start = _parts(gathering.walk, after)[0][0].part if after else None
        statement = statements.gathered(gathering, start)
        return self._asked(statement, after=after, size=self.query.wanted)

    def _asked(
        self,
        statement: Query,
        *,
        after: Position | None = None,
        until: Position | None = None,
        **more: Any,
    ) -> _Rows:
        parameters = {**self._given, **more}
        for name, position in (("after", after), ("until", until)):
            if position is not None:
                parameters |= {f"{name}_key": position.key, f"{name}_id": position.id}
        return self._ask(statement, **parameters)


class _Way(Protocol):
    """A way to a page. `rows` are what it has found so far."""

    rows: _Rows

    def go_on(self, stretch: int) -> bool:
        """Look at this many more entries; tell whether the page is whole."""


class _Walking:
    """The way along an index, in stretches: of each, what fits is taken."""

    def __init__(self, reading: _Reading, walk: Walk) -> None:
        self.rows: _Rows = []
        self._reading = reading
        self._parts = _parts(walk, reading.query.after)

    def go_on(self, stretch: int) -> bool:
        walk, start = self._parts[0]
        can_come, start = self._reading.skip(walk, start)
        if not can_come:
            self._parts.pop(0)
            return self._is_whole()
        self._parts[0] = (walk, start)
        stop = self._reading.entry_after(walk, start, stretch - 1)
        self._take(stop)
        if stop is not None:
            self._parts[0] = (walk, stop)
        else:
            self._parts.pop(0)
        return self._is_whole()

    def to_the_end(self) -> _Rows:
        while not self._is_whole():
            self._take(None)
            self._parts.pop(0)
        return self.rows

    def _take(self, stop: Position | None) -> None:
        missing = self._reading.query.wanted - len(self.rows)
        self.rows += self._reading.rows(*self._parts[0], missing, stop)

    def _is_whole(self) -> bool:
        return not self._parts or len(self.rows) == self._reading.query.wanted


class _Gathered:
    """The way over a range that is read whole and then sorted, where it is short enough."""

    def __init__(self, reading: _Reading, gathering: Gathering) -> None:
        self.rows: _Rows = []
        self._reading = reading
        self._gathering = gathering

    def go_on(self, stretch: int) -> bool:
        if self._reading.number_in(self._gathering, stretch) == stretch:
            return False
        self.rows = self._reading.gathered(self._gathering)
        return True


def _shape(query: PageQuery) -> walks.Shape:
    statuses = tuple(status.value for status in query.filters.statuses)
    return frozenset(query.filters.given()), statuses, query.sort


def _parts(walk: Walk, after: Position | None) -> list[tuple[Walk, Position | None]]:
    """Return what is left of a walk after a position, as parts, each with where it begins."""
    if walk.sort.by is not SortBy.SHIP_DATE:
        return [(walk, after)]
    dated, undated = walk.in_part(Part.DATED), walk.in_part(Part.UNDATED)
    if walk.has_range():
        return [(dated, after)]
    if after is not None and after.key is None:
        return [(undated, after)]
    return [(dated, after), (undated, None)]


def _position(key: object, order_id: int) -> Position:
    return Position(instant_of(key), order_id)


def _page(query: PageQuery, rows: Sequence[tuple[Any, ...]], revision: int) -> Page:
    shown = rows[: query.size]
    last = _position(*shown[-1][1:3]) if len(rows) == query.wanted else None
    return Page([row[0] for row in shown], last, revision)
