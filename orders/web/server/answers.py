"""Tasks: they answer requests, and input that could not be read as one.

Waitress' tasks, with this service's error bodies and header names, and connections that are kept.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from threading import Lock

from waitress.task import ErrorTask, Task, WSGITask
from waitress.utilities import Error as WaitressError

from orders.store.database.errors import StoreUnavailable
from orders.web.api import PROTECTION
from orders.web.call import Call
from orders.web.refusals import ANSWERS, SERVER_ANSWERS, InternalError, error_body

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024

# The messages of the server's own errors.
WORDS = {
    400: "The request is not HTTP that can be read.",
    408: "The request took too long to arrive.",
    413: f"The body may have at most {MAX_BODY_BYTES} bytes.",
    431: f"The headers may have at most {MAX_HEAD_BYTES} bytes.",
    501: "This Transfer-Encoding is not known here; send the body as it is, or chunked.",
}
# Waitress capitalizes header names in its own way; these are the documented names.
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
    """Common to tasks of requests and of rejected input."""

    def build_response_header(self) -> bytes:
        """Write the head of the answer."""
        options = {
            option.strip().lower()
            for option in self.request.headers.get("CONNECTION", "").split(",")
        }
        if self.close_on_finish or self.channel.is_to_end() or "close" in options:
            self.set_close_on_finish()
            # Otherwise waitress adds "Keep-Alive" for an HTTP/1.0 client that requested it.
            self.request.headers["CONNECTION"] = "close"
        # Waitress closes after an answer without Content-Length, although one without a body or in
        # chunks defines its own end (RFC 9112, section 6.3).
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
    """Answers a request by calling the application."""

    _turns: Lock | None = None

    def service(self) -> None:
        """Answer; break off where the store fails in the middle of an answer."""
        # A long answer releases what it holds, however it ends.
        with ExitStack() as self._lent, ExitStack() as self._turn:
            try:
                super().service()
            except StoreUnavailable as error:
                # Without an end, so that no client takes it for complete.
                log.error(  # noqa: TRY400 - the message says all
                    "An answer to %s was broken off: %s.", self.channel.addr[0], error
                )
                self.close_on_finish = True

    def write(self, data: bytes) -> None:
        """Send a piece of the answer; if it is long, wait for a turn to produce the next."""
        # Its client may be slow to read it: other answers go on meanwhile.
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
    """Answers input that could not be read as a request."""

    def execute(self) -> None:
        """Write an Error body, and close the connection."""
        status = self.request.error.code
        call = Call(os.urandom(8).hex(), time.monotonic(), True, self.channel.addr[0], "-", "-")
        call.refusal = SERVER_ANSWERS[status]
        self.status = f"{status} {self.request.error.reason}"
        self.response_headers += [
            ("Content-Type", "application/json"),
            ("X-Request-Id", call.request_id),
            *PROTECTION.items(),
            *self.channel.server.uncounted_headers(),
        ]
        words = WORDS.get(status) or ANSWERS[InternalError].words(InternalError(call.request_id))
        body = error_body(call.refusal, words, status)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(b"" if self.request.command == "HEAD" else body)
        self.channel.server.note_answer(call, status, time.monotonic())


@contextmanager
def _method_off(instance: object, name: str) -> Iterator[None]:
    setattr(instance, name, lambda: None)
    try:
        yield
    finally:
        delattr(instance, name)
