"""Pages of orders over HTTP: from parameters to what is asked, and to where the next page is.

A cursor is where a page ended, with a digest over it and over the query that it belongs to, keyed
by the store's id: with another query, at another store or changed on its way it does not fit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from flask import request

from orders import domain
from orders.domain import Status
from orders.store.paging import Filters, PageQuery, Position, Sort, SortBy, read_page
from orders.web.bodies import read_query
from orders.web.refusals import ValidationFailed
from orders.web.services import ListedPage, current_services

_SORTS = {"id": SortBy.ID, "placedAt": SortBy.PLACED_AT, "shipDate": SortBy.SHIP_DATE}
_DIGEST_BYTES = 12


def page_query(asked: Mapping[str, Any], store_id: str) -> PageQuery:
    """Return what the parameters of listOrders ask for.

    Raises:
        ValidationFailed: `after` is no cursor of this store and query.
    """
    filters = Filters(
        _statuses(asked.get("status"), asked.get("complete")),
        *(asked.get(name) for name in ("pet_id", "reference")),
        *(asked.get(name) for name in ("placed_from", "placed_before")),
        *(asked.get(name) for name in ("ships_from", "ships_before")),
    )
    sort = Sort(_SORTS[asked["sort"].removeprefix("-")], asked["sort"].startswith("-"))
    query = PageQuery(filters, sort, asked["limit"])
    if "after" not in asked:
        return query
    return PageQuery(filters, sort, asked["limit"], _read_cursor(asked["after"], query, store_id))


def listed(query: PageQuery) -> ListedPage:
    """Return the page that this request asks for, as it goes out.

    Raises:
        StoreUnavailable: the database can't be read.
    """
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
        {"after": "is not a cursor of this list: use `next` of the previous page"}
    )


def _digest(facts: list[Any], query: PageQuery, store_id: str) -> str:
    told = json.dumps([facts, repr(query.filters), repr(query.sort)])
    return hashlib.blake2b(
        told.encode(), key=store_id.encode(), digest_size=_DIGEST_BYTES
    ).hexdigest()
