"""The clock, which is passed to everything that needs the time, so that tests can set it.

Wall time is shared with people and other machines; it can be set forward and back. Monotonic time
only ever runs forward, and durations are measured with it. Standard library only.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

# Both clocks are read one after the other, and wall time is slewed to keep right: a smaller
# difference between them than before means nothing.
STEP_SECONDS = 0.5


class Clock:
    """The machine's own clock."""

    # Seconds since some moment in the past; it never steps back. Python's own functions, which a
    # request calls several times.
    monotonic = staticmethod(time.monotonic)
    # Wall time in seconds since 1970 (Unix time).
    time = staticmethod(time.time)

    def now(self) -> datetime:
        return instant(self.time())


def instant(seconds: float) -> datetime:
    """Return a Unix time as an aware datetime in UTC, cut to milliseconds as in the API."""
    millis = int(seconds * 1000)
    return datetime.fromtimestamp(millis // 1000, UTC).replace(microsecond=millis % 1000 * 1000)
