"""Checked copies of an SQLite database, complete or not there; and which of many are to be kept."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orders.store.care import checks, scratch
from orders.store.database import errors, sqlite

_NAME = re.compile(r"orders-(\d{8}T\d{6}Z)\.db")
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
    """A backup: its file, when it was made, and its size in bytes."""

    path: Path
    at: datetime
    size: int


def backup_of(path: Path) -> Backup | None:
    """Return the backup of this name, None if it is no backup's name."""
    if not _NAME.fullmatch(path.name):
        return None
    try:
        at = datetime.strptime(path.name, f"orders-{TIME}.db").replace(tzinfo=UTC)
    except ValueError:
        return None
    return Backup(path, at, path.stat().st_size)


def kept(newest_first: Iterable[Backup], counts: tuple[int, int]) -> set[Backup]:
    """Return the newest backup of each of the last days, and of each of the last ISO weeks."""
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
    return found
