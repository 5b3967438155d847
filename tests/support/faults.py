"""The faults that a disk, a person or another program make, for tests of them: none is pretended.

Each is a context in which the fault is there, and after which its cause is gone.
"""

from __future__ import annotations

import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from orders.store.care import opening
from orders.store.database import sqlite

PAGE_BYTES = 4_096
INTERIOR_PAGE = 5
_LOCK = """
import sys
from orders.store.database import sqlite
connection = sqlite.connect(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def run(*command):
    """Run a program that must succeed."""
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)


@contextmanager
def small_disk(folder, size="2m"):
    """Have a small disk in the place of a folder.

    Raises:
        CalledProcessError: this process may not mount one.
    """
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
    """Fill the disk of a folder by a file in it, but for so many bytes."""
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
    """Forbid a process to write to files, as a quota does: each write is an error."""
    before = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
    resource.prlimit(process_id, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(*files):
    """Take from files the right to be written, from open ones too, and from everybody."""
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
    """Have another process hold the database's write lock."""
    with subprocess.Popen(
        [sys.executable, "-c", _LOCK, str(database)],
        cwd=Path(__file__).parent.parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            process.communicate()


@contextmanager
def damaged(database, table="orders", *, at_its_end=False):
    """Have garbage on the first page of a table, or on the last, which is read after others."""
    with closing(sqlite.connect(database)) as connection:
        # So that the page is in the database itself, and not in its log.
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            pass
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
        (page,) = root.fetchone()
        page = last_leaf(database, page) if at_its_end else page
        sound = overwrite(database, page, secrets.token_bytes(PAGE_BYTES))
        forget_pages(connection)
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
    """Write over a page of a database; return what stood there."""
    with database.open("r+b", buffering=0) as file:
        file.seek((page - 1) * PAGE_BYTES)
        before = file.read(PAGE_BYTES)
        file.seek((page - 1) * PAGE_BYTES)
        file.write(content)
    return before


def forget_pages(connection):
    """Change something, so that whoever has the database open reads its pages anew."""
    connection.execute("UPDATE store SET demo_key_id = demo_key_id")


@contextmanager
def moved_away(file):
    """Have a file somewhere else."""
    away = file.with_name("away.db")
    file.rename(away)
    try:
        yield
    finally:
        away.rename(file)


@contextmanager
def replaced(database):
    """Have another database in the place of one."""
    other = database.with_name("other.db")
    opening.create(other)
    with moved_away(database):
        other.rename(database)
        yield
        for file in database.parent.glob("other.db*"):
            file.unlink()
        database.unlink()
