"""Which thread answers a request: what the HTTP server has to know of the application."""

from __future__ import annotations

from collections.abc import Callable

from orders.keys import is_well_formed
from orders.web import bodies, conditional
from orders.web.access.auth import bearer_token
from orders.web.call import Call, is_api_path, path_of_target
from orders.web.server import Work
from orders.web.services import Services

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
# Of what is no API, these ask the store.
_ASKING = frozenset({"/readyz", "/metrics"})
_LIST = "/v1/store/orders"


class Dispatch:
    """Decides by a request's head, and asks no other server."""

    def __init__(self, services: Services, note_turn: Callable[[], None]) -> None:
        """Take the parts of the application, and what is called while the loop runs."""
        self._services = services
        self.note_turn = note_turn
        settings = services.settings
        # Each request asks another server, which may stand still.
        self._is_remote = settings.is_on_postgres or bool(settings.limits_url)

    def work(self, method: str, target: str, headers: dict[str, str]) -> Work:
        """Return what a request takes.

        Raises:
            StoreUnavailable: the database can't be read.
        """
        path = path_of_target(target)
        if not is_api_path(path):
            return Work.WAITING if path in _ASKING else Work.INSTANT
        if path == _LIST and method == "GET" and self._is_long(headers.get("IF_NONE_MATCH")):
            return Work.LONG
        return Work.SHORT if method in _READS and not self._is_remote else Work.WAITING

    def wants_body(self, method: str, target: str, headers: dict[str, str]) -> bool:
        """Return whether a body matters: not where the head alone leads to 401, 413 or 415.

        A key is only looked at: looking it up could block.
        """
        if not is_api_path(path_of_target(target)):
            return True
        token = bearer_token(headers.get("AUTHORIZATION"))
        is_key = token is not None and is_well_formed(token)
        return is_key and bodies.may_be_read(method, headers)

    def has_room_for_long(self) -> bool:
        """Return whether a long answer may begin now."""
        return self._services.long_reads.is_open

    def uncounted_headers(self, authorization: str | None) -> list[tuple[str, str]]:
        """Return the rate-limit headers of a refusal that counts nothing."""
        services = self._services
        return services.standing(authorization).headers(services.clock.time())

    def note_answer(self, call: Call, status: int, now: float) -> None:
        """Note an answer that the server made by itself."""
        self._services.note_answer(call, status, now)

    def _is_long(self, if_none_match: str | None) -> bool:
        if not self._services.list.is_long:
            return False
        # A client whose copy is current is answered 304, which is short.
        return (
            if_none_match is None
            or self._is_remote
            or conditional.tag_of(self._services.store_id, self._services.list.now().revision)
            not in if_none_match
        )
