"""Compression of large responses, for clients that accept gzip (RFC 9110, section 8.4.1.3).

A list of 300,000 orders is 27 MB, or 3.8 MB as gzip, in 0.15 s: more than half of the time that the
list itself takes, and far less than most networks take. zstd takes half as long, but its package is
half as large as all the others together.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache

from flask import request
from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

from orders.web.call import Reply

# A smaller response fits in a few packets as it is.
LARGE_BYTES = 8 * 1024
# Lower: these are compressed only once.
_CONSTANTS_LARGE_BYTES = 1024
_FASTEST = 1
_SMALLEST = 9
# zlib's window of 32 KiB, with gzip's header.
_GZIP = 31
_IS_GZIP = ("Content-Encoding", "gzip")


def is_large(body: bytes | Iterable[bytes]) -> bool:
    """Return whether a response is worth compressing. A streamed one always is."""
    return not isinstance(body, bytes) or len(body) >= LARGE_BYTES


def encoded(
    body: bytes | Iterable[bytes], headers: list[tuple[str, str]]
) -> bytes | Iterable[bytes]:
    """Return a body as the client is to get it: as gzip, with its header, or as it is."""
    if not is_large(body) or not _accepts_gzip():
        return body
    headers.append(_IS_GZIP)
    return _whole(body) if isinstance(body, bytes) else _Pieces(body)


def json_reply(body: bytes) -> Reply:
    """Return 200 with a JSON body: as gzip if it is large and the client accepts that."""
    headers = [("Vary", "Accept-Encoding")] if is_large(body) else []
    return Reply(encoded(body, headers), headers=headers)


def _accepts_gzip() -> bool:
    # And prefers no plain response to it.
    accepted = request.environ.get("HTTP_ACCEPT_ENCODING")
    return accepted is not None and _prefers_gzip(accepted)


# Clients send few different headers; a strange one may be as long as the server allows.
@lru_cache(maxsize=64)
def _prefers_gzip(accepted: str) -> bool:
    # https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3
    codings = parse_accept_header(accepted, Accept)
    qualities = {name.lower(): quality for name, quality in codings}
    other = qualities.get("*", 0)
    gzip = qualities.get("gzip", qualities.get("x-gzip", other))
    return gzip > 0 and gzip >= qualities.get("identity", other)


# A cached list is requested again and again.
@lru_cache(maxsize=4)
def _whole(body: bytes) -> bytes:
    return zlib.compress(body, _FASTEST, _GZIP)


class _Pieces:
    """A compressed stream."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        packer = zlib.compressobj(_FASTEST, wbits=_GZIP)
        for piece in self._pieces:
            if packed := packer.compress(piece):
                yield packed
        yield packer.flush()

    def close(self) -> None:
        """Close the stream that is compressed."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


class Constant:
    """A view whose body never changes, made at the first request and kept: 304 to who has it."""

    def __init__(
        self, make: Callable[[], bytes], content_type: str, headers: Mapping[str, str]
    ) -> None:
        """Take what makes the body, its type and its headers beside ETag and Vary."""
        self._make = make
        self._content_type = content_type
        self._headers = headers

    def load(self) -> None:
        """Make the body now."""
        self._body  # noqa: B018 - cached

    def __call__(self) -> Reply:
        """Return the response to the request being answered."""
        headers = [("ETag", f'W/"{self._tag}"'), *self._headers.items()]
        is_compressible = len(self._body) >= _CONSTANTS_LARGE_BYTES
        if is_compressible:
            headers.append(("Vary", "Accept-Encoding"))
        if request.if_none_match.contains_weak(self._tag):
            return Reply(status=304, headers=headers)
        body = self._body
        if is_compressible and _accepts_gzip():
            headers.append(_IS_GZIP)
            body = self._compressed
        return Reply(body, headers=headers, content_type=self._content_type)

    @cached_property
    def _body(self) -> bytes:
        return self._make()

    @cached_property
    def _compressed(self) -> bytes:
        return zlib.compress(self._body, _SMALLEST, _GZIP)

    @cached_property
    def _tag(self) -> str:
        # With the headers, which browsers keep along with the copy.
        return hashlib.sha256(repr(self._headers).encode() + self._body).hexdigest()[:32]
