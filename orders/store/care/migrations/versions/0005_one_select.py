"""Pages are one SELECT each: other indexes, and days that count without bounds."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NO_LONGER_NEEDED = (
    "orders_by_status_placed_at",
    "orders_by_status_ship_date",
    "orders_by_pet_placed_at",
    "orders_by_pet_ship_date",
    "orders_by_reference_placed_at",
    "orders_by_reference_ship_date",
)
BOUNDS = [
    *(f"placed_{name}" for name in ("min_id", "max_id", "min_ship_date", "max_ship_date")),
    *(f"ships_{name}" for name in ("min_id", "max_id", "min_placed_at", "max_placed_at")),
]
# Each type of event counts in one column, on the day of one of its instants.
COUNTED = {"placed": "placed_at", "shipped": "ship_date", "cancelled": "at"}
ON_POSTGRES = """
    CREATE OR REPLACE FUNCTION order_days_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO order_days (day, placed, shipped, cancelled)
        VALUES (
            to_char(
                CASE NEW.type
                    WHEN 'order.placed' THEN NEW.placed_at
                    WHEN 'order.shipped' THEN NEW.ship_date
                    ELSE NEW.at
                END AT TIME ZONE 'UTC', 'YYYY-MM-DD'),
            (NEW.type = 'order.placed')::int,
            (NEW.type = 'order.shipped')::int,
            (NEW.type = 'order.cancelled')::int)
        ON CONFLICT (day) DO UPDATE SET
            placed = order_days.placed + excluded.placed,
            shipped = order_days.shipped + excluded.shipped,
            cancelled = order_days.cancelled + excluded.cancelled;
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    """Replace the indexes and the triggers, and drop the bounds."""
    for name in NO_LONGER_NEEDED:
        op.drop_index(name, "orders")
    # What filters compare stands in the index, so that orders that don't match are not looked up.
    op.create_index(
        "orders_by_status_placed_at",
        "orders",
        ["status", "placed_at", "id", "ship_date", "pet_id", "reference"],
    )
    op.create_index(
        "orders_by_status_ship_date",
        "orders",
        ["status", "ship_date", "id", "placed_at", "pet_id", "reference"],
    )
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    if is_sqlite:
        for event in COUNTED:
            op.execute(f"DROP TRIGGER order_days_{event}")
    else:
        op.execute(ON_POSTGRES)
    for name in BOUNDS:
        op.drop_column("order_days", name)
    op.execute(sa.text("DELETE FROM order_days WHERE placed = 0 AND shipped = 0 AND cancelled = 0"))
    if is_sqlite:
        for event, instant in COUNTED.items():
            counts = ", ".join("1" if name == event else "0" for name in COUNTED)
            op.execute(
                f"CREATE TRIGGER order_days_{event} AFTER INSERT ON order_events "  # noqa: S608 # nosec B608 - names of ours
                f"WHEN NEW.type = 'order.{event}' BEGIN "
                "INSERT INTO order_days (day, placed, shipped, cancelled) "
                f"VALUES (substr(NEW.{instant}, 1, 10), {counts}) "
                f"ON CONFLICT (day) DO UPDATE SET {event} = {event} + 1; END"
            )
