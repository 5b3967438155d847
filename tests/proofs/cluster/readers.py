"""Followers of a running cluster: clients that poll the feed, and receivers of webhooks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from orders.domain import parse_instant
from tests.proofs.cluster.shoppers import UNKNOWN
from tests.proofs.core.clients import Connection, Key
from tests.proofs.core.history import Contents, History, Kind, Operation
from tests.support.receiver import Received

_FEED = "/v2/store/events?after={}&limit=200"
_PAGE = 200
_POLL_SECONDS = 0.05
# Between an endpoint's answer and the commit that records it. A kill there sends it again.
_IN_BETWEEN_SECONDS = 3.0


class FeedReader:
    """A client that polls for the events after the last one that it saw."""

    def __init__(self, url: str, key: Key, ca_certs: str | None) -> None:
        self._url, self._key, self._ca_certs = url, key, ca_certs
        self.seen: list[dict[str, Any]] = []
        self.unanswered = 0
        self.complaints: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self, newest: int, patience: float) -> None:
        """Stop once it has seen an event, or after so many seconds."""
        ends = time.monotonic() + patience
        while self._last < newest and time.monotonic() < ends:
            time.sleep(_POLL_SECONDS)
        self._ended.set()
        self._thread.join()

    @property
    def _last(self) -> int:
        return self.seen[-1]["id"] if self.seen else 0

    def _run(self) -> None:
        while not self._ended.is_set():
            history = History()
            connection = Connection(self._url, history, unknown=UNKNOWN, ca_certs=self._ca_certs)
            with closing(connection):
                while not self._ended.is_set() and self._poll(connection):
                    history.operations.clear()
            self.unanswered += len(history.unanswered)
            self._ended.wait(_POLL_SECONDS)

    def _poll(self, connection: Connection) -> bool:
        polling = Operation(Kind.GET, self._key.actor, (200,))
        response = connection.send(polling, self._key, "GET", _FEED.format(self._last))
        if response is None:
            return False
        if response.status not in polling.allowed:
            answer = f"{response.status}: {response.data.decode()}"
            self.complaints.append(f"a reader of the feed was answered {answer}")
            return False
        events = response.json()["events"]
        self.seen += events
        if len(events) < _PAGE:
            self._ended.wait(_POLL_SECONDS)
        return True


def misdelivered(
    received: Sequence[Received], types: Sequence[str], kills: Sequence[float], contents: Contents
) -> list[str]:
    """Complain of an endpoint's events that never came, came out of order, or twice.

    `kills` are in monotonic seconds. An event that came just before one may come again, as its
    delivery was not recorded.
    """
    wanted = [row.id for row in contents.events if row.type in types]
    came: dict[int, float] = {}
    newest, found = 0, []
    for each in received:
        if each.event < newest:
            found.append(f"event {each.event} came after event {newest}")
        elif each.event in came and not _may_come_again(came[each.event], kills):
            ago = each.at - came[each.event]
            found.append(f"event {each.event} came again after {ago:.2f} s, and none was killed")
        newest = max(newest, each.event)
        came.setdefault(each.event, each.at)
    missing, surplus = sorted(set(wanted) - set(came)), sorted(set(came) - set(wanted))
    if missing:
        found.append(f"{len(missing)} events never came, the first is {missing[0]}")
    if surplus:
        found.append(f"{len(surplus)} events came that were not wanted, such as {surplus[0]}")
    return found


def _may_come_again(came: float, kills: Sequence[float]) -> bool:
    return any(0 <= at - came < _IN_BETWEEN_SECONDS for at in kills)


def longest_delay(received: Sequence[Received], contents: Contents) -> float:
    """Return the most seconds that an event took from its change to its receiver."""
    wall = time.time() - time.monotonic()
    at = {row.id: parse_instant(row.at).timestamp() for row in contents.events}
    return max((each.at + wall - at[each.event] for each in received), default=0.0)


def times_again(received: Sequence[Received]) -> int:
    """Count the messages that had come before."""
    return len(received) - len({each.event for each in received})
