"""This machine, which may be busy: a free port, and waiting for as long as it takes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

# Nothing that tests wait for takes so long, unless it never comes.
PATIENCE_SECONDS = 60


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def wait_until(
    condition: Callable[[], object], meanwhile: Callable[[], object] = lambda: time.sleep(0.01)
) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: it does not.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        meanwhile()
