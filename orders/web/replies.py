"""Responses as views return them: plain lists of headers, which are ours and need no checking.

Werkzeug's own class checks and copies each header several times, which costs more than most
requests do in all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

JSON = "application/json"
# Made once: making an encoder takes longer than its work on a short answer.
to_json = json.JSONEncoder(separators=(",", ":")).encode
NO_CONTENT = 204
_WITHOUT_BODY = {NO_CONTENT, 304}
_STATUS_LINES = {each.value: f"{each.value} {each.phrase}" for each in HTTPStatus}


class Reply:
    """A response, and the WSGI application and body that send it.

    A body that is not bytes is streamed, and closed where it has a `close`.
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
