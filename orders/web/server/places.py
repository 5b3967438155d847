"""Which connections give way, where the places or the system's memory for answers are all taken."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection
from contextlib import suppress
from operator import attrgetter

from orders.web.server.connection import Connection, Phase

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
    resting = sorted((each for each in connections if each.phase in _RESTING), key=_since)
    chosen = _of_the_most(connections, [each for each in resting if each.since < now - _NEW], count)
    chosen += sorted((each for each in connections if each.phase in _ARRIVING), key=_since)
    sending = [each for each in connections if each.is_sending]
    chosen += sorted(sending, key=lambda each: each.outgoing.pace(now))
    if len(chosen) < count:
        chosen += _of_the_most(connections, [each for each in resting if each not in chosen], count)
    return chosen[:count]


_RESTING = frozenset({Phase.NEW, Phase.RESTING, Phase.LEAVING})
_ARRIVING = frozenset({Phase.HEAD, Phase.BODY})
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


def make_room(connections: Collection[Connection], now: float) -> int:
    """Return how many bytes the system keeps for clients that have not acknowledged them.

    While that is too much, the readers that took least in their last minute are closed.
    """
    kept = {each: each.outgoing.unacknowledged() for each in connections}
    total = sum(kept.values())
    for each in sorted(filter(kept.get, kept), key=lambda each: each.outgoing.pace(now)):
        if total <= MOST_KEPT_BYTES:
            break
        total -= kept[each]
        with suppress(OSError):  # the client is gone
            each.close(drop=True)
    return total
