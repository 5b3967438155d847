"""Waits for the server that end, whatever the server does.

PostgreSQL's own time limits don't help against a server that stands still and keeps its connections
open: only the client's do. After a wait that ended so, the next ones don't begin, but for one at a
time that probes the server, until it answers again.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import psycopg

from orders.store.database.errors import StoreUnavailable

log = logging.getLogger(__name__)

# A shorter silence says nothing about a server.
_LEAST_SECONDS = 1.0
# The least that psycopg waits for a connection.
_CONNECT_SECONDS = 2
# Between two probes.
_REST_SECONDS = 1.0
# Then one request waits for it again.
_LOCKED_SECONDS = 30.0
# In the server's words, as such an error has no code.
_FULL = re.compile("too many (clients|connections)|remaining connection slots")
_SILENT = "the database server does not answer"


class Breaker:
    """Whether a server answers, as far as this process has found out. Thread-safe."""

    def __init__(self, where: str, seconds_left: Callable[[], float]) -> None:
        """Take the server's name in the log, and how long this thread may still wait for it."""
        self._where = where
        self._seconds_left = seconds_left
        self._lock = threading.Lock()
        self._next_probe: float | None = None
        self._locked_until = 0.0

    @property
    def is_locked(self) -> bool:
        """Whether a statement has waited in vain for a lock a moment ago."""
        return time.monotonic() < self._locked_until

    def lock(self) -> None:
        """Note that a lock lasts."""
        self._locked_until = time.monotonic() + _LOCKED_SECONDS

    @property
    def is_open(self) -> bool:
        """Whether the server has left a wait without an answer, and none has had one since."""
        return self._next_probe is not None

    def check(self) -> None:
        """Raise StoreUnavailable unless this thread may ask the server."""
        if self._seconds_left() <= 0:
            raise StoreUnavailable("the database is busy")
        with self._lock:
            if self._next_probe is None:
                return
            now = time.monotonic()
            if now < self._next_probe:
                raise StoreUnavailable(_SILENT)
            self._next_probe = now + _CONNECT_SECONDS + _LEAST_SECONDS

    def patience(self) -> float:
        """Return how many seconds a wait that begins now may last."""
        return max(0.0 if self.is_open else self._seconds_left(), _LEAST_SECONDS)

    def answered(self) -> None:
        """Note that the server answers."""
        if self._next_probe is None:
            return
        with self._lock:
            was_silent, self._next_probe = self._next_probe is not None, None
        if was_silent:
            log.warning("The database server of %s answers again.", self._where)

    def give_up(self, cause: BaseException | None = None) -> NoReturn:
        """Note that it does not, and raise StoreUnavailable."""
        with self._lock:
            was_answering = self._next_probe is None
            self._next_probe = time.monotonic() + _REST_SECONDS
        if was_answering:
            log.warning("The database server of %s does not answer.", self._where)
        raise StoreUnavailable(_SILENT) from cause


class EndingConnection(psycopg.Connection[Any]):
    """A connection whose waits end, unless it has no breaker."""

    breaker: Breaker | None = None
    # What it waits for a lock, once that is set.
    lock_seconds: float | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait as psycopg does, which looks around ten times a second."""
        if self.breaker is not None:
            gen = self._bounded(gen, self.breaker)
        return super().wait(gen, *args, **options)

    def _bounded(self, waits: Any, breaker: Breaker) -> Generator[Any, Any, Any]:
        ends = time.monotonic() + breaker.patience()
        ready = None
        try:
            while True:
                ready = yield waits.send(ready)
                if not ready and time.monotonic() >= ends:
                    self.pgconn.finish()
                    breaker.give_up()
        except psycopg.errors.LockNotAvailable:
            breaker.lock()
            raise
        except StopIteration as done:
            breaker.answered()
            return done.value


def connect(breaker: Breaker, arguments: Any, options: Any) -> EndingConnection:
    """Return a new connection, or raise StoreUnavailable where the server leaves it unanswered."""
    seconds = min(int(options["connect_timeout"]), max(_CONNECT_SECONDS, int(breaker.patience())))
    try:
        connection = EndingConnection.connect(*arguments, **{**options, "connect_timeout": seconds})
    except psycopg.errors.ConnectionTimeout as error:
        breaker.give_up(error)
    except psycopg.OperationalError as error:
        breaker.answered()
        if _FULL.search(str(error)):
            raise psycopg.errors.TooManyConnections(str(error)) from error
        raise
    connection.breaker = breaker
    return connection
