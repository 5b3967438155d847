"""This machine, which may be busy: a free port, other programs, and waiting for conditions."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from typing import Any

# Nothing that tests wait for takes so long, unless it never comes.
PATIENCE_SECONDS = 60
# Windows has neither root nor the actions that only root can do.
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Return whether something listens on a port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def wait_until(
    condition: Callable[[], object], meanwhile: Callable[[], object] = lambda: time.sleep(0.01)
) -> None:
    """Wait until a condition holds; fail if it never does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        meanwhile()


def installed(*names: str, package: str) -> str:
    """Return the path of a program, by the first of its names that is installed."""
    for name in names:
        if path := shutil.which(name) or shutil.which(name, path="/usr/sbin"):
            return path
    raise AssertionError(f"{names[0]} is missing: apt-get install {package}")


@contextmanager
def in_thread(server: HTTPServer) -> Iterator[None]:
    """Run a server of the standard library in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    with server:
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def begin(
    command: list[Any], is_up: Callable[[], object], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a server, and wait until it is up."""
    process = subprocess.Popen(command, **options)
    try:
        wait_until(lambda: process.poll() is not None or is_up())
        assert process.poll() is None, f"{command[0]} did not start"
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def end(process: subprocess.Popen[Any]) -> int:
    """Ask a server to stop, if it runs; return its exit status."""
    process.terminate()
    return process.wait(PATIENCE_SECONDS)
