"""What the server itself answers, over a real socket: refusals, and connections that are kept."""

from __future__ import annotations

import json
import re
import socket

import pytest

from bench.service import running
from orders.store import listing


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A service that waits a second for heads and bodies."""
    folder = tmp_path_factory.mktemp("hasty") / "instance"
    with running(folder, ORDERS_HEAD_SECONDS="1", ORDERS_BODY_SECONDS="1") as service:
        yield service


def talk(service, sent, *, wait=5.0):
    """Send bytes over a connection of their own; give what comes until it is closed or quiet."""
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


LONG = b"a" * 17_000
REFUSED = {
    "no request at all": (b"NONSENSE\r\n\r\n", 400, "malformed_request"),
    "two lengths": (
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "malformed_request",
    ),
    "chunks before HTTP/1.1": (
        b"POST /v1/store/orders HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "malformed_request",
    ),
    "a body of two megabytes": (
        b"POST /v1/store/orders HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n",
        413,
        "payload_too_large",
    ),
    "long headers": (b"GET / HTTP/1.1\r\nX: " + LONG + b"\r\n\r\n", 431, "headers_too_large"),
    "an encoding of another kind": (
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        501,
        "not_implemented",
    ),
    "half a head": (b"GET /v1/store/or", 408, "request_timeout"),
    "half a body": (
        b"POST /v1/store/orders HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
        408,
        "request_timeout",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_request_is_refused_with_an_error_and_closed(hasty, what):
    sent, status, code = REFUSED[what]
    received, closed = talk(hasty, sent)
    head, body = received.decode().split("\r\n\r\n")
    assert closed
    assert re.match(rf"HTTP/1\.[01] {status} ", head)
    assert json.loads(body)["code"] == code
    assert list(json.loads(body)) == ["code", "message", "status"]
    assert "X-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: 60\r\n" in head
    assert re.search(r"\r\nX-Request-Id: [0-9a-f]{16}(\r\n|$)", head)


def test_answers_without_a_body_keep_the_connection(service):
    options = b"OPTIONS /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    received, closed = talk(service, options * 3, wait=0.5)
    assert not closed
    assert received.count(b"HTTP/1.1 204 ") == 3
    assert b"Content-Type" not in received


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


def test_head_of_a_list_that_is_sent_in_chunks_is_followed_by_the_next_answer(hasty, tmp_path):
    file = tmp_path / "orders.csv"
    file.write_text("petId\n" + "7\n" * (listing.CHUNK_ROWS + 1))
    assert hasty.command("orders", "import", str(file)).returncode == 0
    path, key = "/v1/store/orders", hasty.issue()
    head = f"HEAD {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n"
    get = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    received, closed = talk(hasty, head.encode() + get)
    assert closed
    first, second, body = received.split(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in first
    assert second.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(body) == {"status": "ok"}


def test_header_names_are_spelt_as_documented(service):
    received, _ = talk(service, b"GET /v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    for name in (b"X-RateLimit-Limit", b"RateLimit-Policy", b"RateLimit", b"WWW-Authenticate"):
        assert b"\r\n" + name + b": " in received
