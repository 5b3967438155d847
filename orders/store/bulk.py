"""All orders as rows, for a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from orders.store.tables import Instant, OrderRow

BATCH = 5_000
_COLUMNS = list(OrderRow.__table__.columns)


def last_id(connection: Connection) -> int:
    """Give the highest id that the store ever gave to an order, 0 where it gave none."""
    # Even where that order has been lost since. PostgreSQL keeps it in a sequence, and will have
    # its place here.
    given = connection.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = 'orders'"))
    highest = connection.scalar(select(func.max(OrderRow.id)))
    return max(given or 0, highest or 0)


def all_rows(database: Database) -> Iterator[Sequence[Any]]:
    """Give all orders by id, as tuples of their columns, instants as the API writes them.

    They are read in batches inside one read transaction.
    """
    columns = [
        type_coerce(column, String).label(column.name)
        if isinstance(column.type, Instant)
        else column
        for column in _COLUMNS
    ]
    statement = (
        select(*columns)
        .where(OrderRow.id > bindparam("after"))
        .order_by(OrderRow.id)
        .limit(literal_column(str(BATCH)))
    )
    after = 0
    with database.snapshot() as connection:
        while rows := connection.execute(statement, {"after": after}).all():
            yield from map(tuple, rows)
            after = rows[-1].id


def count_all(database: Database) -> int:
    """Give how many orders there are."""
    with database.read() as connection:
        return connection.scalar(select(func.count()).select_from(OrderRow)) or 0
