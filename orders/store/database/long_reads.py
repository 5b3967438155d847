"""The gate of long reads, and SQLite's write-ahead log, which a long read keeps from being reused.

Commits append to the log. Checkpoints copy its pages to the file, and once all are copied and
nobody reads the log, it begins anew. Long reads that overlap would let it grow without end: beyond
a size they are held back for a moment, until those that run have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum

from orders.store.database.errors import StoreUnavailable

log = logging.getLogger(__name__)

# In pages of 4 KiB, as SQLite makes them: 4, 16 and 64 MiB.
CHECKPOINT_PAGES, RESTART_PAGES, MOST_PAGES = 1_024, 4_096, 16_384
CLOSED_SECONDS = 0.05
# The gate is closed for a second at most. Where that was in vain, it stays open for a minute.
MOST_CLOSED_TURNS, OPEN_TURNS = 20, 120


class Checkpoint(StrEnum):
    """What a checkpoint does: https://www.sqlite.org/pragma.html#pragma_wal_checkpoint."""

    # Older versions of SQLite take this for PASSIVE.
    MEASURE = "NOOP"
    COPY = "PASSIVE"
    RESTART = "RESTART"


class LongReads:
    """Whether long reads of one moment may begin: always, unless a log is to be kept short."""

    is_open = True

    def tend(self) -> float | None:
        """Do what is due; return after how many seconds to call this again, None if it is usual."""
        return None


class ShortLog(LongReads):
    """Keeps the write-ahead log of an SQLite file short. Called twice a second, by one thread."""

    def __init__(self, checkpoint: Callable[[Checkpoint], tuple[bool, int, int]]) -> None:
        """Take what makes a checkpoint: whether it was blocked, the log's pages, those copied."""
        self._checkpoint = checkpoint
        # Since the gate was opened or closed.
        self._turns = OPEN_TURNS

    def tend(self) -> float | None:
        """Copy the log's pages; have it begin anew where it is long; close the gate for that."""
        pages = 0
        try:
            pages = self._shorten()
        except StoreUnavailable as error:
            log.debug("The write-ahead log is tended to later: %s", error)
        finally:
            self._open_or_close(pages)
        return None if self.is_open else CLOSED_SECONDS

    def _shorten(self) -> int:
        """Return the log's pages, 0 if it begins anew with the next commit."""
        _, pages, copied = self._checkpoint(Checkpoint.MEASURE)
        if copied == pages and self.is_open:
            return 0
        if pages - copied > CHECKPOINT_PAGES:
            _, pages, copied = self._checkpoint(Checkpoint.COPY)
        # Writers wait meanwhile, so this is only for few pages.
        if pages > RESTART_PAGES and pages - copied <= CHECKPOINT_PAGES:
            is_blocked, *_ = self._checkpoint(Checkpoint.RESTART)
            return pages if is_blocked else 0
        return pages

    def _open_or_close(self, pages: int) -> None:
        self._turns += 1
        is_long = pages > MOST_PAGES
        if self.is_open and is_long and self._turns > OPEN_TURNS:
            self.is_open, self._turns = False, 0
        elif not self.is_open and not is_long:
            self.is_open, self._turns = True, OPEN_TURNS
        elif not self.is_open and self._turns == MOST_CLOSED_TURNS:
            self.is_open, self._turns = True, 0
            log.warning(
                "The write-ahead log has grown to %d MB: something reads the database for long. "
                "End what it is, such as another program with a transaction open.",
                pages * 4_096 // 1_000_000,
            )
