"""What pages of orders can be filtered by, and the condition of each filter."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    String,
    and_,
    bindparam,
    column,
    false,
    literal_column,
    or_,
    select,
    table,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from orders import domain
from orders.domain import Status
from orders.store.database.database import Folded, Unindexed
from orders.store.tables import OrderRow

Conditions = list[ColumnElement[bool]]
ORDERS: Any = OrderRow.c
SEARCH = "search"
# Whose indexes begin with the status.
_BY_STATUS = ("placed_at", "ship_date")
# Of two parts of a reference, the first of these (ASCII, no letters, no digits) is between them.
# Matched one by one, what is found is the same as by `order_words`, which is written by triggers.
SEPARATOR = "[ -/:-@[-`{-~]"
_SEPARATED = re.compile(SEPARATOR.replace("@[", r"@\["))
_GLOB_SPECIAL = re.compile(r"[*?[]")
# What people write in front of an order's number.
_NUMBER_SIGN = re.compile(r"^(?:#|no\.? ?#?)")
# After any text that begins with another: references have at most 64 characters.
_LAST = "\U0010ffff" * 64


# Of each filter, its column (the search has none) and its comparison.
FILTERS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "pet_id": ("pet_id", operator.eq),
    "reference": ("reference", operator.eq),
    "placed_from": ("placed_at", operator.ge),
    "placed_before": ("placed_at", operator.lt),
    "ships_from": ("ship_date", operator.ge),
    "ships_before": ("ship_date", operator.lt),
    "updated_from": ("updated_at", operator.ge),
    "updated_before": ("updated_at", operator.lt),
    "dated": ("ship_date", lambda column, _: column.is_not(None)),
    "undated": ("ship_date", lambda column, _: column.is_(None)),
    SEARCH: (SEARCH, operator.eq),
}
# Those that came after cursors: a cursor is of the same query as before if they are not set.
LATER = ("updated_from", "updated_before", "dated", "undated", SEARCH)


# Kept by triggers (`care.triggers`): no table of the shop's.
_WORDS = table("order_words", column("word", String), column("order_id", BigInteger))


class HasPart(FunctionElement[bool]):
    """Whether a further part of a reference begins with the search."""

    type = Boolean()
    inherit_cache = True

    def __init__(self, reference: Any) -> None:
        patterns = (bindparam(name, type_=String) for name in ("search_glob", "search_regex"))
        super().__init__(reference, *patterns)


@compiles(HasPart, "sqlite")
def _by_glob(element: HasPart, compiler: SQLCompiler, **options: Any) -> str:
    reference, glob, _ = element.clauses
    # Only what is rendered becomes a parameter.
    shown, pattern = (compiler.process(each, **options) for each in (reference, glob))
    return f"(lower({shown}) GLOB {pattern})"


@compiles(HasPart, "postgresql")
def _by_regex(element: HasPart, compiler: SQLCompiler, **options: Any) -> str:
    reference, _, regex = element.clauses
    shown, pattern = (compiler.process(each, **options) for each in (reference, regex))
    return f'(lower({shown} COLLATE "C") ~ {pattern})'


@dataclass(frozen=True, slots=True)
class Filters:
    """Which orders are wanted: those that match all filters that are set. From is inclusive.

    `search` is an order's number, with or without `#` or `No.`, or how a part of a reference
    begins, in either case.
    """

    statuses: tuple[Status, ...] = tuple(Status)
    pet_id: int | None = None
    reference: str | None = None
    placed_from: datetime | None = None
    placed_before: datetime | None = None
    ships_from: datetime | None = None
    ships_before: datetime | None = None
    updated_from: datetime | None = field(default=None, repr=False)
    updated_before: datetime | None = field(default=None, repr=False)
    dated: bool | None = field(default=None, repr=False)
    search: str | None = field(default=None, repr=False)

    @property
    def undated(self) -> bool | None:
        """Whether orders without a shipDate are wanted only: the filter of `dated=false`."""
        return None if self.dated is None else not self.dated

    def values(self) -> dict[str, Any]:
        """Return the filters that are set by name, but for the statuses."""
        values = {name: getattr(self, name) for name in FILTERS}
        return {name: each for name, each in values.items() if each not in {None, False}}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the conditions."""
        values = self.values()
        if self.search is not None:
            # As the databases fold: ASCII letters only.
            folded = self.search.encode().lower().decode()
            values |= {
                SEARCH: folded,
                "search_end": folded + _LAST,
                **_patterns(folded),
                "search_id": domain.parse_id(_NUMBER_SIGN.sub("", folded)) or 0,
            }
        return values


def condition(name: str, columns: Any, *, indexed: bool = True) -> Any:
    """Return the condition of a filter on some columns; by no index of SQLite, if so wanted."""
    name_of_column, compare = FILTERS[name]
    shown = (lambda each: each) if indexed else Unindexed
    if name == SEARCH:
        reference = shown(columns.reference)
        return or_(_has_id(shown(columns.id)), _begins(reference), HasPart(reference))
    column, value = columns[name_of_column], bindparam(name, type_=columns[name_of_column].type)
    met = compare(shown(column), value)
    # The index is of folded references.
    return and_(Folded(column) == Folded(value), met) if indexed and name == "reference" else met


def alternatives(column: str, names: list[str], statuses: tuple[str, ...]) -> list[Conditions]:
    """Return what the orders meet that a column's filters leave: one of these, each by an index."""
    if column == SEARCH:
        by_id = _has_id(ORDERS.id)
        begins = _begins(ORDERS.reference)
        by_word = ORDERS.id.in_(words())
        others = [~by_id, or_(ORDERS.reference.is_(None), ~_begins(Unindexed(ORDERS.reference)))]
        return [[by_id], [begins, ~by_id], [by_word, *others]]
    conditions = [condition(name, ORDERS) for name in names]
    if column in _BY_STATUS:
        conditions.append(status_is_one_of(statuses, ORDERS.status))
    return [conditions]


def words() -> Any:
    """Return the query for the ids of orders by a further part of their references.

    One that has several such parts is there several times.
    """
    return select(_WORDS.c.order_id).where(
        _WORDS.c.word >= bindparam(SEARCH, type_=String),
        _WORDS.c.word < bindparam("search_end", type_=String),
    )


def status_is_one_of(statuses: tuple[str, ...], column: Any) -> Any:
    """Return the condition that the status is one of some."""
    literals = [literal_column(f"'{status}'", String) for status in statuses]
    return column.in_(literals) if literals else false()


def _patterns(text: str) -> dict[str, str]:
    """Return the patterns of references that have a further part that begins so."""
    if _SEPARATED.match(text):
        return {"search_glob": "", "search_regex": "a^"}  # which no text matches
    glob, regex = _GLOB_SPECIAL.sub(r"[\g<0>]", text), re.sub(r"\W", r"\\\g<0>", text)
    return {
        "search_glob": f"*{SEPARATOR}{glob}*",
        "search_regex": _SEPARATED.pattern + regex,
    }


def _has_id(order_id: Any) -> ColumnElement[bool]:
    has_id: ColumnElement[bool] = order_id == bindparam("search_id", type_=BigInteger)
    return has_id


def _begins(reference: Any) -> ColumnElement[bool]:
    first, end = (bindparam(name, type_=String) for name in (SEARCH, "search_end"))
    return and_(reference.is_not(None), Folded(reference) >= first, Folded(reference) < end)
