"""A request and its answer: made by the application, or by the server where it refuses.

Long answers are made by threads of their own into files, a few at a time. A thread needs as long as
the database, however slow the client reads: no snapshot of the store outlasts that. The files are
limited in all, and for each client.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum
from functools import lru_cache, partial
from http import HTTPStatus
from socket import socket
from threading import Lock
from typing import Any, BinaryIO, Protocol

from waitress.adjustments import Adjustments
from waitress.task import WSGITask

from orders.server import sockets
from orders.server.parser import Parser

log = logging.getLogger(__name__)

# About as much as the system buffers for a client.
SENT_AT_ONCE = 256 * 1024
# Long answers that are made at a time, in all and for one client.
MOST_LONG = 8
MOST_LONG_FOR_ONE = 2
# How long a long answer waits for its turn.
TURN_SECONDS = 1
# The bytes of all files, and of those for one client.
MOST_BYTES = 1024 * 1024 * 1024
MOST_BYTES_FOR_ONE = MOST_BYTES // 4
# A reader slower than this gives way where the files have no room.
SLOW_BYTES_A_SECOND = 1024
# The space that is left free on the disk.
_SPARE_BYTES = 64 * 1024 * 1024
# Names in a request's WSGI environment: when its last byte arrived, in monotonic seconds; and
# whether there was no place for a long answer.
WHOLE_AT = "orders.whole_at"
BUSY = "orders.busy"
# The function to which an application, while it answers, passes a `Resting`, which makes the body
# later. Absent in HTTP/1.0, which has no chunks.
REST = "orders.rest"
# The function to which it passes an open file, a position in it and a count of bytes, as the body.
SEND_FILE = "orders.send_file"
_BAD_REQUEST, _UNAVAILABLE, _FAILED = 400, 503, 500


class ClientGone(Exception):
    """The client is gone, and the answer can't be sent."""


class Work(Enum):
    """The kinds of work that answering takes, which decide the thread that does it."""

    # Work that can't block.
    INSTANT = "instant"
    # A read that is short, unless a disk stalls.
    SHORT = "short"
    # Work that waits for a lock, a disk or another server.
    WAITING = "waiting"
    # An answer of megabytes.
    LONG = "long"


@dataclass(frozen=True)
class Rejection:
    """A request that the server answers by itself; `path` is None where it is no whole request.

    `cause` says more than the status, or is empty.
    """

    status: int
    cause: str
    path: str | None
    authorization: str | None
    address: str
    whole_at: float


class Policy(Protocol):
    """The application's part in serving. None of its methods may block."""

    # The path that is answered before others, so that a probe says whether the process lives.
    probe: str
    # The path whose answers may rest.
    resting: str
    # The exceptions by which answers end without a fault of the program. They are answered 503.
    outages: tuple[type[Exception], ...]

    def work(self, method: str, path: str, headers: dict[str, str]) -> Work:
        """Return the work that a request takes."""

    def body_bytes(self, method: str, path: str, headers: dict[str, str]) -> int:
        """Return how many bytes of a body are retained: the application refuses a longer one."""

    def may_rest(self, query: str, headers: dict[str, str]) -> bool:
        """Return whether a request to `resting` asks for an answer that rests.

        Others are answered before it, as thousands of these come at once after a restart; a stop
        refuses it.
        """

    def wants_body(self, method: str, path: str, headers: dict[str, str]) -> bool:
        """Return whether a request's body matters, or its head is refused."""

    def has_room_for_long(self) -> bool:
        """Return whether a long answer may begin now."""

    def owner(self, address: str, authorization: str | None) -> str:
        """Return the client that a connection or a request counts for."""

    def refusal(self, rejection: Rejection) -> tuple[list[tuple[str, str]], bytes]:
        """Return the headers and the body of a refusal, and record it."""

    def on_turn(self) -> None:
        """Record that the loop runs, which calls this once a second."""


class Resting(Protocol):
    """The body of an answer, made bit by bit as its parts come. No thread waits for it."""

    # Whether the last bytes were returned.
    is_ended: bool

    def begin(self, wake: Callable[[], None]) -> None:
        """Begin, as the application has returned. `wake`, for any thread, has `more` called."""

    def more(self) -> bytes:
        """Return the next bytes, none where there are none until the next waking.

        Called by the loop, once the client has taken the bytes before. It must not block.
        """

    def stop(self) -> None:
        """Make `more` return the last bytes, as the server stops. May be called repeatedly."""

    def close(self) -> None:
        """Release its resources: the answer has ended, in whatever way."""


@dataclass(frozen=True, eq=False)
class Listener:
    """A listening socket, with the facts that waitress' task needs."""

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
    # Whether nobody has time for it; whether a long answer waited for its place in vain.
    is_late = False
    found_no_place = False
    work = Work.INSTANT
    # Held while a piece of a long answer is made: only one of them occupies a processor.
    turns: Lock | None = None
    # What makes the body once the application has returned; whether that is now, and whether it is
    # about to be asked for more.
    resting: Resting | None = None
    rests = False
    is_woken = False

    def __init__(self, connection: Any, request: Parser, whole_at: float) -> None:
        """Take a request that was whole at a time in monotonic seconds."""
        super().__init__(connection, request)
        self.whole_at = whole_at
        # The bytes to send: a short answer's pieces, or a long one's file.
        self.pieces: list[bytes] = []
        self.spool: Spool | None = None
        # The file that the application passed, until it has returned.
        self._file: FilePart | None = None
        self._policy: Policy = connection.loop.policy

    @property
    def owner(self) -> str:
        """The client that a long answer counts for."""
        return self._policy.owner(self.channel.addr[0], self.request.headers.get("AUTHORIZATION"))

    def begin(self, may_block: bool) -> None:
        """Answer a short request; for any other, or if it must not block, only determine its work.

        For the loop. Other work is for a thread that may wait.
        """
        request, self.work = self.request, Work.INSTANT
        try:
            if request.error is None and not self.is_late:
                self.work = self._policy.work(request.command, request.path, request.headers)
        except BaseException as error:  # noqa: BLE001 - it is reported
            self._break_off(error)
            self._end()
            return
        if self.work is Work.INSTANT or (self.work is Work.SHORT and may_block):
            self.answer()

    def answer(self) -> None:
        """Make the answer. A failure, even one that would end a thread, is logged and ends it."""
        with self.turns or nullcontext():
            try:
                self._answer()
            except ClientGone:
                self.is_broken = True
            except BaseException as error:  # noqa: BLE001 - it is reported
                self._break_off(error)
            else:
                if self.resting is not None:
                    self._begin_to_rest(self.resting)
                    return
            self._end()

    def go_on(self, resting: Resting) -> None:
        """Add the bytes that a resting answer has ready. For the loop."""
        try:
            if piece := resting.more():
                self.write(piece)
            if resting.is_ended:
                self.finish()
                self._end()
            self.pieces = [b"".join(self.pieces)]  # to be sent by one call
        except BaseException as error:  # noqa: BLE001 - it is reported
            self._break_off(error)
            self._end()

    def wake(self) -> None:
        """Ask a resting answer for more, in the loop. For any thread."""
        self.channel.loop.wake(self)

    def fail(self) -> None:
        """End the answer, and with it the connection, where not even a refusal could be made."""
        self.is_broken = self.is_answered = True

    def refuse(self, status: int, cause: str = "") -> None:
        """Answer with the application's refusal, and end the connection."""
        request, address = self.request, self.channel.addr[0]
        has_head = request.error is None or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        path = request.path if has_head else None
        authorization = request.headers.get("AUTHORIZATION")
        rejection = Rejection(status, cause, path, authorization, address, self.whole_at)
        self.response_headers, body = self._policy.refusal(rejection)
        self.status = f"{status} {HTTPStatus(status).phrase}"
        self.complete = self.close_on_finish = True
        self.start_time, self.content_length = time.time(), len(body)
        self.chunked_response = False
        self.write(body)

    def discard(self) -> None:
        """Release the resources of the request and its answer, such as files."""
        if self.is_discarded:
            return
        self.is_discarded = True
        self.request.close()
        if self.resting is not None:
            self.resting.close()
        for file in (self.spool, self._file):
            if file is not None:
                file.close()

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        # The method as it was sent: waitress capitalizes it, but methods are case-sensitive.
        environ["REQUEST_METHOD"] = self.request.command
        # A file would be sent past `write`, by which the loop gets what it sends.
        del environ["wsgi.file_wrapper"]
        environ[WHOLE_AT] = self.whole_at
        environ[BUSY] = self.found_no_place
        environ[SEND_FILE] = self._take_file
        if self.request.version != "1.0":
            environ[REST] = partial(setattr, self, "resting")
        return environ

    def set_close_on_finish(self) -> None:
        self.close_on_finish = True

    def build_response_header(self) -> bytes:
        """Return the head of the answer, by which its end is known (RFC 9112, section 6.3)."""
        is_old = self.request.version == "1.0"
        if self.content_length is None and self.has_body:
            self.chunked_response, self.close_on_finish = not is_old, self.close_on_finish or is_old
        if self.request.is_last or (self.channel.is_heard_out and self.channel.is_last()):
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
        """Add a piece of the answer, for the loop to send."""
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
            if self.spool is None and self.resting is None:
                self.spool = Spool()
        self.wrote_header = True
        if head:
            self._add(head)
        if data:
            self._add(data)

    def finish(self) -> None:
        if self._file is not None:
            self.content_length = self._file.size
            self.write(b"")
            self.spool, self._file = self._file, None
        if not self.wrote_header:
            self.write(b"")
        if self.chunked_response and self.request.command != "HEAD":
            self._add(b"0\r\n\r\n")

    def _answer(self) -> None:
        error = self.request.error
        if error is not None:
            self.refuse(error.code, error.body if error.code == _BAD_REQUEST else "")
        elif self.is_late:
            self.refuse(_UNAVAILABLE)
        else:
            self.start()
            self.execute()
            if self.resting is None:
                self.finish()

    def _break_off(self, error: BaseException) -> None:
        if isinstance(error, (OSError, *self._policy.outages)):
            log.error("An answer to %s was broken off: %s.", self.channel.addr[0], error)
            self._give_up(_UNAVAILABLE)
        else:
            log.error("Exception while serving %s", self.request.path, exc_info=error)
            self._give_up(_FAILED)

    def _give_up(self, status: int) -> None:
        # An answer that was begun gets no end, so that no client takes it for complete.
        self.is_broken = self.wrote_header
        if not self.is_broken:
            try:
                self.refuse(status)
            except Exception:
                log.exception("A refusal failed, too.")
                self.is_broken = True

    def _begin_to_rest(self, resting: Resting) -> None:
        # No longer needed; it would stay as long as the answer rests.
        self.environ = None
        self.rests = True
        resting.begin(self.wake)
        if self.channel.is_closed:
            self.discard()

    def _end(self) -> None:
        self.is_answered, self.rests = True, False
        if self.channel.is_closed:
            self.discard()

    def _add(self, data: bytes) -> None:
        if self.spool is None:
            self.pieces.append(data)
            return
        if self.channel.is_closed:
            raise ClientGone
        self.spool.write(data)
        self.channel.loop.proceed(self)
        if self.turns is not None:
            self.turns.release()  # another long answer makes a piece
            self.turns.acquire()

    def _take_file(self, file: BinaryIO, start: int, count: int) -> None:
        self._file = FilePart(file, start, count)

    def _has_length(self) -> bool:
        return any(name.lower() == "content-length" for name, _ in self.response_headers)


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


class Spool:
    """The file of a long answer, so that the thread that makes it waits for no reader."""

    def __init__(self) -> None:
        """Make the file, which has no name; OSError if there is no room for it."""
        self._file = sockets.SpoolFile()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append bytes; OSError if there is no room. For the thread that makes the answer."""
        left = memoryview(data)
        while left:
            left = left[self._file.append(left) :]
        # Only now may they be sent.
        self.size += len(data)

    def send(self, connected: socket, position: int) -> int:
        """Send bytes from a position on; return how many the system took. For the loop."""
        count = min(SENT_AT_ONCE, self.size - position)
        return self._file.send(connected, position, count) if count else 0

    def close(self) -> None:
        self._file.close()


class FilePart(Spool):
    """A part of a file that is there already, such as a download's."""

    def __init__(self, file: BinaryIO, start: int, count: int) -> None:
        """Take an open file, which `close` closes, and how many bytes to send from a position."""
        self._file = sockets.SpoolFile(file)
        self._start, self.size = start, count

    def send(self, connected: socket, position: int) -> int:
        """Send bytes as of a spool; OSError where the file has become shorter."""
        count = min(SENT_AT_ONCE, self.size - position)
        sent = self._file.send(connected, self._start + position, count) if count else 0
        if count and not sent:
            raise OSError("the file has become shorter")
        return sent


class LongAnswers:
    """The long answers that wait, are made, or are being sent. Only for the loop."""

    def __init__(
        self,
        make: Callable[[Exchange], None],
        refuse: Callable[[Exchange], None],
        has_room: Callable[[], bool],
    ) -> None:
        """Take the functions that make or refuse one, and that ask if another is allowed."""
        self._make, self._refuse = make, refuse
        self._has_room = has_room
        self._turns = threading.Lock()
        # Until their turn comes.
        self.waiting: deque[Exchange] = deque()
        self._begun: list[Exchange] = []
        self._usual_bytes = 0

    def submit(self, exchange: Exchange) -> None:
        self.waiting.append(exchange)

    def pending(self) -> list[Exchange]:
        """Return those that wait, oldest first."""
        if not self.waiting:
            return []
        self._forget_sent()
        self.waiting = deque(each for each in self.waiting if not each.channel.is_closed)
        return list(self.waiting)

    def begin(self, exchange: Exchange, now: float) -> None:
        """Begin one if its turn has come; have it refused if it waited in vain."""
        late = now - exchange.whole_at > TURN_SECONDS
        if self._may_begin(exchange) or (late and self._others_give_way(exchange, now)):
            self.waiting.remove(exchange)
            self._begun.append(exchange)
            exchange.turns = self._turns
            self._make(exchange)
        elif late:
            self.waiting.remove(exchange)
            exchange.found_no_place = True
            self._refuse(exchange)

    def _may_begin(self, exchange: Exchange) -> bool:
        being_made = [each.owner for each in self._begun if not each.is_answered]
        return (
            len(being_made) < MOST_LONG
            and being_made.count(exchange.owner) < MOST_LONG_FOR_ONE
            and self._has_space(exchange)
            and self._has_room()
        )

    def _has_space(self, exchange: Exchange) -> bool:
        used = {each: self._bytes(each) for each in self._begun}
        own = sum(size for each, size in used.items() if each.owner == exchange.owner)
        return (
            sum(used.values()) + self._usual_bytes <= MOST_BYTES
            and own + self._usual_bytes <= MOST_BYTES_FOR_ONE
            and _free_bytes() > self._usual_bytes + _SPARE_BYTES
        )

    def _bytes(self, exchange: Exchange) -> int:
        size = exchange.spool.size if exchange.spool is not None else 0
        return size if exchange.is_answered else max(size, self._usual_bytes)

    def _others_give_way(self, exchange: Exchange, now: float) -> bool:
        """Return whether one may begin, as the slowest reader has been cut off for it."""
        paces = {each.channel: each.channel.outgoing.pace(now) for each in self._begun}
        slowest = min(paces, key=paces.__getitem__, default=None)
        if slowest is None or self._has_space(exchange) or paces[slowest] >= SLOW_BYTES_A_SECOND:
            return False
        slowest.close(drop=True)
        self._forget_sent()
        return self._may_begin(exchange)

    def _forget_sent(self) -> None:
        for each in self._begun:
            if each.is_answered and each.spool is not None:
                self._usual_bytes = max(each.spool.size, self._usual_bytes * 7 // 8)
        self._begun = [each for each in self._begun if not each.is_discarded]


def _free_bytes() -> int:
    try:
        return shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        return 0
