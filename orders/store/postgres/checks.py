"""The checks of `flask db check` on PostgreSQL: whether the tables agree with the event log.

The server itself looks after its pages, indexes and foreign keys. What it can't check is what this
program's tables mean: everything follows from the event log.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from orders.store.database import sequences

_COPIED = "pet_id, quantity, ship_date, status, placed_at, updated_at, reference"
_LATEST = f"""
    SELECT DISTINCT ON (order_id) order_id, {_COPIED} FROM order_events ORDER BY order_id, id DESC
"""  # noqa: S608 # nosec B608 - our own names
_DAY = "to_char({}, 'YYYY-MM-DD')"
_CANCELLED_AT = "CASE type WHEN 'order.imported' THEN updated_at ELSE at END"
_COUNTED = f"""
    SELECT day, sum(placed) AS placed, sum(shipped) AS shipped, sum(cancelled) AS cancelled FROM (
        SELECT {_DAY.format("placed_at")} AS day, 1 AS placed, 0 AS shipped, 0 AS cancelled
            FROM orders
        UNION ALL SELECT {_DAY.format("ship_date")}, 0, 1, 0 FROM orders WHERE status = 'shipped'
        UNION ALL SELECT {_DAY.format(_CANCELLED_AT)}, 0, 0, 1 FROM order_events
            WHERE status = 'cancelled' AND type IN ('order.cancelled', 'order.imported')
    ) AS happened GROUP BY day
"""  # noqa: S608 # nosec B608 - our own names
# Each returns a row for each fault.
_FAULTS = {
    "an order differs from its last event": f"""
        SELECT 1 FROM orders LEFT JOIN ({_LATEST}) AS latest ON order_id = orders.id
        WHERE (orders.pet_id, orders.quantity, orders.ship_date, orders.status, orders.placed_at,
            orders.updated_at, orders.reference) IS DISTINCT FROM
            (latest.pet_id, latest.quantity, latest.ship_date, latest.status, latest.placed_at,
            latest.updated_at, latest.reference)
    """,  # noqa: S608 # nosec B608 - our own names
    "a day's figures differ from its orders": f"""
        SELECT 1 FROM order_days FULL JOIN ({_COUNTED}) AS counted USING (day)
        WHERE (coalesce(order_days.placed, 0), coalesce(order_days.shipped, 0),
            coalesce(order_days.cancelled, 0)) IS DISTINCT FROM
            (coalesce(counted.placed, 0), coalesce(counted.shipped, 0),
            coalesce(counted.cancelled, 0))
    """,  # noqa: S608 # nosec B608 - our own names
    "the store has no id": "SELECT 1 WHERE (SELECT count(*) FROM store) <> 1",
}


def complaint(connection: Connection) -> str | None:
    """Return what is wrong with a database, or None."""
    for words, faults in _FAULTS.items():
        count = connection.execute(text(f"SELECT count(*) FROM ({faults}) AS faults")).scalar_one()  # noqa: S608 # nosec B608 - as above
        if count:
            return f"{words}, {count} times" if count > 1 else words
    for table, given in sequences.given(connection).items():
        highest = connection.execute(text(f"SELECT max(id) FROM {table}")).scalar()  # noqa: S608 # nosec B608 - our own names
        if (highest or 0) > given:
            return f"ids of {table} would be assigned twice"
    return None
