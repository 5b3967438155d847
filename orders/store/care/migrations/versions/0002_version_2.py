"""What version 2 of the API asks: indexes for its pages, and what is known of each day."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

FILTERS = {"status": "status", "pet": "pet_id", "reference": "reference"}
SORTS = {"": (), "_placed_at": ("placed_at",), "_ship_date": ("ship_date",)}

# Compared byte by byte, whatever language a server speaks.
DAY = sa.String(10).with_variant(sa.String(10, collation="C"), "postgresql")

COUNTS = ("placed", "shipped", "cancelled")
PLACED = ("min_id", "max_id", "min_ship_date", "max_ship_date")
SHIPS = ("min_id", "max_id", "min_placed_at", "max_placed_at")
BOUNDS = [f"placed_{name}" for name in PLACED] + [f"ships_{name}" for name in SHIPS]
# What happened on each day, and where the orders of each day lie. The event log knows on which
# day an order was cancelled, unless it was imported so.
KNOWN = """
    SELECT substr(placed_at, 1, 10) AS day, count(*) AS placed, 0 AS shipped, 0 AS cancelled,
            min(id) AS placed_min_id, max(id) AS placed_max_id,
            min(ship_date) AS placed_min_ship_date, max(ship_date) AS placed_max_ship_date,
            NULL AS ships_min_id, NULL AS ships_max_id,
            NULL AS ships_min_placed_at, NULL AS ships_max_placed_at
        FROM orders GROUP BY 1
    UNION ALL SELECT substr(ship_date, 1, 10), 0, sum(status = 'shipped'), 0,
            NULL, NULL, NULL, NULL, min(id), max(id), min(placed_at), max(placed_at)
        FROM orders WHERE ship_date IS NOT NULL GROUP BY 1
    UNION ALL SELECT substr(CASE type WHEN 'order.imported' THEN updated_at ELSE at END, 1, 10),
            0, 0, count(*), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM order_events
        WHERE type IN ('order.cancelled', 'order.imported') AND status = 'cancelled' GROUP BY 1
"""


def upgrade() -> None:
    """Make the indexes, and find out what is known of each day until now."""
    for name, column in FILTERS.items():
        only = sa.text("reference IS NOT NULL") if name == "reference" else None
        for suffix, sort in SORTS.items():
            op.create_index(
                f"orders_by_{name}{suffix}",
                "orders",
                [column, *sort, "id"],
                sqlite_where=only,
                postgresql_where=only,
            )
    op.create_table(
        "order_days",
        sa.Column("day", DAY, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS),
        *(sa.Column(name, sa.BigInteger if "_id" in name else instant()) for name in BOUNDS),
    )
    if op.get_bind().dialect.name != "sqlite":
        return  # this program has known PostgreSQL since after this migration: there are no orders
    sums = [f"sum({name})" for name in COUNTS]
    bounds = [f"{'min' if '_min_' in name else 'max'}({name})" for name in BOUNDS]
    op.execute(
        f"INSERT INTO order_days (day, {', '.join([*COUNTS, *BOUNDS])}) "  # noqa: S608 # nosec B608 - as above
        f"SELECT day, {', '.join([*sums, *bounds])} FROM ({KNOWN}) GROUP BY day"
    )


def instant() -> sa.types.TypeEngine[object]:
    """Return the column type of an instant: text on SQLite, a timestamp elsewhere."""
    return sa.DateTime(timezone=True).with_variant(sa.String(24), "sqlite")
