"""A follower of version 2's events, over the network."""

from __future__ import annotations

import http.client
import json

from tests.support.machine import PATIENCE_SECONDS

FEED = "/v2/store/events"


class Stream:
    """A stream of events that is being read. It raises OSError if nothing arrives in time."""

    def __init__(self, address, key, query="", **headers):
        self._connection = http.client.HTTPConnection(*address, timeout=PATIENCE_SECONDS)
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {key}", **headers}
        self._connection.request("GET", f"{FEED}?{query}", headers=headers)
        self.response = self._connection.getresponse()
        self.status, self.headers = self.response.status, self.response.headers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def message(self):
        """Return the lines up to the next blank one; none at the end."""
        return [each.decode().rstrip("\n") for each in iter(self.response.readline, b"\n") if each]

    def events(self, count):
        """Return the next events."""
        found = []
        while len(found) < count:
            message = self.message()
            if message[0].startswith("id: "):
                number, kind, data = (each.partition(": ")[2] for each in message)
                found.append(json.loads(data))
                assert (found[-1]["id"], found[-1]["type"]) == (int(number), kind)
        return found

    def rest(self):
        """Return all that comes until the end."""
        return self.response.read().decode()

    def close(self):
        self.response.close()
        self._connection.close()
