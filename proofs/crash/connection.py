"""Requests that are noted before they are sent and again when they are answered, for `history`."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import urllib3

from proofs.core.history import UNSENT, Kind, Operation

ORDERS = "/v1/store/orders"
# Clients ask for the newest orders, so that they meet at the same ones.
_RECENT = 60
_TIMEOUT_SECONDS = 30
_WITH_ORDER = {200, 201}


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its secret, and who the event log says it is."""

    secret: str
    actor: str


@dataclass
class Books:
    """What all clients write in. Safe from any thread: it only ever appends and counts."""

    history: list[Operation] = field(default_factory=list)
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    serials: Any = field(default_factory=lambda: itertools.count(1))
    # When, what, and why, of what was sent and not answered by the service.
    unanswered: list[tuple[float, Kind, str]] = field(default_factory=list)

    def order_of_one_pet(self) -> dict[str, Any]:
        """Return an order by whose petId it is told from all others."""
        return {"petId": next(self.serials)}


class Connection:
    """A connection to the service; what is sent over it is noted in the books."""

    def __init__(
        self, url: str, books: Books, *, unknown: Collection[int] = (), ca_certs: str | None = None
    ) -> None:
        """Take where the service is, and the books.

        `unknown` are statuses that leave open whether something was done, such as those of a server
        in between; `ca_certs` is whose certificates are trusted.
        """
        tls = {} if ca_certs is None else {"ca_certs": ca_certs}
        self._http = urllib3.connectionpool.connection_from_url(
            url, maxsize=1, retries=False, timeout=_TIMEOUT_SECONDS, **tls
        )
        self._books = books
        self._unknown = unknown

    def send(
        self, operation: Operation, key: Key, method: str, path: str, **request: Any
    ) -> urllib3.BaseHTTPResponse | None:
        """Send an operation, and note it before and after; give None where it was not answered."""
        headers = {"Authorization": f"Bearer {key.secret}", **request.pop("headers", {})}
        operation.began = time.monotonic()
        self._books.history.append(operation)
        try:
            response = self._http.request(method, path, headers=headers, **request)
            if response.status not in self._unknown:
                return _noted(operation, response)
            self._unanswered(operation, str(response.status))
        except urllib3.exceptions.NewConnectionError:
            operation.status = UNSENT
        except urllib3.exceptions.HTTPError as error:
            # Sent, at least in part: it stays unknown.
            self._unanswered(operation, type(error).__name__)
        finally:
            operation.ended = time.monotonic()
        return None

    def _unanswered(self, operation: Operation, why: str) -> None:
        self._books.unanswered.append((time.monotonic(), operation.kind, why))

    def close(self) -> None:
        """Hang up."""
        self._http.close()


def _noted(operation: Operation, response: urllib3.BaseHTTPResponse) -> urllib3.BaseHTTPResponse:
    operation.request_id = response.headers["X-Request-Id"]
    operation.replayed = "Idempotent-Replayed" in response.headers
    if response.status in _WITH_ORDER and operation.subject is not None:
        operation.order = response.json()
    operation.status = response.status
    return response


def look_within(listing: Operation, order_id: int, order: dict[str, Any] | None) -> Operation:
    """Return what a list told of one order, as a look at that order alone; None is not listed."""
    return Operation(
        Kind.LOOK,
        listing.actor,
        (200, 404),
        order_id,
        began=listing.began,
        ended=listing.ended,
        status=200 if order else 404,
        order=order,
        request_id=listing.request_id,
    )
