"""Buffers of the bytes of an answer that are not yet sent."""

from __future__ import annotations

import shutil
import sys
from tempfile import gettempdir
from typing import Any

from waitress.buffers import OverflowableBuffer

# An answer up to here is kept until its reader took it, mostly in a file; a longer one holds its
# thread (which is lent to it). The list of 700,000 orders still fits.
MAX_UNSENT_BYTES = 64 * 1024 * 1024


class AnswerBuffer(OverflowableBuffer):
    """Bytes to send, in memory up to a size and in a file beyond it; sent bytes are dropped.

    Waitress' own keeps all bytes of an answer until the last is sent, in memory if the reader
    keeps up: 28 MB for each reader of 300,000 orders.
    """

    buf: Any
    overflow: int
    overflowed: bool

    def _set_large_buffer(self) -> None:
        # On a full disk, a file would break the answer off. Memory is bounded as well.
        if _has_room_for_files():
            super()._set_large_buffer()
            return
        self.overflow = sys.maxsize
        if self.buf is None:
            self._set_small_buffer()

    def skip(self, numbytes: int, allow_prune: bool = False) -> None:
        """Drop bytes that were sent."""
        super().skip(numbytes, allow_prune)
        if self.buf is None:
            return
        sent_in_memory = 0 if self.overflowed else self.buf.getfile().tell()
        if len(self) == 0 or sent_in_memory >= self.overflow:
            rest = self.buf.get()
            self.buf.close()
            self.buf = None
            self.overflowed = False
            self.append(rest)


def _has_room_for_files() -> bool:
    try:
        return shutil.disk_usage(gettempdir()).free > MAX_UNSENT_BYTES
    except OSError:
        return False
