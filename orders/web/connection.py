"""Connections: how requests are read from them and answers written to them.

Waitress' parser, tasks, channel and buffer, with this service's manners: its error bodies, its
header names, its deadlines, connections that are kept, memory that is given back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from socket import MSG_PEEK
from typing import Any

from waitress.buffers import OverflowableBuffer
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import ErrorTask, Task, WSGITask
from waitress.utilities import Error as WaitressError

from orders.web.call import Call
from orders.web.logs import access_log
from orders.web.refusals import SERVER_ANSWERS, error_body

MAX_BODY_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024

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
            *self.channel.server.uncounted_headers(),
        ]
        body = error_body(SERVER_ANSWERS[status], _WORDS[status], status)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)
        access_log.write(call, status, time.monotonic())


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


class AnswerBuffer(OverflowableBuffer):
    """Bytes to be sent, in memory up to a size and in a file beyond it; what was sent is dropped.

    Waitress' own keeps all bytes of an answer until the last of them was sent.
    """

    buf: Any

    def skip(self, numbytes: int, allow_prune: bool = False) -> None:
        """Forget bytes that were sent."""
        super().skip(numbytes, allow_prune)
        if self.buf is not None and len(self) == 0:
            self.buf.close()
            self.buf = None
            self.overflowed = False


class Channel(HTTPChannel):
    """A connection, with a time by which the request that is arriving must have arrived."""

    task_class = RequestTask
    error_task_class = RefusalTask
    parser_class = Parser
    stopping = False
    request: HTTPRequestParser | None
    current_outbuf_count: int
    _unsent_seen = 0
    _arriving: HTTPRequestParser | None = None
    _in_body = False
    _since = 0.0

    def service(self) -> None:
        """Answer a request. The main loop is woken only where it has something to do."""
        with self.server.waking_for(self):
            super().service()

    def needs_main_loop(self) -> bool:
        """Tell whether something is left that only the main loop does: send, close, read on."""
        return bool(
            self.total_outbufs_len
            or self.will_close
            or self.close_when_flushed
            or self.requests
            or not self.connected
        )

    def readable(self) -> bool:
        """Tell the main loop whether to wait for more of a request."""
        # One look for both questions: bytes that are sent between them would leave the loop
        # waiting for neither.
        self._unsent_seen = self.total_outbufs_len
        can_be: bool = super().readable()
        return can_be and not self._unsent_seen

    def writable(self) -> bool:
        """Tell the main loop whether to wait until bytes can be sent. Asked after `readable`."""
        return bool(self._unsent_seen or super().writable())

    def received(self, data: bytes) -> bool:
        """Take bytes of a request, and note how far it is."""
        taken: bool = super().received(data)
        if self.request is not self._arriving:
            self._arriving, self._in_body, self._since = self.request, False, time.monotonic()
        if self.request is not None and self.request.headers_finished and not self._in_body:
            self._in_body, self._since = True, time.monotonic()
        return taken

    def write_soon(self, data: bytes) -> int:
        """Put bytes of an answer where the main loop sends them; wait if there are too many."""
        with self.outbuf_lock:
            if self.current_outbuf_count >= self.adj.outbuf_high_watermark:
                self.outbufs.append(AnswerBuffer(self.adj.outbuf_overflow))
                self.current_outbuf_count = 0
        written: int = super().write_soon(data)
        return written

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
        return bool(socket.recv(1, MSG_PEEK))
    except OSError:
        return False
