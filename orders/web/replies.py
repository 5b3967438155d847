"""Answers: whole or streamed, as JSON, as gzip, with an ETag.

A list of 300,000 orders is 27 MB, or 3.8 MB as gzip (RFC 9110, section 8.4.1.3), in 0.15 s: more
than half of the time that the list itself takes, and far less than most networks take. zstd takes
half as long, but its package is half as large as all the others together.

An ETag (RFC 9110, section 13) is the store's random id, the format of the representation, and the
newest event that it reflects. Every change of an order appends an event. Only a single order's tag
in version 2 is strong: the others' bodies may be compressed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any

from flask import g, request
from werkzeug.datastructures import Accept, ETags
from werkzeug.http import parse_accept_header, parse_etags
from werkzeug.wsgi import ClosingIterator

from orders.domain import PreconditionFailed
from orders.service import Condition
from orders.store.idempotency import Written
from orders.store.orders import Changed
from orders.store.orders_json import Entity
from orders.store.tables import orders
from orders.strictjson import to_json

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

JSON = "application/json"
CREATED = 201
NO_CONTENT = 204
REPLAYED = ("Idempotent-Replayed", "true")
_WITHOUT_BODY = {NO_CONTENT, 304}
_STATUS_LINES = {each.value: f"{each.value} {each.phrase}" for each in HTTPStatus}
# The format in ETags. Raise it when a release changes what a representation looks like; the names
# of an order's fields follow by themselves.
_FORMAT = 1
FORMAT = f"{_FORMAT}{zlib.crc32(','.join(orders.columns.keys()).encode()):08x}"
# A smaller response fits in a few packets as it is.
LARGE_BYTES = 8 * 1024
# A lower limit, as these are compressed only once.
_CONSTANTS_LARGE_BYTES = 1024
_FASTEST = 1
_SMALLEST = 9
# zlib's window of 32 KiB, with gzip's header.
_GZIP = 31
_IS_GZIP = ("Content-Encoding", "gzip")


class Reply:
    """A response, and the WSGI application that sends it.

    A body that is not bytes is streamed, and closed where it has a `close`. Its headers are a plain
    list, of ours, which need no checking: Werkzeug's class checks and copies each header several
    times. With it, a GET of one order takes half as long again.
    """

    __slots__ = ("body", "end", "headers", "status")

    def __init__(
        self,
        body: bytes | Iterable[bytes] = b"",
        status: int = 200,
        headers: Iterable[tuple[str, str]] = (),
        content_type: str = JSON,
    ) -> None:
        """Take the body, the status, and the headers beside those of the body itself."""
        self.body = body
        self.status = status
        self.headers = [*headers]
        # Called at the end of the response, however it ends.
        self.end: Callable[[], None] = lambda: None
        if status not in _WITHOUT_BODY:
            self.headers.append(("Content-Type", content_type))
            if isinstance(body, bytes):
                self.headers.append(("Content-Length", str(len(body))))

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        start_response(_STATUS_LINES[self.status], self.headers)
        close = getattr(self.body, "close", None)
        pieces: Iterable[bytes] = ()
        if environ["REQUEST_METHOD"] != "HEAD" and self.status not in _WITHOUT_BODY:
            # A chain has no `close` of its own: a failure of the body's must not hide the end.
            pieces = (self.body,) if isinstance(self.body, bytes) else chain(self.body)
        return ClosingIterator(pieces, [self.end, close] if close else self.end)


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(to_json(value).encode(), status)


def write_reply(done: Written[Changed], version: int, status: int = 200) -> Reply:
    """Return the answer of a write to one order: the order as a version shows it, if any."""
    order = done.answer
    headers = []
    if version > 1:
        headers += _headers(tag_of(_store_id(), order.event_id), varies=False, strong=True)
    if status == CREATED:
        headers.append(_location(order.order_id, version))
    if done.replayed:
        headers.append(REPLAYED)
    return Reply(b"" if status == NO_CONTENT else order.shown(version).encode(), status, headers)


def existing(order_id: int, revision: int, version: int) -> list[tuple[str, str]]:
    """Return the headers that say where an order is, and of which revision."""
    tag = tag_of(_store_id(), revision)
    return [_location(order_id, version), *_headers(tag, varies=False, strong=True)]


def _location(order_id: int, version: int) -> tuple[str, str]:
    prefix = g.call.shop.settings.path_prefix
    return "Location", f"{prefix}/v{version}/store/orders/{order_id}"


def order_reply(order_id: int, order: Entity, *, strong: bool) -> Reply:
    """Return an order with its ETag, or 304 if the client's copy is current.

    PreconditionFailed is raised where If-Match names no such tag.
    """
    environ = request.environ
    tag = tag_of(_store_id(), order.revision)
    wanted, unwanted = environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH", "")
    if wanted is not None and not _matches(wanted, tag, strong=strong):
        raise PreconditionFailed(order_id)
    headers = _headers(tag, varies=False, strong=strong)
    if _tags(unwanted, tag).contains_weak(tag):
        return Reply(status=304, headers=headers)
    return Reply(order.body, headers=headers)


def precondition(environ: WSGIEnvironment, *, strong: bool) -> Condition:
    """Return whether an order, or the list, may be changed at a revision. A list's tag is weak."""
    # The change may be made in another thread.
    wanted, unwanted = environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH", "")
    store_id = _store_id()

    def is_allowed(revision: int) -> bool:
        tag = tag_of(store_id, revision)
        is_wanted = wanted is None or _matches(wanted, tag, strong=strong)
        return is_wanted and not _tags(unwanted, tag).contains_weak(tag)

    return is_allowed


def if_current(revision: Callable[[], int], *, varies: bool) -> Reply | None:
    """Return 304 if the client's If-None-Match names this revision, None if it needs the body.

    `varies` is whether the response may be compressed. PreconditionFailed is raised where there is
    an If-Match but `*`: the tag is weak.
    """
    environ = request.environ
    if environ.get("HTTP_IF_MATCH", "*") != "*":
        raise PreconditionFailed
    if "HTTP_IF_NONE_MATCH" not in environ:
        return None
    tag = tag_of(_store_id(), revision())
    if _tags(environ["HTTP_IF_NONE_MATCH"], tag).contains_weak(tag):
        return Reply(status=304, headers=_headers(tag, varies=varies))
    return None


def entity(body: bytes | Iterable[bytes], revision: int, *, varies: bool | None = None) -> Reply:
    """Return 200 with a JSON body and its ETag. A body that is not bytes is streamed.

    `varies` is whether any response at this address may be compressed; by default, whether this
    one may.
    """
    tag = tag_of(_store_id(), revision)
    headers = _headers(tag, varies=is_large(body) if varies is None else varies)
    return Reply(encoded(body, headers), headers=headers)


def tag_of(store_id: str, revision: int) -> str:
    """Return the tag of a store as of an event, without quotes."""
    return f"{store_id}-{FORMAT}-{revision}"


def _store_id() -> str:
    store_id: str = g.call.shop.store_id
    return store_id


def _matches(wanted: str, tag: str, *, strong: bool) -> bool:
    # A weak tag matches none (RFC 9110, section 8.8.3.2).
    return wanted == "*" or (strong and _tags(wanted, tag).is_strong(tag))


def _tags(header: str, tag: str) -> ETags:
    """Return the tags of a header that this one may be among."""
    # Reading 16,000 takes 10 ms.
    return parse_etags(header if header == "*" or tag in header else "")


def _headers(tag: str, *, varies: bool, strong: bool = False) -> list[tuple[str, str]]:
    return [
        ("ETag", f'"{tag}"' if strong else f'W/"{tag}"'),
        ("Cache-Control", "private, no-cache"),
        ("Vary", "Authorization, Accept-Encoding" if varies else "Authorization"),
    ]


def is_large(body: bytes | Iterable[bytes]) -> bool:
    """Return whether a response is worth compressing. A streamed one always is."""
    return not isinstance(body, bytes) or len(body) >= LARGE_BYTES


def encoded(
    body: bytes | Iterable[bytes], headers: list[tuple[str, str]]
) -> bytes | Iterable[bytes]:
    """Return a body, as gzip and with its header if it is large and the client accepts that."""
    if not is_large(body) or not _accepts_gzip():
        return body
    headers.append(_IS_GZIP)
    return _whole(body) if isinstance(body, bytes) else _Pieces(body)


def text_reply(body: bytes) -> Reply:
    """Return 200 with a JSON body: as gzip if it is large and the client accepts that."""
    headers = [("Vary", "Accept-Encoding")] if is_large(body) else []
    return Reply(encoded(body, headers), headers=headers)


def _accepts_gzip() -> bool:
    # Whether the client accepts gzip, and does not prefer a plain response.
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
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        packer = zlib.compressobj(_FASTEST, wbits=_GZIP)
        for piece in self._pieces:
            if packed := packer.compress(piece):
                yield packed
        yield packer.flush()

    def close(self) -> None:
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


class Constant:
    """A view whose body never changes: made at the first request, and 304 for current copies."""

    def __init__(
        self, make: Callable[[], bytes], content_type: str, headers: Mapping[str, str]
    ) -> None:
        """Take the function that makes the body, its type, and headers beside ETag and Vary."""
        self._make = make
        self._content_type = content_type
        self._headers = headers

    def load(self) -> None:
        self._body  # noqa: B018 - cached

    def __call__(self) -> Reply:
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
