"""What is done to a database as a whole, whichever it is: made, upgraded, checked, held alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

from orders.store.care import opening, scratch
from orders.store.database.sqlite import SqliteDatabase


class InUse(Exception):
    """Another process serves this database."""


class Hold(ABC):
    """What says that this process serves a database. It is given back when the process ends."""

    @abstractmethod
    def keep(self) -> bool:
        """Make sure of it, now and then; false where another process has it meanwhile."""

    @abstractmethod
    def release(self) -> None:
        """Return it back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Upkeep(ABC):
    """The care of one database."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is one.

        Raises:
            UnfitDatabase: that can't be known.
        """

    @abstractmethod
    def create(self) -> None:
        """Make a new, empty one."""

    @abstractmethod
    def prepare(self) -> None:
        """Before it is served: make it where there is none, bring it up to date, check it.

        Raises:
            UnfitDatabase: it can't be used.
        """

    @abstractmethod
    def check(self) -> None:
        """Before it is used by a command: make sure that it is ours, sound, and of this schema.

        Raises:
            UnfitDatabase: it is not.
        """

    @abstractmethod
    def check_whole(self) -> None:
        """Check everything, however long it takes.

        Raises:
            UnfitDatabase: it is not sound.
        """

    @abstractmethod
    def long_check(self) -> Callable[[], None] | None:
        """Return the check that takes longer than a start may, if there is one."""

    @abstractmethod
    def upgrade(self) -> str:
        """Bring the schema up to date; say in words what was done.

        Raises:
            UnfitDatabase: it can't be.
        """

    @abstractmethod
    def hold(self, *, alone: bool) -> Hold:
        """Begin to serve it: `alone`, or with others that count their limits together.

        Raises:
            InUse: another process serves it, and one of the two wants to be alone.
        """

    @abstractmethod
    def file(self) -> Path:
        """Return the file that it is.

        Raises:
            UnfitDatabase: it is none; with what to do instead.
        """


class _HeldByFolder(Hold):
    """Nothing: the lock of the instance folder, in which the file is, says it already."""

    def keep(self) -> bool:
        return True

    def release(self) -> None:
        pass


class SqliteUpkeep(Upkeep):
    """The care of an SQLite file."""

    def __init__(self, database: SqliteDatabase) -> None:
        """Take the database."""
        self._path = database.path

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self._path.exists()

    def create(self) -> None:
        """Make a new, empty file."""
        opening.create(self._path)

    def prepare(self) -> None:
        """Before it is served: make it where there is none, bring it up to date, check it."""
        scratch.sweep(self._path.parent)
        if not self.exists():
            self.create()
        opening.keep_private(self._path)
        opening.upgrade(self._path)
        opening.check(self._path)

    def check(self) -> None:
        """Check that the file is ours, sound, and of this schema."""
        opening.check(self._path)

    def check_whole(self) -> None:
        """Check every page and index."""
        opening.check_whole(self._path)

    def long_check(self) -> Callable[[], None] | None:
        """Return the check of a large file."""
        if not opening.is_large(self._path):
            return None
        return lambda: opening.check_quickly(self._path)

    def upgrade(self) -> str:
        """Bring the schema up to date, keeping a copy of the file."""
        kept = opening.upgrade(self._path)
        if kept is None:
            return "It is up to date."
        return f"Upgraded. The database as it was is in {kept}."

    def hold(self, *, alone: bool) -> Hold:
        """Begin to serve it: whoever has the folder's lock is alone."""
        return _HeldByFolder()

    def file(self) -> Path:
        """Return the file's path."""
        return self._path
