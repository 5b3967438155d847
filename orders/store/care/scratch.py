"""Folders for unfinished work, which are removed even if whoever made them was killed.

In each is a file that whoever made it holds a lock on, which the system frees when the process
ends, however it ends. So a folder whose file can be locked belongs to nobody any more, and whoever
makes the next beside it, or starts the service, removes it. Where a file system has no such locks
(some that are reached over a network), none is removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_LOCK = "lock"
_SUFFIX = ".unfinished"
_PATIENCE_SECONDS = 1.0
# Strict, because what has such a name may be removed.
_NAME = re.compile(r"(backup|create|export|import|restore)-[a-z0-9_]{8}\.unfinished")


@contextmanager
def folder(parent: Path, purpose: str) -> Iterator[Path]:
    """Return a new folder inside of another, for its owner only; it is gone afterwards.

    `purpose` is backup, create, export, import or restore.

    Raises:
        OSError: it can't be made.
    """
    with ExitStack() as held:
        # Nobody else looks for what was left over until the new folder is locked.
        with _swept(parent):
            path = Path(tempfile.mkdtemp(prefix=f"{purpose}-", suffix=_SUFFIX, dir=parent))
            held.callback(shutil.rmtree, path, ignore_errors=True)
            file = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            held.callback(os.close, file)
            _lock(file, fcntl.LOCK_EX)
        yield path


def sweep(parent: Path) -> None:
    """Remove the folders inside of another whose makers were killed."""
    with _swept(parent):
        pass


@contextmanager
def _swept(parent: Path) -> Iterator[None]:
    # The lock of the folder itself: for whoever makes or removes one in it, for a moment.
    descriptor = os.open(parent, os.O_RDONLY)
    try:
        if _is_locked_in_time(descriptor):
            _remove_leftovers(parent)
        yield
    finally:
        os.close(descriptor)


def _is_locked_in_time(descriptor: int) -> bool:
    # Whoever can read a folder, such as /tmp, can lock it, and need not give it back.
    ends = time.monotonic() + _PATIENCE_SECONDS
    while not _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def _remove_leftovers(parent: Path) -> None:
    for entry in list(os.scandir(parent)):
        if (
            _NAME.fullmatch(entry.name)
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            and _is_nobodys(Path(entry.path))
        ):
            shutil.rmtree(entry.path, ignore_errors=True)


def _is_nobodys(path: Path) -> bool:
    try:
        file = os.open(path / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        return True  # its maker was killed before it came to that
    except OSError:
        return False
    try:
        return _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(file)


def _lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True
