"""Responses with an ETag: 304 if the client's copy is current, else a body (RFC 9110, section 13).

The tag is the store's random id, the format of the representation, and the newest event that it
reflects. Every change of an order appends an event. Only a single order's tag in version 2 is
strong: the others' bodies may be compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flask import request
from werkzeug.datastructures import ETags
from werkzeug.http import parse_etags

from orders.domain import PreconditionFailed
from orders.service import Condition
from orders.store.lists import Entity
from orders.web.call import Reply
from orders.web.compression import encoded, is_large
from orders.web.services import current_services

# Raised when a release changes what a representation looks like.
FORMAT = 1


def order_reply(order_id: int, order: Entity, *, strong: bool) -> Reply:
    """Return an order with its ETag, or 304 if the client's copy is current.

    PreconditionFailed is raised where If-Match names no such tag.
    """
    environ = request.environ
    tag = tag_of(current_services().store_id, order.revision)
    wanted, unwanted = environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH", "")
    if wanted is not None and not _matches(wanted, tag, strong=strong):
        raise PreconditionFailed(order_id)
    headers = _headers(tag, varies=False, strong=strong)
    if _tags(unwanted, tag).contains_weak(tag):
        return Reply(status=304, headers=headers)
    return Reply(order.body, headers=headers)


def precondition(*, strong: bool) -> Condition | None:
    """Return whether a change of an order with a revision is allowed; None if it always is."""
    environ = request.environ
    if "HTTP_IF_MATCH" not in environ and "HTTP_IF_NONE_MATCH" not in environ:
        return None
    # The change may be made in another thread.
    wanted, unwanted = environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH", "")
    store_id = current_services().store_id

    def is_allowed(revision: int) -> bool:
        tag = tag_of(store_id, revision)
        is_wanted = wanted is None or _matches(wanted, tag, strong=strong)
        return is_wanted and not _tags(unwanted, tag).contains_weak(tag)

    return is_allowed


def precondition_of_list() -> Condition | None:
    """Return whether a change is allowed where the list has a revision; None if it always is."""
    return precondition(strong=False)


def strong_headers(revision: int) -> list[tuple[str, str]]:
    """Return the headers of the answer of a write to one order."""
    return _headers(tag_of(current_services().store_id, revision), varies=False, strong=True)


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
    tag = tag_of(current_services().store_id, revision())
    if _tags(environ["HTTP_IF_NONE_MATCH"], tag).contains_weak(tag):
        return Reply(status=304, headers=_headers(tag, varies=varies))
    return None


def entity(body: bytes | Iterable[bytes], revision: int, *, varies: bool | None = None) -> Reply:
    """Return 200 with a JSON body and its ETag. A body that is not bytes is streamed.

    `varies` is whether any response at this address may be compressed; by default, whether this
    one may.
    """
    tag = tag_of(current_services().store_id, revision)
    headers = _headers(tag, varies=is_large(body) if varies is None else varies)
    return Reply(encoded(body, headers), headers=headers)


def tag_of(store_id: str, revision: int) -> str:
    """Return the tag of a store as of an event, without quotes."""
    return f"{store_id}-{FORMAT}-{revision}"


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
