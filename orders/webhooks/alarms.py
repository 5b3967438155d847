"""How long it is to a moment that is kept in wall time, whatever happens to that clock.

Wall time survives a restart. While the process runs, a wait is counted on the monotonic clock, so
that setting the other one neither hastens nor delays it; after a restart, no wait is longer than it
was when it began.
"""

from __future__ import annotations

from datetime import datetime

from orders.clock import Clock


class Alarms:
    """The moments that something waits for, each by a name."""

    def __init__(self, clock: Clock) -> None:
        """Take the clock."""
        self._clock = clock
        self._set: dict[object, tuple[datetime, float]] = {}

    def left(self, name: object, at: datetime, longest: float) -> float:
        """Return the seconds to a moment, at most so many; 0 once it is over."""
        known = self._set.get(name)
        now = self._clock.monotonic()
        if known is None or known[0] != at:
            left = (at - self._clock.now()).total_seconds()
            known = self._set[name] = (at, now + min(max(left, 0.0), longest))
        return max(known[1] - now, 0.0)

    def forget(self, name: object) -> None:
        """Forget a moment that is over."""
        self._set.pop(name, None)
