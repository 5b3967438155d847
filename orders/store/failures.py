"""How the database fails: what the driver's errors mean, and which of them spoil a connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import Connection, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound
from sqlalchemy.exc import TimeoutError as PoolTimeout

DAMAGED = "the database is damaged"
# By the driver's names. A name stands for those that it begins, too; the first that fits is told.
_CAUSES = {
    "SQLITE_BUSY": "the database is locked by another program",
    "SQLITE_LOCKED": "the database is locked by another program",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "the database can't be written to",
    "SQLITE_IOERR": "the disk does not read or write, or is full",
    "SQLITE_CANTOPEN": "the database can't be opened",
    "SQLITE_PERM": "the database can't be opened",
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": DAMAGED,
    # Nothing here removes a row that others refer to.
    "SQLITE_CONSTRAINT_FOREIGNKEY": DAMAGED,
    "SQLITE_PROTOCOL": "the database is locked by another program",
}
# After these a connection is given up: it may have been opened without the right to write, and it
# keeps damaged pages in memory. The next one finds the file as it is then.
_SPOILING = (
    "SQLITE_READONLY",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_NOTADB",
)
# What comes of rows that are not what was written. The last is the driver's, where even the words
# of SQLite's error are made of what is damaged.
_NO_SUCH_ROWS = (NoResultFound, MultipleResultsFound, UnicodeDecodeError)


class StoreUnavailable(Exception):
    """The database can't be read or written just now. The message names the cause."""


def name_of(error: BaseException | None) -> str:
    """Give SQLite's name of a driver's error, such as SQLITE_BUSY; "" where it has none."""
    return getattr(error, "sqlite_errorname", None) or ""


def unavailable_cause(error: BaseException | None) -> str | None:
    """Say why a driver's error means that the database is away; None where it does not."""
    if _is_no_text(error):
        return DAMAGED
    name = name_of(error)
    for known, cause in _CAUSES.items():
        if name == known or name.startswith(known + "_"):
            return cause
    return None


def means_unavailable(error: Exception) -> bool:
    """Tell whether an error, the driver's or SQLAlchemy's, means that the database is away."""
    return isinstance(error, StoreUnavailable) or _cause_of(error) is not None


@contextlib.contextmanager
def told_as_unavailable() -> Iterator[None]:
    """Tell errors that mean that the database is away as what they mean.

    Raises:
        StoreUnavailable: in their place.
    """
    try:
        yield
    except Exception as error:
        cause = _cause_of(error)
        if cause is None:
            raise
        raise StoreUnavailable(cause) from error


@contextlib.contextmanager
def damage_told() -> Iterator[None]:
    """Tell what fails here, where values are made of a row, as damage: the row is not ours.

    Raises:
        StoreUnavailable: it failed.
    """
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreUnavailable(DAMAGED) from error


@contextlib.contextmanager
def given_up_when_spoilt(connection: Connection | PoolProxiedConnection) -> Iterator[None]:
    """Let the pool open another connection in the place of one that an error has spoilt."""
    try:
        yield
    except Exception as error:
        if _spoils(error):
            connection.invalidate()
        raise


def _cause_of(error: Exception) -> str | None:
    if isinstance(error, PoolTimeout):
        return "the database is busy"
    if isinstance(error, _NO_SUCH_ROWS):
        return DAMAGED
    return unavailable_cause(_drivers(error))


def _spoils(error: Exception) -> bool:
    drivers = _drivers(error)
    return (
        isinstance(error, (StoreUnavailable, *_NO_SUCH_ROWS))
        or name_of(drivers).startswith(_SPOILING)
        or _is_no_text(drivers)
    )


def _drivers(error: Exception) -> BaseException | None:
    # What SQLAlchemy wraps; a statement that is executed without it raises the driver's own.
    return error.orig if isinstance(error, DBAPIError) else error


def _is_no_text(error: BaseException | None) -> bool:
    # The driver's own error, which has no name: SQLite itself does not look into texts.
    return not name_of(error) and str(error).startswith("Could not decode to UTF-8")
