"""Long answers, which are made in many pieces, do not keep others waiting.

The thread that makes one is lent to it: another takes its place among those that answer requests.
Of all long answers one makes a piece at a time, so that a processor is left to others, and all of
them get on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from waitress.task import ThreadedTaskDispatcher

# Each holds a connection to the database, too. Further ones take threads from other requests.
MAX_LENT = 16


class LongAnswers:
    """The long answers that are being made."""

    def __init__(self, dispatcher: ThreadedTaskDispatcher, threads: int) -> None:
        """Take the dispatcher, and how many threads it is to have for other requests."""
        self._dispatcher = dispatcher
        self._threads = threads
        self._lent = 0
        self._ended = False
        self._lock = Lock()
        self._piece = Lock()

    @contextmanager
    def lent(self) -> Iterator[Lock]:
        """Lend the thread that asks to a long answer; return the lock to make a piece under."""
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
