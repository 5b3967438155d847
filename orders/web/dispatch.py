"""What the HTTP server asks of the application: who answers a request, and what a refusal says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from orders.apikeys import is_well_formed
from orders.server import MAX_HEAD_BYTES, MAX_HEADERS, Refused, Work
from orders.store.database.errors import StoreUnavailable
from orders.web import bodies, etags
from orders.web.access import bearer_token, network_of
from orders.web.api import PROTECTION
from orders.web.call import Call, is_api_path
from orders.web.refusals import ANSWERS, SERVER_ANSWERS, InternalError, error_body
from orders.web.services import Services

# The messages of the server's own errors. A rejection may name its cause after the first.
WORDS = {
    400: "The request is not HTTP that can be read",
    408: "The request took too long to arrive. Send it again, whole.",
    413: f"The body may be at most {bodies.MAX_BYTES:,} bytes long.",
    431: f"There may be at most {MAX_HEADERS} headers, of {MAX_HEAD_BYTES:,} bytes in all.",
    501: "This Transfer-Encoding is not known here; send the body as it is, or chunked.",
    503: "The store is unavailable: too many requests wait for it. Try again in a few seconds.",
}
_UNAVAILABLE = 503
_RETRY = ANSWERS[StoreUnavailable].headers(None).items()
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
# Of what is no API, these ask the store.
_ASKING = frozenset({"/readyz", "/metrics"})
_LIST = "/v1/store/orders"


class Dispatch:
    """Decides by a request's head, and asks no other server."""

    probe = "/healthz"
    body_bytes = bodies.MAX_BYTES
    outages: tuple[type[Exception], ...] = (StoreUnavailable,)

    def __init__(self, services: Services, on_turn: Callable[[], None]) -> None:
        """Take the parts of the application, and what is called while the loop runs."""
        self._services = services
        self.on_turn = on_turn
        settings = services.settings
        # Each request asks another server, which may stand still.
        self._is_remote = settings.is_on_postgres or bool(settings.limits_url)

    def work(self, method: str, path: str, headers: dict[str, str]) -> Work:
        """Return what a request takes."""
        if not is_api_path(path):
            return Work.WAITING if path in _ASKING else Work.INSTANT
        try:
            if path == _LIST and method == "GET" and self._is_long(headers.get("IF_NONE_MATCH")):
                return Work.LONG
        except StoreUnavailable:
            return Work.WAITING  # which will say so
        return Work.SHORT if method in _READS and not self._is_remote else Work.WAITING

    def wants_body(self, method: str, path: str, headers: dict[str, str]) -> bool:
        """Return whether a body matters: not where the head alone leads to 401, 413 or 415.

        A key is only looked at: looking it up could block.
        """
        if not is_api_path(path):
            return True
        token = bearer_token(headers.get("AUTHORIZATION"))
        is_key = token is not None and is_well_formed(token)
        return is_key and bodies.may_be_read(method, headers)

    def has_room_for_long(self) -> bool:
        """Return whether a long answer may begin now."""
        return self._services.long_reads.is_open

    def owner(self, address: str, authorization: str | None) -> str:
        """Return the key that a header presents, or else the network of the address."""
        return bearer_token(authorization) or network_of(address)

    def refusal(self, refused: Refused) -> tuple[list[tuple[str, str]], bytes]:
        """Return the headers and the Error body of a refusal, and log it."""
        services, now = self._services, time.monotonic()
        is_api = refused.path is None or is_api_path(refused.path)
        call = Call(os.urandom(8).hex(), now, is_api, refused.address, "-", "-")
        call.waited = now - refused.whole_at
        headers, body = answer_to_refused(refused, call)
        if is_api:  # it counts nothing
            verdict = services.standing(refused.authorization)
            headers += verdict.headers(services.clock.time())
        services.note_answer(call, refused.status, time.monotonic())
        return headers, body

    def _is_long(self, if_none_match: str | None) -> bool:
        if not self._services.list.is_long:
            return False
        # A client whose copy is current is answered 304, which is short.
        return (
            if_none_match is None
            or self._is_remote
            or etags.tag_of(self._services.store_id, self._services.list.now().revision)
            not in if_none_match
        )


def answer_to_refused(refused: Refused, call: Call) -> tuple[list[tuple[str, str]], bytes]:
    """Return the headers and the body of a refusal, without the rate limits'."""
    status, cause = refused.status, refused.cause
    call.refusal = SERVER_ANSWERS[status]
    words = WORDS.get(status) or ANSWERS[InternalError].words(InternalError(call.request_id))
    headers = [
        ("Content-Type", "application/json"),
        ("X-Request-Id", call.request_id),
        *PROTECTION.items(),
        *(_RETRY if status == _UNAVAILABLE else ()),
    ]
    return headers, error_body(call.refusal, f"{words}: {cause}." if cause else words, status)
