"""What is written behind: once a second, in a thread of its own, so that no request waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0


class Housekeeping:
    """Calls its chores once a second until it is stopped, and once more then."""

    def __init__(self, chores: Sequence[Callable[[], None]]) -> None:
        """Take what to call. A chore that fails is logged, and called again."""
        self._chores = chores
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after doing everything one last time."""
        self._stopped.set()
        self._thread.join()
        self._do_all()

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            self._do_all()

    def _do_all(self) -> None:
        for chore in self._chores:
            try:
                chore()
            except Exception:
                log.exception("Housekeeping failed; it is tried again in a second.")
