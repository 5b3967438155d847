"""Background flushes, every 0.5 s, so that no request waits for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

# A killed process loses what was counted since the last flush: less than a second's requests.
INTERVAL_SECONDS = 0.5


class Housekeeping:
    """Repeats chores until it is stopped, each in a thread of its own.

    The limits' counters are therefore written in time while an import locks the database.
    """

    def __init__(self, *chores: Callable[[], float | None]) -> None:
        """Prepare the threads. A chore that fails is logged, and retried the next time.

        One that returns seconds is repeated after them.
        """
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(chore,), name="housekeeping", daemon=True)
            for chore in chores
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for the chores that are under way."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, chore: Callable[[], float | None]) -> None:
        seconds: float | None = None
        while not self._stopped.wait(seconds or INTERVAL_SECONDS):
            seconds = None
            try:
                seconds = chore()
            except Exception:
                log.exception("Housekeeping failed; it is retried in a moment.")
