"""The meaning of the drivers' errors: which are outages, which can be retried."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from sqlalchemy import Connection, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound
from sqlalchemy.exc import TimeoutError as PoolTimeout

DAMAGED = "the database is damaged"
LOST = "the database server can't be reached, or closed the connection"
LOCKED = "the database is locked by another program"
_FAILING_DISK = "the disk is failing or full"
# By SQLite's names, each also for the names that it is a prefix of; the first match counts.
_CAUSES = {
    "SQLITE_BUSY": LOCKED,
    "SQLITE_LOCKED": LOCKED,
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "the database can't be written to",
    "SQLITE_IOERR": _FAILING_DISK,
    "SQLITE_CANTOPEN": "the database can't be opened",
    "SQLITE_PERM": "the database can't be opened",
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": DAMAGED,
    # No statement here deletes a row that others refer to.
    "SQLITE_CONSTRAINT_FOREIGNKEY": DAMAGED,
    "SQLITE_PROTOCOL": LOCKED,
}
# By prefixes of PostgreSQL's codes.
# https://www.postgresql.org/docs/15/errcodes-appendix.html
_SQLSTATES = {
    "08": LOST,
    "57P": LOST,
    "57014": "the database took too long",
    "55P03": LOCKED,
    "40": "the database is busy",
    "25006": "the database can't be written to",
    "25P03": LOST,
    "53100": "the disk is full",
    "53300": "the database server accepts no more connections",
    "53": "the database server has no space",
    "58": _FAILING_DISK,
    "XX": DAMAGED,
    "23503": DAMAGED,
    "28": "the database server rejects this user",
    "42501": "the database server rejects this user",
    "3D000": "the database is gone",
}
# Nothing was done and a retry may succeed at once: the connection was lost before a commit was
# sent, or another transaction had to go first.
_RETRYABLE = ("08", "57P", "25P03", "40001", "40P01")
# After these a connection is discarded: it may have been opened read-only, or hold damaged pages
# in memory. The next one sees the file as it is then.
_FATAL = (
    "SQLITE_READONLY",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_NOTADB",
)
# The server may be read-only, and another take its place.
_FATAL_STATES = ("25006", "XX", "58")
# Raised by rows that are not what was written. The last is the driver's, when even the text of
# SQLite's error contains damaged data.
_BAD_ROWS = (NoResultFound, MultipleResultsFound, UnicodeDecodeError)


class StoreUnavailable(Exception):
    """The database can't be read or written at present. The message names the cause.

    `retryable` says that nothing was done, and that a retry may succeed at once.
    """

    def __init__(self, cause: str, *, retryable: bool = False) -> None:
        """Take the cause, and whether a retry may succeed at once."""
        super().__init__(cause)
        self.retryable = retryable


class OutcomeUnknown(StoreUnavailable):
    """The database fell silent during a commit, which it may have made or not."""


class Superseded(StoreUnavailable):
    """The database is no longer the one that this process began to serve."""


def name_of(error: BaseException | None) -> str:
    """Return SQLite's name of a driver's error, such as SQLITE_BUSY, or ""."""
    return getattr(error, "sqlite_errorname", None) or ""


def sqlstate_of(error: BaseException | None) -> str:
    """Return PostgreSQL's code of a driver's error, such as 40001, or "".

    An error of the connection itself, to which no server assigned a code, has 08000.
    """
    code: str | None = getattr(error, "sqlstate", None)
    is_of_connection = type(error).__module__.startswith("psycopg") and isinstance(
        error, sys.modules["psycopg"].OperationalError
    )
    return code or ("08000" if is_of_connection else "")


def unavailable_cause(error: BaseException | None) -> str | None:
    """Return why a driver's error means that the database is unavailable, or None."""
    if _is_undecodable(error):
        return DAMAGED
    name, code = name_of(error), sqlstate_of(error)
    for known, cause in _CAUSES.items():
        if name == known or name.startswith(known + "_"):
            return cause
    found = [cause for known, cause in _SQLSTATES.items() if code.startswith(known)]
    return found[0] if found else None


def is_retryable(error: Exception) -> bool:
    """Return whether an error left nothing done, and a retry may succeed at once.

    An error of a commit can't be judged so: see `commit_outcome_unknown`.
    """
    if isinstance(error, StoreUnavailable):
        return error.retryable
    # A connection that could not be opened has no statement, and takes long to fail again.
    if isinstance(error, DBAPIError) and error.statement is None:
        return False
    return sqlstate_of(_driver_error(error)).startswith(_RETRYABLE)


def means_unavailable(error: Exception) -> bool:
    """Return whether an error, the driver's or SQLAlchemy's, means an unavailable database."""
    return isinstance(error, StoreUnavailable) or _cause_of(error) is not None


class _Watch(contextlib.ContextDecorator):
    """Calls a function with the error, if any, that leaves a block.

    As a class, because around each query a generator would take as long as the query.
    """

    def __init__(self, judge: Callable[[Exception], None]) -> None:
        self._judge = judge

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Judge the error. What that raises takes the error's place."""
        if isinstance(error, Exception):
            self._judge(error)


def translate_driver_errors() -> _Watch:
    """Turn errors that mean an unavailable database into StoreUnavailable.

    Raises:
        StoreUnavailable: in their place.
    """
    return _TRANSLATING


@contextlib.contextmanager
def commit_outcome_unknown() -> Iterator[None]:
    """Turn a connection that was lost during a commit into an error that says so.

    Raises:
        OutcomeUnknown: in its place.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, StoreUnavailable) or _cause_of(error) == LOST:
            raise OutcomeUnknown(_cause_of(error) or str(error)) from error
        raise


def bad_rows_mean_corruption() -> _Watch:
    """Treat errors of converting a row's values as corruption: the service wrote no such row.

    Raises:
        StoreUnavailable: in their place.
    """
    return _CONVERTING


def discard_connection_on_error(connection: Connection | PoolProxiedConnection) -> _Watch:
    """Have the pool replace the connection after an error that makes it unusable."""
    return _Watch(lambda error: connection.invalidate() if _is_fatal(error) else None)


def _translate(error: Exception) -> None:
    cause = _cause_of(error)
    if cause is not None:
        raise StoreUnavailable(cause, retryable=is_retryable(error)) from error


def _distrust(error: Exception) -> None:
    if isinstance(error, AttributeError | TypeError | ValueError):
        raise StoreUnavailable(DAMAGED) from error


_TRANSLATING = _Watch(_translate)
_CONVERTING = _Watch(_distrust)


def _cause_of(error: Exception) -> str | None:
    if isinstance(error, PoolTimeout):
        return "the database is busy"
    if isinstance(error, _BAD_ROWS):
        return DAMAGED
    return unavailable_cause(_driver_error(error))


def _is_fatal(error: Exception) -> bool:
    cause = _driver_error(error)
    return (
        isinstance(error, (StoreUnavailable, *_BAD_ROWS))
        or name_of(cause).startswith(_FATAL)
        or unavailable_cause(cause) == LOST
        or sqlstate_of(cause).startswith(_FATAL_STATES)
        or _is_undecodable(cause)
    )


def _driver_error(error: Exception) -> BaseException | None:
    # Unwrapped from SQLAlchemy's, unless the statement was executed without it.
    return error.orig if isinstance(error, DBAPIError) else error


def _is_undecodable(error: BaseException | None) -> bool:
    # The driver's own error, without a name: SQLite itself does not decode texts.
    return not name_of(error) and str(error).startswith("Could not decode to UTF-8")
