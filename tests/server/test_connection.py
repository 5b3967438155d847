"""The server's connections, over real sockets: kept, hung up on, closed by the main loop only."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import threading
import time
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from orders.settings import Settings
from orders.store import listing
from orders.web.server import server as server_module
from orders.web.server.buffers import AnswerBuffer
from orders.web.server.server import Server
from tests.support.machine import wait_until
from tests.support.turned_server import TurnedServer


def talk(service, sent, *, wait=5.0):
    """Send bytes over a connection of their own; return what comes until it is closed or quiet."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), wait) as connection:
        connection.sendall(sent)
        received = b""
        try:
            while chunk := connection.recv(65_536):
                received += chunk
        except TimeoutError:
            return received, False
        return received, True


def test_answers_without_a_body_keep_the_connection(service):
    options = b"OPTIONS /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    received, closed = talk(service, options * 3, wait=0.5)
    assert not closed
    assert received.count(b"HTTP/1.1 204 ") == 3
    assert b"\r\nContent-Type:" not in received


def test_head_is_followed_by_the_next_answer_at_once(service):
    head = b"HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    get = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    received, closed = talk(service, head + get)
    assert closed
    assert re.fullmatch(
        r'HTTP/1\.1 200 OK\r\n[^{]*?\r\n\r\nHTTP/1\.1 200 OK\r\n[^{]*?\r\n\r\n\{"status":"ok"\}\n',
        received.decode(),
        re.DOTALL,
    )


def test_a_client_that_has_sent_its_last_is_answered(service):
    for _ in range(20):
        with socket.create_connection(service.address, 10) as connection:
            connection.sendall(b"GET /openapi/v1.json HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert received.count(b"HTTP/1.1 200 ") == received.count(b'"openapi": "3.0.3"') == 5


@pytest.mark.slow
def test_head_of_a_list_that_is_sent_in_chunks_is_followed_by_the_next_answer(start, tmp_path):
    service, file = start(), tmp_path / "orders.csv"
    file.write_text("petId\n" + "7\n" * (listing.CHUNK_ROWS + 1))
    assert service.command("orders", "import", str(file)).returncode == 0
    path, key = "/v1/store/orders", service.issue()
    head = f"HEAD {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n"
    get = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    received, closed = talk(service, head.encode() + get)
    assert closed
    first, second, body = received.split(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in first
    assert second.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(body) == {"status": "ok"}


def test_header_names_are_spelt_as_documented(service):
    received, _ = talk(service, b"GET /v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    for name in (b"X-RateLimit-Limit", b"RateLimit-Policy", b"RateLimit", b"WWW-Authenticate"):
        assert b"\r\n" + name + b": " in received


def test_an_answer_does_not_tell_by_what_server(service):
    received, _ = talk(service, b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b"\r\nServer: " not in received
    assert b"waitress" not in received.lower()


def test_a_refusal_reaches_a_client_that_is_still_sending(service):
    head = b"POST /v1/store/orders HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n"
    with socket.create_connection(service.address, 10) as connection:
        connection.sendall(head + b"a" * 9_000_000)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert received.startswith(b"HTTP/1.1 413 ")


@pytest.mark.slow
def test_a_client_that_does_not_hang_up_is_hung_up_on(service):
    with socket.create_connection(service.address, 10) as connection:
        connection.sendall(b"NONSENSE\r\n\r\n")
        while connection.recv(65_536):
            pass
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            drip(connection)


def drip(connection):
    """Send a byte now and then, for 10 s at most."""
    for _ in range(200):
        connection.sendall(b"a")
        time.sleep(0.05)


@contextmanager
def serving(application, **settings):
    """Serve an application in this process; return the server and its address."""
    server = Server(application, Settings(port=0, **settings), list)
    thread = threading.Thread(target=server.run)
    thread.start()
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        address = urlsplit(server.addresses[0])
        yield (address.hostname, address.port)
    finally:
        server.stop()
        signal.signal(signal.SIGINT, on_ctrl_c)
        thread.join()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_application_that_fails_whole_is_answered_with_a_request_id(caplog, version):
    def broken(environ, start_response):
        raise RuntimeError

    with serving(broken) as address, socket.create_connection(address, 10) as connection:
        connection.sendall(f"GET / HTTP/{version}\r\nHost: a\r\n\r\n".encode())
        received = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
    assert received.startswith(f"HTTP/{version} 500 ")
    request_id = re.search(r"\r\nX-Request-Id: ([0-9a-f]+)\r\n", received)[1]
    assert json.loads(received.partition("\r\n\r\n")[2]) == {
        "code": "internal_error",
        "message": f"Something went wrong here. Report it with the request id {request_id}.",
        "status": 500,
    }
    assert [each.message for each in caplog.records if each.exc_info] == [
        "Exception while serving /"
    ]


def test_a_long_answer_keeps_no_thread_from_others():
    others_answered = threading.Event()

    def application(environ, start_response):
        start_response("200 OK", [])
        yield b"first "
        if environ["PATH_INFO"] == "/long":
            assert others_answered.wait(10)
        yield b"last"

    with (
        serving(application, threads=1) as address,
        socket.create_connection(address, 10) as long,
        closing(HTTPConnection(*address)) as other,
    ):
        long.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        while b"first" not in long.recv(65_536):
            pass
        other.request("POST", "/")
        assert other.getresponse().status == 200
        others_answered.set()
        assert b"".join(iter(lambda: long.recv(65_536), b"")).endswith(b"0\r\n\r\n")


class Turned(TurnedServer):
    """A turned server over an application that answers when it may."""

    def __init__(self):
        self.go_on = threading.Event()
        super().__init__(self._application)

    def _application(self, environ, start_response):
        assert self.go_on.wait(20)
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    def connect(self, sent):
        """Connect and send; return the socket, and the channel once it has that many requests."""
        connection = socket.create_connection(self.address, 10)
        connection.sendall(sent)
        requests = sent.count(b"GET ")
        self.turn_until(lambda: self.channels and len(self.channels[-1].requests) == requests)
        return connection, self.channels[-1]

    def close(self):
        self.go_on.set()
        super().close()


@pytest.fixture
def turned():
    with closing(Turned()) as one:
        yield one


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_loop_that_has_enough_of_a_client_is_woken_once_it_could_have_more(turned):
    connection, channel = turned.connect(GET * 2)
    with connection:
        turned.turn()  # with two requests in hand, it waits for no third
        turned.go_on.set()
        wait_until(lambda: not channel.requests)
        # Whichever thread comes here last.
        assert channel.needs_main_loop()
        turned.turn()
        assert not channel.needs_main_loop()


def test_urgent_bytes_which_are_none_of_http_end_the_connection(turned):
    with socket.create_connection(turned.address, 10) as connection:
        connection.send(b"a", socket.MSG_OOB)
        turned.turn_until(lambda: turned.channels)
        turned.turn_until(lambda: not turned.channels)


def test_only_the_loop_closes_connections(turned):
    more = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    connection, channel = turned.connect(GET + more)
    turned.turn_until(lambda: channel.request)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()  # which resets it
    turned.go_on.set()
    wait_until(lambda: not channel.requests)
    wait_until(channel.needs_main_loop)
    assert turned.channels == [channel]
    turned.turn_until(lambda: not turned.channels)


def test_a_connection_that_comes_as_a_stuck_one_is_closed_is_not_taken_for_it(turned, monkeypatch):
    connection, channel = turned.connect(GET)
    with connection, socket.create_connection(turned.address, 10) as other:
        other.sendall(GET)
        monkeypatch.setattr(server_module, "IDLE_SECONDS", -1)
        channel.total_outbufs_len = 1  # as if it took nothing
        turned.server._listeners[0]._next_maintenance = 0.0  # noqa: SLF001 - a second is over
        turned.turn()
        turned.turn()
        monkeypatch.undo()
        turned.go_on.set()
        other.settimeout(0.01)
        received = b""

        def was_answered():
            nonlocal received
            with suppress(TimeoutError):
                received += other.recv(65_536)
            return b"\r\n\r\nok" in received

        turned.turn_until(was_answered)


@pytest.mark.parametrize(
    ("may_open", "connections"), [(10**6, 4_000), (4_200, 4_000), (1_024, 824), (250, 50), (64, 10)]
)
def test_there_are_no_more_connections_than_can_be_accepted(may_open, connections):
    # Or the loop would be told again and again of one that can't be.
    assert server_module.connections_within(may_open) == connections


def test_a_buffer_keeps_no_more_in_memory_than_it_may_though_it_is_never_empty():
    buffer, piece = AnswerBuffer(50_000), bytes(range(250)) * 40
    buffer.append(piece)
    for _ in range(100):
        buffer.append(piece)
        assert buffer.get(len(piece)) == piece
        buffer.skip(len(piece), True)
        assert buffer.buf.getfile().seek(0, 1) < 50_000
        assert buffer.buf.getfile().getbuffer().nbytes < 80_000
    assert len(buffer) == len(piece)


@pytest.mark.parametrize("rest", [0, 10, 49_999, 50_000, 200_000])
def test_a_buffer_gives_all_bytes_in_order_in_memory_and_in_a_file(rest):
    buffer, given, taken = AnswerBuffer(50_000), b"", b""
    for n in range(100):
        piece = bytes([n]) * 9_000
        buffer.append(piece)
        given += piece
        while len(buffer) > rest:
            got = buffer.get(7_000)[:5_000]
            buffer.skip(len(got), True)
            taken += got
    assert taken + buffer.get() == given
    buffer.close()
