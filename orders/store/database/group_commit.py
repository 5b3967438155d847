"""Group commit: changes that come at the same time share a transaction, and so a wait for the disk.

A commit is acknowledged when it is on the disk, and disks take from 0.1 to 10 ms for that. While
one commit waits, the changes that arrive queue up, and the next commit takes all of them. Where one
of them can't be made, nothing of all that stays: the others are made again without it, and then it
is tried again by itself, because what it was refused for may have been the others' doing, which in
the end did not come to be. That is rare, and a savepoint for each change would cost all of them two
more calls into the database. All are made once more, too, where the connection was lost before the
commit was asked for.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection

from orders.store.database.engine import BUSY_SECONDS, Database
from orders.store.database.errors import StoreUnavailable, may_be_tried_again, means_unavailable

Result = TypeVar("Result")


class _Change(Generic[Result]):
    """A change that waits for its commit, and then what came of it."""

    def __init__(self, work: Callable[[Connection], Result]) -> None:
        self._work = work
        self._result: Result | None = None
        # What the client is told where nobody comes to say that it is on the disk.
        self._error: Exception | None = StoreUnavailable("the change was not made")
        self.ended = False

    def make(self, connection: Connection) -> None:
        self._result = self._work(connection)

    def was_committed(self) -> None:
        self._error = None

    def failed(self, error: Exception) -> None:
        self._error = error
        if isinstance(error, StoreUnavailable):
            # Each thread that raises an exception adds its way to the traceback.
            self._error = StoreUnavailable(*error.args)

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)


class GroupCommit:
    """Makes changes of a database. The thread that may write makes those of all that wait."""

    def __init__(self, database: Database) -> None:
        """Take the database."""
        self._database = database
        self._waiting: deque[_Change[Any]] = deque()
        self._writing = threading.Lock()

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Call a function with a connection, commit, and give what it gave.

        The function may be called in another thread and more than once, and more than its own
        changes may be in the transaction. If it raises, what it changed is undone and the exception
        is raised here.

        Raises:
            StoreUnavailable: the database can't be written; nothing was changed.
        """
        change = _Change(work)
        self._waiting.append(change)
        self._wait_for_turn(change)
        try:
            if not change.ended:
                self._commit(list(self._taken()))
        finally:
            self._writing.release()
        return change.result()

    def _wait_for_turn(self, change: _Change[Any]) -> None:
        if self._writing.acquire(timeout=BUSY_SECONDS):
            return
        try:
            self._waiting.remove(change)
        except ValueError:
            # Somebody is making it just now, and will have ended soon.
            self._writing.acquire()
        else:
            raise StoreUnavailable("the database is busy")

    def _taken(self) -> Iterator[_Change[Any]]:
        # One whose patience is at its end may take itself away meanwhile.
        with contextlib.suppress(IndexError):
            while True:
                yield self._waiting.popleft()

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
        # Gives the one for whose own sake nothing was made.
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
            if may_be_tried_again(error) and not is_second:
                return self._make(changes, is_second=True)
            for change in changes:
                change.failed(error)
        else:
            for change in changes:
                change.was_committed()
        return None
