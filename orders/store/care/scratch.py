"""Temporary folders for unfinished work, removed even if the process that made them was killed.

A process locks its folders, and the system frees its locks when it ends, however it ends. So a
folder that can be locked is a leftover: the next start of the service removes it, and so does
whatever makes another beside it. On file systems without such locks (some network file systems)
leftovers stay.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from orders.store.care import instance

_SUFFIX = ".unfinished"
# Strict, because folders of such names may be removed.
_NAME = re.compile(r"(backup|create|export|import|restore)-[a-z0-9_]{8}\.unfinished")


@contextmanager
def folder(parent: Path, purpose: str) -> Iterator[Path]:
    """Yield a new folder inside `parent`, for its owner only, and remove it afterwards.

    `purpose` is backup, create, export, import or restore.
    """
    sweep(parent)
    with ExitStack() as resources:
        while True:
            new = TemporaryDirectory(_SUFFIX, f"{purpose}-", parent, ignore_cleanup_errors=True)
            path = Path(resources.enter_context(new))
            with suppress(OSError):
                resources.enter_context(_locked(path, fcntl.LOCK_EX))
            if path.exists():  # otherwise another process swept it before it was locked
                break
        yield path


@contextmanager
def complete_file(target: Path, purpose: str, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a path at which to write a file, which becomes `target` once it is on the disk.

    So a file of that name is never half of one. It is for its owner only. FileExistsError where
    there is such a file, or a link, and it is not to be overwritten.
    """
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(f"{target} exists already. Choose another name, or --overwrite it.")
    with folder(target.parent, purpose) as unfinished:
        instance.make_private_file(unfinished / target.name)
        yield unfinished / target.name
        instance.sync(unfinished / target.name)
        (unfinished / target.name).replace(target)
        instance.sync(target.parent)


def sweep(parent: Path) -> None:
    """Remove the folders inside `parent` that killed processes left."""
    for path in list(parent.iterdir()):
        if _NAME.fullmatch(path.name):
            with suppress(OSError), _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB) as descriptor:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, how)
        yield descriptor
    finally:
        os.close(descriptor)
