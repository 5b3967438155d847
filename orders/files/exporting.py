"""All orders as the lines of a file, which the database makes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from sqlalchemy import String, bindparam, case, func, literal_column, or_, select
from sqlalchemy.sql.functions import FunctionElement

from orders.files.rows import ORDERS
from orders.files.spreadsheets import FORMULAS
from orders.store import orders_json
from orders.store.database.database import Database, Query, count_of, sql_function
from orders.store.orders_json import joined, unless_null
from orders.store.tables import FreeText, orders

HEADERS = {".csv": ",".join(ORDERS.kinds) + "\n"}
_BATCH = 5_000
# The characters that `str.strip` removes and a text may have.
_BLANKS = "".join(each for each in map(chr, range(0x3001)) if each.isspace())
_APOSTROPHE: Any = literal_column("''''", String)
_NOTHING: Any = literal_column("''", String)


@sql_function(
    sqlite="""{} GLOB '*[,"' || char(10, 13) || ']*'""", postgresql="""{} ~ '[,"\\n\\r]'"""
)
class _NeedsQuotes(FunctionElement[bool]):
    """Whether a text can be a cell of CSV only within quotes."""


@sql_function(
    sqlite="{} GLOB '[0-9A-Za-z]*[0-9A-Za-z]'", postgresql="{} ~ '^[0-9A-Za-z].*[0-9A-Za-z]$'"
)
class _IsPlain(FunctionElement[bool]):
    """Whether a text begins and ends so that it is harmless, as most are: this is found soonest."""


def _harmless(text: Any) -> Any:
    """Return a text as `spreadsheets.cell_text` makes it whole again."""
    rest = func.ltrim(text, _APOSTROPHE)
    trimmed = func.rtrim(func.ltrim(rest, _BLANKS), _BLANKS)
    is_changed = or_(rest != trimmed, *(func.substr(rest, 1, 1) == each for each in FORMULAS))
    return case((_IsPlain(text), text), (is_changed, joined(_APOSTROPHE, text)), else_=text)


def _cell(column: Any) -> Any:
    text = orders_json.as_text(column)
    if isinstance(column.type, FreeText):
        harmless = _harmless(column)
        doubled = func.replace(harmless, literal_column("'\"'"), literal_column("'\"\"'"))
        text = case((_NeedsQuotes(column), joined('"', doubled, '"')), else_=harmless)
    return unless_null(column, text) if column.nullable else text


def _csv() -> Any:
    first, *others = map(_cell, orders.columns)
    return joined(first, *chain.from_iterable((",", cell) for cell in others))


def _batches(line: Any) -> Query:
    rows = (
        select(orders.c.id, joined(line, "\n").label("line"))
        .where(orders.c.id > bindparam("after"))
        .order_by(orders.c.id)
        .limit(literal_column(str(_BATCH)))
        .subquery()
    )
    lines = func.aggregate_strings(rows.c.line, _NOTHING)
    return Query(
        select(lines, func.max(rows.c.id), func.count()),
        select(lines.aggregate_order_by(rows.c.id), func.max(rows.c.id), func.count()),
    )


_JSON_LINES = _batches(orders_json.order_line())
_BATCHES = {".csv": _batches(_csv()), ".jsonl": _JSON_LINES, ".ndjson": _JSON_LINES}


def lines(database: Database, ending: str) -> Iterator[tuple[str, int]]:
    """Yield all orders by id as lines of a file with this ending, in batches; how many in each.

    They are read inside one read transaction.
    """
    after = 0
    with database.snapshot() as connection:
        while after is not None:
            rows = _BATCHES[ending].execute(connection, after=after).fetchall()
            ((text, after, count),) = rows
            yield text or "", count


def count_all(database: Database) -> int:
    with database.read() as connection:
        return count_of(connection, orders)
