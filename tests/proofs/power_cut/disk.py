"""A disk that loses what was not synced when the power goes, under apsw's copy of SQLite.

The running system reads what it wrote, as from the operating system's memory. What is on the disk
is kept apart: a write gets there when its file is synced. A cut comes before a write, a sync or a
truncation; from then on nothing reaches anything, and what was written since the last sync is lost
wholly or in part. The deletion of a file is lost or kept likewise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw

# Writes that were not synced are all lost; or each by chance; or so, and the last that was kept is
# torn at any byte.
LOSSES = ("all dropped", "half kept", "half kept, last torn")
# The disk that is tried is not the machine's.
_MEMORY = Path("/dev/shm")
_COMPANIONS = ("", "-wal", "-journal")


@contextmanager
def in_memory() -> Iterator[Path]:
    """Make a folder for a while, in memory where there is a place for it."""
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


class DiskFull(apsw.FullError):
    """There is no room for a write."""

    result = extendedresult = apsw.SQLITE_FULL


class PowerCut(apsw.IOError):
    """The power went: to SQLite, a write that failed."""

    result = apsw.SQLITE_IOERR
    extendedresult = apsw.SQLITE_IOERR_WRITE


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Truncation:
    size: int


@dataclass(frozen=True, slots=True)
class _Deletion:
    pass


_Change = _Write | _Truncation | _Deletion


@dataclass
class _File:
    """The contents of the disk, and the changes since the last sync."""

    content: bytearray = field(default_factory=bytearray)
    unsynced: list[_Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.content, change)
        self.unsynced.clear()

    def lose(self, loss: str, chance: random.Random) -> None:
        kept = [] if loss == LOSSES[0] else self._kept(chance)
        if loss == LOSSES[2] and kept and isinstance(kept[-1], _Write):
            torn = kept[-1]
            kept[-1] = _Write(torn.offset, torn.data[: chance.randrange(len(torn.data))])
        self.unsynced = kept
        self.sync()

    def _kept(self, chance: random.Random) -> list[_Change]:
        kept: list[_Change] = []
        for change in self.unsynced:
            if chance.random() < 0.5:
                kept.append(change)
            elif isinstance(change, _Deletion):
                # What followed was written to another file of this name, which has none now.
                break
        return kept


def _apply(content: bytearray, change: _Change) -> None:
    if isinstance(change, _Write):
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.data)] = change.data
    else:
        del content[change.size if isinstance(change, _Truncation) else 0 :]


class Disk(apsw.VFS):
    """The disk that a database and what SQLite keeps beside it are on; other files are left alone.

    `until_cut` counts down the changes until the power goes, or those of the database file itself
    where `in_checkpoint` is true: only checkpoints change that. None is never.
    """

    def __init__(self, database: Path, chance: random.Random) -> None:
        self._database, self._chance = database, chance
        self._files: dict[str, _File] = {}
        self.until_cut: int | None = None
        self.in_checkpoint = False
        self.is_off = False
        self.is_full = False
        # How many since the power came up.
        self.checkpoints = 0
        self._load()
        self.name = f"forgetful {database}"
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path in self._paths():
            return _OpenFile(self, path, name, flags)
        return apsw.VFSFile("", name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        if filename in self._paths():
            if self.is_off:
                return
            self.change(filename, _Deletion())
            if syncdir:
                self._files[filename].sync()
        super().xDelete(filename, syncdir)

    def change(self, path: str, change: _Change) -> None:
        """Record an upcoming change.

        Raises:
            PowerCut: the power goes now.
            DiskFull: there is no room for it.
        """
        if self.is_full and isinstance(change, _Write):
            raise DiskFull
        self._come_nearer(path)
        self._files.setdefault(path, _File()).unsynced.append(change)

    def sync(self, path: str) -> None:
        """Bring a file's changes to the disk.

        Raises:
            PowerCut: the power goes now.
        """
        self._come_nearer(path)
        self.checkpoints += path == str(self._database)
        self._files.setdefault(path, _File()).sync()

    def _come_nearer(self, path: str) -> None:
        if self.until_cut is None or (self.in_checkpoint and path != str(self._database)):
            return
        self.until_cut -= 1
        if self.until_cut <= 0:
            self.is_off = True
            raise PowerCut

    @property
    def is_checkpointing(self) -> bool:
        """Whether pages of the database file were written and not yet synced."""
        file = self._files.get(str(self._database))
        return bool(file and file.unsynced)

    def power_up(self, loss: str) -> None:
        """Lose unsynced writes, and put the contents of the disk where a start finds them."""
        for path, file in self._files.items():
            file.lose(loss, self._chance)
            Path(path).write_bytes(file.content)
        for path in [*self._paths(), f"{self._database}-shm"]:
            if not self._files.get(path, _File()).content:
                Path(path).unlink(missing_ok=True)
        self.is_off, self.until_cut = False, None
        self.checkpoints = 0
        self._load()

    def _load(self) -> None:
        paths = [path for path in self._paths() if Path(path).exists()]
        self._files = {path: _File(bytearray(Path(path).read_bytes())) for path in paths}

    def _paths(self) -> list[str]:
        return [f"{self._database}{suffix}" for suffix in _COMPANIONS]


class _OpenFile(apsw.VFSFile):
    """A file that is open: reading and locking are the system's."""

    def __init__(self, disk: Disk, path: str, name: Any, flags: list[int]) -> None:
        self._disk, self._path = disk, path
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        if not self._disk.is_off:
            self._disk.change(self._path, _Write(offset, bytes(data)))
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        if not self._disk.is_off:
            self._disk.change(self._path, _Truncation(newsize))
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        # Nobody waits for the system's own disk: this disk is in memory.
        if not self._disk.is_off:
            self._disk.sync(self._path)
