"""One message to one endpoint: where it may go, how long it may take, what is read back."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orders.webhooks import addresses
from orders.webhooks.addresses import InvalidURL, PrivateAddress
from orders.webhooks.sender import MAX_ANSWER, Sender
from tests.support.receiver import answer_with, hang, receiving

HEADERS = {"webhook-id": "evt_1"}
# Long enough for a slow machine, short enough to wait for.
SECONDS = 0.5
ANY_TIME = 60


def post(url, sender=None, *, seconds=ANY_TIME, resolve=addresses.resolve, allow_private=True):
    sender = sender or Sender(seconds=seconds, resolve=resolve)
    return sender.post(url, HEADERS, b"{}", allow_private=allow_private)


@contextmanager
def speaking(say):
    """Return the URL of a server that sends bytes, or what a function sends, as its answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                request = connection.makefile("rb")
                while request.readline().strip():
                    pass
                request.read(len(b"{}"))
                with suppress(OSError):  # it may hang up
                    say(connection) if callable(say) else connection.sendall(say)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        thread.join()


# Which URLs and addresses are a webhook's.


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "ftp://example.com/", "http://example.com/", "https:///hook"),
        *("https://", "https://exa mple.com/", "https://example.com/\n", "https://[::1/"),
        "https://user:secret@example.com/",  # pragma: allowlist secret
        "https://user@example.com/",
        *("https://example.com:99999/", "https://example.com:0/", "https://example.com:port/"),
        *("https://müller.example/", "https://example.com/#part"),
        "https://example.com/" + "a" * 2048,
    ],
)
def test_only_https_urls_are_valid(url):
    with pytest.raises(InvalidURL):
        addresses.parse_url(url)


def test_a_url_is_split_into_its_parts():
    target = addresses.parse_url("https://Example.com/a/b?c=d&e=%2F")
    assert (target.host, target.port, target.path) == ("example.com", 443, "/a/b?c=d&e=%2F")
    assert target.authority == "example.com"
    target = addresses.parse_url("http://[::1]:8080", allow_private=True)
    assert (target.host, target.port, target.path) == ("::1", 8080, "/")
    assert target.authority == "[::1]:8080"


PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "203.0.113.9"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.0.8", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "fec0::1"),
    *("2001:db8::1", "100::1", "5f00::1", "3fff::1", "::127.0.0.1", "::8.8.8.8"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "0:0:0:0:0:ffff:a00:1"),
    *("2002:7f00:1::", "2002:a00:1::1", "2002:c0a8:101::1"),
    *("64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "not an address", ""),
    *("168.63.129.16", "::ffff:168.63.129.16", "2002:a83f:8110::1", "64:ff9b::168.63.129.16"),
    *("2a00:1450::5efe:192.168.1.1", "2a00:1450::200:5efe:10.0.0.1", "2a00::100:5efe:a83f:8110"),
    *("2002:808:808::5efe:127.0.0.1", "2a00:1450::300:5efe:169.254.169.254"),
]
PUBLIC = [
    *("8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.128.0.1"),
    *("2606:4700:4700::1111", "2a00:1450:4001:81b::200e"),
    *("::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::808:808", "2a00:1450::200:5efe:8.8.8.8"),
]


@pytest.mark.parametrize("address", [*PRIVATE, *PUBLIC])
def test_an_address_is_public_if_everybody_can_reach_it(address):
    assert addresses.is_public(address) == (address in PUBLIC)


@given(st.ip_addresses(v=4))
def test_an_embedded_ipv4_address_counts_as_itself(inside):
    wrapped = [f"::ffff:{inside}", f"64:ff9b::{inside}"]
    wrapped.append(f"2002:{int(inside) >> 16:x}:{int(inside) & 0xFFFF:x}::1")
    wrapped += [f"2a00:1450::{marker}5efe:{inside}" for marker in ("", "200:")]
    public = addresses.is_public(str(inside))
    assert [addresses.is_public(each) for each in wrapped] == [public] * 5


@given(st.lists(st.sampled_from(PUBLIC), min_size=1), st.sampled_from(PRIVATE), st.randoms())
def test_one_private_address_among_others_is_enough(public, private, chance):
    addresses.check_all("example.com", public)
    mixed = [*public, private]
    chance.shuffle(mixed)
    with pytest.raises(PrivateAddress):
        addresses.check_all("example.com", mixed)


# The guard at delivery.


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        ("https://127.0.0.1", "is not a public address"),
        ("https://[::ffff:127.0.0.1]", "is not a public address"),
        ("https://localhost", "is not a public address"),
        ("https://2130706433", "is not a public address"),
        ("https://0x7f.1", "is not a public address"),
        ("https://127.1", "is not a public address"),
        ("http://127.0.0.1", "https://"),
    ],
)
def test_nothing_is_sent_to_a_private_address(receiver, host, fault):
    answer = post(f"{host}:{receiver.server_port}/", allow_private=False)
    assert (answer.status, receiver.received) == (None, [])
    assert fault in answer.fault


def test_a_name_whose_address_changes_after_the_check_is_not_asked_again(receiver):
    resolved = []

    def rebinding(host, port):
        # A public address the first time, and one of ours from then on.
        resolved.append(host)
        return ["192.0.0.10"] if len(resolved) == 1 else ["127.0.0.1"]

    url = f"https://shop.example:{receiver.server_port}/"
    for attempts in (1, 2):
        answer = post(url, seconds=0.2, resolve=rebinding, allow_private=False)
        assert (answer.status, receiver.received) == (None, [])
        # Each attempt resolves the name once, and checks those addresses.
        assert resolved == ["shop.example"] * attempts
    assert answer.fault == "shop.example is at 127.0.0.1, which is not a public address"


def test_the_connection_goes_to_the_first_address_resolved_that_answers(receiver):
    resolved = []

    def resolve(host, port):
        resolved.append((host, port))
        return ["127.0.0.2", "127.0.0.1"]

    answer = post(f"http://shop.example:{receiver.server_port}/a?b", resolve=resolve)
    assert answer.status == 204
    assert resolved == [("shop.example", receiver.server_port)]
    (received,) = receiver.received
    assert received.headers["host"] == f"shop.example:{receiver.server_port}"
    assert received.path == "/a?b"
    assert post(receiver.url, resolve=resolve).status == 204
    assert len(resolved) == 1


@pytest.mark.parametrize("error", [OSError("nobody knows"), UnicodeError("no label")])
def test_an_unknown_name_is_a_fault(error):
    def unknown(host, port):
        raise error

    answer = post("https://shop.example/", resolve=unknown)
    assert answer.fault == f"shop.example can't be resolved: {error}"
    assert post("https://shop.example/", resolve=lambda *_: []).fault == "it has no address"


def test_proxies_of_the_environment_are_not_used(receiver, monkeypatch):
    with receiving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        assert post(receiver.url).status == 204
        assert (len(receiver.received), len(proxy.received)) == (1, 0)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(receiver, status):
    with receiving() as elsewhere:
        receiver.answering = answer_with(status, Location=elsewhere.url)
        assert post(receiver.url).status == status
        assert (len(receiver.received), elsewhere.received) == (1, [])


# TLS.


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """The contexts of a server with a self-signed certificate for shop.example, and its clients."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2"),
            *("-subj", "/CN=shop.example", "-addext", "subjectAltName=DNS:shop.example"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cafile=folder / "cert.pem")


@pytest.mark.parametrize(
    ("host", "trusts", "fault"),
    [
        ("shop.example", True, None),
        ("other.example", True, "Hostname mismatch"),
        ("shop.example", False, "self"),
    ],
)
def test_a_message_is_sent_only_under_a_trusted_certificate_for_its_name(
    certificates, host, trusts, fault
):
    server, trusted = certificates
    names = []
    server.sni_callback = lambda _, name, __: names.append(name)
    trusted = trusted if trusts else None
    sender = Sender(seconds=ANY_TIME, resolve=lambda *_: ["127.0.0.1"], trusted=trusted)
    with receiving(server) as receiver:
        answer = post(f"https://{host}:{receiver.server_port}/hook", sender)
    assert names == [host]
    if fault is None:
        assert (answer.status, answer.fault) == (204, None)
        assert [each.body for each in receiver.received] == [b"{}"]
    else:
        assert (answer.status, receiver.received) == (None, [])
        assert answer.fault.startswith(f"its certificate is not trusted: {fault}")


# Time and size.


def test_a_resolver_a_handshake_and_an_answer_that_never_come_are_not_waited_for(receiver):
    over = threading.Event()
    receiver.answering = hang(over)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answers = [
            post("https://shop.example/", seconds=0.2, resolve=lambda *_: over.wait() and []),
            post(f"https://127.0.0.1:{silent.getsockname()[1]}/", seconds=0.2),
            post(receiver.url, seconds=0.2),
        ]
    over.set()
    assert [(answer.status, answer.fault) for answer in answers] == [
        (None, "no answer within 0.2 s")
    ] * 3


def dripping(data):
    """Return a function that sends a byte at a time, for longer than the time limit."""

    def say(connection):
        connection.sendall(data)
        while True:
            connection.sendall(b"a")
            time.sleep(0.01)

    return say


def test_a_head_that_drips_is_cut_off():
    with speaking(dripping(b"HTTP/1.1 200 OK\r\nX-Header: ")) as url:
        answer = post(url, seconds=SECONDS)
    assert (answer.status, answer.fault) == (None, "no answer within 0.5 s")


@pytest.mark.parametrize("length", [b"Content-Length: 1000000", b"Connection: close"])
def test_a_body_that_drips_is_cut_off_and_the_status_counts(length):
    with speaking(dripping(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\nThank you: ")) as url:
        answer = post(url, seconds=SECONDS)
    assert (answer.status, answer.fault) == (200, None)
    assert answer.text.startswith("Thank you: ")
    assert answer.seconds >= SECONDS


@pytest.mark.parametrize("head", [b"", b"Content-Length: 99999999\r\n"])
def test_at_most_one_mebibyte_of_an_answer_is_read(head):
    sent = 0

    def flood(connection):
        nonlocal sent
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        for _ in range(64):
            connection.sendall(b"a" * MAX_ANSWER)
            sent += MAX_ANSWER

    with speaking(flood) as url:
        answer = post(url)
    assert (answer.status, answer.text) == (200, "a" * 200)
    # What the sockets' buffers hold comes on top of what was read.
    assert sent <= 16 * MAX_ANSWER


def endless(beginning, line):
    """Return a function that sends a line again and again."""

    def say(connection):
        connection.sendall(beginning)
        while True:
            connection.sendall(line)

    return say


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "its answer is not HTTP: BadStatusLine"),
        (b"\x15\x03\x01", "its answer is not HTTP: BadStatusLine"),
        (b"HTTP/1.1 abc\r\n\r\n", "its answer is not HTTP: BadStatusLine"),
        (b"", "Remote end closed connection without response"),
        *(
            (endless(beginning, line), "its answer has more than 1048576 bytes")
            for beginning, line in (
                (b"HTTP/1.1 200 OK\r\n", b"X-Header: " + b"a" * 60_000 + b"\r\n"),
                (b"", b"HTTP/1.1 102 Processing\r\nLink: " + b"x" * 50_000 + b"\r\n\r\n"),
            )
        ),
    ],
)
def test_an_answer_that_is_no_http_or_has_no_end_is_a_fault(said, fault):
    with speaking(said) as url:
        answer = post(url)
    assert (answer.status, answer.fault) == (None, fault)


@pytest.mark.parametrize(
    ("interim", "status"),
    [
        (b"100 Continue\r\n\r\n", 200),
        (b"102 Processing\r\n\r\n", 200),
        (
            b"103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
            200,
        ),
        (b"199 Who knows\r\nConnection: close\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", 200),
        (b"101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", 101),
    ],
)
def test_interim_answers_are_passed_over_but_not_101(interim, status):
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nThanks"
    with speaking(b"HTTP/1.1 " + interim + final) as url:
        answer = post(url)
    assert (answer.status, answer.text) == (status, "Thanks" if status == 200 else "")


@pytest.mark.parametrize(
    "said",
    [
        b"Content-Length: -5\r\n\r\nno",
        b"Content-Length: many\r\n\r\nno",
        b"Content-Length: 99999999999999999999999\r\n\r\nno",
        b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nno",
        b"Transfer-Encoding: chunked\r\n\r\n-5\r\nno",
        b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\nno",
        b"Content-Encoding: gzip\r\n\r\n\x1f\x8bno",
        b"\xff\xfe: \x00\r\n\r\nno",
        b"no",
    ],
)
def test_the_status_counts_whatever_follows_it(said):
    with speaking(b"HTTP/1.1 200 OK\r\n" + said) as url:
        answer = post(url)
    assert (answer.status, answer.fault) == (200, None)


@pytest.mark.parametrize("host", ["a..b", ".example", "x" * 64 + ".example", "-", "a_b.example"])
def test_an_invalid_name_and_a_port_on_which_nobody_listens_are_faults(host):
    assert post(f"https://{host}/").status is None
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        answer = post(f"http://127.0.0.1:{nobody.getsockname()[1]}/")
    assert (answer.status, answer.fault) == (None, "Connection refused")


def test_an_attempt_under_way_can_be_cancelled(receiver):
    over = threading.Event()
    receiver.answering = hang(over)
    sender = Sender(seconds=ANY_TIME)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, receiver.url, sender)
        receiver.arrivals.get(timeout=ANY_TIME)
        sender.cancel()
        assert waiting.result(ANY_TIME).status is None
    over.set()
    assert post(receiver.url, sender).status is None
    assert len(receiver.received) == 1
