"""The meaning of the drivers' errors: outages, how long they last, and what can be retried.

Each query records whether reading or writing fails. A service logs a fault once, and its end: it is
over when a probe works, since the next request may come hours later, or need less.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NoReturn

from sqlalchemy import Connection, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from orders.domain import Expected

log = logging.getLogger(__name__)

PROBE_SECONDS = 2.0
_MINUTE, _HOUR = 60, 3_600
DAMAGED = "the database is damaged"
LOST = "the database server can't be reached, or closed the connection"
LOCKED = "the database is locked by another program"
BUSY = "the database is busy"
FULL = "the disk is full"
FAILING_DISK = "the disk is failing or full"
READ_ONLY = "the database is read-only, or its disk is"
UNOPENABLE = "the database can't be opened"
_REJECTED = "the database server rejects this user"
# By the beginnings of SQLite's names, and of PostgreSQL's codes; the first match counts.
# https://www.postgresql.org/docs/15/errcodes-appendix.html
_CAUSES = {
    "SQLITE_BUSY": LOCKED,
    "SQLITE_LOCKED": LOCKED,
    "SQLITE_PROTOCOL": LOCKED,
    "SQLITE_FULL": FULL,
    "SQLITE_READONLY": READ_ONLY,
    "SQLITE_IOERR": FAILING_DISK,
    "SQLITE_CANTOPEN": UNOPENABLE,
    "SQLITE_PERM": UNOPENABLE,
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": DAMAGED,
    # No statement here deletes a row that others refer to.
    "SQLITE_CONSTRAINT_FOREIGNKEY": DAMAGED,
    "08": LOST,
    "57P": LOST,
    "57014": "the database took too long",
    "55P03": LOCKED,
    "40": BUSY,
    "25006": READ_ONLY,
    "25P03": LOST,
    "53100": FULL,
    "53300": "the database server accepts no more connections",
    "53": "the database server has no space",
    "58": FAILING_DISK,
    "XX": DAMAGED,
    "23503": DAMAGED,
    "28": _REJECTED,
    "42501": _REJECTED,
    "3D000": "the database is gone",
}
# After these a connection is discarded: it may have been opened read-only, or hold damaged pages
# in memory, or another server may have taken over. The next one sees the database as it is then.
_FATAL = {DAMAGED, LOST, FAILING_DISK, READ_ONLY, UNOPENABLE}
# Nothing was done, and a retry may succeed at once: the connection was lost before a commit was
# sent, or another transaction had to go first.
_RETRYABLE = ("08", "57P", "25P03", "40001", "40P01")


class StoreUnavailable(Expected):
    """The database can't be read or written at present. The message names the cause.

    `retryable` says that nothing was done, and that a retry may succeed at once.
    """

    def __init__(self, cause: str, *, retryable: bool = False) -> None:
        super().__init__(cause)
        self.retryable = retryable


class OutcomeUnknown(StoreUnavailable):
    """The database fell silent during a commit, which it may have made or not."""


class Superseded(StoreUnavailable):
    """The database is no longer the one that this process began to serve."""


def unavailable_cause(error: Exception) -> str | None:
    """Return why an error, the driver's or SQLAlchemy's, means no database at present, or None."""
    if isinstance(error, PoolTimeout):
        return BUSY
    code = _code_of(error)
    # The driver's own errors, without a name: SQLite itself does not decode texts. The second is
    # of its errors, if even their texts contain damaged data.
    is_undecodable = not code and str(_driver_error(error)).startswith("Could not decode to UTF-8")
    if is_undecodable or isinstance(error, UnicodeDecodeError):
        return DAMAGED
    return next((cause for known, cause in _CAUSES.items() if code.startswith(known)), None)


def is_retryable(error: Exception) -> bool:
    """Return whether an error left nothing done, and a retry may succeed at once.

    An error of a commit can't be judged so.
    """
    if isinstance(error, StoreUnavailable):
        return error.retryable
    # A connection that could not be opened has no statement, and takes long to fail again.
    if isinstance(error, DBAPIError) and error.statement is None:
        return False
    return _code_of(error).startswith(_RETRYABLE)


def means_unavailable(error: Exception) -> bool:
    return isinstance(error, StoreUnavailable) or unavailable_cause(error) is not None


def translate(error: Exception) -> NoReturn:
    """Raise StoreUnavailable for an error that means an unavailable database, or the error."""
    cause = unavailable_cause(error)
    if cause is None:
        raise error
    raise StoreUnavailable(cause, retryable=is_retryable(error)) from error


@contextlib.contextmanager
def translated(connection: Connection | None = None) -> Iterator[None]:
    """Turn errors that mean an unavailable database into StoreUnavailable.

    After those that make a connection unusable, the pool replaces it.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised again
        if connection is not None:
            invalidate_if_fatal(connection, error)
        translate(error)


def invalidate_if_fatal(connection: Connection | PoolProxiedConnection, error: Exception) -> None:
    if isinstance(error, StoreUnavailable) or unavailable_cause(error) in _FATAL:
        connection.invalidate()


def _code_of(error: Exception) -> str:
    """Return SQLite's name of an error, such as SQLITE_BUSY, or PostgreSQL's code, or "".

    An error of a connection itself, to which no server assigned a code, has 08000.
    """
    cause = _driver_error(error)
    code: str | None = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    is_of_connection = type(cause).__module__.startswith("psycopg") and isinstance(
        cause, sys.modules["psycopg"].OperationalError
    )
    return code or ("08000" if is_of_connection else "")


def _driver_error(error: Exception) -> BaseException | None:
    # Unwrapped from SQLAlchemy's, unless the statement was executed without it.
    return error.orig if isinstance(error, DBAPIError) else error


class Part(StrEnum):
    """The parts that can fail separately: on a full disk, reading still works."""

    READING = "reading"
    WRITING = "writing"


_BEGINS = {Part.READING: "The database can't be read: %s.", Part.WRITING: "Writes fail: %s."}
_ENDS = {
    Part.READING: "The database is back after %s.",
    Part.WRITING: "Writes work again after %s.",
}
_DAMAGED = (
    "The database is damaged: a request could not be answered. Stop the service, keep the file, "
    "and restore a backup."
)


class Outages:
    """The outages of one database. Any thread may record one."""

    def __init__(self) -> None:
        # By part, why it fails, and since when that is logged (monotonic).
        self._causes: dict[Part, str] = {}
        self._logged: dict[Part, float] = {}
        self._next_probe = -math.inf
        self._is_damaged = self._is_damage_logged = False

    def record(self, part: Part, cause: str) -> None:
        if cause == DAMAGED:
            # A page is damaged while others are sound: no probe can tell when that is over.
            self._is_damaged = True
        elif cause != BUSY:  # being busy is its own doing
            self._causes[part] = cause

    def cause(self, part: Part) -> str | None:
        return self._causes.get(part)

    @property
    def causes(self) -> dict[str, str]:
        """Why each part that fails does."""
        return {part.value: cause for part, cause in self._causes.copy().items()}

    def follow(self, probe: Callable[[Part], None], now: float) -> None:
        """Log a fault that has begun or ended. Called twice a second, with the monotonic time.

        `probe` raises StoreUnavailable while a part fails.
        """
        if self._is_damaged and not self._is_damage_logged:
            self._is_damage_logged = True
            log.error(_DAMAGED)
        # Where reading fails, writing does, too.
        part = next((part for part in Part if part in self._causes), None)
        if part is None:
            return
        if part not in self._logged:
            self._logged[part], self._next_probe = now, now + PROBE_SECONDS
            log.warning(_BEGINS[part], self._causes[part])
        elif now >= self._next_probe:
            self._next_probe = now + PROBE_SECONDS
            self._probe(part, probe, now)

    def _probe(self, part: Part, probe: Callable[[Part], None], now: float) -> None:
        try:
            probe(part)
        except StoreUnavailable as error:
            self.record(part, str(error))
        else:
            del self._causes[part]
            log.warning(_ENDS[part], duration_in_words(now - self._logged.pop(part)))


def duration_in_words(seconds: float) -> str:
    """Return a duration for people: 50 s, 12 min, 3 h."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h"
