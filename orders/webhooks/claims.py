"""Which process delivers to an endpoint: claims in the database, which lapse unless renewed.

Of several processes over one database, one at a time delivers to an endpoint, so that events arrive
in order. A process that dies without releasing its claims is followed by another within 4 seconds.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import Connection

from orders.clock import Clock
from orders.store.database.group_commit import GroupCommit
from orders.webhooks import deliveries
from orders.webhooks.endpoints import Endpoint

LASTS = timedelta(seconds=3)
# No attempt begins with less than this left of a claim; during an attempt the claim is renewed.
_LEAST_LEFT = timedelta(seconds=2)
_RENEWED_EVERY_SECONDS = 0.75


class Claims:
    """The claims of one process."""

    def __init__(self, changes: GroupCommit, clock: Clock) -> None:
        self._changes = changes
        self._clock = clock
        self._process = secrets.token_hex(8)
        # Endpoints with an attempt under way, and when their claims were last renewed (monotonic).
        self._in_use: set[int] = set()
        self._renewed_at = -math.inf

    def is_held(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint is claimed by this process, for long enough to try."""
        if endpoint.claimed_by != self._process or endpoint.claimed_until is None:
            return False
        return _LEAST_LEFT < endpoint.claimed_until - self._clock.now() <= LASTS

    def acquire(self, endpoint: Endpoint) -> float:
        """Claim an endpoint; return 0, or the seconds until another process' claim may lapse."""
        is_claimed_elsewhere = endpoint.claimed_by not in {None, self._process}
        if is_claimed_elsewhere and endpoint.claimed_until is not None:
            left = endpoint.claimed_until - self._clock.now()
            if timedelta(0) < left <= LASTS + deliveries.CLOCKS_DIFFER:
                return left.total_seconds()  # as just read, without taking the write lock
        is_ours = self._changes.run(lambda connection: self.claim(connection, endpoint.id))
        return 0.0 if is_ours else LASTS.total_seconds()

    def claim(self, connection: Connection, endpoint_id: int) -> bool:
        """Claim an endpoint, or renew its claim, in a transaction."""
        return deliveries.claim(connection, endpoint_id, self._process, self._clock.now(), LASTS)

    @contextmanager
    def renewing(self, endpoint_id: int) -> Iterator[None]:
        """Let `renew` renew the claim of an endpoint while an attempt is under way."""
        self._in_use.add(endpoint_id)
        try:
            yield
        finally:
            self._in_use.discard(endpoint_id)

    def renew(self) -> None:
        """Renew the claims of endpoints with an attempt under way. Call it every second."""
        now = self._clock.monotonic()
        in_use = list(self._in_use)
        if in_use and now - self._renewed_at >= _RENEWED_EVERY_SECONDS:
            self._changes.run(lambda connection: [self.claim(connection, each) for each in in_use])
            self._renewed_at = now

    def release(self) -> None:
        """Release the claims of this process, so that another can deliver at once."""
        self._changes.run(lambda connection: deliveries.release(connection, self._process))
