"""Backups that the service makes by itself: when, which are kept, whether they could be restored.

Each is a checked copy of the SQLite file, named by its UTC time, with its SHA-256 beside it. A
marker in a folder elsewhere tells it from the empty folder of a disk that is not mounted.

Which day has one is read from the names, and there are hours between two by the monotonic clock: so
with a clock that jumps there is neither one after the other nor none for long. Those dated in the
future are kept, and don't count.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orders.clock import Clock
from orders.store.care import backup, checks, consistency, instance, restoring, scratch
from orders.store.care.backup import Backup, digest, sum_of
from orders.store.database.errors import StoreUnavailable
from orders.store.database.sqlite import SqliteDatabase

log = logging.getLogger(__name__)

_DRILL_FILE = "drill.json"
# Beside the store: that the folder of backups can't be written may be what failed.
_FAILURE_FILE = "backup-failed.txt"
# In a folder for backups elsewhere; and, beside the store, which folder has it.
MARKER = "store-orders-backups.txt"
_FOLDER_FILE = "backups-folder.txt"
_MARKER_TEXT = (
    "Store Orders keeps backups here. It makes none where this file is missing: then the disk is\n"
    "not mounted.\n"
)
# Not in the first moments of a start, and then how often to see whether something is due.
FIRST_SECONDS, LOOK_SECONDS = 30.0, 30.0
RETRY_SECONDS = 3_600.0
# Of running time between two, whatever the date: with a clock that jumps to and fro, only backups
# of the last hours would soon be left.
APART_SECONDS = 6 * 3_600.0
DRILL_EVERY = timedelta(days=7)
OLD_AFTER = timedelta(hours=48)
_VANISHED = (
    "{0} had backups, and has no {1} any more: is its disk mounted? If the folder is to begin "
    "anew, such as on another disk, run `flask db backups --now --new-folder`."
)
_CANT_WRITE = (
    "{} can't be written: {}. Give the folder to the service's user. The system unit also needs "
    "its name: see deploy/systemd/backups.conf."
)
# A clock may be behind that of the backup's moment by this much.
_SOON = timedelta(minutes=5)


class NotSound(Exception):
    """A backup is not what it was when it was made, or can't be restored."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand: when the newest was made, whether it is sound, whether on the same disk.

    `failure` is why there can be no backup now, or when and why the last attempt failed; empty if
    neither is so.
    """

    newest: datetime | None
    is_sound: bool
    is_on_same_disk: bool
    is_old: bool
    failure: str


class Backups:
    """The backups of one SQLite file."""

    def __init__(self, database: Path, folder: Path, kept: tuple[int, int], clock: Clock) -> None:
        """Keep backups of a database in a folder: so many daily ones, and so many weekly ones."""
        self._database = database
        self.folder = folder
        self._kept = kept
        self._clock = clock
        self._next = clock.monotonic() + FIRST_SECONDS
        self._apart = self._next
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Give up the copy that is being made, if there is one."""
        self._stopped.set()

    def tend(self) -> float:
        """Make the day's backup and the week's drill if due; return when to call this again."""
        if self._clock.monotonic() < self._next:
            return min(LOOK_SECONDS, self._next - self._clock.monotonic())
        try:
            made = self._make_if_due()
            drilled = not made and self._drill_if_due()
        except (OSError, checks.UnfitDatabase, StoreUnavailable, NotSound) as error:
            if not self._stopped.is_set():
                self._note_failure(error)
            made = True
        if made or drilled:
            self._next = self._clock.monotonic() + RETRY_SECONDS
        return LOOK_SECONDS

    def all(self) -> list[Backup]:
        """Return the backups, the newest first."""
        return sorted(self._found(), key=lambda each: each.at, reverse=True)

    def make(self, *, is_manual: bool = False) -> Backup:
        """Make a backup now, and remove none."""
        self._prepare_folder()
        self._check_room(self.folder)
        now = self._clock.now().replace(microsecond=0)
        path = self.folder / backup.name_of(now, is_manual=is_manual)
        with scratch.complete_file(path, "backup") as unfinished:
            backup.fill(self._database, unfinished, self._stopped.is_set)
            # First, so that there is no backup without.
            _write(sum_of(path), f"{digest(unfinished)}  {path.name}\n")
            instance.leave_to_owner(unfinished, self.folder)
        return Backup(path, now, path.stat().st_size, is_manual)

    def begin_anew(self) -> None:
        """Let the next backup begin in a folder without any, such as that of another disk."""
        self._database.with_name(_FOLDER_FILE).unlink(missing_ok=True)

    def check(self, one: Backup) -> None:
        """Read a backup through; raise NotSound if it is not what it was."""
        if complaint := self._look_at(one):
            raise NotSound(f"{one.path} {complaint}.")
        restoring.check_sum(one.path)

    def drill(self, one: Backup) -> None:
        """Restore a backup beside the store, and compare orders and days with the log.

        NotSound is raised where it can't be restored whole.
        """
        self.check(one)
        self._check_room(self._database.parent)
        with scratch.folder(self._database.parent, "restore") as folder:
            restored = folder / "drill.db"
            try:
                restoring.restore(one.path, restored, self._clock.now(), keep_keys=True)
                checks.check_whole(restored)
                complaint = _complaint(restored)
            except checks.AwayDatabase as error:
                raise OSError(str(error)) from None
            except checks.UnfitDatabase as error:
                complaint = str(error)
        if complaint:
            raise NotSound(f"{one.path} can't be restored whole ({complaint}).")

    def check_all(self) -> Iterator[tuple[Backup, str]]:
        """Check each backup, restore the newest, and note that; yield each with a verdict."""
        newest = self._past()[:1]
        for one in self.all():
            try:
                (self.drill if one in newest else self.check)(one)
                verdict = "sound"
            except (NotSound, OSError, checks.UnfitDatabase) as error:
                verdict = str(error)
            if one in newest:
                self._note(one, verdict)
            yield one, verdict

    def standing(self) -> Standing:
        """Return how things stand, as far as files' names and the last drill tell."""
        now, past = self._clock.now(), self._past()
        newest = past[0] if past else None
        return Standing(
            newest.at if newest else None,
            newest is not None and not self._is_known_bad(newest),
            self._is_on_same_disk(),
            newest is None or now - newest.at > OLD_AFTER,
            self._failure(),
        )

    def verdict_on(self, one: Backup) -> str:
        """Return what the last drill found of a backup, or else a look at its first bytes.

        Each was sound when it was made.
        """
        name, _, verdict = self._last_drill()
        return self._look_at(one) or (verdict if name == one.path.name else "sound")

    @staticmethod
    def _look_at(one: Backup) -> str:
        """Return what a look at a backup's first bytes and beside it finds wrong, or nothing."""
        try:
            if not checks.looks_whole(one.path):
                return "is cut off, or no database"
            if not sum_of(one.path).exists():
                return "has no checksum beside it"
        except OSError as error:
            return f"can't be read: {error.strerror}"
        return ""

    def _found(self) -> Iterator[Backup]:
        paths: list[Path] = []
        with suppress(OSError):  # a folder that is not there, or can't be read, has none
            paths += self.folder.iterdir()
        for path in paths:
            with suppress(FileNotFoundError):  # removed just now
                if found := backup.backup_of(path):
                    yield found

    def _past(self) -> list[Backup]:
        """Return those that are not dated in the future, the newest first."""
        return [one for one in self.all() if one.at <= self._clock.now() + _SOON]

    def _make_if_due(self) -> bool:
        past = self._past()
        is_bad = bool(past) and self._is_known_bad(past[0])
        if self._has_todays() and not is_bad and not self._last_failure():
            return False
        if self._clock.monotonic() < self._apart and not is_bad:
            return False
        made = self.make()
        self._apart = self._clock.monotonic() + APART_SECONDS
        log.info("Made the backup %s: %d bytes.", made.path, made.size)
        self._failure_file.unlink(missing_ok=True)
        self._prune()
        return True

    def _has_todays(self) -> bool:
        today = self._clock.now().date()
        return any(one.at.date() == today and not self._is_known_bad(one) for one in self.all())

    def _drill_if_due(self) -> bool:
        _, at, verdict = self._last_drill()
        is_recent = timedelta(0) <= self._clock.now() - at < DRILL_EVERY
        if not (past := self._past()) or (verdict == "sound" and is_recent):
            return False
        newest = past[0]
        try:
            self.drill(newest)
        except NotSound as error:
            self._note(newest, str(error))
            log.error("The drill of the newest backup failed: %s", error)  # noqa: TRY400 - says all
        else:
            self._note(newest, "sound")
            log.info("The backup %s was restored beside the store, and is whole.", newest.path)
            self._failure_file.unlink(missing_ok=True)
        return True

    def _is_known_bad(self, one: Backup) -> bool:
        return self.verdict_on(one) != "sound"

    def _last_drill(self) -> tuple[str, datetime, str]:
        try:
            noted = json.loads((self.folder / _DRILL_FILE).read_text(encoding="utf-8"))
            return noted["backup"], datetime.fromisoformat(noted["at"]), noted["verdict"]
        except (OSError, ValueError, KeyError, TypeError):
            return "", datetime.min.replace(tzinfo=UTC), ""

    def _note(self, one: Backup, verdict: str) -> None:
        noted = {"backup": one.path.name, "at": self._clock.now().isoformat(), "verdict": verdict}
        _write(self.folder / _DRILL_FILE, json.dumps(noted) + "\n")

    @property
    def _failure_file(self) -> Path:
        return self._database.with_name(_FAILURE_FILE)

    def _note_failure(self, error: Exception) -> None:
        log.warning("The backup failed, and is tried again in an hour: %s", error)
        if self.standing().is_old:
            log.warning("The newest backup in %s is older than 48 hours.", self.folder)
        with suppress(OSError):  # such as a full disk: the log has it
            _write(self._failure_file, f"{self._clock.now():{backup.TIME}}: {error}\n")

    def _failure(self) -> str:
        return self._vanished() or self._last_failure()

    def _last_failure(self) -> str:
        with suppress(OSError):
            return self._failure_file.read_text(encoding="utf-8").strip()
        return ""

    def _prepare_folder(self) -> None:
        """Make the folder; OSError where it had backups, and its disk is not there."""
        if vanished := self._vanished():
            raise OSError(vanished)
        try:
            instance.make_private_folder(self.folder)
            if self._is_elsewhere() and not (self.folder / MARKER).exists():
                _write(self.folder / MARKER, _MARKER_TEXT)
        except OSError as error:
            if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
                raise OSError(_CANT_WRITE.format(self.folder, error.strerror)) from None
            raise
        if self._is_elsewhere() and self._noted_folder() != str(self.folder):
            _write(self._database.with_name(_FOLDER_FILE), f"{self.folder}\n")

    def _vanished(self) -> str:
        """Return what is wrong where the folder has lost its marker; nothing where it has not."""
        if self._noted_folder() != str(self.folder) or (self.folder / MARKER).exists():
            return ""
        return _VANISHED.format(self.folder, MARKER)

    def _noted_folder(self) -> str:
        with suppress(OSError):
            return self._database.with_name(_FOLDER_FILE).read_text(encoding="utf-8").strip()
        return ""

    def _is_elsewhere(self) -> bool:
        # A folder beside the store is on its disk, and goes and comes with it.
        return self.folder.parent != self._database.parent

    def _check_room(self, folder: Path) -> None:
        log_file = self._database.with_name(f"{self._database.name}-wal")
        size = sum(path.stat().st_size for path in (self._database, log_file) if path.exists())
        free = shutil.disk_usage(folder).free
        if free < 3 * size:
            raise OSError(
                f"it takes {size:,} bytes, and twice as much must stay free of the {free:,} in "
                f"{folder}. Make room, or set ORDERS_BACKUPS to a folder on another disk."
            )

    def _is_on_same_disk(self) -> bool:
        return _device(self.folder) == _device(self._database)

    def _prune(self) -> None:
        past = [one for one in self._past() if not self._is_known_bad(one)]
        kept = backup.kept(past, self._kept)
        for one in past[1:]:
            if one not in kept:
                one.path.unlink(missing_ok=True)
                log.info("Removed the backup %s: there are later ones.", one.path)
        for path in self.folder.glob("orders-*.db.sha256"):
            if not path.with_suffix("").exists():
                path.unlink(missing_ok=True)


def _device(path: Path) -> int:
    """Return the file system that a path is on, or would be."""
    while not path.exists():
        path = path.parent
    return path.stat().st_dev


def _write(path: Path, text: str) -> None:
    with scratch.complete_file(path, "backup", overwrite=True) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
        instance.leave_to_owner(unfinished, path.parent)


def _complaint(path: Path) -> str | None:
    with closing(SqliteDatabase(path)) as database, database.read() as connection:
        return consistency.complaint(connection)
