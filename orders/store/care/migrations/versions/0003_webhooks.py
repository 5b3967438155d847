"""Webhooks: endpoints, the events that they refused, and the log of deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def words(length: int) -> sa.String:
    """Return the column type of a text, whose length PostgreSQL is not to judge."""
    return sa.String(length).with_variant(sa.Text(), "postgresql")


def instant() -> sa.types.TypeEngine[object]:
    """Return the column type of an instant: text on SQLite, a timestamp elsewhere."""
    return sa.DateTime(timezone=True).with_variant(sa.String(24), "sqlite")


def upgrade() -> None:
    """Make the three tables."""
    _create_endpoints()
    op.create_table(
        "webhook_refused",
        _endpoint_id(primary_key=True),
        sa.Column("event_id", ROW_ID, sa.ForeignKey("order_events.id"), primary_key=True),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", instant(), nullable=False),
    )
    _create_deliveries()


def _create_endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("url", words(2048), nullable=False),
        sa.Column("events", words(255), nullable=False),
        sa.Column("allow_private", sa.Boolean, nullable=False),
        sa.Column("secret", words(128), nullable=False),
        sa.Column("previous_secret", words(128)),
        sa.Column("previous_until", instant()),
        sa.Column("created_at", instant(), nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", instant()),
        sa.Column("paused_at", instant()),
        sa.Column("paused_because", words(255)),
        sa.Column("claimed_by", words(32)),
        sa.Column("claimed_until", instant()),
        sqlite_autoincrement=True,
    )


def _create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", ROW_ID, primary_key=True),
        _endpoint_id(nullable=False),
        sa.Column("event_id", ROW_ID, sa.ForeignKey("order_events.id")),
        sa.Column("at", instant(), nullable=False),
        sa.Column("outcome", words(16), nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("fault", words(255)),
        sa.Column("milliseconds", sa.Integer, nullable=False),
        sa.Column("answer", words(200), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("webhook_deliveries_by_endpoint", "webhook_deliveries", ["endpoint_id", "id"])
    op.create_index("webhook_deliveries_by_age", "webhook_deliveries", ["at"])


def _endpoint_id(**kind: bool) -> sa.Column[int]:
    return sa.Column("endpoint_id", ROW_ID, sa.ForeignKey("webhook_endpoints.id"), **kind)
