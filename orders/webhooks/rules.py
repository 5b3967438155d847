"""What an answer means, and what follows from it: when to try again, when to let others pass."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from random import Random

# After each try that failed; the try after the last of them is the last.
DELAYS = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
LAST_TRY = len(DELAYS) + 1
# Up to a tenth is added, so that what failed together is not tried again together.
JITTER = 0.1
# A refused event holds up those behind it until this try.
TRIES_IN_ORDER = 2
# Why an endpoint was paused that wants nothing more.
GONE = "it answered 410 Gone"

_DOWN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class Outcome(StrEnum):
    """What came of a try.

    `down`: nothing can be delivered just now. `refused`: the endpoint is up, and does not take this
    event. `gone`: it wants nothing more.
    """

    DELIVERED = "delivered"
    DOWN = "down"
    REFUSED = "refused"
    GONE = "gone"


def outcome_of(status: int | None) -> Outcome:
    """Say what a status means; None is no answer.

    A redirect, which is not followed, is as if the endpoint were down: it is so for all events.
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


def delay(tries: int, chance: Random) -> timedelta:
    """Return how long to wait after so many tries, of which there were fewer than `LAST_TRY`."""
    return timedelta(seconds=DELAYS[tries - 1] * (1 + chance.uniform(0, JITTER)))


def longest_delay(tries: int) -> float:
    """Return the most seconds that `delay` gives after so many tries."""
    return DELAYS[min(max(tries, 1), len(DELAYS)) - 1] * (1 + JITTER)
