"""The sequences of ids: the highest that was assigned, and where they continue.

No id is assigned twice, even after the newest rows are lost in a restore. SQLite records the
highest id of each table, including imported ones; PostgreSQL has a sequence for each.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

_HAS_SEQUENCES = "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'"
_INSERT_SEQUENCE = """
    INSERT INTO sqlite_sequence (name, seq) SELECT :table, 0
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = :table)
"""
_RAISE_SEQUENCE = "UPDATE sqlite_sequence SET seq = max(seq, :id) WHERE name = :table"
# The last value of an unused sequence is null.
_SEQUENCES = """
    SELECT t.relname, coalesce(pg_sequence_last_value(s.oid), 0)
    FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
    JOIN pg_class t ON t.oid = d.refobjid
    WHERE s.relkind = 'S' AND t.relnamespace = CAST(current_schema() AS regnamespace)
"""
_SET = "SELECT setval(pg_get_serial_sequence(:table, 'id'), :id)"


def given(connection: Connection) -> dict[str, int]:
    """Return the highest id assigned in each table, by the tables' names."""
    if connection.dialect.name == "sqlite":
        if not connection.execute(text(_HAS_SEQUENCES)).first():
            return {}
        rows = connection.execute(text("SELECT name, seq FROM sqlite_sequence"))
    else:
        rows = connection.execute(text(_SEQUENCES))
    return dict(map(tuple, rows))


def last_given(connection: Connection, table: str) -> int:
    """Return the highest id ever assigned in a table, or 0."""
    return given(connection).get(table, 0)


def go_on_above(connection: Connection, table: str, last_id: int) -> None:
    """Continue a table's ids above this one at least."""
    if connection.dialect.name == "sqlite":
        connection.execute(text(_INSERT_SEQUENCE), {"table": table})
        connection.execute(text(_RAISE_SEQUENCE), {"table": table, "id": last_id})
    elif last_id > last_given(connection, table):
        connection.execute(text(_SET), {"table": table, "id": last_id})
