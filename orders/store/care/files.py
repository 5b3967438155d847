"""The instance folder and its files: private, complete or not there, with one service at a time.

Unfinished work is made in scratch folders, which a process locks until it ends, however it ends. So
a folder that can be locked is a leftover: the next start of the service removes it, and so does the
next scratch folder beside it. On file systems without such locks (some network disks) they stay.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from orders import system
from orders.domain import Expected

# How long to wait for a lock that a command may have for a moment, or, where there is no store yet,
# until it has made one.
LOCKED_SECONDS = 1.0
MAKING_SECONDS = 10.0
LOCK = "lock"
_UNFINISHED = ".unfinished"
# Strict, because folders with such names may be removed.
_SCRATCH_NAME = re.compile(r"(backup|create|export|import|restore)-[a-z0-9_]{8}\.unfinished")


class InstanceLocked(Expected):
    """Another service, or a command that needs it stopped, has locked the instance folder."""


@contextmanager
def locked(
    instance: Path, patience: float = LOCKED_SECONDS, unless: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Make the instance folder and lock it; InstanceLocked if another process has locked it.

    The service does so, and commands that need it stopped. Waits until `unless` returns true, at
    most for `patience` seconds. The system frees the lock when the process ends, however it ends.
    """
    system.make_private_folder(instance)
    with locked_file(instance / LOCK, patience, unless):
        yield


@contextmanager
def locked_file(
    path: Path, patience: float = LOCKED_SECONDS, unless: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Make an empty file and lock it, as `locked` does with a folder."""
    with suppress(FileExistsError):
        system.make_private_file(path)
        system.leave_to_owner(path, path.parent)
    with ExitStack() as held:
        try:
            held.enter_context(system.locked_file(path, patience, unless))
        except TimeoutError:
            raise InstanceLocked(
                "A service runs on this folder. Stop it first, then try again."
            ) from None
        yield


@contextmanager
def scratch_folder(parent: Path, purpose: str) -> Iterator[Path]:
    """Yield a new folder inside `parent`, for its owner only; remove it. See `_SCRATCH_NAME`."""
    sweep(parent)
    with ExitStack() as resources:
        while True:
            new = TemporaryDirectory(_UNFINISHED, f"{purpose}-", parent, ignore_cleanup_errors=True)
            path = Path(resources.enter_context(new))
            system.make_private_folder(path)
            with suppress(OSError):
                resources.enter_context(system.locked_folder(path, wait=True))
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
    with scratch_folder(target.parent, purpose) as unfinished:
        system.make_private_file(unfinished / target.name)
        yield unfinished / target.name
        system.sync(unfinished / target.name)
        system.replace(unfinished / target.name, target)
        system.sync(target.parent)


def sweep(parent: Path) -> None:
    """Remove the folders inside `parent` that killed processes left."""
    for path in list(parent.iterdir()):
        if _SCRATCH_NAME.fullmatch(path.name):
            with suppress(OSError):
                with system.locked_folder(path, wait=False) as is_ours:
                    if is_ours:
                        shutil.rmtree(path, ignore_errors=True)
                # Where the lock is a file in it.
                if is_ours:
                    path.rmdir()


def sum_of(path: Path) -> Path:
    """Return the path of the file with a backup's SHA-256, as `sha256sum` writes it."""
    return path.with_name(f"{path.name}.sha256")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
