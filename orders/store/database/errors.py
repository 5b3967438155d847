"""How the database fails: what the driver's errors mean, and which of them spoil a connection."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from sqlalchemy import Connection, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound
from sqlalchemy.exc import TimeoutError as PoolTimeout

DAMAGED = "the database is damaged"
LOST = "the database server is away, or has ended the connection"
_LOCKED = "the database is locked by another program"
_FAILING_DISK = "the disk does not read or write, or is full"
# By SQLite's names. A name stands for those that it begins, too; the first that fits is told.
_CAUSES = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "the database can't be written to",
    "SQLITE_IOERR": _FAILING_DISK,
    "SQLITE_CANTOPEN": "the database can't be opened",
    "SQLITE_PERM": "the database can't be opened",
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": DAMAGED,
    # Nothing here removes a row that others refer to.
    "SQLITE_CONSTRAINT_FOREIGNKEY": DAMAGED,
    "SQLITE_PROTOCOL": _LOCKED,
}
# By PostgreSQL's codes, in the same way.
# https://www.postgresql.org/docs/15/errcodes-appendix.html
_SQLSTATES = {
    "08": LOST,
    "57P": LOST,
    "57014": "the database took too long",
    "55P03": _LOCKED,
    "40": "the database is busy",
    "25006": "the database can't be written to",
    "25P03": LOST,
    "53100": "the disk is full",
    "53300": "the database server takes no more connections",
    "53": "the database server has no room",
    "58": _FAILING_DISK,
    "XX": DAMAGED,
    "23503": DAMAGED,
    "28": "the database server refuses this user",
    "42501": "the database server refuses this user",
    "3D000": "the database is gone",
}
# Nothing was done, and the same may succeed at once: the connection was lost before a commit was
# asked for, or another transaction had to go first.
_TRIED_AGAIN = ("08", "57P", "25P03", "40001", "40P01")
# After these a connection is given up: it may have been opened without the right to write, and it
# keeps damaged pages in memory. The next one finds the file as it is then.
_SPOILING = (
    "SQLITE_READONLY",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_NOTADB",
)
# The server may be one that only reads, and another one takes its place.
_SPOILING_STATES = ("25006", "XX", "58")
# What comes of rows that are not what was written. The last is the driver's, where even the words
# of SQLite's error are made of what is damaged.
_NO_SUCH_ROWS = (NoResultFound, MultipleResultsFound, UnicodeDecodeError)


class StoreUnavailable(Exception):
    """The database can't be read or written just now. The message names the cause.

    `may_be_tried_again` tells that nothing was done, and that the same may succeed at once.
    """

    def __init__(self, cause: str, *, may_be_tried_again: bool = False) -> None:
        """Take the cause, and whether the same may succeed at once."""
        super().__init__(cause)
        self.may_be_tried_again = may_be_tried_again


def name_of(error: BaseException | None) -> str:
    """Return SQLite's name of a driver's error, such as SQLITE_BUSY; "" where it has none."""
    return getattr(error, "sqlite_errorname", None) or ""


def sqlstate_of(error: BaseException | None) -> str:
    """Return PostgreSQL's code of a driver's error, such as 40001; "" where it has none.

    An error of the connection itself, which no server could give a code, has 08000.
    """
    code: str | None = getattr(error, "sqlstate", None)
    is_connections = type(error).__module__.startswith("psycopg") and isinstance(
        error, sys.modules["psycopg"].OperationalError
    )
    return code or ("08000" if is_connections else "")


def unavailable_cause(error: BaseException | None) -> str | None:
    """Say why a driver's error means that the database is away; None where it does not."""
    if _is_no_text(error):
        return DAMAGED
    name, code = name_of(error), sqlstate_of(error)
    for known, cause in _CAUSES.items():
        if name == known or name.startswith(known + "_"):
            return cause
    found = [cause for known, cause in _SQLSTATES.items() if code.startswith(known)]
    return found[0] if found else None


def may_be_tried_again(error: Exception) -> bool:
    """Return whether nothing was done because of an error, and the same may succeed at once.

    Of one that was raised by a commit that can't be known: see `told_as_unknown`.
    """
    if isinstance(error, StoreUnavailable):
        return error.may_be_tried_again
    # A connection that could not be made has no statement, and takes its time to fail again.
    if isinstance(error, DBAPIError) and error.statement is None:
        return False
    return sqlstate_of(_drivers(error)).startswith(_TRIED_AGAIN)


def means_unavailable(error: Exception) -> bool:
    """Return whether an error, the driver's or SQLAlchemy's, means that the database is away."""
    return isinstance(error, StoreUnavailable) or _cause_of(error) is not None


@contextlib.contextmanager
def translate_driver_errors() -> Iterator[None]:
    """Return errors that mean that the database is away as what they mean.

    Raises:
        StoreUnavailable: in their place.
    """
    try:
        yield
    except Exception as error:
        cause = _cause_of(error)
        if cause is None:
            raise
        raise StoreUnavailable(cause, may_be_tried_again=may_be_tried_again(error)) from error


@contextlib.contextmanager
def told_as_unknown() -> Iterator[None]:
    """Return a connection that was lost at a commit as what can't be known: it is not tried again.

    Raises:
        StoreUnavailable: in its place.
    """
    try:
        yield
    except Exception as error:
        if _cause_of(error) == LOST:
            raise StoreUnavailable(f"{LOST}, at a commit") from error
        raise


@contextlib.contextmanager
def bad_rows_mean_corruption() -> Iterator[None]:
    """Return what fails here, where values are made of a row, as damage: the row is not ours.

    Raises:
        StoreUnavailable: it failed.
    """
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreUnavailable(DAMAGED) from error


@contextlib.contextmanager
def discard_connection_on_error(connection: Connection | PoolProxiedConnection) -> Iterator[None]:
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
        or unavailable_cause(drivers) == LOST
        or sqlstate_of(drivers).startswith(_SPOILING_STATES)
        or _is_no_text(drivers)
    )


def _drivers(error: Exception) -> BaseException | None:
    # What SQLAlchemy wraps; a statement that is executed without it raises the driver's own.
    return error.orig if isinstance(error, DBAPIError) else error


def _is_no_text(error: BaseException | None) -> bool:
    # The driver's own error, which has no name: SQLite itself does not look into texts.
    return not name_of(error) and str(error).startswith("Could not decode to UTF-8")
