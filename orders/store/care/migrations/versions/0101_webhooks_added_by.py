"""A webhook knows the key that added it."""

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: commands have added the webhooks that there are."""
    op.add_column("webhook_endpoints", sa.Column("added_by", sa.BigInteger))
