"""The statements that pages of orders are read with, made for each shape of what is asked."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    bindparam,
    func,
    select,
    union_all,
)

from orders.store import events, orders_json
from orders.store.database.queries import Query
from orders.store.tables import DayRow, OrderRow
from orders.store.walks import DAYS_OF, Gathering, Part, Sort, Walk

# As many shapes as clients may think of would fill the memory.
_KEPT_STATEMENTS = 500


@lru_cache(maxsize=_KEPT_STATEMENTS)
def rows(walk: Walk, *, started: bool, stopped: bool = False) -> Query:
    """Return the statement for the next orders of a walk: JSON, key, id, newest event.

    Its parameters are the filters, `size`, and `after_key` and `after_id` where the walk is
    `started`, `until_key` and `until_id` where it is `stopped`, and includes the row there.
    """
    shown = (
        orders_json.order_v2().label("json"),
        walk.shown_key().label("sort_key"),
        OrderRow.id.label("order_id"),
        events.REVISION.label("revision"),
    )
    conditions = [*walk.conditions(), *walk.limits(started=started, stopped=stopped)]
    return _merged(walk, select(*shown).where(*conditions), bindparam("size"))


@lru_cache(maxsize=_KEPT_STATEMENTS)
def entry_after(walk: Walk, *, started: bool) -> Query:
    """Return the statement for the key and id that a walk has met after `skipped` others."""
    limits = walk.limits(started=started, stopped=False)
    entries = select(walk.shown_key().label("sort_key"), OrderRow.id.label("order_id"))
    return _merged(walk, entries.where(*limits), 1, bindparam("skipped"))


@lru_cache(maxsize=_KEPT_STATEMENTS)
def next_place(walk: Walk, column: str, *, started: bool) -> Query:
    """Return the statement for where a walk can next meet an order of some days, as a key or an id.

    The days are those of `column`, from `first_day` to `last_day`. What it gives is NULL where no
    more can come.
    """
    of, to = DAYS_OF[column], "id" if walk.is_by_id else walk.sort.by.value
    first, last = getattr(DayRow, f"{of}_min_{to}"), getattr(DayRow, f"{of}_max_{to}")
    days = DayRow.day.between(
        bindparam("first_day", type_=String), bindparam("last_day", type_=String)
    )
    after = bindparam("after_id" if walk.is_by_id else "after_key", type_=first.type)
    place = func.max(last) if walk.sort.falling else func.min(first)
    can_come = first <= after if walk.sort.falling else last >= after
    statement = select(place).where(days)
    return Query(statement.where(can_come) if started else statement)


def _merged(walk: Walk, statement: Select[Any], size: Any, skipped: Any = 0) -> Query:
    """Return the statement for the first rows of the ranges of a walk, after `skipped` others."""

    def cut(rows: Any) -> Any:
        ordered = rows.order_by(*walk.order()).limit(size)
        return ordered if isinstance(skipped, int) else ordered.offset(skipped)

    ranges = [statement.where(prefix) for prefix in walk.prefixes()]
    if len(ranges) == 1:
        return Query(cut(ranges[0]))
    # SQLite merges them. PostgreSQL would read them whole and sort them, unless each is cut, too.
    own = [each.order_by(*walk.order()).limit(size + skipped) for each in ranges]
    parts = [select(each.subquery()) for each in own]
    return Query(cut(union_all(*ranges)), on_postgres=cut(union_all(*parts)))


@lru_cache(maxsize=_KEPT_STATEMENTS)
def number_in(gathering: Gathering) -> Query:
    """Return the statement for how many entries a range has, counted up to `most`."""
    ranges = [
        select(OrderRow.id).where(prefix, *gathering.bounds())
        for prefix in gathering.walk.prefixes()
    ]
    entries = (union_all(*ranges) if len(ranges) > 1 else ranges[0]).limit(bindparam("most"))
    return Query(select(func.count()).select_from(entries.subquery()))


@lru_cache(maxsize=_KEPT_STATEMENTS)
def gathered(gathering: Gathering, start: Part | None) -> Query:
    """Return the statement for the next orders of a range, sorted: as `rows` does.

    `start` is the part in which the page begins, None for the first page.
    """
    walk = gathering.walk
    entries = select(walk.shown_key().label("sort_key"), OrderRow.id.label("order_id"))
    entries = entries.where(*gathering.conditions(start))
    ranges = union_all(*(entries.where(prefix) for prefix in walk.prefixes())).subquery()
    chosen = select(ranges).order_by(*_last_without_key(ranges, walk.sort))
    page = chosen.limit(bindparam("size")).subquery()
    shown = select(orders_json.order_v2(), page.c.sort_key, page.c.order_id, events.REVISION)
    return Query(
        shown.join(page, OrderRow.id == page.c.order_id).order_by(
            *_last_without_key(page, walk.sort)
        )
    )


def _last_without_key(rows: Any, sort: Sort) -> list[ColumnElement[Any]]:
    columns = [rows.c.sort_key, rows.c.order_id]
    if sort.falling:
        columns = [column.desc() for column in columns]
    return [rows.c.sort_key.is_(None), *columns]
