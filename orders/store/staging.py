"""Where rows wait for their one transaction: an SQLite file of their own, beside the store's.

Checking a large file takes seconds, and the store is not locked for them. It is locked for the
moment in which SQLite copies the checked rows from one file to the other. On PostgreSQL, COPY will
have its place here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    column,
    func,
    insert,
    select,
    table,
    update,
)

from orders.domain import EventType, Origin
from orders.store import bulk, engine, events, scratch
from orders.store.tables import OrderRow

_ORDER = [name.key for name in OrderRow.__table__.columns]
# `nth` counts the rows that the store is to give an id.
_COLUMNS = ["line", "nth", *_ORDER]
_STAGED = table(
    "staged",
    column("line", Integer),
    column("nth", Integer),
    column("id", BigInteger),
    *(column(name) for name in _ORDER if name != "id"),
    schema="beside",
)


class Staging:
    """Order rows with the lines of the file that they come from. Close it after use."""

    def __init__(self, folder: Path) -> None:
        """Make an empty one, in a file that only its owner can read."""
        with ExitStack() as resources:
            self.path = resources.enter_context(scratch.folder(folder, "import")) / "rows.db"
            connection = engine.connect(self.path, create=True)
            resources.callback(connection.close)
            # Nothing here need survive anything.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"CREATE TABLE staged ({', '.join(_COLUMNS)})")
            self._connection = connection
            self._resources = resources.pop_all()

    def close(self) -> None:
        """Forget all rows."""
        self._resources.close()

    def extend(self, rows: Iterable[tuple[int, Sequence[Any]]]) -> None:
        """Add rows: a line number and the values of an order, instants as the API has them."""
        self._connection.execute("BEGIN")
        self._connection.executemany(  # nothing in it but question marks
            f"INSERT INTO staged VALUES ({', '.join('?' for _ in _COLUMNS)})",  # noqa: S608 # nosec B608
            _counted(rows),
        )
        self._connection.execute("COMMIT")

    def repeated_ids(self) -> list[tuple[int, int]]:
        """Give line and id of the rows whose id stands on an earlier line, too."""
        rows: list[tuple[int, int]] = self._connection.execute(
            "SELECT line, id FROM (SELECT line, id, row_number() OVER "
            "(PARTITION BY id ORDER BY line) AS nth FROM staged WHERE id IS NOT NULL) "
            "WHERE nth > 1 ORDER BY line"
        ).fetchall()
        return rows


def existing_ids(connection: Connection) -> list[tuple[int, int]]:
    """Give line and id of the rows whose id an order of the store has.

    The connection is one with a staging beside it.
    """
    known = select(_STAGED.c.line, _STAGED.c.id).join(OrderRow, OrderRow.id == _STAGED.c.id)
    return [(row.line, row.id) for row in connection.execute(known.order_by(_STAGED.c.line))]


def copy_to_store(connection: Connection, origin: Origin, now: datetime) -> int:
    """Insert all rows as orders, with an `order.imported` event for each; give how many."""
    highest = connection.scalar(select(func.max(_STAGED.c.id))) or 0
    last_id = max(highest, bulk.last_id(connection))
    unnumbered = update(_STAGED).where(_STAGED.c.id.is_(None))
    connection.execute(unnumbered.values(id=last_id + _STAGED.c.nth))
    source = select(*(_STAGED.c[name] for name in _ORDER)).order_by(_STAGED.c.line)
    inserted = connection.execute(insert(OrderRow).from_select(_ORDER, source))
    events.append_for_all(connection, EventType.IMPORTED, select(_STAGED.c.id), origin, now)
    return inserted.rowcount


def _counted(rows: Iterable[tuple[int, Sequence[Any]]]) -> Iterable[tuple[Any, ...]]:
    nth = 0
    for line, row in rows:
        if row[0] is None:
            nth += 1
        yield (line, nth, *row)
