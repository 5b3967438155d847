"""The request being answered, from its first hook to its line in the log, and its response."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import g

from orders.strictjson import to_json

if TYPE_CHECKING:
    from orders.web.access import Caller, Verdict

JSON = "application/json"
NO_CONTENT = 204
_WITHOUT_BODY = {NO_CONTENT, 304}
_STATUS_LINES = {each.value: f"{each.value} {each.phrase}" for each in HTTPStatus}


@dataclass(slots=True)
class Call:
    """One request. `began` is in monotonic seconds; `path` is decoded, as WSGI writes it.

    `waited` is for how many seconds its last byte had been received before that.

    `judged_at` is the wall time of the verdict, 0 without one. `headers` are sent with any response
    to it. `endpoint` is Flask's name of the route, None where there is none; `refusal` is the error
    code of a response of 400 and above.
    """

    request_id: str
    began: float
    is_api: bool
    address: str
    method: str
    path: str
    caller: Caller | None = None
    verdict: Verdict | None = None
    judged_at: float = 0.0
    waited: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    endpoint: str | None = None
    refusal: str | None = None

    @property
    def key_name(self) -> str | None:
        """The name of the request's key in the log and in events; None without a valid key."""
        key = self.caller.key if self.caller else None
        return f"key:{key.id}" if key else None


# Called when an answer has been sent, with its status and the monotonic time.
NoteAnswer = Callable[[Call, int, float], None]


def current_call() -> Call:
    """Return the call of the request being answered."""
    call: Call = g.call
    return call


_API_PATH = re.compile(r"/+v[12](/|$)")


def is_api_path(path: str) -> bool:
    """Return whether a path belongs to the API: `/v1` or `/v2`, or below; leading slashes fold."""
    return _API_PATH.match(path) is not None


class Reply:
    """A response, and the WSGI application and body that send it.

    A body that is not bytes is streamed, and closed where it has a `close`. Its headers are a plain
    list, of ours, which need no checking: Werkzeug's class checks and copies each header several
    times. With it, a GET of one order takes half as long again.
    """

    __slots__ = ("_ended", "_pieces", "body", "headers", "status")

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
        self._ended: Callable[[], None] = lambda: None
        if status not in _WITHOUT_BODY:
            self.headers.append(("Content-Type", content_type))
            if isinstance(body, bytes):
                self.headers.append(("Content-Length", str(len(body))))
        self._pieces: Iterable[bytes] = (body,) if isinstance(body, bytes) else body

    def call_when_sent(self, ended: Callable[[], None]) -> None:
        """Have a function called at the end of the response, however it ends."""
        self._ended = ended

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Reply:
        """Begin the response; return its body."""
        if environ["REQUEST_METHOD"] == "HEAD" or self.status in _WITHOUT_BODY:
            self._pieces = ()
        start_response(_STATUS_LINES[self.status], self.headers)
        return self

    def __iter__(self) -> Iterator[bytes]:
        """Return the pieces of the body."""
        return iter(self._pieces)

    def close(self) -> None:
        """Release what a streamed body holds."""
        try:
            close = getattr(self.body, "close", None)
            if close is not None:
                close()
        finally:
            self._ended()


def json_reply(value: Any, status: int = 200) -> Reply:
    """Return a response with a value as JSON."""
    return Reply(to_json(value).encode(), status)
