"""What happened is counted in quarters of an hour, of which every time zone's days are made."""

import sqlalchemy as sa
from alembic import op

from orders.store.care import triggers
from orders.store.tables import EVER, RowId

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COUNTED = ("placed", "shipped", "cancelled")
UNTIL_NOW = """
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled)
    WITH happened AS (
        SELECT placed_at AS at, 1 AS placed, 0 AS shipped, 0 AS cancelled FROM orders
        UNION ALL SELECT ship_date, 0, 1, 0 FROM orders WHERE status = 'shipped'
        UNION ALL SELECT CASE type WHEN 'order.imported' THEN updated_at ELSE at END, 0, 0, 1
            FROM order_events
            WHERE type IN ('order.cancelled', 'order.imported') AND status = 'cancelled'
    )
    SELECT {quarter}, sum(placed), sum(shipped), sum(cancelled) FROM happened GROUP BY 1
    UNION ALL SELECT {ever}, coalesce(sum(placed), 0), coalesce(sum(shipped), 0),
        coalesce(sum(cancelled), 0) FROM happened
"""


def upgrade() -> None:
    """Count until now and from now on; drop the table of days that earlier versions made."""
    kind = op.get_bind().dialect.name
    op.create_table(
        "order_quarters",
        sa.Column("quarter", RowId, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTED),
    )
    op.execute(sa.text(UNTIL_NOW.format(quarter=triggers.QUARTER[kind].format("at"), ever=EVER)))
    if kind == "sqlite":
        for event in COUNTED:
            op.execute(f"DROP TRIGGER IF EXISTS order_days_{event}")
    else:
        op.execute("DROP TRIGGER IF EXISTS order_days_kept ON order_events")
        op.execute("DROP FUNCTION IF EXISTS order_days_kept()")
    triggers.count_quarters(op.get_bind())
    op.drop_table("order_days", if_exists=True)
