"""Whether a database's tables agree with its event log, from which everything follows.

A database itself looks after its pages, indexes and foreign keys. What it can't check is what this
program's tables mean. `flask db check` asks this on PostgreSQL, and the drill of each backup.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, text

from orders.store.care.triggers import QUARTER
from orders.store.database import sequences
from orders.store.events import COPIED
from orders.store.tables import EVER

_CANCELLED_AT = "CASE type WHEN 'order.imported' THEN updated_at ELSE at END"
# A row for each thing that is counted.
_HAPPENED = f"""
    SELECT QUARTER(placed_at) AS quarter, 1 AS placed, 0 AS shipped, 0 AS cancelled FROM orders
    UNION ALL SELECT QUARTER(ship_date), 0, 1, 0 FROM orders WHERE status = 'shipped'
    UNION ALL SELECT QUARTER({_CANCELLED_AT}), 0, 0, 1 FROM order_events
        WHERE status = 'cancelled' AND type IN ('order.cancelled', 'order.imported')
"""  # noqa: S608 # nosec B608 - our own names
# What is kept, less what is counted. A FULL JOIN of the two, for which SQLite has no index, takes
# minutes where there are years of quarters.
_MISCOUNTED = f"""
    WITH happened AS ({_HAPPENED}
    ), compared AS (SELECT quarter, placed, shipped, cancelled FROM order_quarters
        UNION ALL SELECT quarter, -placed, -shipped, -cancelled FROM happened
        UNION ALL SELECT {EVER}, -placed, -shipped, -cancelled FROM happened)
    SELECT 1 FROM compared GROUP BY quarter
        HAVING sum(placed) <> 0 OR sum(shipped) <> 0 OR sum(cancelled) <> 0
"""  # noqa: S608 # nosec B608 - our own names
# Each returns a row for each fault.
_FAULTS = {
    "an order differs from its last event": """
        SELECT 1 FROM orders LEFT JOIN order_events AS latest
            ON latest.id = (SELECT max(id) FROM order_events WHERE order_id = orders.id)
        WHERE ({kept}) IS DISTINCT FROM ({latest})
    """.format(  # noqa: S608 # nosec B608 - as above
        kept=", ".join(f"orders.{name}" for name in COPIED),
        latest=", ".join(f"latest.{name}" for name in COPIED),
    ),
    "a day's figures differ from its orders": _MISCOUNTED,
    "the store has no id": "SELECT 1 WHERE (SELECT count(*) FROM store) <> 1",
}


def complaint(connection: Connection) -> str | None:
    """Return what is wrong with a database, or None."""
    for words, query in _FAULTS.items():
        faults = _with_quarters(query, connection.dialect.name)
        count = connection.execute(text(f"SELECT count(*) FROM ({faults}) AS faults")).scalar_one()  # noqa: S608 # nosec B608 - as above
        if count:
            return f"{words}, {count} times" if count > 1 else words
    for table, given in sequences.given(connection).items():
        highest = connection.execute(text(f"SELECT max(id) FROM {table}")).scalar()  # noqa: S608 # nosec B608 - our own names
        if (highest or 0) > given:
            return f"ids of {table} would be assigned twice"
    return None


def quarters_anew(dialect: str) -> str:
    """Return the SELECT of all rows that the table of quarters is to have."""
    sums = ", ".join(f"coalesce(sum({count}), 0)" for count in ("placed", "shipped", "cancelled"))
    happened = f"FROM ({_with_quarters(_HAPPENED, dialect)}) AS happened"
    quarters = f"SELECT quarter, {sums} {happened} GROUP BY quarter"  # nosec B608 - as above
    return f"{quarters} UNION ALL SELECT {EVER}, {sums} {happened}"  # nosec B608 - as above


def _with_quarters(query: str, dialect: str) -> str:
    return re.sub(r"QUARTER\(([^()]*)\)", QUARTER[dialect].format(r"\1"), query)
