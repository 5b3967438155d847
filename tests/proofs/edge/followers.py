"""Thousands of followers who never read, come and go, or come all at once; a stop beside them."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from http import HTTPStatus

from orders.feed import MOST_FOLLOWERS, MOST_OF_A_KEY
from orders.server.server import MAX_CONNECTIONS
from tests.proofs.core.command import violated
from tests.proofs.core.times import Times
from tests.support.service import Service
from tests.support.wire import Wire

STREAM = (
    "GET /v2/store/events HTTP/1.1\r\nHost: proof\r\nAuthorization: Bearer {}\r\n"
    "Accept: text/event-stream\r\n\r\n"
)
ORDERS = "/v2/store/orders"
# Beside followers who are there it takes 0.2 s; those who are just arriving are each refused first.
STOP_SECONDS = 4.0
# Longer answers are late, and not lost.
PLACED_SECONDS = 1.0


def followed_without_end(
    service: Service,
    keys: list[str],
    count: int,
    longest: tuple[float, float],
    places: int = MAX_CONNECTIONS,
) -> list[str]:
    """Have so many follow and never read, and others come and go; print what the rest met.

    At last one comes for each of the server's places, all at once, and stays. The first key places
    orders, the others follow. `longest` is how long a placing may take, and the stop at the end.
    Returns the violations.
    """
    place, *others = keys
    requests = [STREAM.format(key).encode() for key in others for _ in range(MOST_OF_A_KEY)]
    followers = [opened(service, each) for each in requests[:count]]
    beside, lost = placed(service, place)
    print(f"beside {count:,} that never read  a placing {beside}")
    for number in range(count):
        opened(service, requests[number % len(requests)]).close()
    storm, storm_lost = placed(service, place)
    print(f"after {count:,} that came and left  a placing {storm}")
    for each in followers:
        each.close()
    crowd = [begun(service, requests[number % len(requests)]) for number in range(places)]
    crowded, crowd_lost = placed(service, place, anew=True)
    print(f"beside {places:,} that came at once  a placing {crowded}")
    began = time.monotonic()
    service.process.terminate()
    status = service.wait()
    took = time.monotonic() - began
    print(f"the stop beside them  took {took:.1f} s, exit status {status}")
    for each in crowd:
        each.close()
    lost += storm_lost + crowd_lost
    worst = max(beside.worst, storm.worst, crowded.worst)
    return violated(
        {
            f"{lost} orders were not placed": lost,
            f"a placing took {worst:.0f} ms": worst > longest[0] * 1000,
            f"the stop took {took:.1f} s": took > longest[1],
            f"exit status {status}": status,
        }
    )


def keys_for(service: Service, count: int = MOST_FOLLOWERS) -> list[str]:
    """Return a key that places, and as many as so many followers need."""
    figures = ("--per-minute", "1000000000", "--per-day", "1000000000")
    needed = 1 + -(-count // MOST_OF_A_KEY)
    return [service.issue("enterprise", *figures) for _ in range(needed)]


def opened(service: Service, request: bytes) -> socket.socket:
    """Send a request over a connection with little room; wait for the answer, and read nothing."""
    connection = begun(service, request)
    with suppress(OSError):  # it gave way at once
        connection.recv(1, socket.MSG_PEEK)
    return connection


def begun(service: Service, request: bytes) -> socket.socket:
    """Send a request over a connection with little room, and wait for nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    with suppress(OSError):
        connection.connect(service.address)
        connection.sendall(request)
    return connection


def placed(service: Service, key: str, count: int = 60, *, anew: bool = False) -> tuple[Times, int]:
    """Place orders one after the other, perhaps each over a new connection.

    Returns the times, and how many were not placed.
    """
    wire = Wire(service.address, key)
    taken, lost = [], 0
    for _ in range(count):
        began = time.monotonic()
        answer = wire.ask("POST", ORDERS, {"petId": 7})
        lost += answer.status != HTTPStatus.CREATED
        taken.append(answer.ended - began)
        if anew:
            wire.close()
    wire.close()
    return Times.of(taken), lost
