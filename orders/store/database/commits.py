"""Group commit: changes that arrive together share a transaction, and so one wait for the disk.

A commit is acknowledged when it is on the disk, which takes 0.1 to 10 ms. While one commit waits,
changes queue up, and the next commit takes all of them: where the disk takes 5 ms, 4 or 8 threads
place 1.8 to 2.1 times as many orders so, and none waits for long (one after another, some wait for
seconds, as locks are not fair). If one of them fails, the transaction is rolled back: the others
are applied again without it, and then it is retried by itself, because it may have failed for what
the others did and then undid. That is rare, and a savepoint for each change would cost all of them
two more calls into the database. All are applied once more, too, if the connection was lost before
the commit was sent.

Results of reading are cached until the next commit (`CommitCache`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection

from orders.store.database.database import BUSY_SECONDS, Database
from orders.store.database.errors import (
    OutcomeUnknown,
    StoreUnavailable,
    is_retryable,
    means_unavailable,
)

Result = TypeVar("Result")
T = TypeVar("T")


class _Change(Generic[Result]):
    """A change that waits for its commit, and then its outcome."""

    def __init__(self, work: Callable[[Connection], Result]) -> None:
        self._work = work
        self._result: Result | None = None
        # The outcome until it is known to be on the disk.
        self._error: Exception | None = StoreUnavailable("the change was not made")
        self.ended = False
        # Set when it has ended, or when it is its thread's turn to apply those that wait.
        self.called = threading.Event()

    def make(self, connection: Connection) -> None:
        self._result = self._work(connection)

    def was_committed(self) -> None:
        self._error = None

    def failed(self, error: Exception) -> None:
        self._error = error
        if isinstance(error, StoreUnavailable):
            # A copy: each thread that raises it adds to the traceback.
            self._error = type(error)(*error.args)

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)


class GroupCommit:
    """Applies changes to a database. The thread whose turn it is applies those of all that wait.

    Turns are in order. A lock that all wait for would go to threads that have only just come, and
    changes that are on the disk would wait for the commits of later ones.
    """

    def __init__(self, database: Database) -> None:
        """Take the database."""
        self._database = database
        self._lock = threading.Lock()
        self._waiting: list[_Change[Any]] = []
        self._is_writing = False

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Call a function with a connection, commit, and return its result.

        The function may be called in another thread and more than once, in a transaction with
        other changes. If it raises, what it changed is rolled back and the exception is raised
        here.

        Raises:
            StoreUnavailable: the database can't be written; nothing was changed.
            OutcomeUnknown: it fell silent during the commit.
        """
        change = _Change(work)
        with self._lock:
            self._waiting.append(change)
            is_first, self._is_writing = not self._is_writing, True
        if not is_first:
            self._wait_for(change)
        if not change.ended:
            self._apply_waiting()
        return change.result()

    def _wait_for(self, change: _Change[Any]) -> None:
        if change.called.wait(min(BUSY_SECONDS, self._database.seconds_left())):
            return
        with self._lock:
            if change in self._waiting and not change.called.is_set():
                self._waiting.remove(change)
                raise StoreUnavailable("the database is busy")
        # Another thread is applying it, and will be done soon.
        if not change.called.wait(self._database.seconds_left()):
            raise OutcomeUnknown("the database does not answer")

    def _apply_waiting(self) -> None:
        with self._lock:
            changes, self._waiting = self._waiting, []
        try:
            self._commit(changes)
        finally:
            with self._lock:
                self._is_writing = bool(self._waiting)
                for change in [*changes, *self._waiting[:1]]:
                    change.called.set()

    def _commit(self, changes: Sequence[_Change[Any]]) -> None:
        remaining, failed = list(changes), []
        try:
            while remaining and (one := self._make(remaining)):
                remaining.remove(one)
                failed.append(one)
            if len(changes) > 1:
                for one in failed:
                    self._make([one])
        finally:
            for change in changes:
                change.ended = True

    def _make(
        self, changes: Sequence[_Change[Any]], *, is_second: bool = False
    ) -> _Change[Any] | None:
        # Returns the change that made the transaction fail, if one did.
        making = None
        try:
            with self._database.write() as connection:
                for making in changes:
                    making.make(connection)
                making = None
        except Exception as error:  # noqa: BLE001 - raised again by each change's own thread
            if making is not None and not means_unavailable(error):
                making.failed(error)
                return making
            if is_retryable(error) and not is_second:
                return self._make(changes, is_second=True)
            for change in changes:
                change.failed(error)
        else:
            for change in changes:
                change.was_committed()
        return None


# K Results cached until the next commit.


class CommitCache(Generic[T]):
    """Results of reading the database, by key, until anything is committed.

    Each thread has its own: the database's version means something to the thread that read it.
    """

    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._most = most
        self._thread = threading.local()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached result, or else read it."""
        # Before the reading: after a commit between the two, the next call reads again.
        version = self._database.version()
        results: dict[Hashable, T] = getattr(self._thread, "results", {})
        if getattr(self._thread, "version", None) != version:
            results = {}
        if key not in results:
            if len(results) == self._most:
                results.clear()
            results[key] = read()
        self._thread.version, self._thread.results = version, results
        return results[key]
