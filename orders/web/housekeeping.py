"""What is written behind: once a second, in a thread of its own, so that no request waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0


class Housekeeping:
    """Does a chore once a second until it is stopped."""

    def __init__(self, chore: Callable[[], None]) -> None:
        """Take what to do. A failure is logged, and it is done again the next time."""
        self._chore = chore
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the chore if it is being done."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            try:
                self._chore()
            except Exception:
                log.exception("Housekeeping failed; it is tried again in a second.")
