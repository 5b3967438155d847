"""Followers of the event stream, who come back whenever it ends, and go on where they were."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import urllib3

from tests.proofs.core.clients import Key
from tests.proofs.core.history import Contents

_FEED = "/v2/store/events"
_TIMEOUT = urllib3.Timeout(connect=2, read=30)
_AGAIN_SECONDS = 0.05
_OK = 200
# Of a server in between, or of one that stops.
_AWAY = {502, 503, 504}


class Follower:
    """A client that follows a stream, over and over."""

    def __init__(self, url: Callable[[], str], key: Key, ca_certs: str | None = None) -> None:
        """Take where the service is at the moment, and the key."""
        self.seen: list[dict[str, Any]] = []
        self.openings = 0
        self.complaints: list[str] = []
        self._url, self._key = url, key
        tls = {} if ca_certs is None else {"ca_certs": ca_certs}
        self._http: Any = urllib3.PoolManager(retries=False, timeout=_TIMEOUT, **tls)
        self._ended = threading.Event()
        self._response: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, newest: int, patience: float) -> None:
        """Stop once it has seen an event, or after so many seconds."""
        ends = time.monotonic() + patience
        while self._last < newest and time.monotonic() < ends:
            time.sleep(_AGAIN_SECONDS)
        self._ended.set()
        while self._thread.is_alive():
            with suppress(Exception):  # it has none, or has just ended
                self._response.shutdown()
            self._thread.join(_AGAIN_SECONDS)

    @property
    def _last(self) -> int:
        return self.seen[-1]["id"] if self.seen else 0

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(urllib3.exceptions.HTTPError, OSError):
                self._follow()
            self._ended.wait(_AGAIN_SECONDS)

    def _follow(self) -> None:
        headers = {
            "Authorization": f"Bearer {self._key.secret}",
            "Accept": "text/event-stream",
            "Last-Event-ID": str(self._last),
        }
        self._response = response = self._http.request(
            "GET", self._url() + _FEED, headers=headers, preload_content=False
        )
        if response.status != _OK:
            if response.status not in _AWAY:
                said = f"{response.status}: {response.read().decode()}"
                self.complaints.append(f"a follower was answered {said}")
            return
        self.openings += 1
        data = b""
        for line in response:
            if line.startswith(b"data: "):
                data = line
            elif line == b"\n" and data:  # only now it is whole
                self.seen.append(json.loads(data.removeprefix(b"data: ")))
                data = b""


def unlike_the_log(seen: Sequence[dict[str, Any]], contents: Contents) -> list[str]:
    """Complain where a reader of the feed did not see each event once, in order, as it is."""
    has = [(row.id, row.type, row.order_id, row.at) for row in contents.events]
    saw = [(each["id"], each["type"], each["orderId"], each["at"]) for each in seen]
    if saw == has:
        return []
    missed, surplus = sorted(set(has) - set(saw)), sorted(set(saw) - set(has))
    counts = f"{len(saw)} events of {len(has)}, {len(saw) - len(set(saw))} of them twice"
    return [f"a reader of the feed saw {counts}; missed {missed[:5]}, invented {surplus[:5]}"]
