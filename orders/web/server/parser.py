"""Reads requests from a connection: waitress' parser, as strict as RFC 9112 requires.

Input that a proxy in front could read as a different request is rejected, and the connection
closed: if two readers disagree where a request ends, one answers a request that a client has hidden
in a body (request smuggling).
"""

from __future__ import annotations

import re
from typing import Any

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.rfc7230 import HEADER_FIELD_RE
from waitress.utilities import BadRequest, Error, RequestHeaderFieldsTooLarge

from orders.web.bodies import MAX_BYTES

MAX_BODY_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024
# Each costs time, which the loop has for all connections together.
MAX_HEADERS = 100
# Section 3. Waitress takes a line without a version, and any bytes but blanks for a target.
_REQUEST_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Z]+ ([!-~]+) HTTP/1\.[0-9]")
# Section 3.2: no fragment, and no scheme but those of HTTP.
_NO_TARGET = re.compile(rb"[^#]*#|(?!https?://)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LATER_VERSION = re.compile(rb"HTTP/1\.[2-9]$")
_FOLD = re.compile(rb"(?:^|\r\n)[ \t]")
_CODINGS = re.compile(rb"(?:^|\r\n)transfer-encoding:([^\r]*)", re.IGNORECASE)
# RFC 3986, section 3.2.2 and 3.2.3.
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
)
# A length of more digits is over any limit, and Python's int() does not read any number of them.
_MAX_DIGITS = 19
# Section 7.1, with the blanks around extensions that a recipient has to overlook.
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_CHUNK_SIZE = re.compile(
    rb"([0-9A-Fa-f]{1,16})"
    rb"(?:[ \t]*;[ \t]*" + _TOKEN + rb"(?:[ \t]*=[ \t]*(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?)*"
)
# The causes that waitress names, by how they begin: some repeat what the client sent.
_CAUSES = {
    "Bare CR or LF": "a carriage return or a line feed by itself (RFC 9112, section 2.2)",
    "Invalid header": "a header line that is not 'Name: value' (RFC 9112, section 5)",
    "Content-Length": "a Content-Length that is no number (RFC 9112, section 6.2)",
}
# Of a chunk's size with its extensions, and of a trailer.
_MAX_LINE_BYTES = 4 * 1024
_PIECE_BYTES = 64


class RequestTimeout(Error):
    """The fault of a request that was not whole in time (RFC 9110, section 15.5.9)."""

    code = 408


class BodyBuffer(OverflowableBuffer):
    """The bytes of a body; of one that is too long, just enough to know that it is."""

    def append(self, s: bytes) -> None:
        """Append bytes as far as there is room."""
        super().append(s[: MAX_BYTES + 1 - len(self)])


class Parser(HTTPRequestParser):
    """Reads a request."""

    # Read even if no request line could be parsed.
    command = request_uri = path = ""
    # Whether the client asks for the connection to be closed after the answer.
    is_last = False
    completed: bool
    chunked: bool
    version: str
    headers: dict[str, str]
    body_rcv: Any

    def received(self, data: bytes) -> int:
        """Receive bytes of a request; return how many of them belonged to it."""
        if not self.header_bytes_received and data[:1].isspace():
            # Waitress overlooks blanks there, and finds no request at all if nothing follows.
            self.reject(BadRequest("no request line (RFC 9112, section 3)"))
            return len(data)
        taken: int = super().received(data)
        if self.completed:
            # Waitress would ask for a body that is already rejected or does not exist, and read the
            # next request as part of this one (RFC 9110, section 10.1.1).
            self.expect_continue = False
        if self.error is not None:
            self.error.body = _cause(self.error)
        return taken

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head of a request.

        ParsingError is raised where it is not HTTP, or can be read in more than one way.
        """
        line, end, fields = header_plus.partition(b"\r\n")
        if fields.count(b"\n") > MAX_HEADERS + 1:  # an empty line ends them
            self.reject(RequestHeaderFieldsTooLarge(""))
            return
        parts = _REQUEST_LINE.fullmatch(line)
        if parts is None:
            raise ParsingError("no request line (RFC 9112, section 3)")
        if _NO_TARGET.match(parts[1]):
            raise ParsingError(
                "a target that is no path and no http address (RFC 9112, section 3.2)"
            )
        self.command = line.partition(b" ")[0].decode("ascii")
        if _FOLD.search(fields):
            raise ParsingError("a folded header (RFC 9112, sections 2.2 and 5.2)")
        # RFC 9110, section 2.5: a later minor version is read as the latest that is known.
        line = _LATER_VERSION.sub(b"HTTP/1.1", line)
        try:
            super().parse_header(line + end + fields)
        except ValueError:
            if len(self.headers.get("CONTENT_LENGTH", "")) <= _MAX_DIGITS:
                raise ParsingError("a target that is no address (RFC 9112, section 3.2)") from None
            self.content_length = self.adj.max_request_body_size
        self._check_host()
        self._check_length(fields)
        if self.version == "1.0" or "CONNECTION" in self.headers:
            options = re.split(r"[ \t]*,[ \t]*", self.headers.get("CONNECTION", "").lower())
            is_kept = self.version != "1.0" or "keep-alive" in options
            self.is_last = "close" in options or not is_kept
        kept = BodyBuffer(self.adj.inbuf_overflow)
        if self.chunked:
            self.body_rcv = ChunkedBody(kept)
        elif self.body_rcv is not None:
            self.body_rcv.buf = kept

    def reject(self, error: Error) -> None:
        """End the request with a fault."""
        self.error, self.completed = error, True

    def _check_host(self) -> None:
        host = self.headers.get("HOST")
        if host is None and self.version == "1.0":
            return
        # Waitress joins repeated headers by a comma and a blank, which no host has.
        if host is None or not _HOST.fullmatch(host):
            raise ParsingError("not one Host (RFC 9112, section 3.2)")

    def _check_length(self, fields: bytes) -> None:
        lines = _CODINGS.findall(fields)
        if not lines:
            return
        if self.version == "1.0":
            raise ParsingError("Transfer-Encoding before HTTP/1.1 (RFC 9112, section 6.1)")
        if "CONTENT_LENGTH" in self.headers:
            raise ParsingError("both Content-Length and Transfer-Encoding (RFC 9112, section 6.3)")
        # Waitress has rejected all other codings, but accepts none or two for one.
        if len(re.findall(rb"[^ \t,]+", b",".join(lines))) != 1:
            raise ParsingError("not chunked once (RFC 9112, sections 6.1 and 6.3)")


def _cause(error: BadRequest) -> str:
    for beginning, cause in _CAUSES.items():
        if error.body.startswith(beginning):
            return cause
    return str(error.body)


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
        """Return the body as a file."""
        return self._buffer.getfile()

    def getbuf(self) -> Any:
        """Return the buffer."""
        return self._buffer

    def _take_line(self, data: bytes) -> int:
        line, end, _ = (self._begun + data).partition(b"\r\n")
        if len(line) > _MAX_LINE_BYTES:
            self._refuse("a long line")
        elif end:
            taken = len(line) + len(end) - len(self._begun)
            self._begun = b""
            self._read_line(line)
            return taken
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
        elif not HEADER_FIELD_RE.fullmatch(line):
            self._refuse("a trailer that is no header (RFC 9112, section 7.1.2)")

    def _refuse(self, what: str) -> None:
        self.error = BadRequest(what)
