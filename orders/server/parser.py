"""Reads requests from a connection, as strictly as RFC 9112 requires; waitress counts their bytes.

Input that a proxy in front could read as a different request is rejected, and the connection
closed: if two readers disagree where a request ends, one answers a request that a client has hidden
in a body (request smuggling).

Time is linear in the bytes: the loop has it for all connections together, and `re` holds Python's
lock. A pattern here never has two ways to match the same bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from waitress.adjustments import Adjustments
from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError, TransferEncodingNotImplemented
from waitress.receiver import FixedStreamReceiver
from waitress.utilities import (
    BadRequest,
    Error,
    RequestEntityTooLarge,
    RequestHeaderFieldsTooLarge,
)

# The most that is read of a body that the application refuses, after its head.
MAX_BODY_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024
# Each header costs time, which the loop has for all connections together.
MAX_HEADERS = 100
# RFC 9110, section 5.6.2; a value's characters are of section 5.5.
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_NAME = re.compile(_TOKEN)
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_BLANKS = " \t"
# Section 3.
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/1\.([0-9])")
_ABSOLUTE_FORM = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
# Section 3.2: no fragment, and no scheme but those of HTTP.
_NO_TARGET = re.compile(rb"[^#]*#|(?!https?://)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# RFC 3986, section 3.2.2 and 3.2.3.
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
)
_LENGTH = re.compile("[0-9]+")
# A length of more digits is over any limit, and Python's int() does not read any number of them.
_MAX_DIGITS = 19
# Section 7.1, with the blanks around extensions that a recipient has to overlook.
_QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_CHUNK_SIZE = re.compile(
    rb"([0-9A-Fa-f]{1,16})"
    rb"(?:[ \t]*;[ \t]*" + _TOKEN + rb"(?:[ \t]*=[ \t]*(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?)*"
)
# The longest line of a chunk's size with its extensions, or of a trailer.
_MAX_LINE_BYTES = 4 * 1024
_PIECE_BYTES = 64
_LINE_END = b"\r\n"


class RequestTimeout(Error):
    """The fault of a request that was not whole in time (RFC 9110, section 15.5.9)."""

    code = 408


# Each request needs its path several times, and decoding a long one takes milliseconds.
@lru_cache(maxsize=64)
def path_of_target(target: str) -> str:
    """Return the decoded path of a request target (RFC 9112, section 3.2), as WSGI writes paths.

    Both forms are read, `/…` and `http://host/…`. Slashes stay as they are, doubled ones too, and
    an encoded slash stays encoded: it is no separator (RFC 3986, section 2.2).
    """
    absolute = _ABSOLUTE_FORM.match(target)
    path = target[absolute.end() :] if absolute else target
    path = path.partition("#")[0].partition("?")[0] or "/"
    if "%" not in path:
        return path
    slash_encoded_twice = re.sub("%2f", "%252F", path, flags=re.IGNORECASE)
    return unquote_to_bytes(slash_encoded_twice.encode("latin-1")).decode("latin-1")


class BodyBuffer(OverflowableBuffer):
    """The bytes of a body; of one that is too long, just enough to know that it is."""

    def __init__(self, overflow: int, most: int) -> None:
        """Take the size from which a body is in a file, and how many bytes of it may be read."""
        super().__init__(overflow)
        self._most = most

    def append(self, s: bytes) -> None:
        super().append(s[: self._most + 1 - len(self)])


def read_field(line: bytes) -> tuple[str, str]:
    """Return the name and value of a header line (RFC 9112, section 5), or raise ParsingError."""
    name, colon, value = line.partition(b":")
    value = value.strip(b" \t")
    if colon and _NAME.fullmatch(name) and _VALUE.fullmatch(value):
        return name.decode("ascii"), value.decode("latin-1")
    if b"\r" in line or b"\n" in line:
        raise ParsingError("a carriage return or a line feed by itself (RFC 9112, section 2.2)")
    raise ParsingError("a header line that is not 'Name: value', or folded (RFC 9112, section 5)")


class Parser(HTTPRequestParser):
    """Reads a request."""

    # Read even if no request line could be parsed.
    command = request_uri = path = query = ""
    # Whether the connection has to be closed after the answer, for the client's part.
    is_last = False
    completed: bool
    chunked: bool
    headers: dict[str, str]
    body_rcv: Any

    def __init__(
        self, adj: Adjustments, body_bytes: Callable[[str, str, dict[str, str]], int]
    ) -> None:
        """Take waitress' limits, and the function that returns how much of a body to retain."""
        super().__init__(adj)
        self._bytes_of = body_bytes
        self._body_bytes = 0

    def received(self, data: bytes) -> int:
        """Receive bytes of a request; return how many of them belonged to it."""
        if not self.header_bytes_received and data[:1].isspace():
            # Waitress overlooks blanks there, and finds no request at all if nothing follows.
            self.reject(BadRequest("no request line (RFC 9112, section 3)"))
            return len(data)
        taken: int = super().received(data)
        size = max(self.content_length, self.body_bytes_received)
        if size > MAX_BODY_BYTES and size > self._body_bytes:
            self.reject(RequestEntityTooLarge(""))
        return taken

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head of a request.

        ParsingError is raised where it is not HTTP, or can be read in more than one way.
        """
        line, _, fields = header_plus.partition(_LINE_END)
        self._read_request_line(line)
        lines = fields.split(_LINE_END)[:-2]  # an empty line ends them
        if len(lines) > MAX_HEADERS:
            self.reject(RequestHeaderFieldsTooLarge(""))
            return
        for each in lines:
            self._add_field(*read_field(each))
        self._check_host()
        self._choose_body()
        self._read_wishes()

    def reject(self, error: Error) -> None:
        """End the request with a fault."""
        self.error, self.completed = error, True

    def end_unread(self) -> None:
        """End the request without its body, and with it the connection."""
        self.completed = self.is_last = True

    def _read_request_line(self, line: bytes) -> None:
        parts = _REQUEST_LINE.fullmatch(line)
        if parts is None:
            raise ParsingError("no request line (RFC 9112, section 3)")
        method, target, minor = parts.groups()
        self.command, self.request_uri = method.decode("ascii"), target.decode("ascii")
        # RFC 9110, section 2.5: a later minor version is read as the latest that is known.
        self.version = "1.0" if minor == b"0" else "1.1"
        self.url_scheme = self.adj.url_scheme
        if _NO_TARGET.match(target):
            raise ParsingError(
                "a target that is no path and no http address (RFC 9112, section 3.2)"
            )
        if not target.startswith(b"/"):
            try:
                urlsplit(target)  # it knows what brackets may hold
            except ValueError:
                raise ParsingError("a target that is no address (RFC 9112, section 3.2)") from None
        self.path, self.query = path_of_target(self.request_uri), self.request_uri.partition("?")[2]

    def _read_wishes(self) -> None:
        is_old = self.version == "1.0"
        expected = self.headers.get("EXPECT", "").lower()
        self.expect_continue = expected == "100-continue" and not is_old
        connection = self.headers.get("CONNECTION", "").lower()
        options = [each.strip(_BLANKS) for each in connection.split(",")]
        self.is_last = "close" in options or (is_old and "keep-alive" not in options)

    def _add_field(self, name: str, value: str) -> None:
        # CGI's rule, and so WSGI's: a name with _ could pass for another with -.
        if "_" not in name:
            name = name.upper().replace("-", "_")
            before = self.headers.get(name)
            self.headers[name] = value if before is None else f"{before}, {value}"

    def _check_host(self) -> None:
        host = self.headers.get("HOST")
        if host is None and self.version == "1.0":
            return
        # Repeated headers are joined by a comma and a blank, which no host has.
        if host is None or not _HOST.fullmatch(host):
            raise ParsingError("not one Host (RFC 9112, section 3.2)")

    def _choose_body(self) -> None:
        codings = self.headers.pop("TRANSFER_ENCODING", None)
        length = self.headers.get("CONTENT_LENGTH")
        if codings is not None or length is not None:
            self._body_bytes = self._bytes_of(self.command, self.path, self.headers)
        if codings is not None:
            self._check_codings(codings, length)
            self.chunked = True
            self.body_rcv = ChunkedBody(self._body_buffer())
        elif length is not None:
            self.content_length = self._read_length(length)
            if self.content_length:
                self.body_rcv = FixedStreamReceiver(self.content_length, self._body_buffer())

    def _body_buffer(self) -> BodyBuffer:
        return BodyBuffer(self.adj.inbuf_overflow, self._body_bytes)

    def _check_codings(self, codings: str, length: str | None) -> None:
        if self.version == "1.0":
            raise ParsingError("Transfer-Encoding before HTTP/1.1 (RFC 9112, section 6.1)")
        named = [each.strip(_BLANKS).lower() for each in codings.split(",") if each]
        if set(named) - {"chunked"}:
            raise TransferEncodingNotImplemented("")
        if length is not None:
            raise ParsingError("both Content-Length and Transfer-Encoding (RFC 9112, section 6.3)")
        if len(named) != 1:
            raise ParsingError("not chunked once (RFC 9112, sections 6.1 and 6.3)")

    def _read_length(self, length: str) -> int:
        if not _LENGTH.fullmatch(length):
            raise ParsingError("a Content-Length that is no number (RFC 9112, section 6.2)")
        digits = length.lstrip("0") or "0"
        return int(digits) if len(digits) <= _MAX_DIGITS else sys.maxsize


class ChunkedBody:
    """Decodes a chunked body (RFC 9112, section 7.1).

    Waitress' own accepts empty lines and line feeds around the size, and any trailers.
    """

    completed = False
    error: BadRequest | None = None

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self._left = 0  # bytes of the chunk that is being read
        self._begun = b""  # the line that is being read
        self._read_line = self._read_size

    def __len__(self) -> int:
        """Return how many bytes were decoded so far."""
        return len(self._buffer)

    def received(self, data: bytes) -> int:
        """Receive bytes of the body; return how many of them belonged to it."""
        taken = 0
        while taken < len(data) and not self.completed and self.error is None:
            if self._left:
                piece = data[taken : taken + self._left]
                self._buffer.append(piece)
                self._left -= len(piece)
                taken += len(piece)
            else:
                # A little at a time: the rest is copied for each chunk, and chunks may be tiny.
                taken += self._take_line(data[taken : taken + _PIECE_BYTES])
        return taken

    def getfile(self) -> Any:
        return self._buffer.getfile()

    def getbuf(self) -> Any:
        return self._buffer

    def _take_line(self, data: bytes) -> int:
        line, end, _ = (self._begun + data).partition(_LINE_END)
        if len(line) > _MAX_LINE_BYTES:
            self._refuse("a long line")
        elif end:
            taken = len(line) + len(end) - len(self._begun)
            self._begun = b""
            self._read_line(line)
            return taken
        elif self._read_line == self._read_end and not _LINE_END.startswith(line):
            self._read_end(line)
        self._begun = line
        return len(data)

    def _read_size(self, line: bytes) -> None:
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            self._refuse("a chunk without a size")
            return
        self._left = int(size[1], 16)
        self._read_line = self._read_end if self._left else self._read_trailer

    def _read_end(self, line: bytes) -> None:
        if line:
            self._refuse("a chunk longer than its size")
        self._read_line = self._read_size

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.completed = True
            return
        try:
            read_field(line)
        except ParsingError:
            self._refuse("a trailer that is no header (RFC 9112, section 7.1.2)")

    def _refuse(self, what: str) -> None:
        self.error = BadRequest(what)
