"""Pages are one SELECT each: fewer indexes are needed."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NO_LONGER_NEEDED = (
    "orders_by_pet_placed_at",
    "orders_by_pet_ship_date",
    "orders_by_reference_placed_at",
    "orders_by_reference_ship_date",
)


def upgrade() -> None:
    """Drop the indexes that an earlier version of the second migration made."""
    for name in NO_LONGER_NEEDED:
        op.drop_index(name, "orders", if_exists=True)
