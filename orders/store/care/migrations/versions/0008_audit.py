"""The audit trail."""

import sqlalchemy as sa
from alembic import op

from orders.store.care import triggers
from orders.store.database.database import Instant
from orders.store.tables import RowId, words

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, to which rows are only ever added."""
    op.create_table(
        "audit_trail",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("at", Instant, nullable=False),
        sa.Column("who", words(255), nullable=False),
        sa.Column("action", words(32), nullable=False),
        sa.Column("subject", words(512), nullable=False),
        sqlite_autoincrement=True,
    )
    triggers.forbid_changes(op.get_bind(), "audit_trail", "the audit trail is never changed")
