"""Nothing any more: the table of days, and what kept it, made way for that of quarters (0011)."""

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""
