"""The time before which no clock is believed that judges keys."""

import sqlalchemy as sa
from alembic import op

from orders.store.database.database import Instant

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns to the store's row."""
    op.add_column("store", sa.Column("clock_floor", Instant))
    op.add_column("store", sa.Column("misdated_events", sa.BigInteger))
