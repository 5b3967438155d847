"""A proxy of the service that passes headers on at once, and bodies when a test says so."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.support.machine import PATIENCE_SECONDS, in_thread

# Headers of connections, not of answers.
_OF_CONNECTIONS = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class SlowWay:
    """The proxy, as tests use it."""

    def __init__(self, url, server):
        self.url, self._server = url, server

    def hold(self, part):
        """Hold the bodies of answers to paths with this part; return a function to let them go."""
        self._server.held, self._server.let_go = part, threading.Event()
        return self._server.let_go.set


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        way = self.server
        held, let_go = way.held, way.let_go
        connection = HTTPConnection(way.service, timeout=PATIENCE_SECONDS)
        connection.request("GET", self.path, headers=dict(self.headers.items()))
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_CONNECTIONS:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if held and held in self.path:
            let_go.wait(PATIENCE_SECONDS)
        # The browser may have cancelled the request, as it should.
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_):
        """Stay silent."""


@contextmanager
def slow_way(service_url):
    """Run a proxy of a service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.service, server.held, server.let_go = urlsplit(service_url).netloc, "", None
    with in_thread(server):
        yield SlowWay(f"http://127.0.0.1:{server.server_port}", server)
