"""Clients that record what they do: a connection, and customers who place, change, ship and cancel.

A customer goes on until nobody answers. When the service is back it first repeats the request whose
outcome it does not know: a placing, a change or a shipment of several orders with its
Idempotency-Key, a ship, a cancel.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import urllib3

from tests.proofs.core.history import UNSENT, History, Kind, Operation

ORDERS = "/v1/store/orders"
# The id of an order that does not exist.
MISSING = 2**53
_ROUTES = {
    Kind.PLACE: ("POST", ORDERS),
    Kind.SHIP: ("POST", ORDERS + "/{}/ship"),
    Kind.CANCEL: ("DELETE", ORDERS + "/{}"),
    Kind.GET: ("GET", ORDERS + "/{}"),
    Kind.CHANGE: ("PATCH", "/v2/store/orders/{}"),
}
_SHIPMENTS = "/v2/store/shipments"
_MOST_SHIPMENTS = 5
# Of an order, what version 1 shows.
_SHOWN = ("id", "petId", "quantity", "shipDate", "complete")
# The possible answers where other clients change the same order.
_SHIPPED = (200, 404, 409)
_CANCELLED = (204, 404, 409)
_WITH_ORDER = {200, 201}
_OK, _NOT_FOUND = 200, 404
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its secret, and its name as an actor in the event log."""

    secret: str
    actor: str


class Connection:
    """A connection to the service that records each request in a history."""

    def __init__(
        self,
        url: str,
        history: History,
        *,
        unknown: Collection[int] = (),
        ca_certs: str | None = None,
    ) -> None:
        """Take the service's address, and the history.

        `unknown` are statuses that leave the outcome open, such as those of a server in between;
        `ca_certs` are trusted.
        """
        tls = {} if ca_certs is None else {"ca_certs": ca_certs}
        self._http: Any = urllib3.connectionpool.connection_from_url(
            url, maxsize=1, retries=False, timeout=_TIMEOUT_SECONDS, **tls
        )
        self._history = history
        self._unknown = unknown

    def send(
        self, operation: Operation, key: Key, method: str, path: str, **request: Any
    ) -> urllib3.BaseHTTPResponse | None:
        """Send an operation, and record it before and after; return None where none answers."""
        headers = {"Authorization": f"Bearer {key.secret}", **request.pop("headers", {})}
        operation.began = time.monotonic()
        self._history.operations.append(operation)
        try:
            response = self._http.request(method, path, headers=headers, **request)
            if response.status not in self._unknown:
                return _recorded(operation, response)
            self._unanswered(operation, str(response.status))
        except urllib3.exceptions.NewConnectionError:
            operation.status = UNSENT
        except urllib3.exceptions.HTTPError as error:
            # Sent, at least in part: its outcome stays unknown.
            self._unanswered(operation, type(error).__name__)
        finally:
            operation.ended = time.monotonic()
        return None

    def _unanswered(self, operation: Operation, why: str) -> None:
        self._history.unanswered.append((time.monotonic(), operation.kind, why))

    def close(self) -> None:
        self._http.close()


def _recorded(operation: Operation, response: urllib3.BaseHTTPResponse) -> urllib3.BaseHTTPResponse:
    operation.request_id = response.headers["X-Request-Id"]
    operation.replayed = "Idempotent-Replayed" in response.headers
    if response.status in _WITH_ORDER and operation.subject is not None:
        operation.order = _as_version_1(response.json())
    operation.status = response.status
    return response


def _as_version_1(order: dict[str, Any]) -> dict[str, Any]:
    return {name: order[name] for name in _SHOWN if name in order}


class Customer:
    """A client with habits of its own, which a seed decides."""

    def __init__(self, history: History, key: Key, reader: Key, seed: str) -> None:
        self._history, self._key, self._reader = history, key, reader
        self._chance = random.Random(seed)
        self._seed = seed
        self._unanswered: Operation | None = None
        self._placed: deque[Operation] = deque(maxlen=20)
        # Of the last request that shipped several: each order's status, and its Idempotency-Key.
        self._shipment: tuple[dict[int, tuple[int, ...]], str] | None = None
        self._habits = {
            self.place: 50,
            self.ship: 14,
            self.ship_several: 4,
            self.ship_several_again: 2,
            self.change: 8,
            self.cancel: 10,
            self.get: 12,
            self.place_again: 5,
            self.list: 1,
            self.reuse_key: 3,
            self.place_nonsense: 2,
            self.place_with_a_read_key: 2,
            self.change_a_missing_order: 2,
        }

    def shop(self, url: str) -> None:
        """Send requests until one is not answered."""
        habits, weights = list(self._habits), list(self._habits.values())
        with closing(self._connect(url)) as self._connection:
            unanswered = self._unanswered
            if unanswered is not None and not self._repeat(unanswered):
                self._unanswered = unanswered
                return
            while self._goes_on() and self._chance.choices(habits, weights)[0]():
                pass

    def _connect(self, url: str) -> Connection:
        return Connection(url, self._history)

    def _goes_on(self) -> bool:
        return True

    # The habits. Each returns whether the service answered.

    def place(self) -> bool:
        """Place an order, half of the time with an Idempotency-Key."""
        order = self._order()
        value = self._chance.choice([None, f"{self._seed}-{order['petId']}"])
        return self._place(order, 201, value)

    def place_again(self) -> bool:
        """Repeat a placing with its Idempotency-Key."""
        return not self._placed or self._repeat(self._chance.choice(self._placed))

    def reuse_key(self) -> bool:
        """Use an Idempotency-Key for another order."""
        if not self._placed:
            return True
        return self._place(self._order(), 422, self._chance.choice(self._placed).idempotency_key)

    def place_nonsense(self) -> bool:
        """Place an order of nothing."""
        return self._place({**self._order(), "quantity": 0}, 422)

    def place_with_a_read_key(self) -> bool:
        """Place without permission."""
        return self._send(Operation(Kind.PLACE, self._reader.actor, (403,), body=self._order()))

    def ship(self) -> bool:
        """Ship one of the newest orders, half of the time with a date."""
        body = self._chance.choice([{}, {"shipDate": self._date()}])
        return self._change_a_recent_one(Kind.SHIP, self._key, _SHIPPED, body)

    def ship_several(self) -> bool:
        """Ship some of the newest orders, and one that does not exist, in one request."""
        recent = self._history.recent or [MISSING]
        ids = sorted({MISSING, *self._chance.choices(recent, k=_MOST_SHIPMENTS)})
        value = f"ship-{self._seed}-{next(self._history.serials)}"
        return self._ship_all(dict.fromkeys(ids, _SHIPPED), value)

    def ship_several_again(self) -> bool:
        """Repeat what was shipped last in one request: each order is answered as it was then."""
        return not self._shipment or self._ship_all(*self._shipment)

    def _ship_all(self, allowed: dict[int, tuple[int, ...]], value: str) -> bool:
        """Ship orders in one request, each recorded as an operation with its allowed statuses."""
        ids = list(allowed)
        first, *others = shipments = [
            Operation(Kind.SHIP, self._key.actor, allowed[each], each, {"orderIds": ids}, value)
            for each in ids
        ]
        for each in others:
            each.began, each.is_part = time.monotonic(), True
        self._history.operations += others
        request: dict[str, Any] = {"json": first.body, "headers": {"Idempotency-Key": value}}
        response = self._connection.send(first, self._key, "POST", _SHIPMENTS, **request)
        self._unanswered = first if first.is_unknown else None
        for each in others:
            each.status, each.request_id, each.ended = first.status, first.request_id, first.ended
            each.replayed = first.replayed
        if response is None or response.status != _OK:
            return response is not None
        for each, result in zip(shipments, response.json()["results"], strict=True):
            error = result.get("error", {"status": _OK, "code": None})
            # To version 1, a cancelled order is not there.
            is_cancelled = error["code"] == "order_already_cancelled"
            each.status = _NOT_FOUND if is_cancelled else error["status"]
            each.order = _as_version_1(result["order"]) if "order" in result else None
        self._shipment = {each.order_id or 0: (each.status or 0,) for each in shipments}, value
        return True

    def change(self) -> bool:
        """Change the note of one of the newest orders, with an Idempotency-Key."""
        if not self._history.recent:
            return True
        order_id = self._chance.choice(self._history.recent)
        note = f"{self._seed} {next(self._history.serials)}"
        changing = Operation(Kind.CHANGE, self._key.actor, (_OK,), order_id, {"note": note})
        changing.idempotency_key = f"note-{note}".replace(" ", "-")
        return self._send(changing)

    def cancel(self) -> bool:
        """Cancel one of the newest orders."""
        return self._change_a_recent_one(Kind.CANCEL, self._key, _CANCELLED)

    def get(self) -> bool:
        """Get one of the newest orders."""
        return self._change_a_recent_one(Kind.GET, self._reader, (200, 404))

    def change_a_missing_order(self) -> bool:
        """Ship or cancel an order that does not exist."""
        kind = self._chance.choice([Kind.SHIP, Kind.CANCEL])
        missing = MISSING + next(self._history.serials)
        return self._send(Operation(kind, self._key.actor, (404,), missing))

    def list(self) -> bool:
        """List all orders, and record the newest ones as if each had been got by itself."""
        newest = list(self._history.recent)
        listing = Operation(Kind.GET, self._reader.actor, (200,))
        response = self._connection.send(listing, self._reader, "GET", ORDERS)
        self._unanswered = None
        if response is None:
            return False
        listed = {order["id"]: order for order in response.json()}
        self._history.operations += [
            replace(
                listing,
                allowed=(200, 404),
                order_id=order_id,
                status=200 if order_id in listed else 404,
                order=listed.get(order_id),
            )
            for order_id in newest
        ]
        return True

    def _place(self, order: dict[str, Any], status: int, value: str | None = None) -> bool:
        operation = Operation(Kind.PLACE, self._key.actor, (status,), body=order)
        operation.idempotency_key = value
        return self._send(operation)

    def _change_a_recent_one(
        self, kind: Kind, key: Key, allowed: tuple[int, ...], body: dict[str, Any] | None = None
    ) -> bool:
        if not self._history.recent:
            return True
        order_id = self._chance.choice(self._history.recent)
        return self._send(Operation(kind, key.actor, allowed, order_id, body or {}))

    def _repeat(self, earlier: Operation) -> bool:
        if "orderIds" in earlier.body:
            allowed = dict.fromkeys(earlier.body["orderIds"], _SHIPPED)
            return self._ship_all(allowed, earlier.idempotency_key or "")
        again = Operation(earlier.kind, earlier.actor, earlier.allowed, earlier.order_id)
        again.body, again.idempotency_key = earlier.body, earlier.idempotency_key
        return self._send(again)

    def _send(self, operation: Operation) -> bool:
        method, path = _ROUTES[operation.kind]
        path = path.format(operation.order_id)
        request: dict[str, Any] = {"json": operation.body} if operation.body else {}
        if operation.idempotency_key:
            request["headers"] = {"Idempotency-Key": operation.idempotency_key}
        key = self._key if operation.actor == self._key.actor else self._reader
        answered = self._connection.send(operation, key, method, path, **request) is not None
        self._remember(operation)
        return answered

    def _remember(self, operation: Operation) -> None:
        # A placing without an Idempotency-Key can't be repeated.
        can_repeat = operation.idempotency_key or operation.kind in {Kind.SHIP, Kind.CANCEL}
        self._unanswered = operation if operation.is_unknown and can_repeat else None
        if operation.kind is Kind.PLACE and operation.order:
            self._history.recent.append(operation.order["id"])
            if operation.idempotency_key and not operation.replayed:
                self._placed.append(operation)

    def _order(self) -> dict[str, Any]:
        order = self._history.unique_order()
        order |= self._chance.choice([{}, {"quantity": self._chance.randint(1, 9)}])
        return order | self._chance.choice([{}, {"shipDate": self._date()}])

    def _date(self) -> str:
        day, millisecond = self._chance.randint(1, 28), self._chance.randrange(1000)
        return f"2026-12-{day:02}T08:00:00.{millisecond:03}Z"
