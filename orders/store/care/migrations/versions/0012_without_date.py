"""Orders are sorted by when they are due: those without a date by when they were placed."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

COLUMNS = ("status", "placed_at", "id", "pet_id", "reference", "updated_at")


def upgrade() -> None:
    """Make the index."""
    has_no_date = sa.text("ship_date IS NULL")
    op.create_index(
        "orders_without_date",
        "orders",
        [*COLUMNS],
        sqlite_where=has_no_date,
        postgresql_where=has_no_date,
    )
