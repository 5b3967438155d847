"""Files and folders that nobody else can read, write or hold up."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from stat import S_IMODE

import pytest

from orders.store.care import instance, opening, scratch


@pytest.fixture
def free_for_all():
    """No umask: the rights of a file are those that the program gives it."""
    before = os.umask(0)
    yield
    os.umask(before)


@contextmanager
def locked(folder):
    """Hold the lock of a folder, as whoever can read it can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.usefixtures("free_for_all")
def test_unfinished_work_is_out_of_others_reach(tmp_path):
    with scratch.folder(tmp_path, "backup") as one, scratch.folder(tmp_path, "backup") as another:
        assert one != another
        assert {S_IMODE(each.stat().st_mode) for each in (one, another)} == {0o700}


def test_who_holds_the_lock_of_a_folder_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "_PATIENCE_SECONDS", 0)
    with locked(tmp_path), scratch.folder(tmp_path, "backup") as folder:
        assert folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_elses_is_left_alone(tmp_path):
    theirs, own = (tmp_path / f"backup-{name}.unfinished" for name in ("theirs00", "own00000"))
    for folder in (theirs, own):
        folder.mkdir()
    os.chown(theirs, 65_534, 65_534)
    scratch.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [theirs]


@pytest.mark.usefixtures("free_for_all")
def test_a_private_file_is_never_made_through_a_link(tmp_path):
    instance.make_private_file(tmp_path / "new")
    assert S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    for there in (tmp_path / "somebodys", tmp_path / "nowhere"):
        link = tmp_path / f"to-{there.name}"
        link.symlink_to(there)
        with pytest.raises(FileExistsError):
            instance.make_private_file(link)
        assert not there.exists()


def test_a_database_that_others_can_read_is_taken_from_them(tmp_path):
    path = tmp_path / "orders.db"
    opening.create(path)
    (tmp_path / "orders.db-wal").touch()
    for file in tmp_path.iterdir():
        file.chmod(0o664)
    opening.keep_private(path)
    modes = {file.name: S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"orders.db": 0o600, "orders.db-wal": 0o600}
