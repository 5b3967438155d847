"""What an answer means, and the retry schedule. Asks no database and sends nothing."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from random import Random

from orders.clock import Clock

# Seconds after each failed attempt. The attempt after the last delay is the last one.
DELAYS = (5, 30, 120, 600, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
LAST_TRY = len(DELAYS) + 1
# Up to a tenth is added, so that what failed together is not retried together.
JITTER = 0.1
# The most of what `Retry-After` asks for that is heeded, in seconds.
MOST_ASKED = 3_600
# A refused event blocks later ones until this attempt.
TRIES_IN_ORDER = 2
# The reason of the pause after 410.
GONE = "it answered 410 Gone"

# Whose `Retry-After` says when to come back (RFC 9110, section 10.2.3; RFC 6585, section 4).
_ASKING = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_SECONDS = re.compile("[0-9]{1,9}")
_DOWN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class Outcome(StrEnum):
    """The outcome of an attempt.

    `down`: the endpoint can't receive anything at the moment. `refused`: it is up, but does not
    accept this event. `gone`: it wants no more events.
    """

    DELIVERED = "delivered"
    DOWN = "down"
    REFUSED = "refused"
    GONE = "gone"


def outcome_of(status: int | None) -> Outcome:
    """Return what a status means; None stands for no answer.

    Redirects are not followed. They count as down, because they concern all events.
    """
    if status is None or status in _DOWN:
        return Outcome.DOWN
    if status == HTTPStatus.GONE:
        return Outcome.GONE
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Outcome.DELIVERED
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome.REFUSED
    return Outcome.DOWN


def seconds_asked(status: int | None, retry_after: str | None, now: datetime) -> float:
    """Return for how long an answer asks to be left alone, 0 where it does not, at most an hour.

    `retry_after` is its header: seconds, or an HTTP date.
    """
    if status not in _ASKING or retry_after is None:
        return 0.0
    if _SECONDS.fullmatch(retry_after):
        return min(float(retry_after), MOST_ASKED)
    try:
        left = (parsedate_to_datetime(retry_after) - now).total_seconds()
    except (TypeError, ValueError, OverflowError):  # no date, or one without a zone
        return 0.0
    return min(max(left, 0.0), MOST_ASKED)


def delay(tries: int, chance: Random, asked: float = 0.0) -> timedelta:
    """Return the delay after `tries` failed attempts, of which there are fewer than `LAST_TRY`.

    It is no shorter than the seconds that the endpoint asked for.
    """
    return timedelta(seconds=max(DELAYS[tries - 1], asked) * (1 + chance.uniform(0, JITTER)))


class Waits:
    """Waits until an instant that is stored in wall time, unaffected by changes to that clock.

    Wall time survives a restart. Within a process a wait is measured by the monotonic clock, so
    setting the wall clock neither shortens nor prolongs it; after a restart, no wait is longer than
    any of its kind may be.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[object, tuple[datetime, float]] = {}

    def left(self, name: object, at: datetime, tries: int) -> float:
        """Return the seconds left until an instant, at most what `tries` attempts wait for."""
        now = self._clock.monotonic()
        instant, end = self._ends.get(name, (None, 0.0))
        if instant != at:
            left = (at - self._clock.now()).total_seconds()
            end = now + min(max(left, 0.0), longest_delay(tries))
            self._ends[name] = at, end
        return max(end - now, 0.0)

    def forget(self, name: object) -> None:
        """Forget a wait that is over for good."""
        self._ends.pop(name, None)


def longest_delay(tries: int) -> float:
    """Return the maximum of `delay` after `tries` failed attempts, in seconds."""
    return max(DELAYS[min(max(tries, 1), len(DELAYS)) - 1], MOST_ASKED) * (1 + JITTER)
