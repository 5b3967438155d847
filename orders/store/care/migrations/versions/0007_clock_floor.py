"""The time before which no clock is believed that judges keys."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns to the store's row."""
    instant = sa.DateTime(timezone=True).with_variant(sa.String(24), "sqlite")
    op.add_column("store", sa.Column("clock_floor", instant))
    op.add_column("store", sa.Column("misdated_events", sa.BigInteger))
