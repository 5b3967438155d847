"""The server's connections, over real sockets: kept, hung up on, closed."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from types import SimpleNamespace

import pytest
from werkzeug.wsgi import wrap_file

from orders.server import server as server_module
from orders.server.connections import Outgoing
from tests.support.machine import wait_until
from tests.support.serving import serving
from tests.support.wire import exchange

LAST = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def test_answers_without_a_body_keep_the_connection(service):
    options = b"OPTIONS /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    *answers, last = exchange(service.address, options * 3 + LAST).split(b"HTTP/1.1 ")[1:]
    assert [each[:4] for each in answers] == [b"204 "] * 3
    assert b"\r\nContent-Type:" not in b"".join(answers)
    assert last.startswith(b"200 ")


def test_pieces_that_are_larger_than_one_sending_come_in_their_order():
    pieces = [b"head", *(bytes([number]) * 700_000 for number in range(3))]
    ours, clients = socket.socketpair()
    with ours, clients:
        # Of which the system would take several at once.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        outgoing, received = Outgoing(ours, 0), b""
        answer = SimpleNamespace(pieces=[*pieces], spool=None)
        while sent := outgoing.send(answer, 0):
            received += clients.recv(sent, socket.MSG_WAITALL)
    assert received == b"".join(pieces)


def test_a_client_stands_still_only_while_it_has_bytes_to_acknowledge():
    ours, clients = socket.socketpair()
    with ours, clients:
        outgoing = Outgoing(ours, 0)
        assert outgoing.stands_still_for(100) == 0  # its answer is still being made
        answer = SimpleNamespace(pieces=[b"piece"], spool=None)
        outgoing.send(answer, 100)
        outgoing.stands_still_for(110)
        assert outgoing.stands_still_for(150) == 40
        clients.recv(100)
        assert outgoing.stands_still_for(200) == 0  # the next piece is still being made


@pytest.mark.parametrize("headers", [[("Content-Length", "2")], []], ids=["of_a_length", "chunked"])
def test_head_is_followed_by_the_next_answer_at_once(headers):
    def application(environ, start_response):
        start_response("200 OK", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else iter([b"o", b"k"])

    with serving(application) as address:
        received = exchange(address, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + LAST)
    first, second, body = received.split(b"\r\n\r\n", 2)
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert second.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b"Transfer-Encoding: chunked" in first) == (not headers)
    assert body == (b"ok" if headers else b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n")


def test_what_an_application_writes_beyond_its_length_is_not_the_next_answers_beginning():
    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        return iter([b"o", b"kHTTP/1.1 201 Forged\r\n\r\n", b"more"])

    with serving(application) as address:
        received = exchange(address, LAST.replace(b"Connection: close\r\n", b"") + LAST)
    assert [each.partition(b"\r\n\r\n")[2] for each in received.split(b"HTTP/1.1 200 OK")] == [
        b"",
        b"ok",
        b"ok",
    ]


def test_an_applications_file_is_sent_like_any_other_body(tmp_path):
    (tmp_path / "file").write_bytes(b"of a file" * 100_000)

    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "900000")])
        return wrap_file(environ, (tmp_path / "file").open("rb"))

    with serving(application) as address:
        received = exchange(address, LAST)
    assert received.partition(b"\r\n\r\n")[2] == b"of a file" * 100_000


def test_a_client_that_has_sent_its_last_is_answered(service):
    request = b"GET /openapi/v1.json HTTP/1.1\r\nHost: a\r\n\r\n"
    for _ in range(20):
        received = exchange(service.address, request * 5, half_close=True)
        assert received.count(b"HTTP/1.1 200 ") == received.count(b'"openapi": "3.0.3"') == 5


def test_headers_are_spelt_as_documented_and_do_not_name_the_server(service):
    received = exchange(service.address, LAST.replace(b"/healthz", b"/v1/x"))
    for name in (b"X-RateLimit-Limit", b"RateLimit-Policy", b"RateLimit", b"WWW-Authenticate"):
        assert b"\r\n" + name + b": " in received
    assert b"\r\nServer: " not in received
    assert b"waitress" not in received.lower()


def test_a_rejection_reaches_a_client_that_is_still_sending(service):
    head = b"POST /v1/store/orders HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n"
    assert exchange(service.address, head + b"a" * 9_000_000).startswith(b"HTTP/1.1 413 ")


@pytest.mark.slow
def test_a_client_that_does_not_hang_up_is_hung_up_on(service):
    with socket.create_connection(service.address, 10) as connection:
        connection.sendall(b"NONSENSE\r\n\r\n")
        while connection.recv(65_536):
            pass
        with pytest.raises(ConnectionError):
            wait_until(lambda: connection.sendall(b"a"))


def test_urgent_bytes_which_http_does_not_have_are_rejected(service):
    with socket.create_connection(service.address, 10) as connection:
        connection.send(b"a", socket.MSG_OOB)
        connection.sendall(b"\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_failure_outside_the_application_is_answered_with_a_request_id(caplog, version):
    def broken(environ, start_response):
        raise RuntimeError

    with serving(broken) as address:
        received = exchange(address, f"GET / HTTP/{version}\r\nHost: a\r\n\r\n".encode()).decode()
    assert received.startswith("HTTP/1.1 500 ")
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
        is_long = environ["PATH_INFO"] == "/long"
        start_response("200 OK", [] if is_long else [("Content-Length", "10")])
        yield b"first "
        assert not is_long or others_answered.wait(10)
        yield b"last"

    with (
        serving(application, threads=1) as address,
        socket.create_connection(address, 10) as long,
    ):
        long.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        while b"first" not in long.recv(65_536):
            pass
        assert exchange(address, LAST).endswith(b"\r\n\r\nfirst last")
        others_answered.set()
        assert b"".join(iter(lambda: long.recv(65_536), b"")).endswith(b"0\r\n\r\n")


def test_a_client_that_hangs_up_before_its_answer_harms_no_other():
    began, go_on = threading.Semaphore(0), threading.Event()

    def application(environ, start_response):
        began.release()
        assert go_on.wait(20)
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    more = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    with serving(application) as address:
        for _ in range(3):
            connection = socket.create_connection(address, 10)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + more)
            assert began.acquire(timeout=10)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()  # which resets it
        go_on.set()
        for _ in range(20):
            assert exchange(address, LAST).endswith(b"\r\n\r\nok")


def test_a_long_answer_that_nobody_reads_ends_for_the_application_and_arrives_whole():
    pieces, produced = [bytes([n]) * 100_000 for n in range(200)], threading.Event()

    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "20000000")])
        yield from pieces
        produced.set()

    with serving(application) as address, socket.create_connection(address, 60) as connection:
        connection.sendall(LAST)
        assert produced.wait(60)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert received.partition(b"\r\n\r\n")[2] == b"".join(pieces)


@pytest.mark.parametrize(
    ("may_open", "connections"), [(10**6, 4_000), (4_200, 4_000), (1_024, 824), (250, 50), (64, 10)]
)
def test_there_are_no_more_connections_than_can_be_accepted(may_open, connections):
    # Otherwise the loop would spin on one that can't be.
    assert server_module.connections_within(may_open) == connections
