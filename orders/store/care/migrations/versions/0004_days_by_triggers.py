"""The event log keeps the table of days: by triggers, at a tenth of what statements cost."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Imports bring many orders of few days: `days.note_all` knows what they say of each.
KEPT_BY = {
    "placed": """
        INSERT INTO order_days (day, placed, shipped, cancelled, {placed})
        VALUES (substr(NEW.placed_at, 1, 10), 1, 0, 0, {order_placed})
        ON CONFLICT (day) DO UPDATE SET placed = placed + 1, {wider_placed};
        INSERT INTO order_days (day, placed, shipped, cancelled, {ships})
        SELECT substr(NEW.ship_date, 1, 10), 0, 0, 0, {order_ships}
        WHERE NEW.ship_date IS NOT NULL
        ON CONFLICT (day) DO UPDATE SET {wider_ships};
    """,
    "shipped": """
        INSERT INTO order_days (day, placed, shipped, cancelled, {ships})
        VALUES (substr(NEW.ship_date, 1, 10), 0, 1, 0, {order_ships})
        ON CONFLICT (day) DO UPDATE SET shipped = shipped + 1, {wider_ships};
        INSERT INTO order_days (day, placed, shipped, cancelled, {placed})
        VALUES (substr(NEW.placed_at, 1, 10), 0, 0, 0, {order_placed})
        ON CONFLICT (day) DO UPDATE SET {wider_placed};
    """,
    "cancelled": """
        INSERT INTO order_days (day, placed, shipped, cancelled)
        VALUES (substr(NEW.at, 1, 10), 0, 0, 1)
        ON CONFLICT (day) DO UPDATE SET cancelled = cancelled + 1;
    """,
}
BOUNDS = {
    "placed": {"id": "order_id", "ship_date": "ship_date"},
    "ships": {"id": "order_id", "placed_at": "placed_at"},
}


# The same for PostgreSQL, which wants one function, and whose `least` and `greatest` take what is
# known. Its connections are in UTC.
ON_POSTGRES = """
    CREATE FUNCTION order_days_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        placed_on CONSTANT text := to_char(NEW.placed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD');
        ships_on CONSTANT text := to_char(NEW.ship_date AT TIME ZONE 'UTC', 'YYYY-MM-DD');
        is_new CONSTANT int := (NEW.type = 'order.placed')::int;
        has_shipped CONSTANT int := (NEW.type = 'order.shipped')::int;
    BEGIN
        IF NEW.type = 'order.cancelled' THEN
            INSERT INTO order_days (day, placed, shipped, cancelled)
            VALUES (to_char(NEW.at AT TIME ZONE 'UTC', 'YYYY-MM-DD'), 0, 0, 1)
            ON CONFLICT (day) DO UPDATE SET cancelled = order_days.cancelled + 1;
            RETURN NULL;
        END IF;
        INSERT INTO order_days (day, placed, shipped, cancelled, {placed})
        VALUES (placed_on, is_new, 0, 0, {order_placed})
        ON CONFLICT (day) DO UPDATE SET placed = order_days.placed + is_new, {wider_placed};
        IF NEW.ship_date IS NOT NULL THEN
            INSERT INTO order_days (day, placed, shipped, cancelled, {ships})
            VALUES (ships_on, 0, has_shipped, 0, {order_ships})
            ON CONFLICT (day) DO UPDATE SET
                shipped = order_days.shipped + has_shipped, {wider_ships};
        END IF;
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    """Make the triggers, one for each type of event."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    widened = wider if is_sqlite else wider_on_postgres
    parts = {}
    for days, columns in BOUNDS.items():
        bounds = [f"{days}_{most}_{name}" for name in columns for most in ("min", "max")]
        parts[days] = ", ".join(bounds)
        parts[f"order_{days}"] = ", ".join(f"NEW.{of}" for of in columns.values() for _ in range(2))
        parts[f"wider_{days}"] = ", ".join(map(widened, bounds))
    if not is_sqlite:
        op.execute(ON_POSTGRES.format(**parts))
        op.execute(
            "CREATE TRIGGER order_days_kept AFTER INSERT ON order_events FOR EACH ROW "
            "WHEN (NEW.type <> 'order.imported') EXECUTE FUNCTION order_days_kept()"
        )
        return
    for event, statements in KEPT_BY.items():
        op.execute(
            f"CREATE TRIGGER order_days_{event} AFTER INSERT ON order_events "
            f"WHEN NEW.type = 'order.{event}' BEGIN {statements.format(**parts)} END"
        )


def wider(bound: str) -> str:
    """Return the assignment that widens a bound; what is not known widens none."""
    widest = "min" if "_min_" in bound else "max"
    old, new = f"coalesce({bound}, excluded.{bound})", f"coalesce(excluded.{bound}, {bound})"
    return f"{bound} = {widest}({old}, {new})"


def wider_on_postgres(bound: str) -> str:
    """Return the same for PostgreSQL."""
    widest = "least" if "_min_" in bound else "greatest"
    return f"{bound} = {widest}(order_days.{bound}, excluded.{bound})"
