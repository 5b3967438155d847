"""What happened is counted in quarters of an hour, of which every time zone's days are made."""

import sqlalchemy as sa
from alembic import op

from orders.store.tables import RowId

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# Each type of event counts in one column, at one of its instants.
COUNTED = {"placed": "placed_at", "shipped": "ship_date", "cancelled": "at"}
EVER = -1
# Since the beginning of the year 1.
QUARTER = {
    "sqlite": "(strftime('%s', {}) + 62135596800) / 900",
    "postgresql": "CAST(floor((extract(epoch FROM {}) + 62135596800) / 900) AS bigint)",
}
UNTIL_NOW = """
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled)
    WITH happened AS (
        SELECT placed_at AS at, 1 AS placed, 0 AS shipped, 0 AS cancelled FROM orders
        UNION ALL SELECT ship_date, 0, 1, 0 FROM orders WHERE status = 'shipped'
        UNION ALL SELECT CASE type WHEN 'order.imported' THEN updated_at ELSE at END, 0, 0, 1
            FROM order_events
            WHERE type IN ('order.cancelled', 'order.imported') AND status = 'cancelled'
    )
    SELECT {quarter}, sum(placed), sum(shipped), sum(cancelled) FROM happened GROUP BY 1
    UNION ALL SELECT {ever}, coalesce(sum(placed), 0), coalesce(sum(shipped), 0),
        coalesce(sum(cancelled), 0) FROM happened
"""
ADD = """
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled) VALUES {rows}
    ON CONFLICT (quarter) DO UPDATE SET placed = order_quarters.placed + excluded.placed,
        shipped = order_quarters.shipped + excluded.shipped,
        cancelled = order_quarters.cancelled + excluded.cancelled;
"""


def upgrade() -> None:
    """Count until now and from now on; drop the table of days that earlier versions made."""
    kind = op.get_bind().dialect.name
    op.create_table(
        "order_quarters",
        sa.Column("quarter", RowId, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTED),
    )
    op.execute(sa.text(UNTIL_NOW.format(quarter=QUARTER[kind].format("at"), ever=EVER)))
    if kind == "sqlite":
        _count_on_sqlite()
    else:
        _count_on_postgres()
    op.drop_table("order_days", if_exists=True)


def _count_on_sqlite() -> None:
    for event, instant in COUNTED.items():
        counts = ", ".join("1" if name == event else "0" for name in COUNTED)
        op.execute(f"DROP TRIGGER IF EXISTS order_days_{event}")
        op.execute(
            f"CREATE TRIGGER order_quarters_{event} AFTER INSERT ON order_events "
            f"WHEN NEW.type = 'order.{event}' BEGIN {_add('sqlite', f'NEW.{instant}', counts)} END"
        )


def _count_on_postgres() -> None:
    counts = ", ".join(f"(NEW.type = 'order.{event}')::int" for event in COUNTED)
    cases = " ".join(f"WHEN 'order.{event}' THEN NEW.{at}" for event, at in COUNTED.items())
    op.execute("DROP TRIGGER IF EXISTS order_days_kept ON order_events")
    op.execute("DROP FUNCTION IF EXISTS order_days_kept()")
    op.execute(
        "CREATE FUNCTION order_quarters_kept() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {_add('postgresql', f'CASE NEW.type {cases} END', counts)} RETURN NULL; END $$"
    )
    types = ", ".join(f"'order.{event}'" for event in COUNTED)
    op.execute(
        "CREATE TRIGGER order_quarters_kept AFTER INSERT ON order_events FOR EACH ROW "
        f"WHEN (NEW.type IN ({types})) EXECUTE FUNCTION order_quarters_kept()"
    )


def _add(kind: str, instant: str, counts: str) -> str:
    return ADD.format(rows=f"({QUARTER[kind].format(instant)}, {counts}), ({EVER}, {counts})")
