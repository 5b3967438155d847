"""Clients that only place orders: how long each took, and which were acknowledged, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count

from tests.support.service import Service
from tests.support.wire import GONE, Wire

ORDERS = "/v1/store/orders"


@dataclass
class Placing:
    """Clients that place orders with one key, each over a connection of its own.

    A client ends once nobody answers: status 0. `acknowledged` is when each order was answered, by
    its id, in monotonic seconds.
    """

    service: Service
    key: str
    clients: int
    seconds: list[float] = field(default_factory=list)
    acknowledged: dict[int, float] = field(default_factory=dict)
    statuses: set[int] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Place orders meanwhile."""
        clients = self._start(count())
        try:
            yield
        finally:
            self._stopped.set()
            _join(clients)

    def place(self, orders: int) -> None:
        _join(self._start(iter(range(orders))))

    def _start(self, numbers: Iterator[int]) -> list[threading.Thread]:
        arguments = (numbers, threading.Lock())
        clients = [threading.Thread(target=self._run, args=arguments) for _ in range(self.clients)]
        for client in clients:
            client.start()
        return clients

    def _run(self, numbers: Iterator[int], lock: threading.Lock) -> None:
        wire = Wire(self.service.address, self.key)
        wire.connect()
        while not self._stopped.is_set():
            with lock:
                if next(numbers, None) is None:
                    break
            try:
                self._place_one(wire)
            except GONE:
                self.statuses.add(0)
                break
        wire.close()

    def _place_one(self, wire: Wire) -> None:
        began = time.monotonic()
        answer = wire.ask("POST", ORDERS, {"petId": 7})
        self.seconds.append(answer.ended - began)
        self.statuses.add(answer.status)
        if answer.status == HTTPStatus.CREATED:
            order_id = int(answer.headers["Location"].rpartition("/")[2])
            self.acknowledged[order_id] = answer.ended


def _join(clients: list[threading.Thread]) -> None:
    for client in clients:
        client.join()
