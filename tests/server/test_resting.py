"""Answers that rest: their bodies come bit by bit, and no thread waits for them."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from orders.server import REST, connections
from orders.server import server as servers
from tests.support.machine import wait_until
from tests.support.serving import serving
from tests.support.wire import exchange

GET = b"GET /rest HTTP/1.1\r\nHost: a\r\n\r\n"
OTHER = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Said:
    """A body of what is said."""

    def __init__(self, *said):
        self.said, self.is_ended, self.is_closed = list(said), False, False
        self.begun = threading.Event()

    def begin(self, wake):
        self.wake = wake
        wake()
        self.begun.set()

    def more(self):
        """Return what is said next."""
        piece = self.said.pop(0) if self.said else b""
        self.is_ended = piece == b"last"
        if piece == b"fails":
            raise RuntimeError("meant to be logged")
        if self.said:
            self.wake()
        return piece

    def say(self, piece):
        self.said.append(piece)
        self.wake()

    def stop(self):
        self.said[:] = [b"last"]

    def close(self):
        self.is_closed = True


class Application:
    """Answers `ok`, and at /rest with a body of what is said."""

    def __init__(self, *first):
        self.bodies, self._first = [], first

    def __call__(self, environ, start_response):
        rests = environ["PATH_INFO"] == "/rest" and REST in environ
        start_response("200 OK", [] if rests else [("Content-Length", "2")])
        if rests:
            self.bodies.append(Said(*self._first))
            environ[REST](self.bodies[-1])
        return [] if rests else [b"ok"]

    def body(self, number=0):
        """Return a body, once it rests."""
        wait_until(lambda: len(self.bodies) > number and self.bodies[number].begun.is_set())
        return self.bodies[number]


@pytest.fixture
def application():
    return Application(b"first")


@pytest.fixture
def serve(application):
    with serving(application, threads=1) as address:
        yield address


@pytest.fixture
def client(serve):
    with socket.create_connection(serve, 30) as one:
        yield one


def read_until(client, end):
    """Return what comes up to some bytes."""
    received = b""
    while not received.endswith(end):
        received += (piece := client.recv(65_536))
        assert piece, received
    return received


def read_to_the_end(client):
    """Return what comes until the connection ends, which may be by a reset."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := client.recv(65_536):
            received += piece
    return received


def test_what_is_said_is_sent_at_once_and_the_next_request_is_answered(application, serve, client):
    client.sendall(GET)
    head, _, first = read_until(client, b"first\r\n").partition(b"\r\n\r\n")
    assert b"\r\nTransfer-Encoding: chunked\r\n" in head
    assert first == b"5\r\nfirst\r\n"
    body = application.body()
    # By a thread that is not kept.
    assert exchange(serve, OTHER).endswith(b"\r\n\r\nok")
    body.say(b"more")
    assert client.recv(100) == b"4\r\nmore\r\n"
    body.say(b"last")
    assert read_until(client, b"0\r\n\r\n") == b"4\r\nlast\r\n0\r\n\r\n"
    wait_until(lambda: body.is_closed)
    client.sendall(OTHER)
    assert read_until(client, b"ok").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_body_that_fails_is_broken_off(application, client, caplog):
    client.sendall(GET)
    application.body().say(b"fails")
    assert not read_to_the_end(client).endswith(b"0\r\n\r\n")
    assert "Exception while serving /rest" in caplog.text
    wait_until(lambda: application.bodies[0].is_closed)


def test_a_body_ends_when_its_client_leaves(application, client):
    client.sendall(GET)
    body = application.body()
    client.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: body.is_closed)


def test_an_old_client_gets_none_as_it_has_no_chunks(application, serve):
    received = exchange(serve, GET.replace(b"1.1", b"1.0"))
    assert received.endswith(b"\r\n\r\nok")
    assert not application.bodies


def test_a_stop_ends_all_even_those_that_are_still_to_rest_or_that_nobody_reads():
    application = Application(b"first", bytes(10_000_000))
    with ExitStack() as stack:
        server = serving(application, threads=1)
        address = server.__enter__()
        clients = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(20)]
        clients[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for each in clients:
            each.sendall(GET * 2)
        application.body(19)
        began = time.monotonic()
        server.__exit__(None, None, None)
        assert time.monotonic() - began < 10  # not the 30 s that long answers have
    assert all(each.is_closed for each in application.bodies)


def test_a_stop_has_each_say_its_last(application):
    server = serving(application)
    with socket.create_connection(server.__enter__(), 30) as client:
        client.sendall(GET)
        application.body()
        read_until(client, b"first\r\n")
        server.__exit__(None, None, None)
        assert read_until(client, b"0\r\n\r\n") == b"4\r\nlast\r\n0\r\n\r\n"
        assert client.recv(1) == b""


def test_resting_ones_give_way_like_idle_connections(application, monkeypatch):
    monkeypatch.setattr(connections, "_NEW", 0)
    monkeypatch.setattr(servers, "MAX_CONNECTIONS", 10)
    with ExitStack() as stack:
        address = stack.enter_context(serving(application))
        for number in range(10):
            each = stack.enter_context(socket.create_connection(address, 30))
            each.sendall(GET)
            application.body(number)
        for _ in range(3):
            assert exchange(address, OTHER).endswith(b"ok")
        wait_until(lambda: application.bodies[0].is_closed)
        assert not application.bodies[9].is_closed


def test_a_reader_that_takes_nothing_is_cut_off_and_one_that_waits_is_not(application, monkeypatch):
    monkeypatch.setattr(connections, "RESTING_READER_SECONDS", 1)
    monkeypatch.setattr(connections, "_RESTING_CHECK_SECONDS", 0)
    with (
        serving(application) as address,
        socket.create_connection(address, 30) as waiting,
        socket.socket() as stalled,
    ):
        waiting.sendall(GET)
        application.body(0)
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.connect(address)
        stalled.sendall(GET)
        application.body(1).say(bytes(5_000_000))
        wait_until(lambda: application.bodies[1].is_closed)
        assert not application.bodies[0].is_closed
