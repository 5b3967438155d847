"""Orders are found by how their references begin and by when they changed, events by their type."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

FILTERED = ("pet_id", "reference", "updated_at")
FOLDED = {"sqlite": "reference COLLATE NOCASE", "postgresql": 'lower(reference COLLATE "C")'}


def upgrade() -> None:
    """Make the indexes, in the place of earlier ones."""
    for first, second in (("placed_at", "ship_date"), ("ship_date", "placed_at")):
        name = f"orders_by_status_{first}"
        op.drop_index(name, "orders", if_exists=True)
        op.create_index(name, "orders", ["status", first, "id", second, *FILTERED])
    op.drop_index("orders_by_reference", "orders", if_exists=True)
    has_reference = sa.text("reference IS NOT NULL")
    op.create_index(
        "orders_by_reference",
        "orders",
        [sa.text(FOLDED[op.get_bind().dialect.name]), "id", "reference"],
        sqlite_where=has_reference,
        postgresql_where=has_reference,
    )
    op.create_index("orders_by_updated_at", "orders", ["updated_at", "id"])
    op.create_index("order_events_by_type", "order_events", ["type", "id"])
