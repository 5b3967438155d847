"""Checks of a database: is it this program's, of which schema, sound, still in service, consistent.

A database has two numbers in its first page. `application_id` says that the file is ours: another
would otherwise silently become a database of orders. `user_version` is the number of its newest
migration, so that a start with nothing to migrate need not load Alembic, which takes half a second.

A database can't check whether its tables agree with the event log, from which everything follows.
`flask db check` does on PostgreSQL, and the drill of each backup.
"""

from __future__ import annotations

import re
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from orders.domain import Expected
from orders.installation import command
from orders.store.database import errors, sqlite
from orders.store.database.database import highest_ids
from orders.store.orders import COPIED
from orders.store.tables import EVER, QUARTER

# "SOrd" in ASCII.
APPLICATION_ID = 0x534F7264
# "SOrm": the file of a shop that has moved to PostgreSQL. It is ours, and no longer served.
_MOVED_ID = 0x534F726D
# Where these stand in the file (https://www.sqlite.org/fileformat.html, section 1.3).
_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = 68
_HEADER_BYTES = 100
# Beyond this size the quick check takes longer than a start may.
QUICK_CHECK_BYTES = 256 * 1024 * 1024
MIGRATIONS = Path(__file__).parent / "migrations"
# The number of version 1.0.0, above those of the programs before it.
FIRST_SCHEMA = 100

_OLDER = (
    "{} was made by an older version of this program. "
    "Start the service, or run `{}`, to bring it up to date."
)
_BEFORE_RELEASE = (
    "{} was made before version 1.0.0 of this program, which can't read it. Export its orders with "
    "the program that made it (`flask orders export orders.csv`), and import them into a new store "
    "(`{}`)."
)
_NEWER = (
    "{} was made by a newer version of this program (its schema is {}, "
    "this program knows {}). Start that version."
)
_MOVED = (
    "{0} was moved to PostgreSQL, where the shop goes on: set ORDERS_DATABASE_URL to that "
    "database. To go back to what is in the file, run `{1}`."
)
_NO_DATABASE = (
    "{} is damaged, or no database at all. Restore a backup, or save what can be read (`{}`)."
)
# How compressed files begin, and the command that decompresses them.
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ": "unxz",
    b"BZh": "bunzip2",
    b"PK\x03\x04": "unzip",
}
# When each cancelled order was cancelled; the time of an import is the one in its file.
_CANCELLED = """
    SELECT CASE type WHEN 'order.imported' THEN order_events.updated_at ELSE at END AS cancelled_at
    FROM orders JOIN order_events ON order_events.id = (SELECT max(id) FROM order_events
        WHERE order_id = orders.id AND type IN ('order.cancelled', 'order.imported'))
    WHERE orders.status = 'cancelled'
"""
# A row for each thing that is counted.
_HAPPENED = f"""
    SELECT QUARTER(placed_at) AS quarter, 1 AS placed, 0 AS shipped, 0 AS cancelled FROM orders
    UNION ALL SELECT QUARTER(ship_date), 0, 1, 0 FROM orders WHERE status = 'shipped'
    UNION ALL SELECT QUARTER(cancelled_at), 0, 0, 1 FROM ({_CANCELLED}) AS cancellations
"""  # noqa: S608 # nosec B608 - our own names
# The stored counts less the counted ones. A FULL JOIN, for which SQLite has no index, would take
# minutes with years of quarters.
_MISCOUNTED = f"""
    WITH happened AS ({_HAPPENED}
    ), compared AS (SELECT quarter, placed, shipped, cancelled FROM order_quarters
        UNION ALL SELECT quarter, -placed, -shipped, -cancelled FROM happened
        UNION ALL SELECT {EVER}, -placed, -shipped, -cancelled FROM happened)
    SELECT 1 FROM compared GROUP BY quarter
        HAVING sum(placed) <> 0 OR sum(shipped) <> 0 OR sum(cancelled) <> 0
"""  # noqa: S608 # nosec B608 - our own names
# Each returns a row for each fault.
_FAULTS = {
    "an order differs from its last event": """
        SELECT 1 FROM orders LEFT JOIN order_events AS latest
            ON latest.id = (SELECT max(id) FROM order_events WHERE order_id = orders.id)
        WHERE ({kept}) IS DISTINCT FROM ({latest})
    """.format(  # noqa: S608 # nosec B608 - as above
        kept=", ".join(f"orders.{name}" for name in COPIED),
        latest=", ".join(f"latest.{name}" for name in COPIED),
    ),
    "a day's figures differ from its orders": _MISCOUNTED,
    "the store has no id": "SELECT 1 WHERE (SELECT count(*) FROM store) <> 1",
}


class UnfitDatabase(Expected):
    """The database can't be used. The message is one line that says how to fix it."""


class AwayDatabase(UnfitDatabase):
    """The database can't be used just now: locked, on a full disk. It may well be sound."""


@cache
def schema_version() -> int:
    return max(int(file.name[:4]) for file in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def check(path: Path) -> None:
    """Check that the file is of this program and schema, and sound unless it is large."""
    version = identify(path)
    refuse_moved(path)
    if version < schema_version():
        raise UnfitDatabase(older(path))
    if not is_large(path):
        check_quickly(path)


def older(where: object) -> str:
    return _OLDER.format(where, command("db upgrade"))


def is_large(path: Path) -> bool:
    return path.stat().st_size > QUICK_CHECK_BYTES


def check_quickly(path: Path) -> None:
    """Check that the file is sound, except for the contents of its indexes."""
    _check_soundness(path, "quick_check")


def check_whole(path: Path) -> None:
    """Check that the file is a database of this program and sound in every page and index."""
    identify(path)
    _check_soundness(path, "integrity_check")


def looks_whole(path: Path) -> bool:
    """Return whether an SQLite file that nobody writes to is as long as its first page says."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    page = int.from_bytes(header[16:18]) or 1
    pages = int.from_bytes(header[28:32])
    page_bytes = 65_536 if page == 1 else page
    return header.startswith(_MAGIC) and path.stat().st_size == page_bytes * pages


def identify(path: Path) -> int:
    """Return the schema's number of a database of this program, no newer than it.

    UnfitDatabase is raised for any other file, and for stores from before version 1.0.0.
    """
    # Read from the file itself: SQLite changes what it opens, even a file that is not ours.
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    for beginning, program in _COMPRESSED.items():
        if header.startswith(beginning):
            raise UnfitDatabase(f"{path} is compressed: run `{program} {path.name}` on it first.")
    if header and not header.startswith(_MAGIC):
        raise UnfitDatabase(_NO_DATABASE.format(path, command("db salvage")))
    if int.from_bytes(header[_APPLICATION_ID_AT:][:4]) not in {APPLICATION_ID, _MOVED_ID}:
        raise UnfitDatabase(
            f"{path} is not a database of this program. Move it away, "
            "or choose another folder with ORDERS_INSTANCE."
        )
    version = int(_query(path, "PRAGMA user_version"))
    check_version(version, path)
    return version


def check_version(version: int, where: object) -> None:
    if version > schema_version():
        raise UnfitDatabase(_NEWER.format(where, version, schema_version()))
    if version < FIRST_SCHEMA:
        raise UnfitDatabase(_BEFORE_RELEASE.format(where, command("orders import orders.csv")))


def refuse_moved(path: Path) -> None:
    if is_moved(path):
        raise UnfitDatabase(_MOVED.format(path, command(f"db restore {path}")))


def is_moved(path: Path) -> bool:
    # From SQLite, not from the header: the newest pages may still be in the log beside the file.
    return bool(_query(path, "PRAGMA application_id") == _MOVED_ID)


def mark_as_moved(connection: Connection) -> None:
    connection.exec_driver_sql(f"PRAGMA application_id = {_MOVED_ID}")


def unmark_as_moved(path: Path) -> None:
    """Remove the mark of a moved file, if any, so that it can be served again."""
    with closing(sqlite.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _check_soundness(path: Path, pragma: str) -> None:
    complaint = _query(path, f"PRAGMA {pragma}(1)")
    if complaint != "ok":
        raise UnfitDatabase(
            f"{path} is damaged ({complaint}). Restore a backup, or save what can be read "
            f"(`{command('db salvage')}`)."
        )


def _query(path: Path, statement: str) -> Any:
    try:
        with closing(sqlite.connect(path)) as connection:
            return connection.execute(statement).fetchone()[0]
    except sqlite.sqlite_module().Error as error:
        cause = errors.unavailable_cause(error) or str(error)
        if cause == errors.DAMAGED:
            raise UnfitDatabase(_NO_DATABASE.format(path, command("db salvage"))) from None
        raise AwayDatabase(f"{path}: {cause}. Fix that, then try again.") from None


def complaint(connection: Connection) -> str | None:
    for words, query in _FAULTS.items():
        faults = _with_quarters(query, connection.dialect.name)
        count = connection.execute(text(f"SELECT count(*) FROM ({faults}) AS faults")).scalar_one()  # noqa: S608 # nosec B608 - as above
        if count:
            return f"{words}, {count} times" if count > 1 else words
    for table, given in highest_ids(connection).items():
        highest = connection.execute(text(f"SELECT max(id) FROM {table}")).scalar()  # noqa: S608 # nosec B608 - our own names
        if (highest or 0) > given:
            return f"ids of {table} would be assigned twice"
    return None


def quarters_anew() -> str:
    """Return SQLite's SELECT of all rows that belong in the table of quarters."""
    sums = ", ".join(f"coalesce(sum({count}), 0)" for count in ("placed", "shipped", "cancelled"))
    happened = f"FROM ({_with_quarters(_HAPPENED, 'sqlite')}) AS happened"
    quarters = f"SELECT quarter, {sums} {happened} GROUP BY quarter"  # nosec B608 - as above
    return f"{quarters} UNION ALL SELECT {EVER}, {sums} {happened}"  # nosec B608 - as above


def _with_quarters(query: str, dialect: str) -> str:
    return re.sub(r"QUARTER\(([^()]*)\)", QUARTER[dialect].format(r"\1"), query)
