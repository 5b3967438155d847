"""Files and folders that nobody else can read, write or hold up; leftovers are removed."""

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
    """Hold the lock of a folder, as anybody can who can read it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def leftover(parent, name="import-abcdefgh.unfinished"):
    """Make what a killed process leaves: a folder that nobody has locked."""
    folder = parent / name
    folder.mkdir()
    (folder / "rows.db").write_text("half")
    return folder


@pytest.mark.usefixtures("free_for_all")
def test_unfinished_work_is_out_of_others_reach_and_gone_afterwards(tmp_path):
    with scratch.folder(tmp_path, "backup") as one, scratch.folder(tmp_path, "backup") as another:
        assert one != another
        assert {S_IMODE(each.stat().st_mode) for each in (one, another)} == {0o700}
        (one / "half").write_text("half")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_unfinished_work_may_be_inside_another(tmp_path):
    with scratch.folder(tmp_path, "restore") as outer, scratch.folder(outer, "backup") as inner:
        assert inner.parent == outer
    assert list(tmp_path.iterdir()) == []


def test_a_leftover_is_removed_by_the_next_of_any_purpose(tmp_path):
    leftover(tmp_path)
    with scratch.folder(tmp_path, "export") as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_in_use_is_not_swept(tmp_path):
    with scratch.folder(tmp_path, "export") as one, scratch.folder(tmp_path, "import") as another:
        scratch.sweep(tmp_path)
        assert sorted(tmp_path.iterdir()) == [one, another]


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock = scratch._locked  # noqa: SLF001 - the moment between two system calls

    def swept_first(path, how):
        monkeypatch.setattr(scratch, "_locked", lock)
        scratch.sweep(tmp_path)
        return lock(path, how)

    scratch.sweep(tmp_path)
    monkeypatch.setattr(scratch, "_locked", swept_first)
    with scratch.folder(tmp_path, "import") as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_a_lock_on_the_parent_folder_holds_up_nobody(tmp_path):
    with locked(tmp_path), scratch.folder(tmp_path, "backup") as folder:
        assert folder.exists()


@pytest.mark.slow
def test_a_start_of_the_service_removes_leftovers(tmp_path, start):
    instance = tmp_path / "instance"
    instance.mkdir()
    left = leftover(instance)
    start(instance=instance)
    assert not left.exists()


@pytest.mark.parametrize(
    "name", ["import-2026.unfinished", "import-abcdefgh", "old-abcdefgh.unfinished", ".unfinished"]
)
def test_folders_of_other_names_are_left_alone(tmp_path, name):
    folder = leftover(tmp_path, name)
    scratch.sweep(tmp_path)
    assert folder.is_dir()


def test_a_link_is_not_followed(tmp_path):
    elsewhere = leftover(tmp_path, "elsewhere")
    (tmp_path / "import-abcdefgh.unfinished").symlink_to(elsewhere)
    scratch.sweep(tmp_path)
    assert (elsewhere / "rows.db").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    theirs = leftover(tmp_path, "backup-theirs00.unfinished")
    leftover(tmp_path, "backup-own00000.unfinished")
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


def test_a_database_that_others_can_read_is_made_private(tmp_path):
    path = tmp_path / "orders.db"
    opening.create(path)
    (tmp_path / "orders.db-wal").touch()
    for file in tmp_path.iterdir():
        file.chmod(0o664)
    opening.keep_private(path)
    modes = {file.name: S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"orders.db": 0o600, "orders.db-wal": 0o600}
