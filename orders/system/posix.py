"""The differences between systems, for POSIX: Linux and macOS."""

from __future__ import annotations

import fcntl
import os
import pwd
import shlex
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A file that is open, too, can be renamed and replaced.
REPLACES_OPEN_FILES = True
# How a person types it.
CURL = "curl"
quoted = shlex.quote


def spare_other_programs() -> None:
    """Let programs that a single file starts find the system's libraries, not those unpacked.

    https://pyinstaller.org/en/stable/common-issues-and-pitfalls.html
    """
    users_own = os.environ.pop("LD_LIBRARY_PATH_ORIG", "")
    os.environ.pop("LD_LIBRARY_PATH", None)
    if users_own:
        os.environ["LD_LIBRARY_PATH"] = users_own


def write_utf8() -> None:
    """Do nothing: what the locale says is respected, and is UTF-8 almost everywhere."""


def has_own_window() -> bool:
    """Return false: a desktop starts programs without a terminal."""
    return False


def keep_new_files_private() -> None:
    """Let only their owner read the files that this process makes from now on."""
    os.umask(0o077)


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


def open_private_file(path: Path) -> int:
    """Return the descriptor of a file to read and write, which is made where there is none."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def overwrite(descriptor: int, content: bytes) -> None:
    """Write at the beginning of a file, in one call: a reader sees the old or the new."""
    os.pwrite(descriptor, content, 0)


def leave_to_owner(path: Path, folder: Path) -> None:
    """Change the owner of what root just made to that of the folder, whose service will use it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def revoke_rights_of_others(path: Path) -> None:
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


def replace(source: Path, target: Path) -> None:
    source.replace(target)


def state_of(path: Path) -> tuple[int, ...]:
    """Return what changes when another program changes a file."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def locked_folder(path: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder, not what a link leads to; yield whether it is this user's.

    OSError is raised where it can't be locked: at once, unless it is to wait for another process.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield os.fstat(descriptor).st_uid == os.geteuid()
    finally:
        os.close(descriptor)


def ignore_hangups() -> None:
    """Don't end when the terminal closes, or a program that rotates logs says so (SIGHUP)."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def user_name() -> str:
    """Return the name of the user who runs this process; the number where there is no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container
        return user_id()


def user_id() -> str:
    return str(os.getuid())


def is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def local_socket(kind: socket.SocketKind) -> socket.socket:
    """Return a new socket for another program of this computer, whose address is a path."""
    return socket.socket(socket.AF_UNIX, kind)


def is_read_only(path: Path) -> bool:
    """Return whether a file is on a disk that is mounted for reading only."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def unfit_place(folder: Path) -> str:  # noqa: ARG001 - as elsewhere
    """Return why a database can't be in a folder; never any reason on this system."""
    return ""
