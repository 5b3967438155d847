"""The loop: who answers, who leads, what a stop owes; over real sockets, under forced changes."""

from __future__ import annotations

import errno
import gc
import logging
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import ExitStack
from selectors import EVENT_WRITE
from urllib.parse import urlsplit

import pytest

from orders.server import WHOLE_AT, Work, connections, loop
from orders.server.answers import Exchange, LongAnswers
from orders.server.loop import Repeats, Workers
from orders.server.parser import Parser
from orders.server.server import ServerFailed
from tests.support.machine import wait_until
from tests.support.serving import Policy, server_of, serving
from tests.support.wire import exchange

CHUNKED = b"POST /instant HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def get(path, *headers):
    """Return a request for a path, as it goes over the network."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *headers, "", ""]).encode()


class ByPath(Policy):
    """Work by the path: /short and below, /waiting, /long; others are instant."""

    def __init__(self, resting="/rest"):
        self.resting = resting

    def work(self, method, path, headers):
        return next((each for each in Work if path.startswith(f"/{each.value}")), Work.INSTANT)


class Blocking:
    """An application that echoes the path; those with `blocked` in them wait until `go_on`."""

    def __init__(self):
        self.began = threading.Semaphore(0)
        self.go_on = threading.Event()

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        if "blocked" in path:
            self.began.release()
            assert self.go_on.wait(30)
        body = (environ["wsgi.input"].read() or path.encode()).rjust(20)
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


@pytest.fixture
def application():
    """An application, whose blocked answers end with the test."""
    blocking = Blocking()
    yield blocking
    blocking.go_on.set()


@pytest.fixture
def loops(monkeypatch):
    """The loops that are made."""
    made = []
    own = loop.Loop.__init__

    def init(self, *arguments):
        own(self, *arguments)
        made.append(self)

    monkeypatch.setattr(loop.Loop, "__init__", init)
    return made


def connect(address):
    """Return a connection that waits long enough."""
    return socket.create_connection(address, 30)


def received(client, count):
    """Return what a client receives, once it has so many answers of `Blocking`."""
    data = b""
    while data.count(b"\r\n\r\n") < count or len(data.rpartition(b"\r\n\r\n")[2]) < 20:
        piece = client.recv(65_536)
        if not piece:
            break
        data += piece
    return data


# The lead.


def hang_up(client, server):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_close(client, server):
    client.shutdown(socket.SHUT_WR)


def ask_again(client, server):
    client.sendall(get("/short/next"))


def expect_continue(client, server):
    head = b"POST /waiting HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    client.sendall(head)


def stop(client, server):
    server.stop()


def do_nothing(client, server):
    pass


MEANWHILE = {
    "nothing": (do_nothing, [b"/short/blocked"]),
    "hang_up": (hang_up, []),
    "half_close": (half_close, [b"/short/blocked"]),
    "ask_again": (ask_again, [b"/short/blocked", b"/short/next"]),
    "expect_continue": (expect_continue, [b"/short/blocked", b"HTTP/1.1 100 Continue"]),
    "stop": (stop, [b"/short/blocked"]),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_when_a_short_answer_stalls_another_thread_leads_and_the_answer_arrives(
    application, loops, meanwhile
):
    act, arrives = MEANWHILE[meanwhile]
    with serving(application, ByPath(), threads=1) as address:
        (server,) = loops
        wait_until(lambda: server.lead.has_standby)
        with connect(address) as client:
            client.sendall(get("/short/blocked"))
            assert application.began.acquire(timeout=30)
            wait_until(lambda: server.lead.takeovers == 1)
            act(client, server)
            if meanwhile != "stop":
                # Nobody could take over again: what may block is a worker's.
                assert exchange(address, PROBE).endswith(b"/healthz")
                assert exchange(address, get("/short/b", "Connection: close")).endswith(b"short/b")
            application.go_on.set()
            if arrives:
                data = b""
                while not all(each in data for each in arrives):
                    data += client.recv(65_536)
                assert list(map(data.find, arrives)) == sorted(map(data.find, arrives))
        wait_until(lambda: meanwhile == "stop" or server.lead.has_standby)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_probes_are_answered_while_all_threads_are_blocked_and_then_the_others(
    application, threads
):
    with serving(application, ByPath(), threads=threads) as address, ExitStack() as stack:
        clients = [stack.enter_context(connect(address)) for _ in range(threads + 4)]
        for number, client in enumerate(clients):
            client.sendall(get(f"/{'short' if number < 2 else 'waiting'}/blocked/{number}"))
        for _ in range(threads):
            assert application.began.acquire(timeout=30)
        for _ in range(5):
            assert exchange(address, PROBE).endswith(b"/healthz")
        application.go_on.set()
        for number, client in enumerate(clients):
            assert received(client, 1).endswith(f"blocked/{number}".encode())


@pytest.fixture
def strangers(loops, monkeypatch):
    """What was done to connections, and to what is polled, by a thread that did not lead."""
    found = set()

    def checked(place, name):
        own = getattr(place, name)

        def act(self, *arguments, **options):
            if not loops[0].lead.is_mine():
                found.add(name)
            return own(self, *arguments, **options)

        monkeypatch.setattr(place, name, act)

    for name in ("read", "send", "close", "check_deadlines"):
        checked(connections.Connection, name)
    for name in ("watch", "_turn", "_maintain"):
        checked(loop.Loop, name)
    return found


def ask_many(address, name, wrong):
    """Send requests, three at a time; note bodies that are not those of the requests."""
    with connect(address) as client:
        for number in range(25):
            kind = ("short", "waiting", "instant")[number % 3]
            paths = [f"/{kind}/{name}/{number}/{each}" for each in range(3)]
            client.sendall(b"".join(map(get, paths)))
            answers = received(client, 3).split(b"HTTP/1.1 200 OK\r\n")[1:]
            if [each[-20:].strip().decode() for each in answers] != paths:
                wrong.append((paths, answers))


def handing_over(application, loops):
    """Return an application that has another thread take the lead in one of three short answers."""

    def answer(environ, start_response):
        lead, path = loops[0].lead, environ["PATH_INFO"]
        if path.startswith("/short") and path.endswith("/0") and lead.has_standby:
            wait_until(lambda: not lead.is_mine())
        return application(environ, start_response)

    return answer


def test_every_body_is_that_of_its_request_and_only_who_leads_touches_connections(
    application, loops, strangers, monkeypatch
):
    monkeypatch.setattr(loop, "PATIENCE_SECONDS", 0)
    wrong = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with serving(handing_over(application, loops), ByPath(), threads=2) as address:
            wait_until(lambda: loops[0].lead.has_standby)
            threads = [
                threading.Thread(target=ask_many, args=(address, name, wrong)) for name in range(12)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert (wrong, strangers) == ([], set())
    assert loops[0].lead.takeovers > 0


# What fails, and what the log says.
FAILURES = {
    "read": (connections.Connection, "The connection of 127.0.0.1 is closed, as it failed."),
    "work": (ByPath, "Exception while serving /"),
    "refusal": (ByPath, "A refusal failed, too."),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_ends_no_more_than_a_connection_and_is_logged(
    application, monkeypatch, caplog, name
):
    place, logged = FAILURES[name]

    def broken(self, *arguments):
        raise ZeroDivisionError

    with serving(application, ByPath()) as address:
        with monkeypatch.context() as patched, connect(address) as client:
            patched.setattr(place, name, broken)
            client.sendall(get("/", "Connection: close") if name == "work" else b"NONSENSE\r\n\r\n")
            while receive(client):
                pass
        assert exchange(address, PROBE).endswith(b"/healthz")
    assert caplog.records[-1].message == logged


# What fails once: where, and the path of the request meanwhile.
FAILING_ONCE = {
    "poll": (loop.DefaultSelector, "select", "/instant"),
    "register": (loop.DefaultSelector, "register", "/instant"),
    "accept": (connections.Connection, "__init__", "/instant"),
    "event": (connections.Connection, "on_event", "/instant"),
    "deadline": (connections.Connection, "check_deadlines", "/instant/blocked"),
    "request": (ByPath, "work", "/instant"),
    "answer": (Exchange, "begin", "/instant"),
    "hand-over": (Workers, "submit", "/waiting"),
    "worker": (Exchange, "answer", "/waiting"),
    "long": (LongAnswers, "begin", "/long"),
    "maker": (Exchange, "answer", "/long"),
    "send": (connections.Connection, "send", "/waiting"),
    "maintenance": (ByPath, "on_turn", "/instant/blocked"),
}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        *((name, MemoryError) for name in FAILING_ONCE),
        *((name, SystemExit) for name in ("request", "answer", "worker", "maker")),
    ],
)
def test_what_fails_once_ends_a_connection_at_most_and_is_logged_once(
    application, monkeypatch, caplog, name, error
):
    place, method, path = FAILING_ONCE[name]
    own, left = getattr(place, method), [error]

    def fail_once(self, *arguments, **options):
        if left:
            raise left.pop()
        return own(self, *arguments, **options)

    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.1)
    with serving(application, ByPath(), threads=1) as address:
        monkeypatch.setattr(place, method, fail_once)
        with connect(address) as client:
            client.sendall(get(path))
            wait_until(lambda: not left)
            application.go_on.set()
            for kind in ("waiting", "waiting", "long", "short"):
                assert exchange(address, get(f"/{kind}/b", "Connection: close")).endswith(b"/b")
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1


def test_an_application_that_would_end_its_thread_is_500_and_the_next_is_answered(monkeypatch):
    def leave(environ, start_response):
        raise SystemExit

    with serving(leave, ByPath(), threads=1) as address:
        for path in ("/instant", "/waiting", "/waiting", "/long"):
            assert exchange(address, get(path)).startswith(b"HTTP/1.1 500 ")


def test_while_no_connection_can_be_accepted_the_loop_rests_and_says_so_once(
    application, loops, monkeypatch, caplog
):
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.05)
    calls = {"accept": 0, "select": 0}
    own_accept, own_select = socket.socket.accept, loop.DefaultSelector.select
    is_full = [True]

    def accept(self):
        calls["accept"] += 1
        if is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return own_accept(self)

    def select(self, timeout=None):
        calls["select"] += 1
        return own_select(self, timeout)

    monkeypatch.setattr(socket.socket, "accept", accept)
    monkeypatch.setattr(loop.DefaultSelector, "select", select)
    with serving(application, ByPath()) as address, connect(address) as client:
        client.sendall(PROBE)
        wait_until(lambda: calls["accept"] == 5)
        assert calls["select"] < 25
        is_full.clear()
        assert received(client, 1).endswith(b"/healthz")
    (line,) = caplog.records
    assert line.getMessage() == "A connection can't be accepted: Too many open files."


def test_a_repeated_line_comes_once_a_minute_with_its_count(caplog):
    repeats = Repeats(logging.getLogger("tests"))
    for now in range(1_000):
        repeats.log(now / 10, "%s fails.", "a")
        repeats.count_up(now / 10)
    repeats.count_up(200)
    repeats.count_up(260)
    repeats.log(260, "%s fails.", "b")
    repeats.log(261, "Another thing.")
    assert [each.getMessage() for each in caplog.records] == [
        "a fails.",
        "600 more within a minute of: … fails.",
        "399 more within a minute of: … fails.",
        "b fails.",
        "Another thing.",
    ]


def test_a_loop_that_fails_ends_the_server_with_an_error(application, monkeypatch):
    def broken(self):
        raise ZeroDivisionError

    monkeypatch.setattr(loop.Loop, "_turn", broken)
    with pytest.raises(ServerFailed):
        server_of(application, ByPath()).run()


# Waiting.


def test_a_request_that_nobody_begins_in_time_is_503_and_never_begun(application, monkeypatch):
    monkeypatch.setattr(loop, "QUEUE_SECONDS", 0.1)
    monkeypatch.setattr(loop, "MAINTENANCE_SECONDS", 0.1)
    with serving(application, ByPath(), threads=1) as address, connect(address) as first:
        first.sendall(get("/waiting/blocked"))
        assert application.began.acquire(timeout=30)
        refusal = exchange(address, get("/waiting/blocked/late"))
        assert refusal.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"store_unavailable"' in refusal
        assert b"\r\nRetry-After: 5\r\n" in refusal
        application.go_on.set()
        assert received(first, 1).endswith(b"/waiting/blocked")
        assert exchange(address, PROBE)
        assert not application.began.acquire(blocking=False)


@pytest.mark.slow
def test_what_arrived_in_time_is_read_before_a_deadline_is_kept(start):
    # The service stands still meanwhile: it is its own fault that it reads too late.
    service = start(ORDERS_HEAD_SECONDS="1")
    with connect(service.address) as half, connect(service.address) as late:
        for client in (half, late):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        assert service.request("GET", "/healthz").status == 200
        service.process.send_signal(signal.SIGSTOP)
        half.sendall(b"\r\n")
        time.sleep(1.2)
        service.process.send_signal(signal.SIGCONT)
        assert half.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert late.recv(65_536).startswith(b"HTTP/1.1 408 ")


def test_what_has_been_ready_for_too_long_is_503_in_the_loop_too(application, monkeypatch):
    monkeypatch.setattr(loop, "QUEUE_SECONDS", -1)
    with serving(application, ByPath()) as address:
        assert exchange(address, get("/instant")).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("kind", ["instant", "waiting"])
def test_who_comes_in_between_is_answered_before_a_crowd_of_followers(kind):
    path, crowd = f"/{kind}/rest", 60
    begun, go_on = [], threading.Event()

    def slowly(environ, start_response):
        begun.append(environ["PATH_INFO"])
        if begun[-1] == path:
            go_on.wait(0.01)  # or at once, where nobody is to be before them any more
        start_response("200 OK", [("Content-Length", "0")])
        return []

    with serving(slowly, ByPath(path), threads=1) as address, ExitStack() as stack:
        followers = [stack.enter_context(connect(address)) for _ in range(crowd)]
        for each in followers:
            each.sendall(get(path, "Connection: close"))
        wait_until(lambda: begun)
        assert exchange(address, get(f"/{kind}/other", "Connection: close"))
        place = begun.index(f"/{kind}/other")
        go_on.set()
        # Nobody is forgotten.
        assert all(each.recv(65_536).startswith(b"HTTP/1.1 200 ") for each in followers)
    assert place < crowd / 2


def test_a_stop_refuses_who_would_rest_and_has_answered_all():
    crowd, begun = 60, []

    def slowly(environ, start_response):
        begun.append(time.sleep(0.01))
        start_response("200 OK", [("Content-Length", "0")])
        return []

    with ExitStack() as stack:
        server = serving(slowly, ByPath("/instant/rest"))
        address = server.__enter__()
        followers = [stack.enter_context(connect(address)) for _ in range(crowd)]
        for each in followers:
            each.sendall(get("/instant/rest", "Connection: close"))
        wait_until(lambda: begun)
        server.__exit__(None, None, None)
        statuses = [each.recv(65_536)[9:12] for each in followers]
    assert {*statuses} == {b"200", b"503"}
    assert len(begun) < crowd / 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when bytes arrived")
def test_a_request_has_waited_since_its_last_byte_though_the_loop_could_not_read_it(application):
    waited = []

    def measured(environ, start_response):
        waited.append(time.monotonic() - environ[WHOLE_AT])
        return application(environ, start_response)

    with serving(measured, ByPath()) as address, ExitStack() as stack:
        clients = [stack.enter_context(connect(address)) for _ in range(3)]
        for each in clients[:2]:  # there are two who could lead
            each.sendall(get("/instant/blocked"))
            assert application.began.acquire(timeout=30)
        clients[2].sendall(get("/instant"))
        time.sleep(0.1)
        application.go_on.set()
        assert received(clients[2], 1)
    assert waited[0] < 0.1 <= waited[2] < 5


def test_slow_chunks_take_nothing_from_the_time_of_answers(application, monkeypatch):
    answers, with_chunks = [0], set()
    own_read = connections.Connection.read

    class Selector(loop.DefaultSelector):
        def select(self, timeout=None):
            answers.append(0)
            return super().select(timeout)

    def read(self):
        if self.is_in_chunks:
            with_chunks.add(len(answers) - 1)
            time.sleep(loop.TURN_SECONDS * 1.2)
        own_read(self)

    def counted(environ, start_response):
        answers[-1] += 1
        return application(environ, start_response)

    monkeypatch.setattr(loop, "DefaultSelector", Selector)
    monkeypatch.setattr(connections.Connection, "read", read)
    with serving(counted, ByPath()) as address, ExitStack() as stack:
        slow, *clients = [stack.enter_context(connect(address)) for _ in range(11)]
        slow.sendall(CHUNKED + b"1\r\na\r\n" * 10_000)
        for each in clients:
            each.sendall(get("/instant"))
        for each in clients:
            assert received(each, 1)
    assert max(answers[turn] for turn in with_chunks) > 1


def test_chunked_bodies_are_read_by_turns_and_keep_no_head_waiting(application, loops, monkeypatch):
    monkeypatch.setattr(loop, "TURN_SECONDS", 0)
    turns = [0]
    own_read = connections.Connection.read

    class Selector(loop.DefaultSelector):
        def select(self, timeout=None):
            turns.append(0)
            return super().select(timeout)

    def read(self):
        turns[-1] += self.is_in_chunks
        own_read(self)

    monkeypatch.setattr(loop, "DefaultSelector", Selector)
    monkeypatch.setattr(connections.Connection, "read", read)
    with serving(application, ByPath()) as address, ExitStack() as stack:
        clients = [stack.enter_context(connect(address)) for _ in range(5)]
        for each in clients:
            each.sendall(CHUNKED + b"1\r\na\r\n" * 3_000)
        assert exchange(address, PROBE).endswith(b"/healthz")
        for each in clients:
            each.sendall(b"0\r\n\r\n")
            assert received(each, 1).endswith(b"a" * 3_000)
    assert max(turns) == 1


# A stop.


def test_a_stop_answers_what_it_finds_whole_and_owes_an_endless_pipeliner_no_more(
    application, loops
):
    with serving(application, ByPath(), threads=1) as address, connect(address) as client:
        (server,) = loops
        client.sendall(get("/waiting/blocked"))
        assert application.began.acquire(timeout=30)
        client.sendall(get("/instant/1") + get("/instant/2") + get("/half")[:-2])
        assert exchange(address, PROBE)
        server.stop()
        wait_until(lambda: server.is_stopping)
        wait_until(lambda: refuses(address))
        client.sendall(b"\r\n" + get("/instant/more") * 1_000)
        application.go_on.set()
        data = b"".join(iter(lambda: receive(client), b""))
    *kept, last = data.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [each[-20:].strip() for each in kept] == [b"/waiting/blocked", b"/instant/1"]
    assert last.endswith(b"/instant/2")
    assert b"\r\nConnection: close\r\n" in last
    assert b"Connection:" not in kept[1]


@pytest.mark.parametrize(
    "sent",
    [get("/instant/last"), CHUNKED + b"5\r\n/last\r\n0\r\n\r\n"],
    ids=["get", "chunked"],
)
def test_a_stop_answers_what_was_sent_before_its_connection_was_accepted(application, sent):
    server = server_of(application, ByPath())
    address = urlsplit(server.addresses[0])
    with connect((address.hostname, address.port)) as client:
        client.sendall(sent)
        server.stop()
        server.run()
        assert b"".join(iter(lambda: receive(client), b"")).endswith(b"/last")


def test_of_workers_that_rest_the_one_that_was_last_busy_answers():
    class Noted:
        def answer(self):
            self.thread = threading.get_ident()

    done = []
    workers = Workers(3, done.append)
    for number in range(20):
        wait_until(lambda: len(workers.resting) == 3)
        workers.submit(Noted())
        wait_until(lambda wanted=number + 1: len(done) == wanted)
    assert len({each.thread for each in done}) == 1


def test_what_was_pipelined_before_a_stop_is_parsed_as_it_is_answered(application, loops):
    def parsers():
        gc.collect()
        return sum(isinstance(each, Parser) for each in gc.get_objects())

    of_other_tests = parsers()
    with serving(application, ByPath(), threads=1) as address, connect(address) as client:
        (server,) = loops
        client.sendall(get("/waiting/blocked"))
        assert application.began.acquire(timeout=30)
        client.sendall(get("/instant") * 1_000)
        server.stop()
        wait_until(lambda: refuses(address))
        assert parsers() - of_other_tests < 50
        application.go_on.set()
        assert b"".join(iter(lambda: receive(client), b"")).count(b"200 OK") == 1_001


def test_before_a_stop_no_interim_response_comes_amid_the_answer_to_another(application, loops):
    def pieces(environ, start_response):
        start_response("200 OK", [])
        yield b"begun"
        application.began.release()
        assert application.go_on.wait(30)

    with serving(pieces, ByPath()) as address, connect(address) as client:
        (server,) = loops
        client.sendall(get("/long/blocked"))
        assert application.began.acquire(timeout=30)
        expect_continue(client, server)
        server.stop()
        wait_until(lambda: server.is_stopping)
        application.go_on.set()
        assert b"100 Continue" not in b"".join(iter(lambda: receive(client), b""))


def test_the_loop_rests_while_a_request_after_a_large_answer_waits(application, loops):
    large = bytes(2**23)

    def large_first(environ, start_response):
        if environ["PATH_INFO"] != "/instant/large":
            return application(environ, start_response)
        start_response("200 OK", [("Content-Length", str(len(large)))])
        return [large]

    with serving(large_first, ByPath()) as address, connect(address) as client:
        client.sendall(get("/instant/large") + get("/waiting/blocked"))
        left = len(large)
        while left > 0:
            left -= len(client.recv(2**20))
        assert application.began.acquire(timeout=30)
        (server,) = loops
        (watched,) = [each.watched for each in server.connections]
        application.go_on.set()
    assert not watched & EVENT_WRITE


def refuses(address):
    """Return whether nobody listens at an address any more."""
    try:
        connect(address).close()
    except OSError:
        return True
    return False


def receive(client):
    """Receive a piece; nothing where the connection was reset."""
    try:
        return client.recv(65_536)
    except ConnectionError:
        return b""
