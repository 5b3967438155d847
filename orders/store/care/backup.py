"""Checked copies of an SQLite database, complete or not there."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from orders.store.care import checks, scratch
from orders.store.database import errors, sqlite

# SQLite reports progress after this many steps of its virtual machine.
_STEPS = 100_000


def copy(
    source: Path,
    target: Path,
    progress: Callable[[], object] = lambda: None,
    *,
    overwrite: bool = False,
) -> None:
    """Copy the database to a new file, while others read and write it.

    The copy is a snapshot of one moment, checked whole before it gets its name. `progress` is
    called now and then meanwhile; if it says true, there is no copy.

    Raises:
        UnfitDatabase: the copy is not sound, and so not kept.
        FileExistsError: there is such a file already, and it is not to be overwritten.
        OSError: the target can't be written.
    """
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    if target.exists() and target.samefile(source):
        raise FileExistsError(f"{target} is the database itself. Choose another name.")
    with scratch.complete_file(target, "backup", overwrite=overwrite) as unfinished:
        fill(source, unfinished, progress)


def fill(source: Path, target: Path, progress: Callable[[], object]) -> None:
    """Copy the database into an empty file, and check it.

    Raises:
        UnfitDatabase: it can't be copied, or the copy is not sound.
    """
    _vacuum_into(source, target, progress)
    checks.check_whole(target)


def _vacuum_into(source: Path, target: Path, progress: Callable[[], object]) -> None:
    connection = sqlite.connect(source)
    try:
        connection.set_progress_handler(progress, _STEPS)
        connection.execute("VACUUM INTO ?", (str(target),))
    except sqlite.sqlite_module().Error as error:
        cause = errors.unavailable_cause(error) or str(error)
        raise checks.UnfitDatabase(f"{source} can't be copied: {cause}.") from None
    finally:
        connection.close()
