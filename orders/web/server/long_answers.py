"""Long answers, produced in many pieces, do not keep other requests waiting.

The thread that produces one is lent to it: another replaces it among those that answer requests.
Only one long answer at a time produces a piece, so that a processor is left for other requests and
all of them progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from waitress.task import ThreadedTaskDispatcher

# Each also holds a database connection. Further long answers take threads from other requests.
MAX_LENT = 16


class LongAnswers:
    """The long answers in progress."""

    def __init__(self, dispatcher: ThreadedTaskDispatcher, threads: int) -> None:
        """Manage a dispatcher, which is to have so many threads for other requests."""
        self._dispatcher = dispatcher
        self._threads = threads
        self._lent = 0
        self._ended = False
        self._lock = Lock()
        self._piece = Lock()

    @contextmanager
    def lent(self) -> Iterator[Lock]:
        """Lend this thread to a long answer; yield the lock under which to produce a piece."""
        self._lend(1)
        try:
            yield self._piece
        finally:
            self._lend(-1)

    def end(self) -> None:
        """Leave the dispatcher's threads alone from now on."""
        with self._lock:
            self._ended = True

    def _lend(self, more: int) -> None:
        with self._lock:
            self._lent += more
            if not self._ended:
                self._dispatcher.set_thread_count(self._threads + min(self._lent, MAX_LENT))
