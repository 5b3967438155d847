"""What the database itself does as rows change: it refuses, or it counts.

A new store gets these triggers with its tables.
"""

from __future__ import annotations

from sqlalchemy import Connection

from orders.store.tables import EVER, audit_trail, order_events, orders

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


# Between the parts of a reference: ASCII that is no letter and no digit.
_SEPARATOR = {
    "sqlite": "GLOB '[ -/:-@[-`{-~]'",
    "postgresql": r"""COLLATE "C" ~ '[ -/:-@\[-`{-~]'""",
}
_COLLATION = {"sqlite": "", "postgresql": ' COLLATE "C"'}
_HAS_SEPARATOR = "GLOB '*[ -/:-@[-`{-~]*'"
# Where a part may begin. SQLite has no series of numbers but that of a JSON array, of which only
# what the reference is long is read.
_ARRAY = ",".join(f"{place:2}" for place in range(2, 65))
_PLACES = {
    "sqlite": f"json_each(substr('[{_ARRAY}', 1, max(1, 3 * length(ROW.reference) - 3)) || ']')",
    "postgresql": "generate_series(2, length(ROW.reference)) AS place (value)",
}


def words_of(kind: str, row: str) -> str:
    """Return the SELECT for `order_words` of a trigger's row, NEW or OLD, or of all `orders`."""
    reference, separator = f"{row}.reference", _SEPARATOR[kind]
    places = _PLACES[kind].replace("ROW", row)
    source = f"{row}, {places}" if row == orders.name else places
    word = f"lower(substr({reference}, value){_COLLATION[kind]})"
    return (
        f"SELECT {word}, {row}.id FROM {source} "  # noqa: S608 # nosec B608 - our own names
        f"WHERE substr({reference}, value - 1, 1) {separator} "
        f"AND NOT substr({reference}, value, 1) {separator}"
    )


def write_words(connection: Connection) -> None:
    """Write in `order_words` the further parts of each order's reference, however it changes."""
    if connection.dialect.name == "sqlite":
        _write_words_on_sqlite(connection)
    else:
        _write_words_on_postgres(connection)


def _write_words_on_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(
        "CREATE TRIGGER order_words_placed AFTER INSERT ON orders "
        f"WHEN NEW.reference {_HAS_SEPARATOR} BEGIN {_add_words('sqlite')} END"
    )
    connection.exec_driver_sql(
        "CREATE TRIGGER order_words_changed AFTER UPDATE OF reference ON orders "
        f"WHEN OLD.reference IS NOT NEW.reference "
        f"BEGIN {_remove_words('sqlite')} {_add_words('sqlite')} END"
    )


def _write_words_on_postgres(connection: Connection) -> None:
    connection.exec_driver_sql(
        "CREATE FUNCTION order_words_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF TG_OP = 'UPDATE' THEN {_remove_words('postgresql')} END IF; "
        f"{_add_words('postgresql')} RETURN NULL; END $$"
    )
    for name, event, rows in (
        ("placed", "INSERT", "NEW.reference IS NOT NULL"),
        ("changed", "UPDATE OF reference", "OLD.reference IS DISTINCT FROM NEW.reference"),
    ):
        connection.exec_driver_sql(
            f"CREATE TRIGGER order_words_{name} AFTER {event} ON orders FOR EACH ROW "
            f"WHEN ({rows}) EXECUTE FUNCTION order_words_kept()"
        )


def _add_words(kind: str) -> str:
    return f"INSERT INTO order_words (word, order_id) {words_of(kind, 'NEW')};"  # nosec B608 - as above


def _remove_words(kind: str) -> str:
    return f"DELETE FROM order_words WHERE (word, order_id) IN ({words_of(kind, 'OLD')});"  # noqa: S608 # nosec B608 - as above


def create_all(connection: Connection) -> None:
    """Create the triggers of a new store."""
    forbid_changes(connection, order_events.name, "the event log is never changed")
    forbid_changes(connection, audit_trail.name, "the audit trail is never changed")
    count_quarters(connection)
    write_words(connection)


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
