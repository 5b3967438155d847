"""A receiver of webhooks: an HTTP server that keeps messages, and answers as a test decides."""

from __future__ import annotations

import json
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.machine import in_thread


@dataclass(frozen=True, slots=True)
class Received:
    """A message. `at` is in monotonic seconds; header names are in lower case."""

    at: float
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """The message's id, the same at each try."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> int:
        """The id of the event that the message is about."""
        return int(self.id.rpartition("_")[2])

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


# Answers a message that was read, or does not.
Answering = Callable[["Handler", Received], None]


class Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(time.monotonic(), self.path, headers, body)
        self.server.received.append(received)
        self.server.arrivals.put(received)
        self.server.answering(self, received)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def answer_with(status: int, body: bytes = b"", **headers: str) -> Answering:
    """Return an answering function that always answers the same."""
    return lambda handler, _: handler.answer(status, body, **headers)


def hang(until: threading.Event) -> Answering:
    """Don't answer until an event is set."""
    return lambda _, __: until.wait()


class Receiver(ThreadingHTTPServer):
    """Keeps messages in the order of arrival. `answering` may be changed at any time."""

    daemon_threads = True
    # For many connections at the same moment.
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a free port of this machine, with TLS if a context is given."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[Received] = []
        self.arrivals: queue.Queue[Received] = queue.Queue()
        self.answering: Answering = answer_with(204)
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            # The handshake is done in each connection's thread, or a slow one would stop all.
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_port}/hook"

    @property
    def events(self) -> list[int]:
        """The events' ids, in the order of arrival."""
        return [each.event for each in list(self.received)]

    def handle_error(self, *_: object) -> None:
        """Stay silent: some tests hang up."""


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver."""
    receiver = Receiver(tls)
    with in_thread(receiver):
        yield receiver
