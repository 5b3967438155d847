"""Webhooks: endpoints, the events that they refused, and the log of deliveries."""

import sqlalchemy as sa
from alembic import op

from orders.store.database.database import Instant
from orders.store.tables import RowId, words

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the three tables."""
    _create_endpoints()
    op.create_table(
        "webhook_refused",
        _endpoint_id(primary_key=True),
        sa.Column("event_id", RowId, sa.ForeignKey("order_events.id"), primary_key=True),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", Instant, nullable=False),
    )
    _create_deliveries()


def _create_endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("url", words(2048), nullable=False),
        sa.Column("events", words(255), nullable=False),
        sa.Column("allow_private", sa.Boolean, nullable=False),
        sa.Column("secret", words(128), nullable=False),
        sa.Column("previous_secret", words(128)),
        sa.Column("previous_until", Instant),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("next_at", Instant),
        sa.Column("paused_at", Instant),
        sa.Column("paused_because", words(255)),
        sa.Column("claimed_by", words(32)),
        sa.Column("claimed_until", Instant),
        sqlite_autoincrement=True,
    )


def _create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", RowId, primary_key=True),
        _endpoint_id(nullable=False),
        sa.Column("event_id", RowId, sa.ForeignKey("order_events.id")),
        sa.Column("at", Instant, nullable=False),
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
    return sa.Column("endpoint_id", RowId, sa.ForeignKey("webhook_endpoints.id"), **kind)
