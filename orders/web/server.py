"""Waitress, with this service's manners: its errors, its deadlines, and a stop that drops nothing.

A request passes through waitress in two steps. The main loop reads bytes into the channel of a
connection, and hands the channel to a thread once a request is whole; the thread runs a task, which
calls the application and fills the channel's buffers, and the loop sends them.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from socket import MSG_DONTWAIT, MSG_PEEK
from typing import Any

from flask import Flask
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, Task, ThreadedTaskDispatcher, WSGITask
from waitress.utilities import Error as WaitressError

from orders.settings import Settings
from orders.web.call import Call
from orders.web.logs import log_access
from orders.web.refusals import SERVER_ANSWERS, error_body

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024
IDLE_SECONDS = 60
STOP_SECONDS = 30
MAX_CONNECTIONS = 4_000
_SPARE_DESCRIPTORS = 200

_WORDS = {
    400: "The request is not HTTP that can be read.",
    408: "The request took too long to arrive.",
    413: f"The body may have at most {MAX_BODY_BYTES} bytes.",
    431: f"The headers may have at most {MAX_HEAD_BYTES} bytes.",
    500: "Something went wrong here.",
    501: "This Transfer-Encoding is not known here; send the body as it is, or chunked.",
}
# Waitress writes all header names in its own way; these are the documented ones.
_SPELLING = {
    b"\r\nX-Ratelimit-": b"\r\nX-RateLimit-",
    b"\r\nRatelimit": b"\r\nRateLimit",
    b"\r\nEtag:": b"\r\nETag:",
    b"\r\nWww-Authenticate:": b"\r\nWWW-Authenticate:",
}


class RequestTimeout(WaitressError):
    """The request was not whole in time (RFC 9110, section 15.5.9)."""

    code = 408
    reason = "Request Timeout"


class _Answering(Task):
    """What the tasks of requests and of refused requests have in common."""

    def build_response_header(self) -> bytes:
        """Write the head of the answer."""
        options = {
            option.strip().lower()
            for option in self.request.headers.get("CONNECTION", "").split(",")
        }
        last_of_all = self.channel.stopping and len(self.channel.requests) <= 1
        if last_of_all or "close" in options:
            self.set_close_on_finish()
        # Waitress closes after an answer without Content-Length, though one without a body, or in
        # chunks, says itself where it ends (RFC 9112, section 6.3).
        says_its_end = self.version == "1.1" and not self.close_on_finish
        with _method_off(self, "set_close_on_finish") if says_its_end else nullcontext():
            head: bytes = super().build_response_header()
        for waitress_own, documented in _SPELLING.items():
            head = head.replace(waitress_own, documented)
        return head

    def finish(self) -> None:
        """End the answer; one to HEAD without the chunk that ends a body."""
        if self.request.version != "1.0" and self.request.command == "HEAD":
            self.chunked_response = False
        super().finish()


class RequestTask(_Answering, WSGITask):
    """Answers a request by asking the application."""


class RefusalTask(_Answering, ErrorTask):
    """Answers what could not be read as a request."""

    def execute(self) -> None:
        """Write an Error body, and close the connection."""
        status = self.request.error.code
        call = Call(os.urandom(8).hex(), time.monotonic(), True, self.channel.addr[0], "-", "-")
        self.status = f"{status} {self.request.error.reason}"
        self.response_headers += [
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-store"),
            ("X-Request-Id", call.request_id),
            *self.channel.server.uncounted_headers().items(),
        ]
        body = error_body(SERVER_ANSWERS[status], _WORDS[status], status)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)
        log_access(call, status, time.monotonic())


@contextmanager
def _method_off(instance: object, name: str) -> Iterator[None]:
    setattr(instance, name, lambda: None)
    try:
        yield
    finally:
        delattr(instance, name)


class Parser(HTTPRequestParser):
    """Reads requests, and refuses those whose end two readers could see in two places."""

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head of a request (RFC 9112, section 6.1).

        Raises:
            ParsingError: it is not HTTP, or says two things about the length of its body.
        """
        super().parse_header(header_plus)
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("both Content-Length and Transfer-Encoding")
        if "TRANSFER_ENCODING" in self.headers:
            raise ParsingError("Transfer-Encoding before HTTP/1.1")


class Channel(HTTPChannel):
    """A connection, with a time by which the request that is arriving must have arrived."""

    task_class = RequestTask
    error_task_class = RefusalTask
    parser_class = Parser
    stopping = False
    request: HTTPRequestParser | None
    _arriving: HTTPRequestParser | None = None
    _in_body = False
    _since = 0.0

    def received(self, data: bytes) -> bool:
        """Take bytes of a request, and note how far it is."""
        taken: bool = super().received(data)
        if self.request is not self._arriving:
            self._arriving, self._in_body, self._since = self.request, False, time.monotonic()
        if self.request is not None and self.request.headers_finished and not self._in_body:
            self._in_body, self._since = True, time.monotonic()
        return taken

    def refuse_if_late(self, head_seconds: float, body_seconds: float) -> None:
        """Answer 408 to a request that took too long to arrive. For the main loop only."""
        with self.requests_lock:
            request, now = self.request, time.monotonic()
            if request is None or self.close_when_flushed or self.will_close:
                return
            if self.requests:
                self._since = now  # nothing is read while an earlier request is being answered
            if now - self._since < (body_seconds if self._in_body else head_seconds):
                return
            request.error = RequestTimeout(_WORDS[408])
            request.completed = True
            self.request = None
            self.requests.append(request)
        self.server.add_task(self)

    def is_at_rest(self) -> bool:
        """Tell whether nothing is being answered, left to send, or waiting to be read."""
        return not (self.requests or self.total_outbufs_len or _has_bytes_waiting(self.socket))


def _has_bytes_waiting(socket: Any) -> bool:
    try:
        return bool(socket.recv(1, MSG_PEEK | MSG_DONTWAIT))
    except OSError:
        return False


class Listener(TcpWSGIServer):
    """A listening socket."""

    channel_class = Channel
    head_seconds = 10.0
    body_seconds = 30.0
    uncounted_headers: Callable[[], dict[str, str]]

    def maintenance(self, now: float) -> None:
        """Close idle connections, and refuse requests that are late. Called once a second."""
        super().maintenance(now)
        for channel in list(self.active_channels.values()):
            channel.refuse_if_late(self.head_seconds, self.body_seconds)

    def accept_all_waiting(self) -> None:
        """Accept the connections that have been made, whose requests may already be here."""
        for _ in range(self.adj.backlog):
            known = len(self.active_channels)
            self.handle_accept()
            if len(self.active_channels) == known:
                return


class Server:
    """The listening sockets of an application, and the loop that serves them."""

    def __init__(
        self, app: Flask, settings: Settings, uncounted_headers: Callable[[], dict[str, str]]
    ) -> None:
        """Bind the sockets.

        Raises:
            OSError: the address is taken, or not of this machine.
        """
        _raise_descriptor_limit()
        adjustments = Adjustments(
            host=settings.host,
            port=settings.port,
            threads=settings.threads,
            # Waitress refuses what has just as many bytes, too.
            max_request_body_size=MAX_BODY_BYTES + 1,
            max_request_header_size=MAX_HEAD_BYTES + 1,
            channel_timeout=IDLE_SECONDS,
            cleanup_interval=1,
            connection_limit=MAX_CONNECTIONS,
            asyncore_use_poll=True,
            ident=None,
            log_socket_errors=False,
            # The application decides whom to believe.
            clear_untrusted_proxy_headers=False,
        )
        self._map: dict[int, Any] = {}
        self._dispatcher = ThreadedTaskDispatcher()
        self._dispatcher.set_thread_count(settings.threads)
        self._stopping = False
        self._listeners = [
            Listener(app, self._map, dispatcher=self._dispatcher, adj=adjustments, sockinfo=info)
            for info in adjustments.listen
        ]
        for listener in self._listeners:
            listener.head_seconds = settings.head_seconds
            listener.body_seconds = settings.body_seconds
            listener.uncounted_headers = uncounted_headers

    @property
    def addresses(self) -> list[str]:
        """The addresses being listened on."""
        return [
            f"http://{_shown_host(listener.effective_host)}:{listener.effective_port}"
            for listener in self._listeners
        ]

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C; then finish what has arrived, and return."""
        for name in ("SIGTERM", "SIGINT"):
            signal.signal(getattr(signal, name), lambda *_: self.stop())
        while not self._stopping:
            self._loop_once(1)
        self._finish()

    def stop(self) -> None:
        """Ask the loop to end. A second time, the process ends as the system would have it."""
        self._stopping = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._listeners[0].pull_trigger()

    def _finish(self) -> None:
        for listener in self._listeners:
            listener.accept_all_waiting()
            listener.del_channel()
            listener.socket.close()
        ends = time.monotonic() + STOP_SECONDS
        while self._channels() and time.monotonic() < ends:
            for channel in self._channels():
                channel.stopping = True
                if channel.is_at_rest():
                    channel.handle_close()
            self._loop_once(0.05)
        for channel in self._channels():
            log.warning("The answer to %s was cut off by the stop.", channel.addr[0])
            channel.handle_close()
        self._dispatcher.shutdown()

    def _channels(self) -> list[Channel]:
        return [each for each in self._map.values() if isinstance(each, Channel)]

    def _loop_once(self, timeout: float) -> None:
        wasyncore.loop(timeout=timeout, map=self._map, use_poll=True, count=1)


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _raise_descriptor_limit() -> None:
    # Each connection takes one; the default of 1,024 would be the limit of connections.
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
