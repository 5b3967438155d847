"""Responses with an ETag: 304 if the client's copy is current, else a body (RFC 9110, section 13).

The tag is the store's random id, the format of the representation, and the newest event that it
reflects. Every change of an order appends an event. Only a single order's tag in version 2 is
strong: the others' bodies may be compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flask import request

from orders.service import Condition
from orders.web.compression import accepts_gzip, compressed, is_large
from orders.web.replies import Reply
from orders.web.services import current_services

# Raised when a release changes what a representation looks like.
FORMAT = 1


def if_match(*, strong: bool) -> Condition | None:
    """Return whether the client's If-Match names a revision, by strong comparison.

    None without an If-Match. `strong` is whether the tags here are.
    """
    if "HTTP_IF_MATCH" not in request.environ:
        return None
    wanted, store_id = request.if_match, current_services().store_id
    return lambda each: wanted.star_tag or (strong and wanted.is_strong(_tag(store_id, each)))


def precondition(*, strong: bool) -> Condition | None:
    """Return whether a change of an order with a revision is allowed; None if it always is."""
    is_wanted = if_match(strong=strong)
    if "HTTP_IF_NONE_MATCH" not in request.environ:
        return is_wanted
    unwanted, store_id = request.if_none_match, current_services().store_id
    return lambda each: (
        (is_wanted is None or is_wanted(each)) and not unwanted.contains_weak(_tag(store_id, each))
    )


def not_modified(revision: int, body: bytes | None, *, strong: bool = False) -> Reply | None:
    """Return 304 if the client's If-None-Match names this revision, None if it needs the body.

    `body` is None if the response would be streamed.
    """
    varies = body is None or is_large(body)
    return if_current(lambda: revision, varies=varies, strong=strong)


def if_current(revision: Callable[[], int], *, varies: bool, strong: bool = False) -> Reply | None:
    """Do as `not_modified`, but read the revision only if the request has an If-None-Match.

    `varies` is whether the response may be compressed.
    """
    if "HTTP_IF_NONE_MATCH" not in request.environ:
        return None
    tag = _tag(current_services().store_id, revision())
    if request.if_none_match.contains_weak(tag):
        return Reply(status=304, headers=_headers(tag, varies=varies, strong=strong))
    return None


def entity(
    body: bytes | Iterable[bytes],
    revision: int,
    *,
    varies: bool | None = None,
    strong: bool = False,
) -> Reply:
    """Return 200 with a JSON body and its ETag. A body that is not bytes is streamed.

    `varies` is whether any response at this address may be compressed; by default, whether this
    one may.
    """
    large = is_large(body) and not strong
    tag = _tag(current_services().store_id, revision)
    headers = _headers(tag, varies=large if varies is None else varies, strong=strong)
    if large and accepts_gzip(request):
        headers.append(("Content-Encoding", "gzip"))
        body = compressed(body)
    return Reply(body, headers=headers)


def _tag(store_id: str, revision: int) -> str:
    return f"{store_id}-{FORMAT}-{revision}"


def _headers(tag: str, *, varies: bool, strong: bool) -> list[tuple[str, str]]:
    return [
        ("ETag", f'"{tag}"' if strong else f'W/"{tag}"'),
        ("Cache-Control", "private, no-cache"),
        ("Vary", "Authorization, Accept-Encoding" if varies else "Authorization"),
    ]
