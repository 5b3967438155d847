"""Notifications to systemd: the service is ready, alive or stopping.

With WatchdogSec in its unit, a service that hangs is restarted:
https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import socket
from contextlib import suppress
from enum import StrEnum


class State(StrEnum):
    """The states that systemd can be notified of."""

    READY = "READY=1"
    ALIVE = "WATCHDOG=1"
    STOPPING = "STOPPING=1"


def notify(address: str, state: State) -> None:
    """Send a state to systemd's socket, if there is one. Never blocks, and never fails."""
    if not address:
        return
    # Without a file, its name begins with a zero byte, which is written as an @.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), target)
