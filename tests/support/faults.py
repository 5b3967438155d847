"""Real faults of disks, people and other programs: contexts that remove the cause at their end."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from orders.store.care import opening
from orders.store.database import sqlite

PAGE_BYTES = 4_096
INTERIOR_PAGE = 5


def run(*command):
    """Run a program that must succeed."""
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)


@contextmanager
def small_disk(folder, size="2m"):
    """Mount a small disk on a folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder)
    try:
        yield folder
    finally:
        run("umount", "--lazy", folder)


def may_mount():
    """Return whether this process may mount a small disk."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


@contextmanager
def full(folder, but_for=0):
    """Fill the disk of a folder except for so many bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, PAGE_BYTES, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass
        file.truncate(file.tell() - but_for)
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def no_file_may_grow(process_id):
    """Make each write of a process to a file an error, as a quota does."""
    import resource  # which Windows lacks

    before = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
    resource.prlimit(process_id, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(*files):
    """Make files immutable, open ones too, for everybody."""
    run("chattr", "+i", *files)
    try:
        yield
    finally:
        run("chattr", "-i", *files)


def folder_with_read_only_files():
    """Return a folder where `read_only` stops the writing to open files, or None."""
    for place in (tempfile.gettempdir(), Path(__file__).parent):
        folder = Path(tempfile.mkdtemp(dir=place))
        with (folder / "file").open("wb", buffering=0) as file:
            try:
                with read_only(folder / "file"):
                    file.write(b"x")
            except PermissionError:
                return folder
            except (OSError, subprocess.CalledProcessError):
                pass
        shutil.rmtree(folder)
    return None


@contextmanager
def locked(database):
    """Hold a database's write lock."""
    with closing(sqlite.connect(database)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def damaged(database, table="orders", *, at_its_end=False):
    """Write garbage over the first page of a table, or the last, which is read after others."""
    with closing(sqlite.connect(database)) as connection:
        # Make sure that the page is in the database itself, and not in its log.
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            pass
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
        (page,) = root.fetchone()
        page = last_leaf(database, page) if at_its_end else page
        sound = overwrite(database, page, secrets.token_bytes(PAGE_BYTES))
        # A change, so that open connections read their pages anew.
        connection.execute("UPDATE store SET demo_key_id = demo_key_id")
    try:
        yield
    finally:
        overwrite(database, page, sound)


def last_leaf(database, page):
    """Return the last page of a table's rows (https://www.sqlite.org/fileformat.html, 1.6)."""
    content = database.read_bytes()
    while content[(page - 1) * PAGE_BYTES] == INTERIOR_PAGE:
        page = int.from_bytes(content[(page - 1) * PAGE_BYTES + 8 :][:4])
    return page


def overwrite(database, page, content):
    """Overwrite a page of a database; return what was there."""
    with database.open("r+b", buffering=0) as file:
        file.seek((page - 1) * PAGE_BYTES)
        before = file.read(PAGE_BYTES)
        file.seek((page - 1) * PAGE_BYTES)
        file.write(content)
    return before


@contextmanager
def moved_away(file):
    """Move a file away."""
    away = file.with_name("away.db")
    file.rename(away)
    try:
        yield
    finally:
        away.rename(file)


@contextmanager
def replaced(database):
    """Replace a database with another."""
    other = database.with_name("other.db")
    opening.create(other)
    with moved_away(database):
        other.rename(database)
        yield
        for file in database.parent.glob("other.db*"):
            file.unlink()
        database.unlink()
