"""Copies of the store: the service's own backups, and Litestream's continuous copy.

Each backup is a checked copy of the file, named by its UTC time, with its SHA-256 beside it. A
marker in a folder elsewhere distinguishes it from the empty folder of a disk that is not mounted.

The names show which days have one, and hours pass between two by the monotonic clock: a clock that
jumps causes neither one after the other nor none for long. Those dated in the future are kept, and
don't count.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orders import system
from orders.clock import Clock
from orders.installation import command
from orders.store.care import checks, files, opening, restoring
from orders.store.care.files import digest, sum_of
from orders.store.database import sqlite
from orders.store.database.errors import StoreUnavailable
from orders.store.database.sqlite import SqliteDatabase

log = logging.getLogger(__name__)

_NAME = re.compile(r"orders-(\d{8}T\d{6}Z)(-manual)?\.db")
_SUM = re.compile(r"[0-9a-f]{64}")
_TIME = "%Y%m%dT%H%M%SZ"

# Beside the store: the last drill, why the last attempt failed, and which folder has the marker.
_STATE_FILE = "backups.json"
# In a folder for backups elsewhere.
MARKER = "store-orders-backups.txt"
_MARKER_TEXT = (
    "Store Orders keeps backups here. It makes none where this file is missing: then the disk is\n"
    "not mounted.\n"
)
# When a start first checks whether something is due, and how often from then on.
FIRST_SECONDS, LOOK_SECONDS = 30.0, 30.0
RETRY_SECONDS = 3_600.0
# Between two, by the monotonic clock: where the date jumps to and fro, only backups of the last
# hours would soon be left.
APART_SECONDS = 6 * 3_600.0
DRILL_EVERY = timedelta(days=7)
OLD_AFTER = timedelta(hours=48)
_VANISHED = (
    "{0} had backups, and has no {1} any more: is its disk mounted? To begin with an empty "
    "folder, such as on another disk, run `{2}`."
)
_CANT_WRITE = (
    "{} can't be written: {}. Give the folder to the service's user. The system unit also needs "
    "its name: see deploy/systemd/backups.conf."
)
# A clock may be behind that of the backup's moment by this much.
_SOON = timedelta(minutes=5)

ASKED_EVERY_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_LONGEST_ANSWER = 64 * 1024
# The name in deploy/litestream/litestream.yml.
SOCKET = "litestream.sock"


class NotSound(Exception):
    """A backup has changed since it was made, or can't be restored."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup: its file, when it was made, its size in bytes, and whether a person made it."""

    path: Path
    at: datetime
    size: int
    is_manual: bool = False

    def tag(self) -> str:
        """Return its SHA-256, as noted beside it, or else what differs where it is another file."""
        with suppress(OSError):
            if noted := _SUM.match(sum_of(self.path).read_text(encoding="ascii", errors="replace")):
                return noted[0]
        facts = self.path.stat()
        return f"{facts.st_mtime_ns:x}-{facts.st_size:x}"


def backup_of(path: Path) -> Backup | None:
    """Return the backup of this name, None if it is no backup's name."""
    if not (match := _NAME.fullmatch(path.name)):
        return None
    try:
        at = datetime.strptime(match[1], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return Backup(path, at, path.stat().st_size, is_manual=bool(match[2]))


def name_of(at: datetime, *, is_manual: bool) -> str:
    return f"orders-{at:{_TIME}}{'-manual' if is_manual else ''}.db"


@dataclass(frozen=True, slots=True)
class Standing:
    """When the newest was made; whether it is sound, on the same disk, and older than 48 hours.

    `failure` is why there can be no backup now, or when and why the last attempt failed, or empty.
    """

    newest: datetime | None
    is_sound: bool
    is_on_same_disk: bool
    is_old: bool
    failure: str


class Backups:
    def __init__(self, database: Path, folder: Path, kept: tuple[int, int], clock: Clock) -> None:
        self._database = database
        self.folder = folder
        self._kept = kept
        self._clock = clock
        self._state_file = database.with_name(_STATE_FILE)
        self._next = clock.monotonic() + FIRST_SECONDS
        self._apart = self._next
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Abort the copy that is being made, if there is one."""
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
                self._record_failure(error)
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
        path = self.folder / name_of(now, is_manual=is_manual)
        while path.exists():  # made in the same second
            now += timedelta(seconds=1)
            path = self.folder / name_of(now, is_manual=is_manual)
        with files.complete_file(path, "backup") as unfinished:
            opening.fill(self._database, unfinished, self._stopped.is_set)
            # First, so that there is no backup without.
            _write(sum_of(path), f"{digest(unfinished)}  {path.name}\n")
            system.leave_to_owner(unfinished, self.folder)
        return Backup(path, now, path.stat().st_size, is_manual)

    def begin_anew(self) -> None:
        """Let the next backup begin in a folder without any, such as that of another disk."""
        self._note(folder="")

    def check(self, one: Backup) -> None:
        """Read a backup through; raise NotSound if it has changed."""
        if complaint := self._look_at(one):
            raise NotSound(f"{one.path} {complaint}.")
        restoring.check_sum(one.path)

    def drill(self, one: Backup) -> None:
        """Restore a backup beside the store; raise NotSound if it differs from its event log."""
        self.check(one)
        self._check_room(self._database.parent)
        with files.scratch_folder(self._database.parent, "restore") as folder:
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
        """Check each backup, test-restore the newest, record that; yield each with a verdict."""
        newest = self._past()[:1]
        for one in self.all():
            try:
                (self.drill if one in newest else self.check)(one)
                verdict = "sound"
            except (NotSound, OSError, checks.UnfitDatabase) as error:
                verdict = str(error)
            if one in newest:
                self._record_drill(one, verdict)
            yield one, verdict

    def standing(self) -> Standing:
        """Return the state of the backups, by files' names and the last test restore."""
        now, past = self._clock.now(), self._past()
        newest = past[0] if past else None
        return Standing(
            newest.at if newest else None,
            newest is not None and not self._is_known_bad(newest),
            _device(self.folder) == _device(self._database),
            newest is None or now - newest.at > OLD_AFTER,
            self._vanished() or self._state().get("failure", ""),
        )

    def verdict_on(self, one: Backup) -> str:
        """Return what the last drill found in a backup, or else a look at its first bytes."""
        name, _, verdict = self._last_drill()
        return self._look_at(one) or (verdict if name == one.path.name else "sound")

    @staticmethod
    def _look_at(one: Backup) -> str:
        """Return what is wrong with a backup's first bytes or the file beside it, or nothing."""
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
                if found := backup_of(path):
                    yield found

    def _past(self) -> list[Backup]:
        """Return those that are not dated in the future, the newest first."""
        return [one for one in self.all() if one.at <= self._clock.now() + _SOON]

    def _make_if_due(self) -> bool:
        past = self._past()
        is_bad = bool(past) and self._is_known_bad(past[0])
        if self._has_todays() and not is_bad and not self._state().get("failure"):
            return False
        if self._clock.monotonic() < self._apart and not is_bad:
            return False
        made = self.make()
        self._apart = self._clock.monotonic() + APART_SECONDS
        log.info("Made the backup %s: %d bytes.", made.path, made.size)
        self._note(failure="")
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
            self._record_drill(newest, str(error))
            log.error("The drill of the newest backup failed: %s", error)  # noqa: TRY400 - says all
        else:
            self._record_drill(newest, "sound")
            log.info("The backup %s was restored beside the store, and is whole.", newest.path)
            self._note(failure="")
        return True

    def _is_known_bad(self, one: Backup) -> bool:
        return self.verdict_on(one) != "sound"

    def _last_drill(self) -> tuple[str, datetime, str]:
        try:
            drill = self._state()["drill"]
            return drill["backup"], datetime.fromisoformat(drill["at"]), drill["verdict"]
        except (ValueError, KeyError, TypeError):
            return "", datetime.min.replace(tzinfo=UTC), ""

    def _record_drill(self, one: Backup, verdict: str) -> None:
        at = self._clock.now().isoformat()
        self._note(drill={"backup": one.path.name, "at": at, "verdict": verdict})

    def _state(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            state = json.loads(self._state_file.read_text(encoding="utf-8"))
            return state if isinstance(state, dict) else {}
        return {}

    def _note(self, **changed: object) -> None:
        before = self._state()
        state = {name: value for name, value in (before | changed).items() if value}
        if state != before:
            _write(self._state_file, json.dumps(state) + "\n")

    def _record_failure(self, error: Exception) -> None:
        log.warning("The backup failed, and is tried again in an hour: %s", error)
        if self.standing().is_old:
            log.warning("The newest backup in %s is older than 48 hours.", self.folder)
        with suppress(OSError):  # such as a full disk: the log has it
            self._note(failure=f"{self._clock.now():{_TIME}}: {error}")

    def _prepare_folder(self) -> None:
        """Make the folder; OSError where it had backups, and its disk is not there."""
        if vanished := self._vanished():
            raise OSError(vanished)
        try:
            system.make_private_folder(self.folder)
            if self._is_elsewhere() and not (self.folder / MARKER).exists():
                _write(self.folder / MARKER, _MARKER_TEXT)
        except OSError as error:
            if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
                raise OSError(_CANT_WRITE.format(self.folder, error.strerror)) from None
            raise
        if self._is_elsewhere():
            self._note(folder=str(self.folder))

    def _vanished(self) -> str:
        """Return what is wrong if the folder has lost its marker; nothing if it has not."""
        if self._state().get("folder") != str(self.folder) or (self.folder / MARKER).exists():
            return ""
        return _VANISHED.format(self.folder, MARKER, command("db backups --now --new-folder"))

    def _is_elsewhere(self) -> bool:
        # A folder beside the store is on its disk, and goes and comes with it.
        return self.folder.parent != self._database.parent

    def _check_room(self, folder: Path) -> None:
        stored = (self._database, sqlite.log_of(self._database))
        size = sum(path.stat().st_size for path in stored if path.exists())
        free = shutil.disk_usage(folder).free
        if free < 3 * size:
            raise OSError(
                f"it takes {size:,} bytes, and twice as much must stay free of the {free:,} in "
                f"{folder}. Make room, or set ORDERS_BACKUPS to a folder on another disk."
            )

    def _prune(self) -> None:
        past = [one for one in self._past() if not self._is_known_bad(one)]
        kept = retained(past, self._kept)
        for one in past[1:]:
            if one in kept:
                continue
            try:
                one.path.unlink(missing_ok=True)
            except PermissionError:  # Windows removes none that is being downloaded
                log.info("The backup %s is in use: it is removed later.", one.path)
            else:
                log.info("Removed the backup %s: there are later ones.", one.path)
        for path in self.folder.glob("orders-*.db.sha256"):
            if not path.with_suffix("").exists():
                path.unlink(missing_ok=True)


def _device(path: Path) -> int:
    """Return the file system that a path is on, or would be."""
    there = next((each for each in (path, *path.parents) if each.exists()), Path())
    return there.stat().st_dev


def _write(path: Path, text: str) -> None:
    with files.complete_file(path, "backup", overwrite=True) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
        system.leave_to_owner(unfinished, path.parent)


def _complaint(path: Path) -> str | None:
    with closing(SqliteDatabase(path)) as database, database.read() as connection:
        return checks.complaint(connection)


def retained(backups: Iterable[Backup], counts: tuple[int, int]) -> set[Backup]:
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


class ContinuousCopy:
    """Litestream's copy of one SQLite file."""

    def __init__(self, database: Path, clock: Clock) -> None:
        self._database = database
        self._socket = database.with_name(SOCKET)
        self._state = database.with_name(f".{database.name}-litestream")
        self._clock = clock
        # The copy has all that there was then (monotonic); at first, as far as is known.
        self._whole_at = clock.monotonic()

    @property
    def seconds_behind(self) -> float | None:
        """How long ago the copy was whole for sure; None where Litestream was never set up."""
        if not self._state.exists() and not self._socket.exists():
            return None
        return max(self._clock.monotonic() - self._whole_at, 0.0)

    def tend(self) -> float:
        """Ask whether all is copied; return when to call this again."""
        began = self._clock.monotonic()
        if self._socket.exists() and self._is_whole():
            self._whole_at = began
        return ASKED_EVERY_SECONDS

    def _is_whole(self) -> bool:
        wanted = {"path": str(self._database), "wait": True, "timeout": int(_ANSWER_SECONDS)}
        try:
            head, _, body = _ask(self._socket, json.dumps(wanted).encode()).partition(b"\r\n\r\n")
        except OSError as error:
            log.debug("Litestream does not answer: %s", error)
            return False
        return b" 200 " in head.partition(b"\r\n")[0] and b'"error"' not in body


def _ask(path: Path, body: bytes) -> bytes:
    head = f"POST /sync HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = b""
    with system.local_socket(socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(head.encode() + body)
        while len(answer) < _LONGEST_ANSWER and (chunk := connection.recv(4096)):
            answer += chunk
    return answer
