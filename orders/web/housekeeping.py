"""What is written behind: twice a second, in threads of its own, so that no request waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

# What a killed process takes with it is what was counted since the last time: with the time that
# writing takes, less than a second's.
INTERVAL_SECONDS = 0.5


class Housekeeping:
    """Does chores until it is stopped, each in a thread of its own: one does not wait for another.

    So the limits' counters are written in time though the database is locked by an import.
    """

    def __init__(self, *chores: Callable[[], None]) -> None:
        """Take what to do. A failure is logged, and it is done again the next time."""
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(chore,), name="housekeeping", daemon=True)
            for chore in chores
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, after the chores that are being done."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, chore: Callable[[], None]) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            try:
                chore()
            except Exception:
                log.exception("Housekeeping failed; it is tried again in a moment.")
