"""What is done to an SQLite file as a whole: made, upgraded, checked, locked.

`postgres.upkeep` does the same for a database on a server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from orders.settings import DATABASE_NAME
from orders.store.care import checks, opening, scratch
from orders.store.care.instance import LOCK, InstanceLocked, locked_file
from orders.store.database.sqlite import SqliteDatabase


class InUse(Exception):
    """Another process serves this database."""


class Hold:
    """A lock that marks the database as served by this process. It ends with the process.

    A file's is that of the folder that it is in: two instance folders may name one file.
    """

    def keep(self) -> bool:
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


class _HeldByFile(Hold):
    """The lock that a service has whose instance folder the file is in; else, one beside it."""

    def __init__(self, file: Path) -> None:
        name = LOCK if file.name == DATABASE_NAME else f"{file.name}.{LOCK}"
        self._held = ExitStack()
        try:
            self._held.enter_context(locked_file(file.with_name(name)))
        except InstanceLocked:
            raise InUse from None

    def release(self) -> None:
        """Release the lock."""
        self._held.close()


class SqliteUpkeep:
    """The care of an SQLite file. Its methods raise UnfitDatabase where it can't be used."""

    def __init__(self, database: SqliteDatabase, instance: Path) -> None:
        self._path = database.path
        self._instance = instance

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self._path.exists()

    def create(self) -> None:
        """Make a new, empty file."""
        opening.create(self._path)

    def prepare(self) -> None:
        """Before serving: make the file where there is none, upgrade it, check it.

        InUse is raised where another process serves it.
        """
        with self.hold(alone=True):
            scratch.sweep(self._path.parent)
            if not self.exists():
                self.create()
            opening.keep_private(self._path)
            opening.upgrade(self._path)
            checks.check(self._path)

    def check(self) -> None:
        """Check that the file is ours, sound, and of this schema."""
        checks.check(self._path)

    def check_whole(self) -> None:
        """Check every page and index."""
        checks.check_whole(self._path)

    def long_check(self) -> Callable[[], None] | None:
        """Return the check of a large file."""
        if not checks.is_large(self._path):
            return None
        return lambda: checks.check_quickly(self._path)

    def upgrade(self) -> str:
        """Bring the schema up to date, keeping a copy of the file."""
        kept = opening.upgrade(self._path)
        if kept is None:
            return "It is up to date."
        return f"Upgraded. The database as it was is in {kept}."

    def hold(self, *, alone: bool) -> Hold:
        """Lock the file, which another instance folder may name, too; InUse where it is locked.

        A file in the instance folder itself has that one's lock.
        """
        file = self._path.resolve()
        if file.parent == self._instance.resolve() and file.name == self._path.name:
            return Hold()
        return _HeldByFile(file)

    def accept(self) -> None:
        """Do nothing: a file's restore is `flask db restore`."""

    def file(self) -> Path:
        """Return the file's path."""
        return self._path
