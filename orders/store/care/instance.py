"""The instance folder and its files: for their owner only, with one service at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

# How long to wait for a lock that a command may have for a moment, or, where there is no store yet,
# until it has made one.
LOCKED_SECONDS = 1.0
MAKING_SECONDS = 10.0
LOCK = "lock"


class InstanceLocked(Exception):
    """Another service, or a command that needs it stopped, has locked the instance folder."""


def make_private_folder(path: Path) -> None:
    """Make the folder, and its parents, for its owner only; revoke the rights of others."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)
            leave_to_owner(each, each.parent)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner can read; SQLite gives its own files the same rights.

    FileExistsError is raised where there is one, or a link, which is not followed.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def leave_to_owner(path: Path, folder: Path) -> None:
    """Give what root has just made to the owner of a folder, whose service is to use it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def take_rights_of_others(path: Path) -> None:
    """Let only its owner read and write a file, if there is one."""
    if path.exists() and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(
    instance: Path, patience: float = LOCKED_SECONDS, unless: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Make the instance folder, and hold its lock; InstanceLocked where another process does.

    The service holds it, and commands that need it stopped. Waits for at most so many seconds, or
    until `unless` says true. The operating system frees it when the process ends, however it ends.
    """
    make_private_folder(instance)
    with locked_file(instance / LOCK, patience, unless):
        yield


@contextmanager
def locked_file(
    path: Path, patience: float = LOCKED_SECONDS, unless: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Make the file, which is empty, and hold a lock on it, as `locked` does of a folder."""
    with suppress(FileExistsError):
        make_private_file(path)
        leave_to_owner(path, path.parent)
    lock = filelock.FileLock(path, mode=0o600)
    try:
        lock.acquire(timeout=patience, cancel_check=unless)
    except filelock.Timeout:
        raise InstanceLocked(
            "A service runs on this folder. Stop it first, then try again."
        ) from None
    try:
        yield
    finally:
        lock.release()
