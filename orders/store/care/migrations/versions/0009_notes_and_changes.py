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
MADE_FOR_CHANGES = "SELECT 1 FROM sqlite_schema WHERE name = 'order_events' AND sql LIKE :changed"


def upgrade() -> None:
    """Add the columns, and replace what is required of events and Idempotency-Keys."""
    for table in ("orders", "order_events"):
        op.add_column(table, sa.Column("note", words(500)))
    op.add_column("idempotency_keys", sa.Column("request", words(64)))
    op.add_column("idempotency_keys", sa.Column("outcomes", sa.Text))
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        op.alter_column("idempotency_keys", "event_id", nullable=True)
    elif connection.execute(sa.text(MADE_FOR_CHANGES), {"changed": "%order.changed%"}).first():
        return  # made by this program, maybe on an SQLite that can't alter constraints
    else:
        op.execute("ALTER TABLE idempotency_keys ALTER COLUMN event_id DROP NOT NULL")
    op.execute("ALTER TABLE order_events DROP CONSTRAINT order_events_type")
    op.execute(f"ALTER TABLE order_events ADD CONSTRAINT order_events_type CHECK ({IS_TYPE})")
