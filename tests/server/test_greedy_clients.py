"""How much a greedy client makes the service keep: bodies, and answers that it does not accept."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from waitress.adjustments import Adjustments

from orders.web.bodies import MAX_BYTES
from orders.web.server import server as server_module
from orders.web.server.parser import Parser
from tests.support.turned_server import TurnedServer


@pytest.mark.parametrize("chunked", [False, True])
def test_of_a_body_that_is_too_long_only_so_much_is_kept(chunked):
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 900000"
    parser = Parser(Adjustments(max_request_body_size=2**20))
    parser.received(b"POST /v1/store/orders HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n")
    for _ in range(90):
        parser.received((b"2710\r\n" if chunked else b"") + b"a" * 10_000)
        parser.received(b"\r\n" if chunked else b"")
    assert len(parser.body_rcv) == MAX_BYTES + 1


REQUESTS = 80
DOCUMENT = b"GET /openapi/v1.json HTTP/1.1\r\nHost: a\r\n\r\n"


class Loop(TurnedServer):
    """A turned server, and a client that asks for much and accepts nothing."""

    def __init__(self, store):
        super().__init__(store.app)
        self.client = socket.socket()
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.client.connect(self.address)
        self.client.sendall(DOCUMENT * REQUESTS)
        self.turn_until(lambda: self.channels)
        (self.channel,) = self.channels
        self.size = len(store.anonymous().get("/openapi/v1.json").data)

    def close(self):
        self.client.close()
        super().close()


@pytest.fixture
def loop(make_store):
    with closing(Loop(make_store())) as one:
        # The system's own buffers are full, and so the next request waits.
        one.turn_until(lambda: one.channel._held)  # noqa: SLF001 - shows nowhere else
        yield one


def test_requests_that_came_together_wait_until_answers_are_taken(loop):
    assert 0 < loop.channel.total_outbufs_len < 2 * loop.size
    assert loop.channel.requests
    received = b""
    loop.client.setblocking(False)
    loop.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)

    def all_were_answered():
        nonlocal received
        try:
            received += loop.client.recv(2**20)
        except BlockingIOError:
            return False
        return len(received) > REQUESTS * loop.size and received.count(b"HTTP/1.1 200 ") == REQUESTS

    loop.turn_until(all_were_answered)


@pytest.mark.slow
def test_a_client_that_takes_nothing_for_a_minute_is_cut_off(loop, monkeypatch):
    loop.turn()
    assert loop.channels
    monkeypatch.setattr(server_module, "IDLE_SECONDS", -1)
    loop.turn_until(lambda: not loop.channels)
