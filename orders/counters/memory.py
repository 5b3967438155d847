"""The limits' counters in memory, as a `limits` storage with a journal in an SQLite file.

A hit that went to a file would release Python's lock and wait for it again, which costs more than
counting. So counters live in memory, and a background flush, every 0.5 s, writes what changed to
the journal in one transaction. The journal is loaded at the start and written whole at the stop:
counters survive a restart exactly, and `kill -9` but for the last second.

A window's end is monotonic time while the process runs, so that setting the clock neither frees nor
locks out anyone. The journal has it in wall time; an end that lies further off than the window is
long was written by a clock that has since been set back, and is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from limits.storage import Storage

from orders.clock import STEP_SECONDS, Clock
from orders.counters.journal import Journal
from orders.counters.windows import Counters, Row, Shelf, Window

# Requests wait while so many rows are made for the journal: some tenths of a millisecond.
_SLICE = 256


def _unused(*_: object) -> NoReturn:
    raise NotImplementedError


class CounterStorage(Counters, Storage):
    """Fixed windows in memory, with a journal. Thread-safe."""

    STORAGE_SCHEME = ["journal"]  # noqa: RUF012 - as `limits` declares it

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        path: Path,
        clock: Clock,
        **options: float | str | bool,
    ) -> None:
        """Begin without any window. Opens nothing."""
        Counters.__init__(self, clock, is_journalled=True)
        Storage.__init__(self, uri, wrap_exceptions=wrap_exceptions, **options)
        self._journal = Journal(path)
        self._to_wall = clock.time() - clock.monotonic()
        # Whether the journal lacks more than what has changed.
        self._is_behind = False

    def load(self) -> None:
        """Read the journal of an earlier process."""
        wall, now = self._clock.time(), self._clock.monotonic()
        rows = self._journal.read()
        with self._lock:
            for key, length, terms, count, ends in sorted(rows, key=lambda row: row[4]):
                ends_in = min(ends - wall, length)
                if ends_in > 0:
                    self._shelf(key, length).put(key, Window(terms, count, now + ends_in))

    def flush(self) -> None:
        """Write what changed since the last time, or everything where the journal lacks more.

        That is so where it was lost or could not be written, and where the clock was set, which
        moves all ends. What changed while it can't be written is not collected: of addresses that
        come and go, that would be all there ever were.
        """
        to_wall = self._clock.time() - self._clock.monotonic()
        is_intact = self._journal.is_intact()
        with self._lock:
            whole = self._is_behind or not is_intact or abs(to_wall - self._to_wall) > STEP_SECONDS
            if whole:
                self._to_wall = to_wall
            self._is_behind = False
            keys = [(shelf, shelf.drain(whole=whole)) for shelf in self._shelves.values()]
        if whole or any(some for _, some in keys):
            self._journal.write(self._rows_of(keys), self._clock.time(), whole=whole)

    def close(self) -> None:
        """Write everything, and close the journal."""
        self._is_behind = True
        self.flush()
        if not self.check():
            self.flush()  # into a new file, where the old one was damaged
        self._journal.close()

    @property
    def trouble(self) -> str:
        """What keeps the counters from being safe, in words; empty where all is well."""
        return "" if self.check() else "not written, counting in memory"

    def check(self) -> bool:
        """Return whether the journal is being written."""
        return not self._journal.failed

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors that mean the storage is away: none, as it is in memory."""
        return MemoryError

    # What else `limits` asks of a storage counts in one window at a time, which nothing here does.
    incr = get = get_expiry = clear = reset = cast("Any", _unused)

    def _rows_of(self, keys: Sequence[tuple[Shelf, list[str]]]) -> Iterator[Row]:
        # In slices, between which requests are counted: what that changes is written the next time.
        for shelf, some in keys:
            for begin in range(0, len(some), _SLICE):
                with self._lock:
                    rows = list(shelf.rows(some[begin : begin + _SLICE], self._to_wall))
                yield from rows
