"""Group commit: changes that arrive together share a transaction, and so one wait for the disk.

While a commit waits for the disk, which takes 0.1 to 10 ms, changes queue up. The next transaction
goes from thread to thread: each makes its change, hands the transaction on and waits; the last one
commits for all. With a disk that takes 5 ms, 4 or 8 threads so place twice as many orders. A change
that fails is undone alone. Where the transaction is lost, each change can be retried by itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from sqlalchemy import Connection

from orders.store.database.database import BUSY_SECONDS, Database, driver_of
from orders.store.database.errors import OutcomeUnknown, StoreUnavailable, means_unavailable

T = TypeVar("T")
# The error of a change that was lost with those of others, and can be retried.
_UNDONE = StoreUnavailable("the change was undone", retryable=True)


class _SharedTransaction:
    """A write transaction that goes from thread to thread."""

    def __init__(self, database: Database) -> None:
        self._writing = database.write()
        self.connection = self._writing.__enter__()
        self._has_changes = self._has_savepoint = False
        self._ended = threading.Event()
        # The outcome until it is known to be on the disk.
        self._error: StoreUnavailable | None = _UNDONE

    def begin_change(self) -> None:
        """Begin a change that can be undone without those before it."""
        # Without its own, a change must not be undone to the savepoint of the one before.
        self._has_savepoint = False
        if self._has_changes:
            driver_of(self.connection).execute("SAVEPOINT change")
            self._has_savepoint = True
        self._has_changes = True

    def undo_change(self, error: BaseException) -> bool:
        """Undo the latest change; return False if that takes ending the transaction."""
        is_lost = not isinstance(error, Exception) or means_unavailable(error)
        if is_lost or not self._has_savepoint:
            return False
        try:
            driver_of(self.connection).execute("ROLLBACK TO change")
        except Exception:  # noqa: BLE001 - the error that led to it is raised
            return False  # SQLite has rolled all back, being out of memory
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Commit, or roll back for an error, which StoreUnavailable may replace."""
        left_by = (type(error), error, error.__traceback__) if error else (None, None, None)
        try:
            self._writing.__exit__(*left_by)
            if error is None or isinstance(error, StoreUnavailable):
                self._error = error
        except StoreUnavailable as unavailable:
            self._error = unavailable
            raise
        finally:
            self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait until it is on the disk; raise StoreUnavailable if it is not."""
        if not self._ended.wait(seconds):
            raise OutcomeUnknown("the database does not answer")
        if self._error is not None:
            # Another one: each thread that raises it adds to the traceback.
            raise type(self._error)(*self._error.args, retryable=self._error.retryable)


class _Turn:
    """A thread's place in the queue, and the transaction that was handed to it, if one is open."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.shared: _SharedTransaction | None = None


class GroupCommit:
    """The write transactions that all changes to a database share.

    Turns are in order. A lock that all wait for would go to threads that have only just come, and
    changes that are on the disk would wait for the commits of later ones.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._waiting: deque[_Turn] = deque()
        self._is_writing = False

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection for a change; when it is left, the change is on the disk.

        Left by an exception, the change is undone, and the others' in the same transaction are on
        the disk: what it found may be their doing. StoreUnavailable means that nothing was changed.
        """
        shared = self._take_turn()
        try:
            shared.begin_change()
            yield shared.connection
        except BaseException as error:
            if shared.undo_change(error):
                self._hand_on_or_commit(shared)
            else:
                self._end(shared, error)
            raise
        self._hand_on_or_commit(shared)

    def _take_turn(self) -> _SharedTransaction:
        shared = self._wait_for_turn()
        if shared is not None:
            return shared
        try:
            return _SharedTransaction(self._database)
        except BaseException:
            self._hand_on(None)
            raise

    def _wait_for_turn(self) -> _SharedTransaction | None:
        with self._lock:
            if not self._is_writing:
                self._is_writing = True
                return None
            turn = _Turn()
            self._waiting.append(turn)
        if not turn.has_come.wait(min(BUSY_SECONDS, self._database.seconds_left())):
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise StoreUnavailable("the database is busy")
        return turn.shared

    def _hand_on(self, shared: _SharedTransaction | None) -> bool:
        """Hand a transaction, or the right to begin one, to the longest waiter, if any."""
        with self._lock:
            if self._waiting:
                turn = self._waiting.popleft()
                turn.shared = shared
                turn.has_come.set()
                return True
            self._is_writing = shared is not None
            return False

    def _hand_on_or_commit(self, shared: _SharedTransaction) -> None:
        if self._hand_on(shared):
            shared.wait(self._database.seconds_left())
        else:
            self._end(shared)

    def _end(self, shared: _SharedTransaction, error: BaseException | None = None) -> None:
        try:
            shared.end(error)
        finally:
            self._hand_on(None)


class CommitCache(Generic[T]):
    """Results of reading the database, by key, until anything is committed.

    Each thread has its own: the database's version means something to the thread that read it.
    """

    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._most = most
        self._thread = threading.local()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
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
