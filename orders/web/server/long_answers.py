"""Long answers: made by threads of their own into files, a few at a time.

The thread needs as long as the database does, whoever reads the answer: no snapshot of the store
lasts as long as a slow client wishes. The files are limited in all, and for each key.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable
from tempfile import gettempdir

from orders.web.server.answers import Exchange
from orders.web.server.crew import Workers

MOST = 8
MOST_FOR_ONE = 2
# How long one waits for its turn.
WAIT_SECONDS = 1
# The bytes of all files, and of those for one key.
MOST_BYTES = 1024 * 1024 * 1024
MOST_BYTES_FOR_ONE = MOST_BYTES // 4
# A reader slower than this gives way where the files have no room.
SLOW_BYTES_A_SECOND = 1024
# What is left on the disk.
_SPARE_BYTES = 64 * 1024 * 1024


class LongAnswers:
    """The long answers that wait, are made, or are being sent. Only for the loop."""

    def __init__(
        self, on_progress: Callable[[Exchange], None], has_room: Callable[[], bool]
    ) -> None:
        """Take what to call when one is made, and what says whether the store allows another."""
        self._makers = Workers(MOST, on_progress, "long")
        self._has_room = has_room
        self._turns = threading.Lock()
        # Until their turn comes.
        self.waiting: deque[Exchange] = deque()
        self._begun: list[Exchange] = []
        self._usual_bytes = 0

    def submit(self, exchange: Exchange) -> None:
        """Have one answered in its turn."""
        self.waiting.append(exchange)

    def pending(self) -> list[Exchange]:
        """Return those that wait, oldest first."""
        if not self.waiting:
            return []
        self._forget_sent()
        self.waiting = deque(each for each in self.waiting if not each.channel.is_closed)
        return list(self.waiting)

    def begin(self, exchange: Exchange, now: float) -> bool:
        """Begin one if its turn has come; return whether it waited in vain, and is refused."""
        late = now - exchange.whole_at > WAIT_SECONDS
        if self._may_begin(exchange) or (late and self._others_give_way(exchange, now)):
            self.waiting.remove(exchange)
            self._begun.append(exchange)
            exchange.turns = self._turns
            self._makers.submit(exchange)
        elif late:
            self.waiting.remove(exchange)
            exchange.found_no_place = True
        return exchange.found_no_place

    def _may_begin(self, exchange: Exchange) -> bool:
        being_made = [each.owner for each in self._begun if not each.is_answered]
        return (
            len(being_made) < MOST
            and being_made.count(exchange.owner) < MOST_FOR_ONE
            and self._has_space(exchange)
            and self._has_room()
        )

    def _has_space(self, exchange: Exchange) -> bool:
        used = {each: self._bytes(each) for each in self._begun}
        own = sum(size for each, size in used.items() if each.owner == exchange.owner)
        return (
            sum(used.values()) + self._usual_bytes <= MOST_BYTES
            and own + self._usual_bytes <= MOST_BYTES_FOR_ONE
            and _free_bytes() > self._usual_bytes + _SPARE_BYTES
        )

    def _bytes(self, exchange: Exchange) -> int:
        size = exchange.spool.size if exchange.spool is not None else 0
        return size if exchange.is_answered else max(size, self._usual_bytes)

    def _others_give_way(self, exchange: Exchange, now: float) -> bool:
        """Return whether one may begin, as the slowest reader has been cut off for it."""
        paces = {each.channel: each.channel.outgoing.pace(now) for each in self._begun}
        slowest = min(paces, key=paces.__getitem__, default=None)
        if slowest is None or self._has_space(exchange) or paces[slowest] >= SLOW_BYTES_A_SECOND:
            return False
        slowest.close(drop=True)
        self._forget_sent()
        return self._may_begin(exchange)

    def _forget_sent(self) -> None:
        for each in self._begun:
            if each.is_answered and each.spool is not None:
                self._usual_bytes = max(each.spool.size, self._usual_bytes * 7 // 8)
        self._begun = [each for each in self._begun if not each.is_discarded]


def _free_bytes() -> int:
    try:
        return shutil.disk_usage(gettempdir()).free
    except OSError:
        return 0
