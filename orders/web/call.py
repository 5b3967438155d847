"""The request being answered, from its first hook to its line in the log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flask import g

if TYPE_CHECKING:
    from orders.web.access import Caller, Verdict


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
