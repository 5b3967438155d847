"""The differences between systems: sockets, the files sent over them, signals, descriptors."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any

# Each connection's, for bytes that its client has not acknowledged. Linux doubles the figure.
SEND_BUFFER_BYTES = 128 * 1024

if sys.platform == "win32":
    import ctypes
    import threading
    import time
    from ctypes import wintypes

    # The limit of Python's own `select`, as it is compiled for Windows.
    _SELECTED = 512
    # The listeners, and what wakes the loop.
    _OWN_SOCKETS = 12
    # winsock2.h, mstcpip.h: in TCP_INFO_v0, bytes in flight, sent, and sent again.
    _SIO_TCP_INFO = 0xD8000027
    _TCP_INFO_BYTES, _IN_FLIGHT, _OUT, _AGAIN = 88, slice(28, 32), slice(48, 56), slice(68, 72)
    # A console's signals when its window is closed, the user signs out, or the computer is shut
    # down: https://learn.microsoft.com/windows/console/handlerroutine
    _LAST_EVENTS = {2, 5, 6}
    _EVENTS = ctypes.WINFUNCTYPE(wintypes.BOOL, wintypes.DWORD)
    _winsock = ctypes.WinDLL("ws2_32")
    _kernel = ctypes.WinDLL("kernel32")

    def unacknowledged(connected: socket.socket, sent: int, *, is_held_up: bool) -> int:
        """Return how many of the bytes sent the system buffers, as the client has not got them.

        From Windows 10 1703 on, the system says so. Where it does not, they are none before it
        takes nothing more, and then as many as it buffers.
        """
        facts = ctypes.create_string_buffer(_TCP_INFO_BYTES)
        failed = _winsock.WSAIoctl(
            ctypes.c_size_t(connected.fileno() % 2**64),
            ctypes.c_uint32(_SIO_TCP_INFO),
            ctypes.byref(ctypes.c_uint32(0)),
            4,
            facts,
            _TCP_INFO_BYTES,
            ctypes.byref(wintypes.DWORD()),
            None,
            None,
        )
        if connected.fileno() < 0:
            return 0
        if failed:
            return min(sent, SEND_BUFFER_BYTES) if is_held_up else 0
        out, again, flying = (
            int.from_bytes(facts.raw[part], sys.byteorder) for part in (_OUT, _AGAIN, _IN_FLIGHT)
        )
        return max(0, sent - (out - again - flying))

    def send_pieces(connected: socket.socket, pieces: list[memoryview]) -> int:
        """Send what the system takes of these pieces; return how many bytes that were."""
        return connected.send(b"".join(pieces))

    class SpoolFile:
        """A file that one thread appends to, and another sends: by default, one without a name."""

        def __init__(self, file: Any = None) -> None:
            self._file = file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed later
            self._lock = threading.Lock()

        def append(self, data: memoryview) -> int:
            """Append bytes; return how many there was room for at once."""
            with self._lock:
                self._file.seek(0, os.SEEK_END)
                return self._file.write(data)

        def send(self, connected: socket.socket, position: int, count: int) -> int:
            """Send bytes from a position on; return how many the system took."""
            with self._lock:
                self._file.seek(position)
                data = self._file.read(count)
            return connected.send(data)

        def close(self) -> None:
            """Give the disk's space back."""
            self._file.close()

    def descriptors(wanted: int, spare: int) -> int:
        """Return how many there may be: as many sockets as can be polled, and the spare ones."""
        return min(wanted, _SELECTED - _OWN_SOCKETS + spare)

    def listen(family: int, address: Any, backlog: int) -> socket.socket:
        """Return a socket that listens, at an address that no other program can listen at, too."""
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(backlog)
        except OSError:
            listener.close()
            raise
        return listener

    def on_stop_signals(stop: Callable[[], None]) -> None:
        """Call `stop` on Ctrl-C, on Ctrl-Break, and at the end of the window or of the session."""
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGBREAK):
            signal.signal(name, lambda *_: stop())
        # The starting process may have turned Ctrl-C off, which is inherited.
        _kernel.SetConsoleCtrlHandler(None, False)
        _kernel.SetConsoleCtrlHandler(_on_event, True)

    def _before_the_last(event: int) -> bool:
        if event not in _LAST_EVENTS:
            return False
        signal.raise_signal(signal.SIGTERM)
        # The system ends the process when this returns, or after 5 seconds.
        time.sleep(60)
        return True

    _on_event = _EVENTS(_before_the_last)

else:
    import fcntl
    import resource
    import termios

    def unacknowledged(connected: socket.socket, _sent: int, **_: bool) -> int:
        try:
            packed = fcntl.ioctl(connected, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):  # this says that it is closed
            return 0
        return int.from_bytes(packed, sys.byteorder)

    send_pieces = socket.socket.sendmsg

    class SpoolFile:
        def __init__(self, file: Any = None) -> None:
            self._file = file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed later

        def append(self, data: memoryview) -> int:
            return self._file.write(data)

        def send(self, connected: socket.socket, position: int, count: int) -> int:
            return os.sendfile(connected.fileno(), self._file.fileno(), position, count)

        def close(self) -> None:
            self._file.close()

    def descriptors(wanted: int, spare: int) -> int:  # noqa: ARG001 - as elsewhere
        """Raise the limit of open files as far as needed and allowed; return the limit."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted

    def listen(family: int, address: Any, backlog: int) -> socket.socket:
        """Return a socket that listens at an address."""
        return socket.create_server(address, family=family, backlog=backlog)

    def on_stop_signals(stop: Callable[[], None]) -> None:
        """Call `stop` on SIGTERM and on Ctrl-C."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: stop())
