"""Files that hold long answers, so that nobody who makes one waits for its reader."""

from __future__ import annotations

import os
import tempfile


class Spool:
    """The bytes of a long answer: one thread writes them, the loop reads them as they come."""

    def __init__(self) -> None:
        """Make the file, which has no name.

        Raises:
            OSError: there is no room for it.
        """
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
        self.size = 0
        # No more bytes will come; and whether the answer is complete then.
        self.is_ended = False
        self.is_whole = False

    def write(self, data: bytes) -> None:
        """Append bytes. For the thread that makes the answer."""
        self._file.write(data)
        # Only now may they be read.
        self.size += len(data)

    def end(self, *, whole: bool) -> None:
        """Say that no more bytes come."""
        self.is_whole = whole
        self.is_ended = True

    def read(self, position: int, most: int) -> bytes:
        """Return bytes from a position on, none if there are none yet. For the loop."""
        return os.pread(self._file.fileno(), min(most, self.size - position), position)

    def close(self) -> None:
        """Give the disk's space back."""
        self._file.close()
