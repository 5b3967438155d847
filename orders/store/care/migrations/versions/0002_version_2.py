"""What version 2 of the API asks: indexes for its pages."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the indexes, but for those that later migrations replace."""
    op.create_index("orders_by_status", "orders", ["status", "id"])
    op.create_index("orders_by_pet", "orders", ["pet_id", "id"])
