"""A webhook knows the key that added it."""

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of those that there are, which commands have added, none has a key."""
    op.add_column("webhook_endpoints", sa.Column("added_by", sa.BigInteger))
