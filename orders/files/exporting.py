"""All orders as rows, to be written to a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import bindparam, func, literal_column, select

from orders.store.database.engine import Database
from orders.store.database.queries import Query
from orders.store.database.types import Instant, InstantText
from orders.store.tables import OrderRow

BATCH = 5_000
_BATCH = Query(
    select(
        *(
            InstantText(column) if isinstance(column.type, Instant) else column
            for column in OrderRow.columns
        )
    )
    .where(OrderRow.c.id > bindparam("after"))
    .order_by(OrderRow.c.id)
    .limit(literal_column(str(BATCH)))
)


def batches_of_rows(database: Database) -> Iterator[list[tuple[Any, ...]]]:
    """Yield all orders by id, as tuples of their columns, instants as the API writes them.

    They are read in batches inside one read transaction.
    """
    after = 0
    with database.snapshot() as connection:
        while rows := _BATCH.execute(connection, after=after).fetchall():
            yield rows
            after = rows[-1][0]


def count_all(database: Database) -> int:
    """Return how many orders there are."""
    with database.read() as connection:
        return connection.scalar(select(func.count()).select_from(OrderRow)) or 0
