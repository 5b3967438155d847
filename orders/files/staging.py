"""Rows that are staged for an import, in an SQLite file beside the store's.

Checking a large file takes seconds, in which the store is not locked. It is locked only while
SQLite copies the checked rows from one file to the other. To PostgreSQL they are sent before that,
as temporary tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    Table,
    Text,
    and_,
    func,
    insert,
    select,
    true,
)

from orders.domain import SEARCHED, EventType, Origin, name_in_api, search_words
from orders.store import orders as order_store
from orders.store import stats
from orders.store.care.files import scratch_folder
from orders.store.database import sqlite
from orders.store.database.database import (
    ATTACHED,
    AttachedFile,
    Folded,
    continue_ids_above,
    highest_id,
)
from orders.store.tables import EVER, QUARTER, order_quarters, order_words, orders

_ORDER = [name.key for name in orders.columns]
# The store assigns ids to the rows without one, of which this is the nth.
_COLUMNS = ["line", "nth", *_ORDER]
_MAY_BE_EMPTY = {"id", *(each.key for each in orders.columns if each.nullable)}
_VALUES = ["nullif(?, '')" if name in _MAY_BE_EMPTY else "?" for name in _COLUMNS]
_INSERT = f"INSERT INTO staged VALUES ({', '.join(_VALUES)})"  # noqa: S608 # nosec B608 - our own
_FIRST = f"SELECT line, {', '.join(_ORDER)} FROM staged ORDER BY line LIMIT ?"  # noqa: S608 # nosec B608 - our own
_ATTACHED = MetaData(schema=ATTACHED)
_STAGED = Table(
    "staged",
    _ATTACHED,
    Column("line", BigInteger),
    Column("nth", BigInteger),
    *(Column(each.key, each.type) for each in orders.columns),
)

_TEXTS = f"SELECT line, {', '.join(SEARCHED)} FROM staged"  # noqa: S608 # nosec B608 - our own
_WORDS = Table("words", _ATTACHED, Column("line", BigInteger), Column("word", Text))

# The counts that the rows add to each quarter of an hour (`tables.order_quarters`), and in all.
_SUMMARIZE = (
    f"""
    CREATE TABLE quarters AS
    SELECT {QUARTER["sqlite"].format("at")} AS quarter,
        sum(placed) AS placed, sum(shipped) AS shipped, sum(cancelled) AS cancelled
    FROM (
        SELECT placed_at AS at, 1 AS placed, 0 AS shipped, 0 AS cancelled FROM staged
        UNION ALL SELECT ship_date, 0, 1, 0 FROM staged WHERE status = 'shipped'
        UNION ALL SELECT updated_at, 0, 0, 1 FROM staged WHERE status = 'cancelled'
    ) GROUP BY 1
    """,  # noqa: S608 # nosec B608 - our own names
    f"""
    INSERT INTO quarters
    SELECT {EVER}, coalesce(sum(placed), 0), coalesce(sum(shipped), 0), coalesce(sum(cancelled), 0)
    FROM quarters
    """,  # noqa: S608 # nosec B608 - our own names
)
_QUARTERS = Table(
    "quarters", _ATTACHED, *(Column(each.key, each.type) for each in order_quarters.columns)
)


class Staging:
    """Order rows with their line numbers in the imported file. Close it after use."""

    def __init__(self, folder: Path) -> None:
        """Make an empty staging file inside `folder`, for its owner only."""
        with ExitStack() as resources:
            self._path = resources.enter_context(scratch_folder(folder, "import")) / "rows.db"
            connection = sqlite.connect(self._path, create=True)
            resources.callback(connection.close)
            # Nothing here has to survive a crash.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            names = ", ".join(_COLUMNS[1:])
            connection.execute(f"CREATE TABLE staged (line INTEGER PRIMARY KEY, {names})")
            self._connection = connection
            self._resources = resources.pop_all()

    def close(self) -> None:
        self._resources.close()

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany(_INSERT, rows)
        self._connection.execute("COMMIT")

    def leave_out(self, lines: Iterable[int]) -> None:
        """Remove the rows of these lines."""
        self._connection.execute("BEGIN")
        self._connection.executemany("DELETE FROM staged WHERE line = ?", ((n,) for n in lines))
        self._connection.execute("COMMIT")

    def first(self, count: int) -> list[dict[str, Any]]:
        """Return the first rows: their line and the fields that are set, as the API names them."""
        names = ["line", *map(name_in_api, _ORDER)]
        rows = self._connection.execute(_FIRST, (count,))
        return [{k: v for k, v in zip(names, row, strict=True) if v is not None} for row in rows]

    def summarize(self) -> None:
        """Sum up the rows' counts for each quarter of an hour, and list their search words."""
        for statement in _SUMMARIZE:
            self._connection.execute(statement)
        rows = self._connection.execute(_TEXTS)
        found = ((line, word) for line, *texts in rows for word in search_words(texts))
        self._connection.execute("BEGIN")
        self._connection.execute("CREATE TABLE words (line, word)")
        self._connection.executemany("INSERT INTO words VALUES (?, ?)", found)
        self._connection.execute("COMMIT")

    def count(self) -> int:
        """Return how many rows there are."""
        (count,) = self._connection.execute("SELECT count(*) FROM staged").fetchone()
        return int(count)

    def attached_rows(self) -> AttachedFile:
        """Return the rows as a table that a transaction can read beside the store's."""
        return AttachedFile(self._path, (_STAGED,))

    def attached(self) -> AttachedFile:
        """Return all tables that a transaction can read beside the store's, once summarized."""
        return AttachedFile(self._path, (_STAGED, _QUARTERS, _WORDS))

    def repeated_ids(self) -> list[tuple[int, int]]:
        """Return line and id of each row whose id is on an earlier line, too."""
        rows: list[tuple[int, int]] = self._connection.execute(
            "SELECT line, id FROM (SELECT line, id, row_number() OVER "
            "(PARTITION BY id ORDER BY line) AS nth FROM staged WHERE id IS NOT NULL) "
            "WHERE nth > 1 ORDER BY line"
        ).fetchall()
        return rows

    def repeated_references(self) -> list[tuple[int, str, int]]:
        """Return line and reference of each row whose reference is on an earlier line, and that."""
        rows: list[tuple[int, str, int]] = self._connection.execute(
            "SELECT line, reference, earliest FROM (SELECT line, reference, min(line) OVER "
            "(PARTITION BY reference) AS earliest FROM staged WHERE reference IS NOT NULL) "
            "WHERE line > earliest ORDER BY line"
        ).fetchall()
        return rows


def existing_ids(connection: Connection) -> list[tuple[int, int]]:
    """Return line and id of each row whose id an order in the store has.

    The connection must have a staging beside it.
    """
    existing = select(_STAGED.c.line, _STAGED.c.id).join(orders, orders.c.id == _STAGED.c.id)
    return [(row.line, row.id) for row in connection.execute(existing.order_by(_STAGED.c.line))]


def known_references(
    connection: Connection, *, also_of_rows_with_id: bool = False
) -> Iterator[tuple[int, str, int]]:
    """Yield line, reference and order of each row without an id whose reference an order has.

    The connection must have a staging beside it.
    """
    theirs, ours = _STAGED.c.reference, orders.c.reference
    known = (
        select(_STAGED.c.line, theirs, func.min(orders.c.id))
        .join(orders, and_(Folded(ours) == Folded(theirs), ours == theirs))
        .where(true() if also_of_rows_with_id else _STAGED.c.id.is_(None))
        .group_by(_STAGED.c.line, theirs)
        .order_by(_STAGED.c.line)
    )
    yield from connection.execute(known)


def copy_to_store(connection: Connection, origin: Origin, now: datetime) -> int:
    """Insert all rows as orders, with an `order.imported` event for each; return how many.

    The rows must have been summarized.
    """
    highest = connection.scalar(select(func.max(_STAGED.c.id))) or 0
    last_id = max(highest, highest_id(connection, orders.name))
    order_id = func.coalesce(_STAGED.c.id, last_id + _STAGED.c.nth)
    rows = select(order_id, *(_STAGED.c[name] for name in _ORDER[1:])).order_by(_STAGED.c.line)
    stats.add_all(connection, _QUARTERS)
    copied = insert(orders).from_select(_ORDER, rows)
    inserted = connection.execute(copied.execution_options(preserve_rowcount=True)).rowcount
    words = select(order_id, _WORDS.c.word).join(_STAGED, _STAGED.c.line == _WORDS.c.line)
    connection.execute(insert(order_words).from_select(["order_id", "word"], words))
    newest = connection.scalar(select(func.max(order_id))) or 0
    continue_ids_above(connection, orders.name, newest)
    order_store.append_for_all(connection, EventType.IMPORTED, rows, origin, now)
    return inserted
