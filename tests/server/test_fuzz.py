"""Malformed requests over real sockets: every answer is HTTP, every rejection an Error body.

A table of known cases by the section of RFC 9112, then requests that hypothesis corrupts.
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orders.web.api import PROTECTION
from tests.support.service import running

GOOD = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
CODES = {
    400: "malformed_request",
    408: "request_timeout",
    413: "payload_too_large",
    431: "headers_too_large",
    501: "not_implemented",
}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory, databases):
    """A service that waits a second for heads and bodies, and must log no error."""
    folder = tmp_path_factory.mktemp("fuzzed") / "instance"
    given = {"ORDERS_HEAD_SECONDS": "1", "ORDERS_BODY_SECONDS": "1"}
    with running(folder, **given, **databases.environment(folder)) as service:
        yield service
        assert service.request("GET", "/healthz").status == 200
    assert not [line for line in service.log if "Traceback" in line or "rror:" in line]


@dataclass
class Answer:
    """An answer, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes


def talk(service, *pieces):
    """Send bytes over a connection of their own; return the answers until it is closed."""
    with socket.create_connection(service.address, 60) as connection:
        received = b""
        for piece in pieces:
            connection.sendall(piece)
        while chunk := connection.recv(65_536):
            received += chunk
    return answers_in(received)


def answers_in(received, *, to_head=False):
    """Parse what was received: complete answers, and nothing else."""
    found = []
    while received:
        head, separator, received = received.partition(b"\r\n\r\n")
        assert separator, head
        line, *fields = head.decode("ascii").split("\r\n")
        status = int(re.fullmatch(r"HTTP/1\.[01] ([1-5][0-9]{2}) [ -~]+", line)[1])
        headers = {}
        for each in fields:
            name, value = re.fullmatch(r"([A-Za-z-]+): ([ -~]*)", each).groups()
            assert name.lower() not in headers, each
            headers[name.lower()] = value
        body, received = (b"", received) if to_head else body_of(status, headers, received)
        found.append(Answer(status, headers, body))
    return found


def body_of(status, headers, received):
    """Return the body of an answer, and what comes after it."""
    if status < 200 or status in {204, 304}:
        return b"", received
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(received.partition(b"\r\n")[0], 16):
            chunk = received.partition(b"\r\n")[2]
            body, received = body + chunk[:size], chunk[size + 2 :]
        return body, received.partition(b"\r\n\r\n")[2]
    length = int(headers["content-length"])
    assert len(received) >= length
    return received[:length], received[length:]


def assert_fit(answer):
    """Check that an answer of 400 and above is an Error body exactly, and that it is not 500."""
    if answer.status < 400:
        return
    error = json.loads(answer.body)
    assert answer.status != 500
    assert answer.headers["content-type"] == "application/json"
    assert list(error) == ["code", "message", "status"]
    assert error["status"] == answer.status
    assert error["message"]


def assert_refused(answers, status):
    """Check for one answer, the server's own, with which the connection ends."""
    assert [each.status for each in answers] == [status]
    (answer,) = answers
    assert_fit(answer)
    assert json.loads(answer.body)["code"] == CODES[status]
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])
    assert answer.headers["ratelimit"] == '"minute";r=60;t=60, "day";r=1000;t=86400'
    assert answer.headers["connection"] == "close"
    limits = [answer.headers[f"x-ratelimit-{name}"] for name in ("limit", "remaining")]
    assert limits == ["60", "60"]
    assert {name: answer.headers[name.lower()] for name in PROTECTION} == PROTECTION
    assert "server" not in answer.headers


def head(*fields, line=b"POST /v1/store/orders HTTP/1.1", host=b"Host: a"):
    """Return the head of a request."""
    return b"\r\n".join([line, *filter(None, [host]), *fields, b"", b""])


def chunked(body):
    """Return a request with a body in chunks, as they are given."""
    return head(b"Transfer-Encoding: chunked") + body


LENGTH = b"Content-Length: "
CODING = b"Transfer-Encoding: "

# What the server rejects, and with which status. Sections are RFC 9112's.
REFUSED = {
    # 3: request-line = method SP request-target SP HTTP-version
    "no request line": (b"NONSENSE\r\n\r\n", 400),
    "no version": (head(line=b"GET /healthz"), 400),
    "no target": (head(line=b"GET HTTP/1.1"), 400),
    "two spaces before the target": (head(line=b"GET  /healthz HTTP/1.1"), 400),
    "two spaces after the target": (head(line=b"GET /healthz  HTTP/1.1"), 400),
    "a space behind the version": (head(line=b"GET /healthz HTTP/1.1 "), 400),
    "a space in the target": (head(line=b"GET /health z HTTP/1.1"), 400),
    "tabs for spaces": (head(line=b"GET\t/healthz\tHTTP/1.1"), 400),
    "a tab in the target": (head(line=b"GET /health\tz HTTP/1.1"), 400),
    "NUL in the target": (head(line=b"GET /healthz\0 HTTP/1.1"), 400),
    "NUL in the method": (head(line=b"GE\0T /healthz HTTP/1.1"), 400),
    "delete in the target": (head(line=b"GET /healthz\x7f HTTP/1.1"), 400),
    "bytes over 127 in the target": (head(line=b"GET /healthz\xc3\xa9 HTTP/1.1"), 400),
    "bytes over 127 behind two slashes": (head(line=b"GET //\xff HTTP/1.1"), 400),
    "a method in lower case": (head(line=b"get /healthz HTTP/1.1"), 400),
    "a method that is no token": (head(line=b"G(T /healthz HTTP/1.1"), 400),
    "HTTP in lower case": (head(line=b"GET /healthz http/1.1"), 400),
    "another protocol": (head(line=b"GET /healthz HTCPCP/1.0"), 400),
    "version 0.9": (head(line=b"GET /healthz HTTP/0.9"), 400),
    "version 2.0": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "version 1.10": (head(line=b"GET /healthz HTTP/1.10"), 400),
    "version 1": (head(line=b"GET /healthz HTTP/1"), 400),
    "half an address in absolute form": (head(line=b"GET http://[::1/ HTTP/1.1"), 400),
    "an address that is none": (head(line=b"GET http://[zz]/ HTTP/1.1"), 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", 400),
    "a very long target": (head(line=b"GET /" + b"a" * 17_000 + b" HTTP/1.1"), 431),
    "long headers": (head(b"X: " + b"a" * 17_000), 431),
    "long headers that don't end": (b"GET / HTTP/1.1\r\nX: " + b"a" * 17_000, 431),
    "many headers": (head(*[b"X: a"] * 3_000), 431),
    # 2.2: lines end in CR LF; a bare CR is invalid
    "a bare CR in the line": (head(line=b"GET /healthz\rX HTTP/1.1"), 400),
    "a bare CR behind the line": (head(line=b"GET /healthz HTTP/1.1\r"), 400),
    "a bare LF in the line": (head(line=b"GET /healthz HTTP/1.1\nX: a"), 400),
    "a bare CR in a header": (head(b"X: a\rb"), 400),
    "a bare LF in a header": (head(b"X: a\nTransfer-Encoding: chunked"), 400),
    "only bare LFs": (b"GET /healthz HTTP/1.1\nHost: a\n\n", 408),
    "a blank before the first header": (head(b"X: a", host=b" Host: a"), 400),
    # 3.2: one Host, of an HTTP/1.1 request at least
    "no Host": (head(host=None), 400),
    "no Host in absolute form": (head(line=b"GET http://a/healthz HTTP/1.1", host=None), 400),
    "two Hosts": (head(b"Host: b"), 400),
    "twice the same Host": (head(b"Host: a"), 400),
    "twice an empty Host": (head(b"Host:", host=b"Host:"), 400),
    "two Hosts in HTTP/1.0": (head(b"Host: b", line=b"GET /healthz HTTP/1.0"), 400),
    "a Host with a path": (head(host=b"Host: a/b"), 400),
    "a Host with a user": (head(host=b"Host: me@a"), 400),
    "a Host with a blank": (head(host=b"Host: a b"), 400),
    "a Host with a word for a port": (head(host=b"Host: a:http"), 400),
    "a Host in bytes over 127": (head(host=b"Host: \xc3\xa9"), 400),
    # 5: field-line = field-name ":" OWS field-value OWS
    "a header without a colon": (head(b"X"), 400),
    "a blank before the colon": (head(b"X : a"), 400),
    "a tab before the colon": (head(b"X\t: a"), 400),
    "a header without a name": (head(b": a"), 400),
    "NUL in a header's name": (head(b"X\0: a"), 400),
    "NUL in a header": (head(b"X: a\0b"), 400),
    "a control character in a header": (head(b"X: a\x0bb"), 400),
    "a header's name in bytes over 127": (head(b"X\xc3\xa9: a"), 400),
    "a header's name in parentheses": (head(b"X(): a"), 400),
    "a folded header": (head(b"X: a", b" b"), 400),
    "a header folded by a tab": (head(b"X: a", b"\tb"), 400),
    "a coding in a fold": (head(b"X: a", b" Transfer-Encoding: chunked"), 400),
    # 6.2 and 6.3: Content-Length
    "a length with a sign": (head(LENGTH + b"+5") + b"hello", 400),
    "a length below zero": (head(LENGTH + b"-1"), 400),
    "a length in hexadecimal": (head(LENGTH + b"0x5") + b"hello", 400),
    "a length of two words": (head(LENGTH + b"5 5") + b"hello", 400),
    "a list of lengths": (head(LENGTH + b"5, 5") + b"hello", 400),
    "the same length twice": (head(LENGTH + b"5", LENGTH + b"5") + b"hello", 400),
    "two lengths": (head(LENGTH + b"5", LENGTH + b"6") + b"hello", 400),
    "a length of nothing": (head(LENGTH), 400),
    "a length behind a vertical tab": (head(LENGTH + b"\x0b5") + b"hello", 400),
    "a length in Arabic digits": (head(LENGTH + "\u0665".encode()) + b"hello", 400),
    "a length in superscript": (head(LENGTH + b"\xb2") + b"hello", 400),
    "a length with an underscore": (head(LENGTH + b"1_0") + b"hello", 400),
    "a length in decimals": (head(LENGTH + b"5.0") + b"hello", 400),
    "a length over the limit": (head(LENGTH + b"1048577"), 413),
    "a length over 64 bits": (head(LENGTH + b"18446744073709551621"), 413),
    "a length of 5,000 digits": (head(LENGTH + b"9" * 5_000), 413),
    "a length of 5,000 digits, and no Host": (head(LENGTH + b"9" * 5_000, host=None), 400),
    "half a head": (b"GET /v1/store/or", 408),
    "half a body": (head(LENGTH + b"9") + b"{", 408),
    "a length over the limit, asked for": (
        head(LENGTH + b"1048577", b"Expect: 100-continue"),
        413,
    ),
    # 6.1 and 6.3: Transfer-Encoding
    "both lengths": (head(LENGTH + b"5", CODING + b"chunked") + b"0\r\n\r\n", 400),
    "both lengths, the other way round": (
        head(CODING + b"chunked", LENGTH + b"5") + b"0\r\n\r\n",
        400,
    ),
    "both lengths, asked for": (
        head(CODING + b"chunked", LENGTH + b"5", b"Expect: 100-continue"),
        400,
    ),
    "a length and no coding": (head(LENGTH + b"5", CODING) + b"hello", 400),
    "a length and an empty list of codings": (head(LENGTH + b"5", CODING + b",") + b"hello", 400),
    "no coding": (head(CODING), 400),
    "chunked twice": (head(CODING + b"chunked, chunked") + b"0\r\n\r\n", 400),
    "chunked twice, in two lines": (
        head(CODING + b"chunked", CODING + b"chunked") + b"0\r\n\r\n",
        400,
    ),
    "chunked, and then not": (head(CODING + b"chunked, identity") + b"0\r\n\r\n", 501),
    "chunked and identity, in two lines": (
        head(CODING + b"chunked", CODING + b"identity") + b"0\r\n\r\n",
        501,
    ),
    "identity": (head(CODING + b"identity", LENGTH + b"5") + b"hello", 501),
    "another coding": (head(CODING + b"xchunked") + b"0\r\n\r\n", 501),
    "gzip before chunked": (head(CODING + b"gzip, chunked") + b"0\r\n\r\n", 501),
    "chunked in quotes": (head(CODING + b'"chunked"') + b"0\r\n\r\n", 501),
    "chunked with a parameter": (head(CODING + b"chunked;q=1") + b"0\r\n\r\n", 501),
    "chunked behind a vertical tab": (head(CODING + b"\x0bchunked") + b"0\r\n\r\n", 400),
    "a blank behind the coding's name": (
        head(b"Transfer-Encoding : chunked", LENGTH + b"5") + b"0\r\n\r\n",
        400,
    ),
    "a coding in HTTP/1.0": (
        head(CODING + b"chunked", line=b"POST /v1/store/orders HTTP/1.0") + b"0\r\n\r\n",
        400,
    ),
    "both lengths in HTTP/1.0": (
        head(CODING + b"chunked", LENGTH + b"5", line=b"POST / HTTP/1.0") + b"0\r\n\r\n",
        400,
    ),
    # 7.1: chunks, their extensions, trailers
    "a chunk's size that is none": (chunked(b"x\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size with a sign": (chunked(b"+5\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size below zero": (chunked(b"-5\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size with 0x": (chunked(b"0x5\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size with an underscore": (chunked(b"1_0\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size behind a blank": (chunked(b" 5\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size before a blank": (chunked(b"5 \r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size in a bare LF": (chunked(b"5\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size before a bare LF": (chunked(b"5\n\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk without a size": (chunked(b"\r\n5\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk's size of many digits": (chunked(b"f" * 5_000 + b"\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk longer than its size": (chunked(b"4\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk shorter than its size": (chunked(b"6\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk that ends in a bare LF": (chunked(b"5\r\nhello\n0\r\n\r\n"), 400),
    "an extension without a name": (chunked(b"5;\r\nhello\r\n0\r\n\r\n"), 400),
    "an extension before a bare LF": (chunked(b"5;a\n\r\nhello\r\n0\r\n\r\n"), 400),
    "an extension with NUL": (chunked(b"5;a=\0\r\nhello\r\n0\r\n\r\n"), 400),
    "a quote in an extension that does not end": (chunked(b'5;a="b\r\nhello\r\n0\r\n\r\n'), 400),
    "an extension of 20,000 bytes": (
        chunked(b"5;a=" + b"b" * 20_000 + b"\r\nhello\r\n0\r\n\r\n"),
        400,
    ),
    "a chunk's size that does not end": (chunked(b"1;" + b"a" * 17_000), 400),
    "a trailer that does not end": (chunked(b"0\r\nX: " + b"a" * 17_000), 400),
    "an extension that does not end": (chunked(b"5;a=" + b"b" * 20_000), 400),
    "a trailer without a colon": (chunked(b"0\r\nX\r\n\r\n"), 400),
    "a trailer with NUL": (chunked(b"0\r\nX: \0\r\n\r\n"), 400),
    "a trailer with a bare LF": (chunked(b"0\r\nX: a\n\nGET / HTTP/1.1\r\n\r\n"), 400),
    "a folded trailer": (chunked(b"0\r\nX: a\r\n b\r\n\r\n"), 400),
    "chunks that don't end": (chunked(b"5\r\nhello\r\n"), 408),
}
TOO_MUCH = {
    "in one chunk": [b"180000\r\n" + b"a" * 0x180000 + b"\r\n0\r\n\r\n"],
    "in many chunks": [b"1000\r\n" + b"a" * 0x1000 + b"\r\n"] * 400,
    "in chunks of a byte": [b"1\r\na\r\n" * 200_000],
    "in trailers": [b"0\r\n", *[b"X: " + b"a" * 1_000 + b"\r\n"] * 1_100],
}

# What is legal, if rare, and with which statuses it is answered.
SERVED = {
    "an empty line in front": (b"\r\n" + head(line=b"GET /healthz HTTP/1.1"), [200]),
    "many empty lines in front": (b"\r\n" * 9 + head(line=b"GET /healthz HTTP/1.1"), [200]),
    "absolute form": (head(line=b"GET http://other:80/healthz HTTP/1.1"), [200]),
    "absolute form of the API": (head(line=b"GET http://other/v1/x HTTP/1.1"), [401]),
    "absolute form without a path": (head(line=b"GET http://other HTTP/1.1"), [200]),
    "absolute form with an address": (head(line=b"GET http://[::1]:80/healthz HTTP/1.1"), [200]),
    "authority form": (head(line=b"CONNECT a:80 HTTP/1.1"), [404]),
    "asterisk form": (head(line=b"OPTIONS * HTTP/1.1"), [404]),
    "a method of one's own": (head(line=b"BREW /healthz HTTP/1.1"), [405]),
    "a target without a slash": (head(line=b"GET healthz HTTP/1.1"), [404]),
    "two slashes": (head(line=b"GET //healthz HTTP/1.1"), [404]),
    "two slashes and a bracket": (head(line=b"GET //[ HTTP/1.1"), [404]),
    "a long target": (head(line=b"GET /" + b"a" * 8_000 + b" HTTP/1.1"), [404]),
    "a later version": (head(line=b"GET /healthz HTTP/1.2"), [200]),
    "an encoded NUL": (head(line=b"GET /%00 HTTP/1.1"), [404]),
    "half an escape": (head(line=b"GET /%4 HTTP/1.1"), [404]),
    "an empty Host": (head(line=b"GET /healthz HTTP/1.1", host=b"Host:"), [200]),
    "a Host with an address": (head(line=b"GET /healthz HTTP/1.1", host=b"Host: [::1]:80"), [200]),
    "a Host of odd characters": (
        head(line=b"GET /healthz HTTP/1.1", host=b"Host: a_b!$&'()*+,;=%C3~:"),
        [200],
    ),
    "no blank behind the colon": (head(b"X:a", line=b"GET /healthz HTTP/1.1"), [200]),
    "a header without a value": (head(b"X:", line=b"GET /healthz HTTP/1.1"), [200]),
    "a header in bytes over 127": (head(b"X: \xff", line=b"GET /healthz HTTP/1.1"), [200]),
    "a key in bytes over 127": (
        head(b"Authorization: Bearer \xff", line=b"GET /v1/x HTTP/1.1"),
        [401],
    ),
    "two keys": (head(*[b"Authorization: Bearer a"] * 2, line=b"GET /v1/x HTTP/1.1"), [401]),
    "a header with an underscore": (
        head(b"Content_Length: 5", line=b"GET /healthz HTTP/1.1"),
        [200],
    ),
    "a length of many zeros": (head(LENGTH + b"0" * 18 + b"5") + b"hello", [401]),
    "chunks": (chunked(b"5\r\nhello\r\n0\r\n\r\n"), [401]),
    "chunks in capitals": (head(b"TRANSFER-ENCODING: CHUNKED") + b"0\r\n\r\n", [401]),
    "chunks in a list": (head(CODING + b", chunked") + b"0\r\n\r\n", [401]),
    "chunks with extensions": (chunked(b'5;a;b=c; d = "e;\\"f"\r\nhello\r\n0;g\r\n\r\n'), [401]),
    "chunks with trailers": (chunked(b"5\r\nhello\r\n0\r\nX: a\r\nY:\r\n\r\n"), [401]),
    "a coding in a trailer": (chunked(b"0\r\nTransfer-Encoding: gzip\r\n\r\n"), [401]),
    "a body to GET": (head(LENGTH + b"5", line=b"GET /healthz HTTP/1.1") + b"hello", [200]),
    "a body that is asked for": (
        head(LENGTH + b"5", b"Expect: 100-continue") + b"hello",
        [100, 401],
    ),
    "chunks that are asked for": (
        head(CODING + b"chunked", b"Expect: 100-Continue") + b"0\r\n\r\n",
        [100, 401],
    ),
    "nothing that is asked for": (
        head(b"Expect: 100-continue", line=b"GET /healthz HTTP/1.1"),
        [200],
    ),
    "no bytes that are asked for": (
        head(b"Expect: 100-continue", LENGTH + b"0", line=b"GET /healthz HTTP/1.1"),
        [200],
    ),
    "another expectation": (
        head(b"Expect: the-best", LENGTH + b"5", line=b"GET /healthz HTTP/1.1") + b"hello",
        [200],
    ),
    "an upgrade": (
        head(b"Connection: Upgrade", b"Upgrade: h2c", line=b"GET /healthz HTTP/1.1"),
        [200],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_request_is_refused_and_what_follows_it_is_not_read(hasty, what):
    sent, status = REFUSED[what]
    assert_refused(talk(hasty, sent if status == 408 else sent + GOOD), status)


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_body_over_the_limit_is_refused_wherever_its_bytes_are(service, what):
    assert_refused(talk(service, chunked(b""), *TOO_MUCH[what], GOOD), 413)


@pytest.mark.parametrize("what", SERVED)
def test_what_is_legal_is_served_and_what_follows_it_too(hasty, what):
    sent, statuses = SERVED[what]
    answers = talk(hasty, sent + GOOD)
    assert [each.status for each in answers] == [*statuses, 200]
    for answer in answers:
        assert_fit(answer)


def test_a_request_in_single_bytes_is_served(service):
    sent = chunked(b"5;a\r\nhello\r\n0\r\nX: a\r\n\r\n") + GOOD
    pieces = [sent[n : n + 1] for n in range(len(sent))]
    assert [each.status for each in talk(service, *pieces)] == [401, 200]


def test_a_refusal_of_head_has_no_body(service):
    line = b"HEAD /healthz HTTP/1.1"
    with socket.create_connection(service.address, 60) as connection:
        connection.sendall(head(b"X", line=line))
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    (answer,) = answers_in(received, to_head=True)
    assert answer.status == 400


# Corrupted requests: some of their bytes are replaced by any.

SOUND = [
    head(line=b"GET /healthz HTTP/1.1"),
    head(b"Authorization: Bearer x", line=b"GET http://a:80/v1/store/orders?x=[1] HTTP/1.1"),
    head(LENGTH + b"5", host=b"Host: [::1]:80") + b"hello",
    head(CODING + b"chunked", b"Expect: 100-continue") + b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    head(LENGTH + b"0", b"Connection: keep-alive", line=b"PUT /readyz HTTP/1.0", host=None),
]
CHARACTERS = b"\0\t\n\v\f\r !%,/:;@[\\]_\x7f\x80\xff059aA"
TOKENS = [
    *(bytes([each]) for each in CHARACTERS),
    *(b"\r\n", b"\r\n\r\n", b"\r\n ", b"://[", b"HTTP/1.0", b"HTTP/9.9", b"chunked"),
    *(LENGTH + b"5\r\n", CODING + b"chunked\r\n", CODING + b"identity\r\n", b"Host: b\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"9" * 5_000, b"a" * 17_000),
]


@st.composite
def corrupted(draw):
    """Draw a request with some of its bytes replaced."""
    request = draw(st.sampled_from(SOUND))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(request)))
        taken = draw(st.integers(0, 9))
        token = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=4)))
        request = request[:at] + token + request[at + taken :]
    return request


@pytest.mark.slow
@settings(max_examples=300, derandomize=True)
@given(corrupted())
def test_any_bytes_are_answered_in_http(service, sent):
    with socket.create_connection(service.address, 60) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    for answer in answers_in(received):
        assert_fit(answer)
