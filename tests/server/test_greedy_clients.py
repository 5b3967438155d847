"""How much a greedy client makes the service keep: bodies, and answers that it does not accept."""

from __future__ import annotations

import socket

import pytest
from waitress.adjustments import Adjustments

from orders.web.bodies import MAX_BYTES
from orders.web.server.parser import Parser
from tests.support.serving import serving
from tests.support.wire import exchange

GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
PIPELINED = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
REQUESTS = 60
LARGE = bytes(2**20)


@pytest.mark.parametrize("chunked", [False, True])
def test_of_a_body_that_is_too_long_only_so_much_is_kept(chunked):
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 900000"
    parser = Parser(Adjustments(max_request_body_size=2**20))
    parser.received(b"POST /v1/store/orders HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n")
    for _ in range(90):
        parser.received((b"2710\r\n" if chunked else b"") + b"a" * 10_000)
        parser.received(b"\r\n" if chunked else b"")
    assert len(parser.body_rcv) == MAX_BYTES + 1


@pytest.fixture
def begun():
    """The large answers that the application has begun."""
    return []


@pytest.fixture
def address(begun):
    """A server whose answers are large, with one thread for all of them."""

    def application(environ, start_response):
        is_large = environ["PATH_INFO"] == "/large"
        begun.extend(["large"] * is_large)
        body = LARGE if is_large else b"ok"
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    with serving(application, threads=1) as address:
        yield address


@pytest.fixture
def greedy(address):
    """A client that requests many large answers and accepts none."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(60)
        connection.connect(address)
        connection.sendall(PIPELINED * REQUESTS + GET)
        yield connection


def test_requests_that_came_together_wait_until_answers_are_accepted(greedy, begun, address):
    for _ in range(2 * REQUESTS):
        assert exchange(address, GET).endswith(b"\r\n\r\nok")
    assert len(begun) < REQUESTS / 2  # the system's own buffers hold some
    received = b"".join(iter(lambda: greedy.recv(2**20), b""))
    assert received.count(b"HTTP/1.1 200 ") == REQUESTS + 1
    assert received.count(LARGE) == len(begun) == REQUESTS
