"""What happens before a database is used: is it ours, is it sound, has it this program's schema.

A database carries two numbers in its first page. `application_id` says that the file is ours: an
empty or foreign file would otherwise silently become a database of orders. `user_version` is the
number of the newest migration in it, so that a start that has nothing to migrate need not load
Alembic, which takes half a second.
"""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from orders.store.care import instance, scratch
from orders.store.database import errors, sequences, sqlite
from orders.store.database.sqlite import SqliteDatabase

log = logging.getLogger(__name__)

# "SOrd" in ASCII.
APPLICATION_ID = 0x534F7264
# "SOrm": of a shop that has moved to PostgreSQL. It is ours, and is not served any more.
_MOVED_ID = 0x534F726D
# Where these stand in the file (https://www.sqlite.org/fileformat.html, section 1.3).
_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = 68
_HEADER_BYTES = 100
# Beyond this size the quick check takes longer than a start may.
QUICK_CHECK_BYTES = 256 * 1024 * 1024

OLDER = (
    "{} was made by an older version of this program. "
    "Start the service, or run `flask db upgrade`, to bring it up to date."
)
NEWER = (
    "{} was made by a newer version of this program (its schema is {}, "
    "this program knows {}). Start that version."
)
_MOVED = (
    "{0} was moved to PostgreSQL, where the shop goes on: set ORDERS_DATABASE_URL to that "
    "database. To go back to what is in the file, run `flask db restore {0}`."
)
_NO_DATABASE = "{} is damaged, or no database at all. Restore a backup, or move it away."
_MIGRATIONS = Path(__file__).parent / "migrations"


class UnfitDatabase(Exception):
    """The database can't be used. The message is one line that says how to mend it."""


class AwayDatabase(UnfitDatabase):
    """The database can't be used just now: locked, on a full disk. It may well be sound."""


@cache
def schema_version() -> int:
    """Return the number of this program's newest migration."""
    return max(int(file.name[:4]) for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def create(path: Path) -> None:
    """Make a new, empty database at the path.

    It is made in another folder and then renamed, so that a start that is cut off leaves no half
    database behind. The log that an earlier database of this name left is kept under another.
    """
    with scratch.folder(path.parent, "create") as folder:
        unfinished = folder / path.name
        instance.make_private_file(unfinished)
        _migrate(unfinished)
        _put_log_aside(path)
        unfinished.replace(path)
        instance.sync(path.parent)


def keep_private(path: Path) -> None:
    """Let only its owner read the database, and what SQLite keeps beside it.

    Raises:
        OSError: the rights can't be changed.
    """
    for each in (path, *_companions(path)):
        instance.take_rights_of_others(each)


def _put_log_aside(path: Path) -> None:
    # Of a database that was moved away while nobody had closed it. SQLite would take it for the
    # new one's, and damage that.
    log_file = path.with_name(path.name + "-wal")
    if log_file.exists() and log_file.stat().st_size:
        since = datetime.fromtimestamp(log_file.stat().st_mtime, UTC)
        kept = path.with_name(f"{path.stem}-left-{since:%Y%m%dT%H%M%S}{path.suffix}-wal")
        log_file.replace(kept)
        log.warning("%s was gone. The log that it left is kept in %s", path, kept)
    for companion in _companions(path):
        companion.unlink(missing_ok=True)


def check(path: Path) -> None:
    """Check that the file is a sound database of this program's, of this schema.

    Whether a large one is sound is left to `check_quickly`: it takes longer than a start may.

    Raises:
        UnfitDatabase: it is not.
    """
    version = identify(path)
    refuse_moved(path)
    if version < schema_version():
        raise UnfitDatabase(OLDER.format(path))
    if not is_large(path):
        check_quickly(path)


def is_large(path: Path) -> bool:
    """Return whether checking the file takes longer than a start may."""
    return path.stat().st_size > QUICK_CHECK_BYTES


def check_quickly(path: Path) -> None:
    """Check that the file is sound, but for what its indexes say.

    Raises:
        UnfitDatabase: it is not.
    """
    _check_soundness(path, "quick_check")


def check_whole(path: Path) -> None:
    """Check that the file is a database of this program's and sound in every page and index.

    Raises:
        UnfitDatabase: it is not.
    """
    identify(path)
    _check_soundness(path, "integrity_check")


def upgrade(path: Path, *, keep_copy: bool = True) -> Path | None:
    """Bring the database's schema up to this program's; return the copy that was kept, if any.

    Nobody else may use the database meanwhile. Before it is changed, a checked copy is put beside
    it, unless `keep_copy` is false because it is a copy itself.

    Raises:
        UnfitDatabase: it is not ours, damaged, or newer than this program.
    """
    version = identify(path)
    if version == schema_version():
        return None
    refuse_moved(path)
    check_quickly(path)
    kept = _keep_copy(path) if keep_copy else None
    log.info("The schema of %s is brought from %d to %d.", path, version, schema_version())
    _migrate(path)
    return kept


def _keep_copy(path: Path) -> Path:
    from orders.store.care import backup  # which itself needs this module

    kept = path.with_name(f"{path.stem}-before-{schema_version():04}{path.suffix}")
    kept.unlink(missing_ok=True)  # of an upgrade that was cut off: this one begins from the same
    backup.copy(path, kept)
    log.info("A copy of the database as it was is in %s", kept)
    return kept


def identify(path: Path) -> int:
    """Return the schema's number of a database of this program's.

    Raises:
        UnfitDatabase: it is not ours, or newer than this program.
        OSError: the file can't be read.
    """
    # Read from the file itself: SQLite would change what it opens, be it ours or not.
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if header and not header.startswith(_MAGIC):
        raise UnfitDatabase(_NO_DATABASE.format(path))
    if int.from_bytes(header[_APPLICATION_ID_AT:][:4]) not in {APPLICATION_ID, _MOVED_ID}:
        raise UnfitDatabase(
            f"{path} is not a database of this program. Move it away, "
            "or choose another folder with ORDERS_INSTANCE."
        )
    (version,) = _ask(path, "PRAGMA user_version")
    if version > schema_version():
        raise UnfitDatabase(NEWER.format(path, version, schema_version()))
    return int(version)


def refuse_moved(path: Path) -> None:
    """Check that the shop in the file goes on there, not on PostgreSQL.

    Raises:
        UnfitDatabase: it was moved.
    """
    # Asked of SQLite: what was written last may still stand in the log beside the file.
    (number,) = _ask(path, "PRAGMA application_id")
    if number == _MOVED_ID:
        raise UnfitDatabase(_MOVED.format(path))


def mark_as_moved(connection: Connection) -> None:
    """Have the file served no more: its shop goes on elsewhere. In the connection's transaction."""
    connection.exec_driver_sql(f"PRAGMA application_id = {_MOVED_ID}")


def take_back(path: Path) -> None:
    """Have a file served again that may be of a shop that was moved."""
    with closing(sqlite.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _check_soundness(path: Path, pragma: str) -> None:
    (complaint,) = _ask(path, f"PRAGMA {pragma}(1)")
    if complaint != "ok":
        raise UnfitDatabase(f"{path} is damaged ({complaint}). Restore a backup.")


def _ask(path: Path, statement: str) -> Any:
    try:
        with closing(sqlite.connect(path)) as connection:
            return connection.execute(statement).fetchone()
    except sqlite.sqlite_module().Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            raise UnfitDatabase(_NO_DATABASE.format(path)) from None
        cause = errors.unavailable_cause(error) or str(error)
        raise AwayDatabase(f"{path}: {cause}. Mend that, then try again.") from None


def _migrate(path: Path) -> None:
    database = SqliteDatabase(path)
    try:
        with database.write(foreign_keys=False) as connection:
            given = sequences.given(connection)
            run_migrations(connection)
            # Which SQLite forgets when a table is made anew.
            for table, last_id in given.items():
                sequences.go_on_above(connection, table, last_id)
            if connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                raise UnfitDatabase(f"{path}: a foreign key does not hold. It is as it was.")
            connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {schema_version()}")
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", error)
        raise UnfitDatabase(
            f"{path} can't be brought up to date ({cause}). It is as it was."
        ) from error
    finally:
        database.close()


def run_migrations(connection: Connection, target: str = "head") -> None:
    """Run the migrations that a database has not seen yet, in the connection's transaction.

    The last is `target`, or the newest.
    """
    # Loaded only where it is needed: see the top of this file.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, target)


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
