"""Making, upgrading, copying, checking and locking an SQLite file as a whole.

`postgres.upkeep` does the same for a database on a server, with the same migrations.
"""

from __future__ import annotations

import errno
import filecmp
import itertools
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, insert
from sqlalchemy.exc import SQLAlchemyError

from orders import system
from orders.settings import DATABASE_NAME, Settings
from orders.store import audit, stats
from orders.store.care import checks, files
from orders.store.care.checks import UnfitDatabase
from orders.store.care.files import LOCK, InstanceLocked, locked_file
from orders.store.database import errors, sqlite
from orders.store.database.sqlite import SqliteDatabase
from orders.store.tables import METADATA, create_triggers, store

log = logging.getLogger(__name__)

# The table in which Alembic keeps which migration was the last.
_ALEMBIC = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)

# SQLite asks whether to go on after this many steps of its virtual machine.
_STEPS = 100_000

_VERSION = "SELECT version_num FROM alembic_version"


def create(path: Path) -> None:
    """Make a new, empty database at the path, whole or not at all.

    A log left by an earlier database of this name is renamed.
    """
    with files.scratch_folder(path.parent, "create") as folder:
        unfinished = folder / path.name
        system.make_private_file(unfinished)
        _change(unfinished, make_tables)
        system.leave_to_owner(unfinished, path.parent)
        _keep_orphaned_log(path)
        system.replace(unfinished, path)
        system.sync(path.parent)


def keep_private(path: Path) -> None:
    for each in (path, *sqlite.companions(path)):
        system.revoke_rights_of_others(each)


def _keep_orphaned_log(path: Path) -> None:
    # A database was moved away before it was closed. SQLite would apply its log to the new one, and
    # damage that.
    log_file = sqlite.log_of(path)
    if log_file.exists() and log_file.stat().st_size:
        since = datetime.fromtimestamp(log_file.stat().st_mtime, UTC)
        kept = path.with_name(f"{path.stem}-left-{since:%Y%m%dT%H%M%S}{path.suffix}-wal")
        system.replace(log_file, kept)
        log.warning("%s was missing. Its write-ahead log is kept in %s", path, kept)
    for companion in sqlite.companions(path):
        companion.unlink(missing_ok=True)


def upgrade(path: Path, *, keep_copy: bool = True) -> Path | None:
    """Upgrade the database to this program's schema; return the copy that was kept, if any.

    Nobody else may use the database meanwhile. Before it is changed, a checked copy is put beside
    it, unless `keep_copy` is false because it is a copy itself.
    """
    version, newest = checks.identify(path), checks.schema_version()
    if version == newest:
        return None
    checks.refuse_moved(path)
    checks.check_quickly(path)
    kept = _keep_copy(path) if keep_copy else None
    log.info("Upgrading the schema of %s from %d to %d.", path, version, newest)
    _change(path, run_migrations)
    return kept


def _keep_copy(path: Path) -> Path:
    with files.scratch_folder(path.parent, "backup") as folder:
        copied = folder / path.name
        copy(path, copied)
        system.leave_to_owner(copied, path.parent)
        for kept in _copies_before(path):
            # The same copy is that of an upgrade that failed: tried again and again, it would fill
            # the disk. Any other is somebody's way back.
            if not kept.exists() or filecmp.cmp(copied, kept, shallow=False):
                break
        system.replace(copied, kept)
        system.sync(path.parent)
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
    create_triggers(connection)
    stats.begin(connection)
    connection.execute(insert(store).values(id=1, store_id=secrets.token_hex(8)))
    connection.exec_driver_sql(_ALEMBIC)
    connection.exec_driver_sql(
        f"INSERT INTO alembic_version VALUES ('{checks.schema_version():04}')"  # noqa: S608 # nosec B608 - a number
    )


def run_migrations(connection: Connection) -> None:
    """Run the migrations that a database lacks, in the connection's transaction, and record it.

    They change tables and indexes; triggers are this program's, whatever the migrations.
    """
    # Alembic takes half a second to load, and most starts have nothing to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(checks.MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    lacking = int(connection.exec_driver_sql(_VERSION).scalar_one())
    command.upgrade(config, "head")
    create_triggers(connection)
    subject = f"from schema {lacking} to {checks.schema_version()}"
    audit.record(connection, datetime.now(UTC), "store.upgraded", subject)


def copy(source: Path, target: Path, *, overwrite: bool = False) -> None:
    """Copy the database of one moment to a new file, which is checked before it gets its name."""
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    if target.exists() and target.samefile(source):
        raise FileExistsError(f"{target} is the database itself. Choose another name.")
    with files.complete_file(target, "backup", overwrite=overwrite) as unfinished:
        fill(source, unfinished, lambda: False)


def fill(source: Path, target: Path, is_stopped: Callable[[], bool]) -> None:
    """Copy the database into an empty file, unless stopped meanwhile, and check it."""
    _vacuum_into(source, target, is_stopped)
    checks.check_whole(target)


def _vacuum_into(source: Path, target: Path, is_stopped: Callable[[], bool]) -> None:
    connection = sqlite.connect(source)
    try:
        connection.set_progress_handler(is_stopped, _STEPS)
        connection.execute("VACUUM INTO ?", (str(target),))
    except sqlite.sqlite_module().Error as error:
        cause = errors.unavailable_cause(error) or str(error)
        raise checks.UnfitDatabase(f"{source} can't be copied: {cause}.") from None
    finally:
        connection.close()


class InUse(Exception):
    """Another process serves this database."""


class ServingLock:
    """A lock that marks the database as served by this process. It ends with the process."""

    def ensure_held(self) -> bool:
        """Re-acquire the lock if it was lost; return false where another process has it.

        Superseded is raised where the database was upgraded or renewed meanwhile.
        """
        return True

    def release(self) -> None:
        """Release the lock."""

    def serve(self, name: str) -> None:
        """Begin to serve, under a name that the other processes see."""

    def others(self) -> list[str]:
        """Return the names of the other processes that serve it."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _FileLock(ServingLock):
    """The lock of the instance folder that the file is in; otherwise one beside the file."""

    def __init__(self, file: Path) -> None:
        name = LOCK if file.name == DATABASE_NAME else f"{file.name}.{LOCK}"
        self._held = ExitStack()
        try:
            self._held.enter_context(locked_file(file.with_name(name)))
        except InstanceLocked:
            raise InUse from None

    def release(self) -> None:
        self._held.close()


class SqliteUpkeep:
    """The care of an SQLite file. Its methods raise UnfitDatabase where it can't be used."""

    def __init__(self, database: SqliteDatabase, instance: Path) -> None:
        self._path = database.path
        self._instance = instance

    def exists(self) -> bool:
        return self._path.exists()

    def has_beside(self, settings: Settings) -> bool:
        """Return whether there is also a store for test mode, which has these settings."""
        return settings.database_path.exists()

    def create(self) -> None:
        create(self._path)

    def prepare(self) -> None:
        """Before serving: make the file where there is none, upgrade it, check it.

        InUse is raised where another process serves it.
        """
        if reason := system.unfit_place(self._path.parent.absolute()):
            raise UnfitDatabase(reason)
        with self.acquire(alone=True):
            files.sweep(self._path.parent)
            if not self.exists():
                self.create()
            keep_private(self._path)
            upgrade(self._path)
            checks.check(self._path)

    def check(self) -> None:
        checks.check(self._path)

    def check_whole(self) -> None:
        checks.check_whole(self._path)

    def long_check(self) -> Callable[[], None] | None:
        if not checks.is_large(self._path):
            return None
        return lambda: checks.check_quickly(self._path)

    def upgrade(self) -> str:
        kept = upgrade(self._path)
        if kept is None:
            return "It is up to date."
        return f"Upgraded. The database as it was is in {kept}."

    def acquire(self, *, alone: bool) -> ServingLock:
        """Lock the file, which another instance folder may name, too; InUse where it is locked.

        A file in the instance folder itself has that one's lock.
        """
        file = self._path.resolve()
        if file.parent == self._instance.resolve() and file.name == self._path.name:
            return ServingLock()
        return _FileLock(file)

    def accept(self) -> None:
        """Do nothing: a file's restore is `flask db restore`."""

    def file(self) -> Path:
        return self._path
