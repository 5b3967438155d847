"""Pages of orders over HTTP: parameters to a query, the page to JSON with a cursor of the next.

A cursor is the position at which a page ended, with a digest of the position and the query, keyed
by the store's id: it is invalid with another query, at another store, or if it was changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from flask import request

from orders import domain
from orders.domain import Status
from orders.store.pages import FILTERS, LATER, Filters, PageQuery, Position, Sort, SortBy, read_page
from orders.web.bodies import read_query
from orders.web.refusals import ValidationFailed
from orders.web.services import ListedPage, current_services

_SORTS = {
    "id": SortBy.ID,
    "placedAt": SortBy.PLACED_AT,
    "shipDate": SortBy.SHIP_DATE,
    "dueAt": SortBy.DUE_AT,
}
_DIGEST_BYTES = 12


def page_query(parameters: Mapping[str, Any], store_id: str) -> PageQuery:
    """Return the query of the parameters of listOrders.

    ValidationFailed is raised where `after` is not a cursor of this store and query.
    """
    statuses = _statuses(parameters.get("status"), parameters.get("complete"))
    chosen = {name: parameters[name] for name in FILTERS if name in parameters}
    filters = Filters(statuses, **chosen)
    by, descending = parameters["sort"].removeprefix("-"), parameters["sort"].startswith("-")
    query = PageQuery(filters, Sort(_SORTS[by], descending), parameters["limit"])
    if "after" not in parameters:
        return query
    return replace(query, after=_read_cursor(parameters["after"], query, store_id))


def read_listed_page(query: PageQuery) -> ListedPage:
    """Return the requested page as JSON, with a Link to the next."""
    services = current_services()
    page = read_page(services.database, query)
    orders = ",".join(page.orders)
    if page.next is None:
        return ListedPage(f'{{"orders":[{orders}]}}'.encode(), None, page.revision)
    cursor = _cursor(page.next, query, services.store_id)
    body = f'{{"orders":[{orders}],"next":"{cursor}"}}'.encode()
    return ListedPage(body, _next_link(services.path_prefix, cursor), page.revision)


def _next_link(path_prefix: str, cursor: str) -> str:
    # https://www.rfc-editor.org/rfc/rfc8288
    parameters = read_query(request.query_string) | {"after": [cursor]}
    query = urlencode(parameters, doseq=True, quote_via=quote)
    return f'<{path_prefix}{request.environ["PATH_INFO"]}?{query}>; rel="next"'


def _statuses(wanted: frozenset[str] | None, complete: bool | None) -> tuple[Status, ...]:
    return tuple(
        status
        for status in Status
        if (wanted is None or status in wanted)
        and (complete is None or complete == (status is Status.SHIPPED))
    )


def _cursor(position: Position, query: PageQuery, store_id: str) -> str:
    key = None if position.key is None else domain.format_instant(position.key)
    facts = [key, position.id]
    text = json.dumps([*facts, _digest(facts, query, store_id)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str, query: PageQuery, store_id: str) -> Position:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded.encode("ascii"), b"-_", validate=True)
        *facts, digest = json.loads(text)
        if digest == _digest(facts, query, store_id):
            key, order_id = facts
            return Position(None if key is None else domain.parse_instant(key), order_id)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        pass
    raise ValidationFailed(
        {"after": "is not a cursor of this list: use `next` of its last page, or begin again"}
    )


def _digest(facts: list[Any], query: PageQuery, store_id: str) -> str:
    later = [(name, str(value)) for name, value in query.filters.values().items() if name in LATER]
    text = json.dumps([facts, repr(query.filters), repr(query.sort), *later])
    return hashlib.blake2b(
        text.encode(), key=store_id.encode(), digest_size=_DIGEST_BYTES
    ).hexdigest()
