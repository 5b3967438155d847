"""Connections: how requests are read from them and answers written to them.

Waitress' tasks, channel and buffer, with this service's manners: its error bodies, its
header names, its deadlines, connections that are kept, memory that is given back.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from socket import MSG_PEEK, SHUT_WR
from tempfile import gettempdir
from threading import Lock
from typing import Any

from waitress.buffers import OverflowableBuffer
from waitress.channel import HTTPChannel
from waitress.task import ErrorTask, Task, WSGITask
from waitress.utilities import Error as WaitressError

from orders.store.failures import StoreUnavailable
from orders.web.call import Call
from orders.web.logs import access_log
from orders.web.parser import Parser
from orders.web.protection import PROTECTION
from orders.web.refusals import INTERNAL_ERROR, SERVER_ANSWERS, error_body

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024
# An answer up to here is kept until its reader took it, mostly in a file; a longer one holds its
# thread (which is lent to it). The list of 700,000 orders still fits.
MAX_UNSENT_BYTES = 64 * 1024 * 1024
MAX_SENT_AT_ONCE = 128 * 1024
# How long bytes are read, and forgotten, after the last answer.
LINGER_SECONDS = 2

_WORDS = {
    400: "The request is not HTTP that can be read.",
    408: "The request took too long to arrive.",
    413: f"The body may have at most {MAX_BODY_BYTES} bytes.",
    431: f"The headers may have at most {MAX_HEAD_BYTES} bytes.",
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
        if self.close_on_finish or self.channel.is_to_end() or "close" in options:
            self.set_close_on_finish()
            # Or waitress adds "Keep-Alive" for a client of HTTP/1.0 that asked for it.
            self.request.headers["CONNECTION"] = "close"
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
            if not self.wrote_header:
                self.write(b"")  # which decides whether there are chunks
            self.chunked_response = False
        super().finish()


class RequestTask(_Answering, WSGITask):
    """Answers a request by asking the application."""

    _turns: Lock | None = None

    def service(self) -> None:
        """Answer; break off where the store fails in the middle of an answer."""
        # What a long answer has taken is given back, whatever becomes of it.
        with ExitStack() as self._lent, ExitStack() as self._turn:
            try:
                super().service()
            except StoreUnavailable as error:
                # Without its end, so that nobody takes it for whole.
                log.error(  # noqa: TRY400 - the message says all
                    "An answer to %s was broken off: %s.", self.channel.addr[0], error
                )
                self.close_on_finish = True

    def write(self, data: bytes) -> None:
        """Send a piece of the answer; of a long one, wait for the turn to make the next."""
        # Its client may be slow to take it: others go on meanwhile.
        self._turn.close()
        super().write(data)
        if data and self.content_length is None:
            if self._turns is None:
                self._turns = self._lent.enter_context(self.channel.server.long_answers.lent())
            self._turn.enter_context(self._turns)

    def finish(self) -> None:
        """End the answer."""
        self._turn.close()
        super().finish()


class RefusalTask(_Answering, ErrorTask):
    """Answers what could not be read as a request."""

    def execute(self) -> None:
        """Write an Error body, and close the connection."""
        status = self.request.error.code
        call = Call(os.urandom(8).hex(), time.monotonic(), True, self.channel.addr[0], "-", "-")
        self.status = f"{status} {self.request.error.reason}"
        self.response_headers += [
            ("Content-Type", "application/json"),
            ("X-Request-Id", call.request_id),
            *PROTECTION.items(),
            *self.channel.server.uncounted_headers(),
        ]
        words = _WORDS.get(status) or INTERNAL_ERROR.words(call.request_id)
        body = error_body(SERVER_ANSWERS[status], words, status)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(b"" if self.request.command == "HEAD" else body)
        access_log.write(call, status, time.monotonic())


@contextmanager
def _method_off(instance: object, name: str) -> Iterator[None]:
    setattr(instance, name, lambda: None)
    try:
        yield
    finally:
        delattr(instance, name)


class AnswerBuffer(OverflowableBuffer):
    """Bytes to be sent, in memory up to a size and in a file beyond it; what was sent is dropped.

    Waitress' own keeps all bytes of an answer until the last of them was sent, in memory where the
    reader keeps up: 28 MB for each reader of 300,000 orders.
    """

    buf: Any
    overflow: int
    overflowed: bool

    def _set_large_buffer(self) -> None:
        # On a full disk a file would break the answer off. Memory is bounded, too.
        if _has_room_for_files():
            super()._set_large_buffer()
            return
        self.overflow = sys.maxsize
        if self.buf is None:
            self._set_small_buffer()

    def skip(self, numbytes: int, allow_prune: bool = False) -> None:
        """Forget bytes that were sent."""
        super().skip(numbytes, allow_prune)
        if self.buf is None:
            return
        sent_in_memory = 0 if self.overflowed else self.buf.getfile().tell()
        if len(self) == 0 or sent_in_memory >= self.overflow:
            rest = self.buf.get()
            self.buf.close()
            self.buf = None
            self.overflowed = False
            self.append(rest)


class Channel(HTTPChannel):
    """A connection, with a time by which the request that is arriving must have arrived."""

    task_class = RequestTask
    error_task_class = RefusalTask
    parser_class = Parser
    stopping = False
    request: Parser | None
    current_outbuf_count: int
    close_when_flushed: bool
    sendbuf_len: int
    will_close: bool
    _left_to_send = False
    _sending = False
    _arriving: Parser | None = None
    _in_body = False
    _since = 0.0
    _last_activity = 0.0
    _hung_up_at: float | None = None
    _reading = False
    _client_is_done = False
    # Whether the next request waits for its turn.
    _held = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what waitress' channel takes."""
        super().__init__(*args, **kwargs)
        self.outbufs = [AnswerBuffer(self.adj.outbuf_overflow)]
        # Waitress would read as much as the system's buffer holds when empty, megabytes, each time
        # a slow reader has made room for some of it.
        self.sendbuf_len = min(self.sendbuf_len, MAX_SENT_AT_ONCE)

    @property
    def last_activity(self) -> float:
        """When bytes last came or went, in monotonic seconds."""
        return self._last_activity

    @last_activity.setter
    def last_activity(self, _wall: float) -> None:
        # Waitress would close whatever is open when the wall clock is set forward by a minute.
        self._last_activity = time.monotonic()

    def service(self) -> None:
        """Answer a request, once all answers before it are with the system.

        Requests that came together could otherwise ask for thousands of times their own size, and
        all of it would be kept for a client that takes nothing. The main loop is woken only where
        it has something to do.
        """
        with self.requests_lock:
            self._held = held = self.connected and self.total_outbufs_len > 0
        if held:
            self.server.pull_trigger()
            return
        with self.server.waking_for(self):
            super().service()

    def needs_main_loop(self) -> bool:
        """Tell whether something is left that only the main loop does: send, close, read on."""
        return bool(
            self.total_outbufs_len
            or self.will_close
            or self.close_when_flushed
            or self.requests
            or self._client_is_done
            or not self.connected
        )

    def readable(self) -> bool:
        """Tell the main loop whether to wait for more of a request."""
        # One look for both questions: what changes between them would leave the loop waiting for
        # neither. While a thread sends, the loop would be told at once, again and again, that it
        # can send, too; the thread wakes it if something is left.
        self._left_to_send = bool(self.total_outbufs_len and not self._sending)
        return not (
            self._left_to_send
            or self.will_close
            or self.close_when_flushed
            or len(self.requests) > self.adj.channel_request_lookahead
            or (self._client_is_done and self.requests)
        )

    def writable(self) -> bool:
        """Tell the main loop whether to wait until bytes can be sent. Asked after `readable`."""
        return self._left_to_send or self.will_close or self.close_when_flushed

    def handle_read(self) -> None:
        """Read what has come. An end that has come is told when all before it is answered."""
        if self.requests and _is_at_end(self.socket):
            self._client_is_done = True
            return
        self._reading = True
        super().handle_read()
        self._reading = False

    def received(self, data: bytes) -> bool:
        """Take bytes of a request, and note how far it is."""
        if self._hung_up_at is not None:
            return False
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

    def _flush_some(self, do_close: bool = True) -> bool:
        self._sending = True
        try:
            sent: bool = super()._flush_some(do_close)
            return sent
        finally:
            self._sending = False

    def handle_write(self) -> None:
        """Send what there is; after the last answer, hang up, and close once the client has, too.

        A connection that is closed while bytes of the client's are unread is reset, and the client
        may never see its answer (RFC 9112, section 9.6).
        """
        if not self.close_when_flushed or self.will_close:
            super().handle_write()
            self._resume()
            return
        self._flush_exception(self._flush_some)
        if self.connected and not (self.total_outbufs_len or self.will_close):
            self._hang_up()

    def _resume(self) -> None:
        with self.requests_lock:
            its_turn = self._held and self.connected and not self.total_outbufs_len
            if its_turn:
                self._held = False
        if its_turn:
            self.server.add_task(self)

    def close_if_stuck(self, seconds: float) -> None:
        """Close a connection that took nothing of its answer for so long. For the main loop only.

        Waitress waits for such a connection to become writable, and so for ever.
        """
        if self.total_outbufs_len and time.monotonic() - self.last_activity > seconds:
            self.handle_close()

    def keep_deadlines(self, head_seconds: float, body_seconds: float) -> None:
        """Refuse a late request, close what a client does not close. For the main loop only."""
        if self._hung_up_at is None:
            self._refuse_if_late(head_seconds, body_seconds)
        elif time.monotonic() - self._hung_up_at > LINGER_SECONDS:
            self.will_close = True

    def is_to_end(self) -> bool:
        """Tell whether the answer being made is the last, as nothing else arrived before a stop."""
        # In the order of a request's way, or one that is on it could be missed.
        is_more_to_come = _has_bytes_waiting(self.socket) or self._reading or len(self.requests) > 1
        return self.stopping and not is_more_to_come

    def _hang_up(self) -> None:
        self.close_when_flushed = False
        self._hung_up_at = time.monotonic()
        try:
            self.socket.shutdown(SHUT_WR)
        except OSError:
            self.will_close = True

    def _refuse_if_late(self, head_seconds: float, body_seconds: float) -> None:
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


def _has_room_for_files() -> bool:
    try:
        return shutil.disk_usage(gettempdir()).free > MAX_UNSENT_BYTES
    except OSError:
        return False


def _is_at_end(socket: Any) -> bool:
    try:
        return bool(socket.recv(1, MSG_PEEK) == b"")
    except OSError:
        return False


def _has_bytes_waiting(socket: Any) -> bool:
    try:
        return bool(socket.recv(1, MSG_PEEK))
    except OSError:
        return False
