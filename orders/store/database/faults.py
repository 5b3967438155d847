"""What fails of a database, told apart by reading and writing, and logged once with its end.

Whoever asks the database notes what fails. A service follows that: a fault is over when a probe
works, since the next request may come hours later, and one that needs less may work meanwhile.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from enum import StrEnum

from orders.store.database.errors import BUSY, DAMAGED, StoreUnavailable

log = logging.getLogger(__name__)

PROBE_SECONDS = 2.0
_MINUTE, _HOUR = 60, 3_600


class Part(StrEnum):
    """What may fail by itself: on a full disk, reading goes on."""

    READING = "reading"
    WRITING = "writing"


_BEGINS = {Part.READING: "The database can't be read: %s.", Part.WRITING: "Writes fail: %s."}
_ENDS = {
    Part.READING: "The database is back after %s.",
    Part.WRITING: "Writes work again after %s.",
}
_DAMAGED = (
    "The database is damaged: a request could not be answered. Stop the service, keep the file, "
    "and restore a backup."
)


class Faults:
    """The faults of one database. Any thread may note one."""

    def __init__(self) -> None:
        # By part, why it fails, and since when that is logged (monotonic).
        self._causes: dict[Part, str] = {}
        self._logged: dict[Part, float] = {}
        self._next_probe = -math.inf
        self._is_damaged = self._is_damage_logged = False

    def note(self, part: Part, cause: str) -> None:
        """Note that a part fails."""
        if cause == DAMAGED:
            # Of some page, while others are sound: no probe can tell when that is over.
            self._is_damaged = True
        elif cause != BUSY:  # which is this service's own doing
            self._causes[part] = cause

    def cause(self, part: Part) -> str | None:
        """Return why a part fails, or None."""
        return self._causes.get(part)

    @property
    def words(self) -> dict[str, str]:
        """Why which parts fail."""
        return {part.value: cause for part, cause in self._causes.copy().items()}

    def follow(self, probe: Callable[[Part], None], now: float) -> None:
        """Log a fault that has begun or ended. Called twice a second, with the monotonic time.

        `probe` raises StoreUnavailable while a part fails.
        """
        if self._is_damaged and not self._is_damage_logged:
            self._is_damage_logged = True
            log.error(_DAMAGED)
        # What can't be read can't be written either.
        part = next((part for part in Part if part in self._causes), None)
        if part is None:
            return
        if part not in self._logged:
            self._logged[part], self._next_probe = now, now + PROBE_SECONDS
            log.warning(_BEGINS[part], self._causes[part])
        elif now >= self._next_probe:
            self._next_probe = now + PROBE_SECONDS
            self._probe(part, probe, now)

    def _probe(self, part: Part, probe: Callable[[Part], None], now: float) -> None:
        try:
            probe(part)
        except StoreUnavailable as error:
            self.note(part, str(error))
        else:
            del self._causes[part]
            log.warning(_ENDS[part], words_of(now - self._logged.pop(part)))


def words_of(seconds: float) -> str:
    """Return a duration for people: 50 s, 12 min, 3 h."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h"
