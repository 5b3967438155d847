"""Nobody can hold the door: places, unread answers, long lists. Without waiting for minutes."""

from __future__ import annotations

import re
import socket
import struct
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from waitress.adjustments import Adjustments

from orders.server import answers, connections, loop
from orders.server import server as servers
from orders.server.parser import Parser
from orders.web.refusals import PayloadTooLarge
from tests.support.machine import wait_until
from tests.support.serving import Policy, serving
from tests.support.wire import exchange

GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
LONG = b"GET /long HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\n\r\n"
PIECE = bytes(2**20)


def echo(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def connect(address, source="127.0.0.1"):
    """Return a connection from an address of this machine."""
    return socket.create_connection(address, 30, source_address=(source, 0))


def is_open(client):
    """Return whether the server has not closed a connection on which it has nothing to send."""
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.fixture
def ten_places(monkeypatch):
    monkeypatch.setattr(servers, "MAX_CONNECTIONS", 10)


@pytest.mark.usefixtures("ten_places")
def test_for_a_new_connection_the_one_gives_way_that_rests_longest_of_who_has_the_most():
    with serving(echo) as address, ExitStack() as stack:
        few = [stack.enter_context(connect(address, "127.0.0.2")) for _ in range(3)]
        many = [stack.enter_context(connect(address, "127.0.0.3")) for _ in range(7)]
        for _ in range(20):
            assert exchange(address, GET).endswith(b"ok")
        wait_until(lambda: not is_open(many[0]))
        assert all(map(is_open, [*few, *many[5:]]))


@pytest.mark.usefixtures("ten_places")
def test_where_none_rests_the_oldest_incomplete_request_gives_way_and_never_one_being_answered():
    began, go_on = threading.Semaphore(0), threading.Event()

    def application(environ, start_response):
        if environ["PATH_INFO"] == "/blocked":
            began.release()
            assert go_on.wait(30)
        return echo(environ, start_response)

    with serving(application, threads=2) as address, ExitStack() as stack:
        clients = [stack.enter_context(connect(address)) for _ in range(10)]
        clients[0].sendall(GET.replace(b"/ ", b"/blocked "))
        assert began.acquire(timeout=30)
        for each in clients[1:]:
            each.sendall(b"GET /half HTTP/1.1\r\n")
        for _ in range(5):
            assert exchange(address, GET).endswith(b"ok")
        wait_until(lambda: not is_open(clients[1]))
        assert is_open(clients[9])
        go_on.set()
        clients[0].setblocking(True)
        assert b"".join(iter(lambda: clients[0].recv(65_536), b"")).endswith(b"ok")


# Unread answers.


def unacknowledged(client):
    """Return how many bytes the system keeps of what was sent to a client: tx_queue, in hex."""
    (port,) = (client.getsockname()[1],)
    table = Path("/proc/net/tcp").read_text()
    found = re.search(rf": \S+ [0-9A-F]+:{port:04X} 0[14589] ([0-9A-F]+):", table)
    return int(found[1], 16) if found else 0


def large(environ, start_response):
    """A megabyte, twenty times, of no length that is known before."""
    start_response("200 OK", [])
    return iter([PIECE] * 20)


def unread(address, request=GET):
    """Return a client with little room that has sent a request, and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.settimeout(60)
    client.connect(address)
    client.sendall(request)
    return client


def test_of_an_answer_that_nobody_reads_the_system_keeps_little():
    with serving(echo_large) as address, unread(address) as client:
        wait_until(lambda: unacknowledged(client) > 50_000)
        for _ in range(20):
            exchange(address, GET.replace(b"/ ", b"/small "))
        assert unacknowledged(client) <= 256 * 1024


def echo_large(environ, start_response):
    """Twenty megabytes, but for /small."""
    if environ["PATH_INFO"] == "/small":
        return echo(environ, start_response)
    start_response("200 OK", [("Content-Length", str(20 * len(PIECE)))])
    return [PIECE] * 20


def test_where_all_together_keep_too_much_the_readers_that_take_least_are_cut_off(monkeypatch):
    monkeypatch.setattr(loop, "MOST_BUFFERED_BYTES", 1024 * 1024)
    with serving(echo_large) as address, ExitStack() as stack:
        clients = [stack.enter_context(unread(address)) for _ in range(20)]
        wait_until(lambda: sum(map(unacknowledged, clients)) > 100_000)
        assert exchange(address, GET.replace(b"/ ", b"/small ")).endswith(b"ok")
        assert sum(map(unacknowledged, clients)) <= 1024 * 1024 + 256 * 1024


def test_unread_last_answers_count_too(monkeypatch):
    monkeypatch.setattr(loop, "MOST_BUFFERED_BYTES", 1024 * 1024)
    monkeypatch.setattr(loop, "LINGER_SECONDS", 0)
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.01)

    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "90000")])
        return [bytes(90_000)]

    with serving(application) as address, ExitStack() as stack:
        clients = []
        for _ in range(20):
            clients.append(stack.enter_context(unread(address)))
            wait_until(lambda: unacknowledged(clients[-1]) > 50_000)
        assert sum(map(unacknowledged, clients)) <= 1024 * 1024 + 256 * 1024


@pytest.mark.parametrize("path", [b"/", b"/long"])
def test_a_reader_that_acknowledges_nothing_for_long_is_cut_off_and_a_slow_one_is_not(
    path, monkeypatch
):
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.05)
    request = GET.replace(b"/ ", path + b" ")
    application = large if path == b"/long" else echo_large
    with (
        serving(application) as address,
        unread(address, request) as none,
        unread(address, request) as slow,
    ):
        wait_until(lambda: unacknowledged(none) > 50_000)
        # It takes a little, again and again, until the other has been cut off.
        wait_until(lambda: unacknowledged(none) == 0, lambda: slow.recv(16_384))
        assert unacknowledged(slow) > 0


def test_a_reader_that_waits_for_the_next_piece_of_a_long_answer_is_not_cut_off(monkeypatch):
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.01)
    turns, go_on = threading.Semaphore(0), threading.Event()

    class Counting(Policy):
        def on_turn(self):
            turns.release()

    def application(environ, start_response):
        start_response("200 OK", [])
        yield b"begun"
        assert go_on.wait(30)
        yield b"ended"

    with serving(application, Counting()) as address, connect(address) as client:
        client.sendall(GET.replace(b"/ ", b"/long "))
        received = b""
        while b"begun" not in received:
            received += client.recv(65_536)
        monkeypatch.setattr(connections, "IDLE_SECONDS", 0)
        try:
            for _ in range(10):
                assert turns.acquire(timeout=30)
        finally:
            go_on.set()
        assert b"".join(iter(lambda: client.recv(65_536), b"")).endswith(b"ended\r\n0\r\n\r\n")


@pytest.mark.parametrize("length", [b"Transfer-Encoding: chunked", b"Content-Length: 900000"])
def test_of_a_body_that_is_too_long_only_so_much_is_kept(length):
    parser = Parser(Adjustments(), lambda *_: PayloadTooLarge.limit)
    parser.received(b"POST /v1/store/orders HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n")
    for _ in range(90):
        parser.received((b"2710\r\n" if parser.chunked else b"") + b"a" * 10_000)
        parser.received(b"\r\n" if parser.chunked else b"")
    assert len(parser.body_rcv) == PayloadTooLarge.limit + 1


def test_requests_that_came_together_wait_until_answers_are_accepted():
    begun = []

    def application(environ, start_response):
        begun.append(environ["PATH_INFO"])
        start_response("200 OK", [("Content-Length", str(len(PIECE)))])
        return [PIECE]

    large = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 40
    with serving(application, threads=1) as address, unread(address, large + GET) as greedy:
        for _ in range(10):
            assert exchange(address, GET).endswith(PIECE)
        assert begun.count("/large") < 30  # the system's own buffers hold some
        received = b"".join(iter(lambda: greedy.recv(2**20), b""))
    assert received.count(b"HTTP/1.1 200 ") == received.count(PIECE) == 41


# Long answers.


class Made:
    """An application whose long answers go on when they may."""

    def __init__(self):
        self.go_on = threading.Event()

    def __call__(self, environ, start_response):
        if environ["orders.busy"]:
            start_response("503 Busy", [("Content-Length", "4")])
            return [b"busy"]
        start_response("200 OK", [])
        return self.pieces()

    def pieces(self):
        yield PIECE
        while not self.go_on.wait(0.01):
            yield b"more"


@pytest.fixture
def made():
    one = Made()
    yield one
    one.go_on.set()


def ask(stack, address, key):
    """Return a client that has asked for a long answer with a key."""
    client = stack.enter_context(connect(address))
    client.sendall(LONG % key)
    return client


def test_a_long_answer_that_has_a_place_begins_at_once(made, monkeypatch):
    monkeypatch.setattr(loop, "PLACES_SECONDS", 60)
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 60)
    with serving(made) as address, ExitStack() as stack:
        client = ask(stack, address, b"a")
        client.settimeout(10)
        assert client.recv(15) == b"HTTP/1.1 200 OK"


def test_two_long_answers_are_made_for_a_key_and_eight_in_all_and_a_further_one_is_refused(
    made, monkeypatch
):
    monkeypatch.setattr(answers, "TURN_SECONDS", 0.1)
    with serving(made, threads=1) as address, ExitStack() as stack:
        made_now = [ask(stack, address, key) for key in (b"a", b"a", b"b", b"b", b"c", b"c", b"d")]
        for each in made_now:
            assert each.recv(15) == b"HTTP/1.1 200 OK"  # from the first bytes on
        assert ask(stack, address, b"a").recv(65_536).endswith(b"busy")
        # The same key, written in another way.
        spelt = stack.enter_context(connect(address))
        spelt.sendall(LONG.replace(b"Bearer ", b"bearer  ") % b"a")
        assert spelt.recv(65_536).endswith(b"busy")
        made_now.append(ask(stack, address, b"d"))
        assert made_now[-1].recv(15) == b"HTTP/1.1 200 OK"
        assert ask(stack, address, b"e").recv(65_536).endswith(b"busy")
        made.go_on.set()
        for each in made_now:
            each.close()
        wait_until(lambda: ask(stack, address, b"e").recv(15) == b"HTTP/1.1 200 OK")


def test_where_the_files_have_no_room_a_reader_that_takes_nothing_gives_way(monkeypatch):
    monkeypatch.setattr(answers, "TURN_SECONDS", 0.1)
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.1)
    monkeypatch.setattr(answers, "MOST_BYTES_FOR_ONE", 45 * len(PIECE))

    def application(environ, start_response):
        is_long = environ["PATH_INFO"] == "/long" and not environ["orders.busy"]
        return (large if is_long else echo)(environ, start_response)

    with serving(application) as address, ExitStack() as stack:
        nobodys = []
        for _ in range(2):
            nobodys.append(stack.enter_context(unread(address, LONG % b"a")))
            wait_until(lambda: unacknowledged(nobodys[-1]) > 50_000)
        # Another key has a share of its own.
        assert len(exchange(address, LONG % b"b" + GET)) > 20 * len(PIECE)
        assert ask(stack, address, b"b").recv(15) == b"HTTP/1.1 200 OK"
        while all(map(unacknowledged, nobodys)):
            assert ask(stack, address, b"a").recv(15) == b"HTTP/1.1 200 OK"  # or is refused


def test_long_answers_that_are_requested_together_arrive_whole_one_after_the_other():
    def application(environ, start_response):
        start_response("200 OK", [])
        return iter([environ["QUERY_STRING"].encode()] * 50)

    with serving(application) as address:
        many = [LONG.replace(b"/long", b"/long?%d" % number) % b"a" for number in range(10, 40)]
        received = exchange(address, b"".join(many) + GET)
    answers = received.split(b"HTTP/1.1 200 OK\r\n")[1:-1]
    assert [answer.count(b"\r\n2\r\n%d" % number) for number, answer in enumerate(answers, 10)] == [
        50
    ] * 30


def test_a_long_answer_of_http_1_0_is_in_a_file_too():
    files = len(open_files())
    with serving(large) as address, unread(address, b"GET /long HTTP/1.0\r\n\r\n") as client:
        wait_until(lambda: unacknowledged(client) > 50_000)
        assert len(open_files()) == files + 1


def open_files():
    """Return the files without a name that this process has open."""
    return [each for each in Path("/proc/self/fd").iterdir() if is_nameless(each)]


def is_nameless(descriptor):
    try:
        return descriptor.readlink().match("*(deleted)")
    except FileNotFoundError:
        return False


def test_a_client_that_leaves_while_its_long_answer_is_made_disturbs_no_other(monkeypatch):
    monkeypatch.setattr(answers, "TURN_SECONDS", 0.1)
    monkeypatch.setattr(answers, "MOST_LONG_FOR_ONE", 1)
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.05)
    marked, blocked, go_on = threading.Event(), threading.Event(), threading.Event()
    own = connections.Connection.check_deadlines

    def check_deadlines(self):
        own(self)
        if self.is_sending:
            marked.set()

    monkeypatch.setattr(connections.Connection, "check_deadlines", check_deadlines)

    def pieces():
        yield from [PIECE] * 8
        blocked.set()
        assert go_on.wait(30)

    def application(environ, start_response):
        if environ["orders.busy"]:
            return echo(environ, start_response)
        start_response("200 OK", [])
        return pieces()

    with serving(application) as address, ExitStack() as stack:
        client = unread(address, LONG % b"a")
        wait_until(lambda: unacknowledged(client) > 50_000)
        assert marked.wait(30)
        assert blocked.wait(30)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        try:
            assert ask(stack, address, b"a").recv(65_536).endswith(b"ok")
        finally:
            go_on.set()


def test_an_answer_whose_file_finds_no_room_any_more_breaks_off_at_once(monkeypatch):
    own = tempfile.TemporaryFile

    class Filling:
        """A file on a disk that takes half of the first megabyte."""

        def __init__(self, **options):
            self.file = own(**options)
            self.fileno, self.close = self.file.fileno, self.file.close

        def write(self, data):
            if self.file.tell() >= len(PIECE) // 2:
                raise OSError(28, "No space left on device")
            return self.file.write(data[: len(PIECE) // 2])

    monkeypatch.setattr(tempfile, "TemporaryFile", Filling)
    with serving(large) as address, connect(address) as client:
        client.sendall(GET.replace(b"/ ", b"/long "))
        with pytest.raises(ConnectionResetError):
            b"".join(iter(lambda: client.recv(2**20), b""))


def test_where_there_is_no_room_for_a_file_a_long_list_is_503(monkeypatch):
    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(answers.Spool, "__init__", full)
    with serving(large) as address:
        received = exchange(address, GET.replace(b"/ ", b"/long "))
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 5\r\n" in received
    assert b"chunked" not in received
