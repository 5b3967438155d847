"""Connections: how requests are read from them and answers written to them.

Waitress' channel, with this service's deadlines. Requests are read by `parser` and answered by
`answers`; bytes to be sent wait in `buffers`.
"""

from __future__ import annotations

import logging
import time
from socket import MSG_PEEK, SHUT_WR
from typing import Any

from waitress.channel import HTTPChannel

from orders.web.server.answers import WORDS, RefusalTask, RequestTask, RequestTimeout
from orders.web.server.buffers import AnswerBuffer
from orders.web.server.parser import Parser

log = logging.getLogger(__name__)

MAX_SENT_AT_ONCE = 128 * 1024
# How long bytes are read, and forgotten, after the last answer.
LINGER_SECONDS = 2


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
    # Whether the main loop waits for more of this client's.
    _is_listened_to = False
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
        """Set up a channel, with the arguments of waitress' own."""
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

        Pipelined requests could otherwise ask for thousands of times their own size, all of which
        would be kept for a client that accepts nothing. The main loop is woken only where
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
        """Return whether something is left that only the main loop does: send, close, read on."""
        return bool(
            self.total_outbufs_len
            or self.will_close
            or self.close_when_flushed
            or not self._is_listened_to
        )

    def readable(self) -> bool:
        """Return whether the main loop should wait for more of a request."""
        # Cleared before the checks, or a thread that changes their result would not wake the loop.
        self._is_listened_to = False
        # One check for both questions: a change between two would leave the loop waiting for
        # neither. While a thread sends, the loop would be woken again and again to send, too; the
        # thread wakes it if something is left.
        self._left_to_send = bool(self.total_outbufs_len and not self._sending)
        self._is_listened_to = not (
            self._left_to_send
            or self.will_close
            or self.close_when_flushed
            or len(self.requests) > self.adj.channel_request_lookahead
            or (self._client_is_done and self.requests)
        )
        return self._is_listened_to

    def writable(self) -> bool:
        """Return whether the main loop should wait to send. Called after `readable`."""
        return self._left_to_send or self.will_close or self.close_when_flushed

    def handle_read(self) -> None:
        """Read what has arrived. An end of input is handled once all before it is answered."""
        if self.requests and _is_at_end(self.socket):
            self._client_is_done = True
            return
        self._reading = True
        super().handle_read()
        self._reading = False

    def handle_expt(self) -> None:
        """Close a connection that sends urgent bytes, which HTTP does not have.

        They are never read, and would wake the loop again and again.
        """
        self.handle_close()

    def received(self, data: bytes) -> bool:
        """Receive bytes of a request, and note its progress."""
        if self._hung_up_at is not None:
            return False
        taken: bool = super().received(data)
        if self.request is not self._arriving:
            self._arriving, self._in_body, self._since = self.request, False, time.monotonic()
        if self.request is not None and self.request.headers_finished and not self._in_body:
            self._in_body, self._since = True, time.monotonic()
        return taken

    def write_soon(self, data: bytes) -> int:
        """Send bytes of an answer, and buffer the rest; wait if that is too much."""
        with self.outbuf_lock:
            if self.current_outbuf_count >= self.adj.outbuf_high_watermark:
                self.outbufs.append(AnswerBuffer(self.adj.outbuf_overflow))
                self.current_outbuf_count = 0
        written: int = super().write_soon(data)
        return written

    # By default it closes nothing: the caller may be a thread, and only the loop closes.
    def _flush_some(self, do_close: bool = False) -> bool:
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
        """Close a connection that has accepted nothing of its answer for so long. Main loop only.

        Waitress waits for such a connection to become writable, and so for ever.
        """
        if self.total_outbufs_len and time.monotonic() - self.last_activity > seconds:
            self.handle_close()

    def keep_deadlines(self, head_seconds: float, body_seconds: float) -> None:
        """Reject a late request, close what a client leaves open. Main loop only."""
        if self._hung_up_at is None:
            self._refuse_if_late(head_seconds, body_seconds)
        elif time.monotonic() - self._hung_up_at > LINGER_SECONDS:
            self.will_close = True

    def is_to_end(self) -> bool:
        """Return whether the answer being made is the last: nothing else arrived before a stop."""
        # In the order in which a request moves on, or one that moves meanwhile would be missed.
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
            request.error = RequestTimeout(WORDS[408])
            request.completed = True
            self.request = None
            self.requests.append(request)
        self.server.add_task(self)

    def is_at_rest(self) -> bool:
        """Return whether nothing is being answered, left to send, or waiting to be read."""
        return not (self.requests or self.total_outbufs_len or _has_bytes_waiting(self.socket))


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
