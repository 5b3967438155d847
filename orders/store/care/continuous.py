"""How far the continuous copy, which Litestream makes beside the service, is behind.

Litestream is asked to copy what was committed, and answers once that is in the other place
(https://litestream.io/reference/config/, "socket"). So the copy has all that there was when it was
asked.
"""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

from orders.clock import Clock

log = logging.getLogger(__name__)

ASKED_EVERY_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_LONGEST_ANSWER = 64 * 1024
# As deploy/litestream/litestream.yml has it.
SOCKET = "litestream.sock"


class ContinuousCopy:
    """Litestream's copy of one SQLite file."""

    def __init__(self, database: Path, clock: Clock) -> None:
        """Take the file. Nothing is asked yet."""
        self._database = database
        self._socket = database.with_name(SOCKET)
        self._state = database.with_name(f".{database.name}-litestream")
        self._clock = clock
        # The copy has all that there was then (monotonic); at first, as far as is known.
        self._whole_at = clock.monotonic()

    @property
    def seconds_behind(self) -> float | None:
        """How long ago the copy was whole for sure; None where Litestream was never set up."""
        if not self._state.exists() and not self._socket.exists():
            return None
        return max(self._clock.monotonic() - self._whole_at, 0.0)

    def tend(self) -> float:
        """Ask whether all is copied; return when to call this again."""
        began = self._clock.monotonic()
        if self._socket.exists() and self._is_whole():
            self._whole_at = began
        return ASKED_EVERY_SECONDS

    def _is_whole(self) -> bool:
        wanted = {"path": str(self._database), "wait": True, "timeout": int(_ANSWER_SECONDS)}
        try:
            head, _, body = _ask(self._socket, json.dumps(wanted).encode()).partition(b"\r\n\r\n")
        except OSError as error:
            log.debug("Litestream does not answer: %s", error)
            return False
        return b" 200 " in head.partition(b"\r\n")[0] and b'"error"' not in body


def _ask(path: Path, body: bytes) -> bytes:
    head = f"POST /sync HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(head.encode() + body)
        while len(answer) < _LONGEST_ANSWER and (chunk := connection.recv(4096)):
            answer += chunk
    return answer
