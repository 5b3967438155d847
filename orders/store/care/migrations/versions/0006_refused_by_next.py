"""An index of the events put aside for each endpoint, by when the next attempt is due."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index(
        "webhook_refused_by_next", "webhook_refused", ["endpoint_id", "next_at", "event_id"]
    )
