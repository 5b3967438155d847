"""A request and its answer: made by the application, or by the server where it refuses."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from socket import socket
from threading import Lock
from typing import Any, Protocol

from waitress.adjustments import Adjustments
from waitress.task import WSGITask
from werkzeug.http import HTTP_STATUS_CODES, http_date

from orders.store.database.errors import StoreUnavailable
from orders.web.access.auth import bearer_token
from orders.web.api import PROTECTION
from orders.web.bodies import MAX_BYTES
from orders.web.call import BUSY, WHOLE_AT, Call, is_api_path, path_of_target
from orders.web.refusals import ANSWERS, SERVER_ANSWERS, InternalError, error_body
from orders.web.server.outgoing import Spool
from orders.web.server.parser import MAX_HEAD_BYTES, MAX_HEADERS, Parser

log = logging.getLogger(__name__)

# The messages of the server's own errors. A rejection may name its cause after the first.
WORDS = {
    400: "The request is not HTTP that can be read",
    408: "The request took too long to arrive. Send it again, whole.",
    413: f"The body may be at most {MAX_BYTES:,} bytes long.",
    431: f"There may be at most {MAX_HEADERS} headers, of {MAX_HEAD_BYTES:,} bytes in all.",
    501: "This Transfer-Encoding is not known here; send the body as it is, or chunked.",
    503: "The store is unavailable: too many requests wait for it. Try again in a few seconds.",
}
_BAD_REQUEST, _UNAVAILABLE = 400, 503
_RETRY = ANSWERS[StoreUnavailable].headers(None).items()


class ClientGone(Exception):
    """Nobody is there to send the answer to."""


class Work(Enum):
    """What answering a request takes, which decides the thread that does it."""

    # Nothing that could block.
    INSTANT = "instant"
    # A read that is short, unless a disk stalls.
    SHORT = "short"
    # It waits for a lock, a disk or another server.
    WAITING = "waiting"
    # An answer of megabytes.
    LONG = "long"


class Policy(Protocol):
    """What the server has to know of the application."""

    def work(self, method: str, target: str, headers: dict[str, str]) -> Work:
        """Return what a request takes. Must not block."""

    def wants_body(self, method: str, target: str, headers: dict[str, str]) -> bool:
        """Return whether a request's body matters, or its head is refused. Must not block."""

    def has_room_for_long(self) -> bool:
        """Return whether a long answer may begin now. Must not block."""

    def uncounted_headers(self, authorization: str | None) -> list[tuple[str, str]]:
        """Return the rate-limit headers of a refusal that counts nothing. Must not block."""

    def note_turn(self) -> None:
        """Note that the loop runs: called by it, once a second. Must not block."""

    def note_answer(self, call: Call, status: int, now: float) -> None:
        """Note an answer that the server made by itself. `now` is in monotonic seconds."""


@dataclass(frozen=True, eq=False)
class Listener:
    """A listening socket, with what waitress' task has to know of it."""

    socket: socket
    application: Callable[..., Any]
    adj: Adjustments
    server_name: str
    effective_port: int


class Exchange(WSGITask):
    """A request of a connection, and the answer to it. Any one thread may answer."""

    wrote_header: bool
    chunked_response: bool
    is_broken = False
    is_answered = False
    is_discarded = False
    # Whether nobody had time for it; whether a long answer waited for its place in vain.
    is_late = False
    found_no_place = False
    work = Work.INSTANT
    # Held while a piece of a long answer is made: only one of them occupies a processor.
    turns: Lock | None = None

    def __init__(self, connection: Any, request: Parser, whole_at: float) -> None:
        """Take a request that was whole at a time in monotonic seconds."""
        super().__init__(connection, request)
        self.whole_at = whole_at
        # What is to be sent: a short answer's pieces, or a long one's file.
        self.pieces: list[bytes] = []
        self.spool: Spool | None = None

    @property
    def owner(self) -> str:
        """Whose long answer it is: the key's, as presented, or else the address'."""
        network: str = self.channel.network
        return bearer_token(self.request.headers.get("AUTHORIZATION")) or network

    def begin(self, may_block: bool) -> None:
        """Answer what is short; of the rest, and if it must not block, only find out what it takes.

        For the loop. What else it takes, somebody who may wait does.
        """
        request, self.work = self.request, Work.INSTANT
        try:
            if request.error is None and not self.is_late:
                self.work = self.channel.loop.policy.work(
                    request.command, request.request_uri, request.headers
                )
        except StoreUnavailable:
            self.work = Work.WAITING  # which will say so
        except BaseException:
            log.exception("Exception before serving %s", request.path)
            self._give_up(500)
            self._end()
            return
        if self.work is Work.INSTANT or (self.work is Work.SHORT and may_block):
            self.answer()

    def answer(self) -> None:
        """Make the answer. What fails, even what would end a thread, is logged and ends it."""
        with self.turns or nullcontext():
            try:
                self._answer()
            except ClientGone:
                self.is_broken = True
            except (StoreUnavailable, OSError) as error:
                log.error(  # noqa: TRY400 - the message says all
                    "An answer to %s was broken off: %s.", self.channel.addr[0], error
                )
                self._give_up(503)
            except BaseException:
                log.exception("Exception while serving %s", self.request.path)
                self._give_up(500)
            self._end()

    def fail(self) -> None:
        """End the answer, and with it the connection, where not even a refusal could be made."""
        self.is_broken = self.is_answered = True

    def refuse(self, status: int, cause: str = "") -> None:
        """Answer with an Error body of the server's own, and end the connection."""
        is_api = self.request.error is not None or is_api_path(
            path_of_target(self.request.request_uri)
        )
        address = self.channel.addr[0]
        call = Call(os.urandom(8).hex(), time.monotonic(), is_api, address, "-", "-")
        call.waited = call.began - self.whole_at
        call.refusal = SERVER_ANSWERS[status]
        words = WORDS.get(status) or ANSWERS[InternalError].words(InternalError(call.request_id))
        body = error_body(call.refusal, f"{words}: {cause}." if cause else words, status)
        policy: Policy = self.channel.loop.policy
        self.status = f"{status} {HTTP_STATUS_CODES[status]}"
        self.complete = self.close_on_finish = True
        self.start_time, self.content_length = time.time(), len(body)
        self.chunked_response = False
        self.response_headers = [
            ("Content-Type", "application/json"),
            ("X-Request-Id", call.request_id),
            *PROTECTION.items(),
            *(_RETRY if status == _UNAVAILABLE else ()),
            *(
                policy.uncounted_headers(self.request.headers.get("AUTHORIZATION"))
                if is_api
                else ()
            ),
        ]
        self.write(body)
        policy.note_answer(call, status, time.monotonic())

    def discard(self) -> None:
        """Give back what the exchange holds."""
        self.is_discarded = True
        self.request.close()
        if self.spool is not None:
            self.spool.close()

    def get_environment(self) -> dict[str, Any]:
        """Return the WSGI environment."""
        environ: dict[str, Any] = super().get_environment()
        # As it was sent: waitress capitalizes it, but methods are case-sensitive.
        environ["REQUEST_METHOD"] = self.request.command
        # A file would be sent past `write`, which alone keeps what the loop sends.
        del environ["wsgi.file_wrapper"]
        environ[WHOLE_AT] = self.whole_at
        environ[BUSY] = self.found_no_place
        return environ

    def set_close_on_finish(self) -> None:
        """Have the connection closed after the answer."""
        self.close_on_finish = True

    def build_response_header(self) -> bytes:
        """Return the head of the answer, by which its end is known (RFC 9112, section 6.3)."""
        is_old = self.request.version == "1.0"
        if self.content_length is None and self.has_body:
            self.chunked_response, self.close_on_finish = not is_old, self.close_on_finish or is_old
        if self.request.is_last or self.channel.is_last():
            self.close_on_finish = True
        lines = [f"HTTP/1.1 {self.status}"]
        lines += [f"{name}: {value}" for name, value in self.response_headers]
        if self.chunked_response:
            lines.append("Transfer-Encoding: chunked")
        elif self.content_length is not None and not self._has_length():
            lines.append(f"Content-Length: {self.content_length}")
        if self.close_on_finish:
            lines.append("Connection: close")
        elif is_old:
            lines.append("Connection: Keep-Alive")
        lines.append(f"Date: {_date(int(self.start_time))}\r\n\r\n")
        return "\r\n".join(lines).encode("latin-1")

    def write(self, data: bytes) -> None:
        """Keep a piece of the answer for the loop to send."""
        head = b"" if self.wrote_header else self.build_response_header()
        if self.content_length is not None:
            # More would be read as the beginning of the next answer.
            data = data[: self.content_length - self.content_bytes_written]
        self.content_bytes_written += len(data)
        if not (self.has_body and self.request.command != "HEAD"):
            data = b""
        elif data and self.content_length is None:
            if self.chunked_response:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if self.spool is None:
                self.spool = Spool()
        self.wrote_header = True
        if head:
            self._keep(head)
        if data:
            self._keep(data)

    def finish(self) -> None:
        """End the answer."""
        if not self.wrote_header:
            self.write(b"")
        if self.chunked_response and self.request.command != "HEAD":
            self._keep(b"0\r\n\r\n")

    def _answer(self) -> None:
        error = self.request.error
        if error is not None:
            self.refuse(error.code, error.body if error.code == _BAD_REQUEST else "")
        elif self.is_late:
            self.refuse(503)
        else:
            self.start()
            self.execute()
            self.finish()

    def _give_up(self, status: int) -> None:
        # What was begun gets no end, so that no client takes it for complete.
        self.is_broken = self.wrote_header
        if not self.is_broken:
            try:
                self.refuse(status)
            except Exception:
                log.exception("A refusal failed, too.")
                self.is_broken = True

    def _end(self) -> None:
        self.is_answered = True
        if self.channel.is_closed:
            self.discard()

    def _keep(self, data: bytes) -> None:
        if self.spool is None:
            self.pieces.append(data)
            return
        if self.channel.is_closed:
            raise ClientGone
        self.spool.write(data)
        self.channel.loop.note_progress(self)
        if self.turns is not None:
            self.turns.release()  # another long answer makes a piece
            self.turns.acquire()

    def _has_length(self) -> bool:
        return any(name.lower() == "content-length" for name, _ in self.response_headers)


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return http_date(second)
