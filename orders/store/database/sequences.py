"""The ids that the store gives to rows: what was given, and from where it goes on.

No id is given twice, even after the newest rows are lost in a restore. SQLite keeps the highest of
each table, also of those that were given from outside; PostgreSQL has a sequence for each.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

_FORGOTTEN = "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'"
_BEGIN = """
    INSERT INTO sqlite_sequence (name, seq) SELECT :table, 0
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = :table)
"""
_GO_ON = "UPDATE sqlite_sequence SET seq = max(seq, :id) WHERE name = :table"
# Of a sequence that gave nothing yet, the last value is null.
_SEQUENCES = """
    SELECT t.relname, coalesce(pg_sequence_last_value(s.oid), 0)
    FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
    JOIN pg_class t ON t.oid = d.refobjid
    WHERE s.relkind = 'S' AND t.relnamespace = CAST(current_schema() AS regnamespace)
"""
_SET = "SELECT setval(pg_get_serial_sequence(:table, 'id'), :id)"


def given(connection: Connection) -> dict[str, int]:
    """Return the highest id that each table gave, by the tables' names."""
    if connection.dialect.name == "sqlite":
        if not connection.execute(text(_FORGOTTEN)).first():
            return {}
        rows = connection.execute(text("SELECT name, seq FROM sqlite_sequence"))
    else:
        rows = connection.execute(text(_SEQUENCES))
    return dict(map(tuple, rows))


def last_given(connection: Connection, table: str) -> int:
    """Return the highest id that a table ever gave, 0 where it gave none."""
    return given(connection).get(table, 0)


def go_on_above(connection: Connection, table: str, last_id: int) -> None:
    """Let the ids that the store gives to a table's rows go on above this one at least."""
    if connection.dialect.name == "sqlite":
        connection.execute(text(_BEGIN), {"table": table})
        connection.execute(text(_GO_ON), {"table": table, "id": last_id})
    elif last_id > last_given(connection, table):
        connection.execute(text(_SET), {"table": table, "id": last_id})
