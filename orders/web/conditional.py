"""Responses with an ETag: 304 if the client's copy is current, else a body (RFC 9110, section 13).

The tag is weak: the store's random id, the format of the representation, and the newest event that
it reflects. Every change of an order appends an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flask import request

from orders.web.compression import accepts_gzip, compressed, is_large
from orders.web.replies import Reply
from orders.web.services import current_services

# Raised when a release changes what a representation looks like.
FORMAT = 1


def not_modified(revision: int, body: bytes | None) -> Reply | None:
    """Return 304 if the client's If-None-Match names this revision, None if it needs the body.

    `body` is None if the response would be streamed.
    """
    return if_current(lambda: revision, varies=body is None or is_large(body))


def if_current(revision: Callable[[], int], *, varies: bool) -> Reply | None:
    """Do as `not_modified`, but read the revision only if the request has an If-None-Match.

    `varies` is whether the response may be compressed.
    """
    if "HTTP_IF_NONE_MATCH" not in request.environ:
        return None
    tag = _tag(revision())
    if request.if_none_match.contains_weak(tag):
        return Reply(status=304, headers=_headers(tag, varies=varies))
    return None


def entity(body: bytes | Iterable[bytes], revision: int, *, varies: bool | None = None) -> Reply:
    """Return 200 with a JSON body and its ETag. A body that is not bytes is streamed.

    `varies` is whether any response at this address may be compressed; by default, whether this
    one may.
    """
    large = is_large(body)
    headers = _headers(_tag(revision), varies=large if varies is None else varies)
    if large and accepts_gzip(request):
        headers.append(("Content-Encoding", "gzip"))
        body = compressed(body)
    return Reply(body, headers=headers)


def _tag(revision: int) -> str:
    return f"{current_services().store_id}-{FORMAT}-{revision}"


def _headers(tag: str, *, varies: bool) -> list[tuple[str, str]]:
    return [
        ("ETag", f'W/"{tag}"'),
        ("Cache-Control", "private, no-cache"),
        ("Vary", "Authorization, Accept-Encoding" if varies else "Authorization"),
    ]
