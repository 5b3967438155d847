"""Downloads of a file, whole or a part of it (RFC 9110, section 14), so that one can be resumed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from flask import request

from orders.server import SEND_FILE
from orders.web.refusals import RangeNotSatisfiable
from orders.web.replies import Reply

# No file has more bytes than a number of so many digits.
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)
_PIECE_BYTES = 256 * 1024


class Part(NamedTuple):
    """The bytes of a file that are asked for, of so many in all."""

    start: int
    length: int
    size: int

    @property
    def is_whole(self) -> bool:
        return self.length == self.size

    def __str__(self) -> str:
        return f"bytes {self.start}-{self.start + self.length - 1}/{self.size}"


def asked_part(size: int, tag: str) -> Part:
    """Return the part of a file that the request asks for; RangeNotSatisfiable if it has none.

    It is the whole file unless there is a single range, or if the client's part is of another file.
    """
    environ, whole = request.environ, Part(0, size, size)
    match = _RANGE.fullmatch(environ.get("HTTP_RANGE", ""))
    if not match or request.method != "GET" or environ.get("HTTP_IF_RANGE", tag) != tag:
        return whole
    first, last = match.groups()
    if not (first or last) or (first and last and int(last) < int(first)):
        return whole
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        raise RangeNotSatisfiable(size)
    return Part(start, end - start, size)


class Download(Reply):
    """A response whose body is a part of an open file: the server sends it without a thread."""

    def __init__(self, file: BinaryIO, part: Part, tag: str, name: str, content_type: str) -> None:
        headers = [
            ("ETag", tag),
            ("Accept-Ranges", "bytes"),
            ("Content-Disposition", f'attachment; filename="{name}"'),
        ]
        status = 200 if part.is_whole else 206
        if not part.is_whole:
            headers.append(("Content-Range", str(part)))
        super().__init__(_pieces(file, part), status, headers, content_type)
        self._file, self._part = file, part

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if request.method == "HEAD":
            self._file.close()
        elif SEND_FILE in environ:
            environ[SEND_FILE](self._file, self._part.start, self._part.length)
            self.body = ()
            return super().__call__(environ, start_response)
        self.headers.append(("Content-Length", str(self._part.length)))
        return super().__call__(environ, start_response)


def opened(path: Path) -> tuple[BinaryIO, int]:
    """Return a file, open, and its size: both stay as they are when it is removed meanwhile."""
    file = path.open("rb", buffering=0)
    return file, os.fstat(file.fileno()).st_size


def _pieces(file: BinaryIO, part: Part) -> Iterator[bytes]:
    """Yield a part's bytes, for other servers of WSGI."""
    with file:
        file.seek(part.start)
        left = part.length
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            left -= len(piece)
            yield piece
