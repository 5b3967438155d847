"""Answers with an ETag: the client's copy is good, or here is a new one (RFC 9110, section 13).

The tag is weak: it names the store's random id, the format of the representation, and the event
that it shows the store as of. Anything that changes an order appends an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flask import Response, request

from orders.web.compression import accepts_gzip, compressed, is_large
from orders.web.services import current_services

# Raised when a release changes what a representation looks like.
FORMAT = 1


def not_modified(revision: int, body: bytes | None) -> Response | None:
    """Return 304 if the client's If-None-Match names this revision, None if it needs the body.

    `body` is None where the answer would be streamed.
    """
    return still_good(lambda: revision, varies=body is None or is_large(body))


def still_good(revision: Callable[[], int], *, varies: bool) -> Response | None:
    """Return what `not_modified` gives, asking for the revision only where the client names any.

    `varies` tells whether the answer may be compressed.
    """
    if "HTTP_IF_NONE_MATCH" not in request.environ:
        return None
    tag = _tag(revision())
    if request.if_none_match.contains_weak(tag):
        return Response(status=304, headers=_headers(tag, varies=varies))
    return None


def entity(body: bytes | Iterable[bytes], revision: int, *, varies: bool | None = None) -> Response:
    """Return 200 with a JSON body and its ETag. A body that is no bytes is streamed.

    `varies` tells whether another answer at this address may be compressed; this one is asked
    where it is not given.
    """
    large = is_large(body)
    headers = _headers(_tag(revision), varies=large if varies is None else varies)
    if large and accepts_gzip(request):
        headers.append(("Content-Encoding", "gzip"))
        body = compressed(body)
    return Response(body, headers=headers, content_type="application/json")


def _tag(revision: int) -> str:
    return f"{current_services().store_id}-{FORMAT}-{revision}"


def _headers(tag: str, *, varies: bool) -> list[tuple[str, str]]:
    return [
        ("ETag", f'W/"{tag}"'),
        ("Cache-Control", "private, no-cache"),
        ("Vary", "Authorization, Accept-Encoding" if varies else "Authorization"),
    ]
