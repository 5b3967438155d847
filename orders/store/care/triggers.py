"""What the database itself does as rows change: it refuses, or it counts.

A new store gets these triggers with its tables; a migration brings them to an earlier one.
"""

from __future__ import annotations

from sqlalchemy import Connection

from orders.store.tables import EVER, AuditRow, EventRow

# Each type of event counts in one column, at one of its instants.
_COUNTED = {"placed": "placed_at", "shipped": "ship_date", "cancelled": "at"}
# An instant's quarter of an hour, since the beginning of the year 1.
QUARTER = {
    "sqlite": "(strftime('%s', {}) + 62135596800) / 900",
    "postgresql": "CAST(floor((extract(epoch FROM {}) + 62135596800) / 900) AS bigint)",
}
_ADD = """
    INSERT INTO order_quarters (quarter, placed, shipped, cancelled) VALUES {rows}
    ON CONFLICT (quarter) DO UPDATE SET placed = order_quarters.placed + excluded.placed,
        shipped = order_quarters.shipped + excluded.shipped,
        cancelled = order_quarters.cancelled + excluded.cancelled;
"""


def create_all(connection: Connection) -> None:
    """Create the triggers of a new store."""
    forbid_changes(connection, EventRow.name, "the event log is never changed")
    forbid_changes(connection, AuditRow.name, "the audit trail is never changed")
    count_quarters(connection)


def forbid_changes(connection: Connection, table: str, words: str) -> None:
    """Have the database refuse, in these words, to change or delete a row of the table."""
    if connection.dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{words}'); END"
            )
        return
    connection.exec_driver_sql(
        f"CREATE FUNCTION {table}_never_changed() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{words}' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for verb in ("UPDATE", "DELETE", "TRUNCATE"):
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_never_changed()"
        )


def count_quarters(connection: Connection) -> None:
    """Count in `order_quarters` what each event of an order says."""
    if connection.dialect.name == "sqlite":
        _count_on_sqlite(connection)
    else:
        _count_on_postgres(connection)


def _count_on_sqlite(connection: Connection) -> None:
    for event, instant in _COUNTED.items():
        counts = ", ".join("1" if name == event else "0" for name in _COUNTED)
        connection.exec_driver_sql(
            f"CREATE TRIGGER order_quarters_{event} AFTER INSERT ON order_events "
            f"WHEN NEW.type = 'order.{event}' BEGIN {_add('sqlite', f'NEW.{instant}', counts)} END"
        )


def _count_on_postgres(connection: Connection) -> None:
    counts = ", ".join(f"(NEW.type = 'order.{event}')::int" for event in _COUNTED)
    cases = " ".join(f"WHEN 'order.{event}' THEN NEW.{at}" for event, at in _COUNTED.items())
    connection.exec_driver_sql(
        "CREATE FUNCTION order_quarters_kept() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {_add('postgresql', f'CASE NEW.type {cases} END', counts)} RETURN NULL; END $$"
    )
    types = ", ".join(f"'order.{event}'" for event in _COUNTED)
    connection.exec_driver_sql(
        "CREATE TRIGGER order_quarters_kept AFTER INSERT ON order_events FOR EACH ROW "
        f"WHEN (NEW.type IN ({types})) EXECUTE FUNCTION order_quarters_kept()"
    )


def _add(kind: str, instant: str, counts: str) -> str:
    return _ADD.format(rows=f"({QUARTER[kind].format(instant)}, {counts}), ({EVER}, {counts})")
