"""An answer on its way: what is left to send of it, and what its client has acknowledged."""

from __future__ import annotations

import fcntl
import math
import os
import sys
import tempfile
import termios
from collections import deque
from contextlib import suppress
from itertools import islice
from socket import socket
from typing import Protocol

# As much as the system keeps for a client.
SENT_AT_ONCE = 256 * 1024
# What a client has acknowledged is noted so often, for a minute.
_MARK_SECONDS = 10
_MARKS = 6


class Spool:
    """The file of a long answer, so that the thread that makes it waits for no reader."""

    def __init__(self) -> None:
        """Make the file, which has no name.

        Raises:
            OSError: there is no room for it.
        """
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append bytes. For the thread that makes the answer.

        Raises:
            OSError: there is no room for them.
        """
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        # Only now may they be sent.
        self.size += len(data)

    def send(self, connected: socket, position: int) -> int:
        """Send bytes from a position on; return how many the system took. For the loop."""
        count = min(SENT_AT_ONCE, self.size - position)
        return os.sendfile(connected.fileno(), self._file.fileno(), position, count) if count else 0

    def close(self) -> None:
        """Give the disk's space back."""
        self._file.close()


class Answer(Protocol):
    """What is to be sent: a short answer's pieces, or a long one's file."""

    pieces: list[bytes]
    spool: Spool | None


class Outgoing:
    """What is sent over a connection: one answer after the other."""

    def __init__(self, connected: socket, now: float) -> None:
        """Take the socket, and the time in monotonic seconds."""
        self._socket = connected
        self._unsent: deque[memoryview] = deque()
        self._position = 0  # in the file of a long answer
        self._sent = 0
        self._taken = 0
        self._progress_at = now
        # When, in the last minute, how many bytes had been acknowledged.
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MARKS)

    def begin(self) -> None:
        """Begin the next answer."""
        self._position = 0
        self._marks.clear()

    def send(self, answer: Answer, now: float) -> int:
        """Send as much as the client accepts now, at most a piece; return how many bytes it took.

        Raises:
            OSError: the client is gone.
        """
        self._unsent.extend(map(memoryview, answer.pieces))
        answer.pieces = []
        self._progress_at = now
        sent = 0
        with suppress(BlockingIOError):
            if self._unsent:
                # Not joined: that would copy a page for each of its readers.
                is_cut = len(self._unsent[0]) > SENT_AT_ONCE
                next_ones = islice(self._unsent, 1 if is_cut else 2)
                sent = self._socket.sendmsg([each[:SENT_AT_ONCE] for each in next_ones])
                self._forget(sent)
            elif answer.spool is not None:
                sent = answer.spool.send(self._socket, self._position)
                self._position += sent
        self._sent += sent
        return sent

    def has_more(self, spool: Spool | None) -> bool:
        """Return whether bytes are there to be sent."""
        return bool(self._unsent) or (spool is not None and self._position < spool.size)

    def unacknowledged(self) -> int:
        """Return how many bytes the system keeps that the client has not acknowledged."""
        try:
            packed = fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):  # which says that it is closed
            return 0
        return int.from_bytes(packed, sys.byteorder)

    def pace(self, now: float) -> float:
        """Return how many bytes a second the client took in its last minute."""
        if not self._marks or self._marks[0][0] == now:
            return math.inf
        began, taken = self._marks[0]
        return (self._sent - self.unacknowledged() - taken) / (now - began)

    def stands_still_for(self, now: float) -> float:
        """Note the client's progress; return for how many seconds there has been none."""
        taken = self._sent - self.unacknowledged()
        if taken != self._taken:
            self._taken, self._progress_at = taken, now
        if not self._marks or now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, taken))
        return now - self._progress_at

    def _forget(self, count: int) -> None:
        while self._unsent and count >= len(self._unsent[0]):
            count -= len(self._unsent.popleft())
        if count:
            self._unsent[0] = self._unsent[0][count:]
