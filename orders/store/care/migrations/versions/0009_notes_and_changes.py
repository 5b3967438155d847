"""Notes of orders; events of their changes; Idempotency-Keys of every write.

No row is written: of 1,000,000 orders, only the log's types are read.
"""

import sqlalchemy as sa
from alembic import op

from orders.store.tables import words

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

IS_TYPE = (
    "type IN ('order.placed', 'order.changed', 'order.shipped', 'order.cancelled', "
    "'order.imported')"
)


def upgrade() -> None:
    """Add the columns, and replace what is required of events and Idempotency-Keys."""
    for table in ("orders", "order_events"):
        op.add_column(table, sa.Column("note", words(500)))
    op.add_column("idempotency_keys", sa.Column("request", words(64)))
    op.add_column("idempotency_keys", sa.Column("outcomes", sa.Text))
    # Both databases understand this, but Alembic thinks otherwise of SQLite.
    op.execute("ALTER TABLE idempotency_keys ALTER COLUMN event_id DROP NOT NULL")
    op.execute("ALTER TABLE order_events DROP CONSTRAINT order_events_type")
    op.execute(f"ALTER TABLE order_events ADD CONSTRAINT order_events_type CHECK ({IS_TYPE})")
