"""A redis-server that tests and proofs start, kill, pause and start again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.machine import PATIENCE_SECONDS, begin, free_port, installed


class RedisServer:
    """A redis-server that keeps nothing on the disk, reached over a socket in a folder or TCP."""

    def __init__(self, folder: Path) -> None:
        """Start it, and wait until it answers."""
        from redis import Redis  # an extra

        program = installed("redis-server", "valkey-server", package="redis-server")
        folder.mkdir(exist_ok=True)
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        port = free_port()
        self.tcp_url = f"redis://127.0.0.1:{port}"
        self._command = [
            *(program, "--port", str(port), "--bind", "127.0.0.1"),
            *("--unixsocket", str(self.socket), "--dir", str(folder)),
            *("--save", "", "--appendonly", "no"),
        ]
        self._client = Redis.from_url(self.url, socket_timeout=PATIENCE_SECONDS, protocol=2)
        self.start()

    def start(self) -> None:
        """Start it, with nothing in it."""
        self.process = begin(self._command, self._is_up, stdout=subprocess.DEVNULL)
        with suppress(PermissionError):
            # Lets it answer in time though the machine is busy with the others.
            os.setpriority(os.PRIO_PROCESS, self.process.pid, -10)

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
        """Execute a command, as an operator would; return the answer."""
        return self._client.execute_command(*words)

    def names(self) -> list[bytes]:
        """Return the names of all keys, sorted."""
        return sorted(self.command("KEYS", "*"))

    def _is_up(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(os.fspath(self.socket)) == 0


@contextmanager
def redis_running(folder: Path) -> Iterator[RedisServer]:
    """Run a redis-server; kill it at the end."""
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.kill()
