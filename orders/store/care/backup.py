"""Checked copies of an SQLite database, complete or not there; and which of many are to be kept."""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orders.store.care import checks, scratch
from orders.store.database import errors, sqlite

_NAME = re.compile(r"orders-(\d{8}T\d{6}Z)(-manual)?\.db")
TIME = "%Y%m%dT%H%M%SZ"
# SQLite asks whether to go on after this many steps of its virtual machine.
_STEPS = 100_000


def copy(source: Path, target: Path, *, overwrite: bool = False) -> None:
    """Copy the database to a new file, while others read and write it.

    The copy is a snapshot of one moment, checked whole before it gets its name.
    """
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    if target.exists() and target.samefile(source):
        raise FileExistsError(f"{target} is the database itself. Choose another name.")
    with scratch.complete_file(target, "backup", overwrite=overwrite) as unfinished:
        fill(source, unfinished, lambda: False)


def fill(source: Path, target: Path, is_stopped: Callable[[], bool]) -> None:
    """Copy the database into an empty file, unless stopped meanwhile, and check it."""
    _vacuum_into(source, target, is_stopped)
    checks.check_whole(target)


def _vacuum_into(source: Path, target: Path, is_stopped: Callable[[], bool]) -> None:
    connection = sqlite.connect(source)
    try:
        connection.set_progress_handler(is_stopped, _STEPS)
        connection.execute("VACUUM INTO ?", (str(target),))
    except sqlite.sqlite_module().Error as error:
        cause = errors.unavailable_cause(error) or str(error)
        raise checks.UnfitDatabase(f"{source} can't be copied: {cause}.") from None
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup: its file, when it was made, its size in bytes, and whether a person made it."""

    path: Path
    at: datetime
    size: int
    is_manual: bool = False


def backup_of(path: Path) -> Backup | None:
    """Return the backup of this name, None if it is no backup's name."""
    if not (match := _NAME.fullmatch(path.name)):
        return None
    try:
        at = datetime.strptime(match[1], TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return Backup(path, at, path.stat().st_size, is_manual=bool(match[2]))


def name_of(at: datetime, *, is_manual: bool) -> str:
    """Return the name of the backup of a moment."""
    return f"orders-{at:{TIME}}{'-manual' if is_manual else ''}.db"


def sum_of(path: Path) -> Path:
    """Return the path of the file with a backup's SHA-256, as `sha256sum` writes it."""
    return path.with_name(f"{path.name}.sha256")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def kept(backups: Iterable[Backup], counts: tuple[int, int]) -> set[Backup]:
    """Return the newest backup of each of the last days, and of each of the last ISO weeks.

    A manual one counts on days without any other, and goes when its day's goes.
    """
    newest_first = sorted(
        backups, key=lambda one: (one.at.date(), not one.is_manual, one.at), reverse=True
    )
    ways: list[tuple[int, Callable[[Backup], object]]] = [
        (counts[0], lambda one: one.at.date()),
        (counts[1], lambda one: one.at.isocalendar()[:2]),
    ]
    found: set[Backup] = set()
    for count, period in ways:
        first: dict[object, Backup] = {}
        for one in newest_first:
            first.setdefault(period(one), one)
        found.update(list(first.values())[:count])
    days = {one.at.date() for one in found}
    return found | {one for one in newest_first if one.is_manual and one.at.date() in days}
