"""What happens before a database is used: is it ours, is it sound, has it this program's schema.

A database carries two numbers in its first page. `application_id` says that the file is ours: an
empty or foreign file would otherwise silently become a database of orders. `user_version` is the
number of the newest migration in it, so that a start that has nothing to migrate need not load
Alembic, which takes half a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orders.store import engine
from orders.store.engine import Database

# "SOrd" in ASCII.
APPLICATION_ID = 0x534F7264
SCHEMA_VERSION = 1
# Beyond this size the quick check takes longer than a start may.
QUICK_CHECK_BYTES = 256 * 1024 * 1024

_MIGRATIONS = Path(__file__).parent / "migrations"


class UnfitDatabase(Exception):
    """The database can't be used. The message is one line that says how to mend it."""


def create(path: Path) -> None:
    """Make a new, empty database at the path.

    It is made under another name and then renamed, so that a start that is cut off leaves no half
    database behind.
    """
    unfinished = path.with_name(path.name + ".new")
    for leftover in (unfinished, *_companions(unfinished)):
        leftover.unlink(missing_ok=True)
    engine.make_private_file(unfinished)
    database = Database(unfinished)
    with database.write() as connection:
        _migrate(connection)
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    database.close()
    unfinished.replace(path)


def check(path: Path) -> None:
    """Make sure that the file is a sound database of this program's, of this schema.

    Raises:
        UnfitDatabase: it is not.
    """
    try:
        connection = engine.connect(path)
    except engine.sqlite_module().Error as error:
        raise _unfit(path, error) from None
    try:
        _check_identity(path, connection)
        if path.stat().st_size <= QUICK_CHECK_BYTES:
            _check_soundness(path, connection)
    except engine.sqlite_module().Error as error:
        raise _unfit(path, error) from None
    finally:
        connection.close()


def _check_identity(path: Path, connection: Any) -> None:
    ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if not ours:
        raise UnfitDatabase(
            f"{path} is not a database of this program. Move it away, "
            "or choose another folder with ORDERS_INSTANCE."
        )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise UnfitDatabase(
            f"{path} was made by a newer version of this program (its schema is {version}, "
            f"this program knows {SCHEMA_VERSION}). Start that version."
        )


def _check_soundness(path: Path, connection: Any) -> None:
    complaint = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if complaint != "ok":
        raise UnfitDatabase(f"{path} is damaged ({complaint}). Restore a backup.")


def _unfit(path: Path, error: Exception) -> UnfitDatabase:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return UnfitDatabase(
            f"{path} is damaged, or no database at all. Restore a backup, or move it away."
        )
    cause = engine.unavailable_cause(error) or str(error)
    return UnfitDatabase(f"{path}: {cause}. Mend that, then start again.")


def _migrate(connection: Any) -> None:
    # Loaded only where it is needed: see the top of this file.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
