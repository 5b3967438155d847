"""A redis-server of one's own: started, killed, paused, started anew. For proofs and tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.machine import PATIENCE_SECONDS, free_port, wait_until


class RedisServer:
    """A redis-server that keeps nothing on the disk, reached over a socket in a folder or TCP."""

    def __init__(self, folder: Path) -> None:
        """Start it, and wait until it answers.

        Raises:
            AssertionError: there is no redis-server, or it does not start.
        """
        from redis import Redis  # an extra

        found = shutil.which("redis-server") or shutil.which("valkey-server")
        assert found, "there is no redis-server: apt-get install redis-server"
        folder.mkdir(exist_ok=True)
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        port = free_port()
        self.tcp_url = f"redis://127.0.0.1:{port}"
        self._command = [
            *(found, "--port", str(port), "--bind", "127.0.0.1"),
            *("--unixsocket", str(self.socket), "--dir", str(folder)),
            *("--save", "", "--appendonly", "no"),
        ]
        self._client = Redis.from_url(self.url, socket_timeout=PATIENCE_SECONDS, protocol=2)
        self.start()

    def start(self) -> None:
        """Start it, with nothing in it."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        with suppress(PermissionError):
            # So that it answers in time though the machine is busy with the others.
            os.setpriority(os.PRIO_PROCESS, self.process.pid, -10)
        wait_until(self._is_there)

    def kill(self) -> None:
        """Kill it at once."""
        self._client.close()
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)

    def pause(self) -> None:
        """Suspend it: the system still accepts connections, and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        self.process.send_signal(signal.SIGCONT)

    def command(self, *words: str | int | bytes) -> Any:
        """Have it execute a command, as an operator would; return the answer."""
        return self._client.execute_command(*words)

    def names(self) -> list[bytes]:
        """Return the names of all keys, sorted."""
        return sorted(self.command("KEYS", "*"))

    def _is_there(self) -> bool:
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(os.fspath(self.socket)) == 0


@contextmanager
def redis_running(folder: Path) -> Iterator[RedisServer]:
    """Run a redis-server while something talks to it; end it afterwards."""
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.kill()
