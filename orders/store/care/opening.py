"""Makes SQLite databases and upgrades their schema. PostgreSQL uses the same migrations."""

from __future__ import annotations

import filecmp
import itertools
import logging
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, insert
from sqlalchemy.exc import SQLAlchemyError

from orders.store import audit
from orders.store.care import backup, checks, instance, scratch, triggers
from orders.store.care.checks import UnfitDatabase
from orders.store.database.sqlite import SqliteDatabase, sqlite_module
from orders.store.tables import EVER, METADATA, QuarterRow, StoreRow

log = logging.getLogger(__name__)

# The number of the migration that does.
_ALTERS_CONSTRAINTS = 9
# Where Alembic keeps which migration was the last.
_ALEMBIC = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)

_VERSION = "SELECT version_num FROM alembic_version"


def create(path: Path) -> None:
    """Make a new, empty database at the path.

    It is made in another folder and then renamed, so that a start that is cut off leaves no half
    database behind. The log that an earlier database of this name left is kept under another.
    """
    with scratch.folder(path.parent, "create") as folder:
        unfinished = folder / path.name
        instance.make_private_file(unfinished)
        _change(unfinished, make_tables)
        instance.leave_to_owner(unfinished, path.parent)
        _keep_orphaned_log(path)
        unfinished.replace(path)
        instance.sync(path.parent)


def keep_private(path: Path) -> None:
    """Let only its owner read the database, and the files that SQLite keeps beside it."""
    for each in (path, *_companions(path)):
        instance.take_rights_of_others(each)


def _keep_orphaned_log(path: Path) -> None:
    # Of a database that was moved away before it was closed. SQLite would apply it to the new
    # database, and damage that.
    log_file = path.with_name(path.name + "-wal")
    if log_file.exists() and log_file.stat().st_size:
        since = datetime.fromtimestamp(log_file.stat().st_mtime, UTC)
        kept = path.with_name(f"{path.stem}-left-{since:%Y%m%dT%H%M%S}{path.suffix}-wal")
        log_file.replace(kept)
        log.warning("%s was missing. Its write-ahead log is kept in %s", path, kept)
    for companion in _companions(path):
        companion.unlink(missing_ok=True)


def upgrade(path: Path, *, keep_copy: bool = True) -> Path | None:
    """Bring the database's schema up to this program's; return the copy that was kept, if any.

    Nobody else may use the database meanwhile. Before it is changed, a checked copy is put beside
    it, unless `keep_copy` is false because it is a copy itself.
    """
    version, newest = checks.identify(path), checks.schema_version()
    if version == newest:
        return None
    checks.refuse_moved(path)
    if version < _ALTERS_CONSTRAINTS and sqlite_module().sqlite_version_info < (3, 53):
        raise UnfitDatabase(
            f"{path} was made by an older version of this program, and upgrading it takes SQLite "
            f"3.53; this is {sqlite_module().sqlite_version}. Install pysqlite3 or sqlcipher3."
        )
    checks.check_quickly(path)
    kept = _keep_copy(path) if keep_copy else None
    log.info("Upgrading the schema of %s from %d to %d.", path, version, newest)
    _change(path, run_migrations)
    return kept


def _keep_copy(path: Path) -> Path:
    with scratch.folder(path.parent, "backup") as folder:
        copied = folder / path.name
        backup.copy(path, copied)
        instance.leave_to_owner(copied, path.parent)
        for kept in _copies_before(path):
            # The same copy is that of an upgrade that failed: tried again and again, it would fill
            # the disk. Any other is somebody's way back.
            if not kept.exists() or filecmp.cmp(copied, kept, shallow=False):
                break
        copied.replace(kept)
        instance.sync(path.parent)
    log.info("A copy of the database as it was is in %s", kept)
    return kept


def _copies_before(path: Path) -> Iterator[Path]:
    name = f"{path.stem}-before-{checks.schema_version():04}"
    yield path.with_name(f"{name}{path.suffix}")
    for number in itertools.count(2):
        yield path.with_name(f"{name}-{number}{path.suffix}")


def _change(path: Path, change: Callable[[Connection], None]) -> None:
    database = SqliteDatabase(path)
    try:
        with database.write() as connection:
            connection.begin()  # or else Alembic would commit by itself, migration by migration
            change(connection)
            connection.exec_driver_sql(f"PRAGMA application_id = {checks.APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {checks.schema_version()}")
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", error)
        raise UnfitDatabase(f"{path} can't be upgraded ({cause}). It is unchanged.") from error
    finally:
        database.close()


def make_tables(connection: Connection) -> None:
    """Make the tables of a new store, as the migrations leave them, in the transaction."""
    METADATA.create_all(connection)
    triggers.create_all(connection)
    nothing = {count.name: 0 for count in QuarterRow.columns}
    connection.execute(insert(QuarterRow).values(nothing | {"quarter": EVER}))
    connection.execute(insert(StoreRow).values(id=1, store_id=secrets.token_hex(8)))
    connection.exec_driver_sql(_ALEMBIC)
    connection.exec_driver_sql(
        f"INSERT INTO alembic_version VALUES ('{checks.schema_version():04}')"  # noqa: S608 # nosec B608 - a number
    )


def run_migrations(connection: Connection) -> None:
    """Run the migrations that a database lacks, in the connection's transaction, and record it."""
    # Alembic takes half a second to load, and most starts have nothing to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(checks.MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    lacking = int(connection.exec_driver_sql(_VERSION).scalar_one())
    command.upgrade(config, "head")
    subject = f"from schema {lacking} to {checks.schema_version()}"
    audit.note(connection, datetime.now(UTC), "store.upgraded", subject)


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
