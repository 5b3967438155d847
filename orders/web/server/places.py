"""Which connections give way, where the places or the system's memory for answers are all taken."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection
from operator import attrgetter

from orders.web.server.connection import Connection

# Of answers that clients have not acknowledged, in the system's buffers of all connections.
MOST_KEPT_BYTES = 64 * 1024 * 1024

# The seconds within which a connection's first request is expected.
_NEW = 1


def giving_way(connections: Collection[Connection], count: int, now: float) -> list[Connection]:
    """Return so many connections to be closed for new ones, never one that is being answered.

    First those that have rested longest, of the network with the most places; then the oldest
    incomplete requests; then the readers that took least in their last minute; then those that
    have only just come, and whose request may be on its way.
    """
    resting = sorted(filter(_rests, connections), key=_since)
    chosen = _of_the_most(connections, [each for each in resting if each.since < now - _NEW], count)
    chosen += sorted((each for each in connections if each.request is not None), key=_since)
    chosen += sorted((each for each in connections if each.is_sending), key=Connection.pace)
    if len(chosen) < count:
        chosen += _of_the_most(connections, [each for each in resting if each not in chosen], count)
    return chosen[:count]


_rests = attrgetter("is_resting")
_since = attrgetter("since")


def _of_the_most(
    connections: Collection[Connection], resting: list[Connection], count: int
) -> list[Connection]:
    """Return those of `resting`, oldest first, whose network has the most connections."""
    places = Counter(each.network for each in connections)
    queues: defaultdict[str, deque[Connection]] = defaultdict(deque)
    for each in resting:
        queues[each.network].append(each)
    chosen: list[Connection] = []
    while queues and len(chosen) < count:
        network = max(queues, key=lambda each: places[each])
        chosen.append(queues[network].popleft())
        places[network] -= 1
        if not queues[network]:
            del queues[network]
    return chosen


class KeptBySystem:
    """The bytes that the system keeps for clients that have not acknowledged them."""

    def __init__(self, connections: Collection[Connection]) -> None:
        """Take the connections, as they come and go."""
        self._connections = connections
        # Never less than there are.
        self._at_most = 0

    def note(self, count: int) -> None:
        """Note bytes that the system took."""
        self._at_most += count

    def make_room(self) -> None:
        """Close the readers that took least in their last minute, as long as too much is kept."""
        if self._at_most <= MOST_KEPT_BYTES:
            return
        kept = {each: each.unacknowledged() for each in self._connections}
        self._at_most = sum(kept.values())
        for each in sorted(filter(kept.get, kept), key=Connection.pace):
            if self._at_most <= MOST_KEPT_BYTES:
                return
            self._at_most -= kept[each]
            each.close(drop=True)
