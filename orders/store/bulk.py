"""All orders as rows, for a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    Connection,
    String,
    bindparam,
    func,
    literal_column,
    select,
    text,
    type_coerce,
)

from orders.store.engine import Database
from orders.store.query import Query
from orders.store.tables import Instant, OrderRow

BATCH = 5_000
# Instants as they are kept on SQLite, which is how the API writes them.
_BATCH = Query(
    select(
        *(
            type_coerce(column, String).label(column.name)
            if isinstance(column.type, Instant)
            else column
            for column in OrderRow.__table__.columns
        )
    )
    .where(OrderRow.id > bindparam("after"))
    .order_by(OrderRow.id)
    .limit(literal_column(str(BATCH)))
)


def last_id(connection: Connection) -> int:
    """Give the highest id that the store ever gave to an order, 0 where it gave none."""
    # Even where that order has been lost since. PostgreSQL keeps it in a sequence, and will have
    # its place here.
    given = connection.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = 'orders'"))
    highest = connection.scalar(select(func.max(OrderRow.id)))
    return max(given or 0, highest or 0)


def batches_of_rows(database: Database) -> Iterator[list[tuple[Any, ...]]]:
    """Give all orders by id, as tuples of their columns, instants as the API writes them.

    They are read, and given, in batches inside one read transaction.
    """
    after = 0
    with database.snapshot() as connection:
        while rows := _BATCH.execute(connection, after=after).fetchall():
            yield rows
            after = rows[-1][0]


def count_all(database: Database) -> int:
    """Give how many orders there are."""
    with database.read() as connection:
        return connection.scalar(select(func.count()).select_from(OrderRow)) or 0
