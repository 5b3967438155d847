"""Files and folders that nobody else can read, write or lock up; leftovers are removed."""

from __future__ import annotations

import os
from stat import S_IMODE

import pytest

from orders import system
from orders.store.care import files, opening
from orders.store.care.files import scratch_folder as scratch
from tests.support.commands import names_in
from tests.support.machine import IS_ROOT


@pytest.fixture
def free_for_all():
    """No umask: the permissions of a file are those that the program sets."""
    before = os.umask(0)
    yield
    os.umask(before)


def leftover(parent, name="import-abcdefgh.unfinished"):
    """Make what a killed process leaves behind: an unlocked folder."""
    folder = parent / name
    folder.mkdir()
    (folder / "rows.db").write_text("half")
    return folder


@pytest.mark.usefixtures("free_for_all")
def test_unfinished_work_is_private_and_gone_afterwards(tmp_path):
    with (
        scratch(tmp_path, "backup") as one,
        scratch(tmp_path, "backup") as another,
    ):
        assert one != another
        assert {S_IMODE(each.stat().st_mode) for each in (one, another)} == {0o700}
        (one / "half").write_text("half")
        with scratch(one, "restore") as inner:
            assert inner.parent == one
    assert names_in(tmp_path) == set()


def test_the_next_folder_of_any_purpose_removes_leftovers_but_no_folder_in_use(tmp_path):
    leftover(tmp_path)
    with (
        scratch(tmp_path, "export") as one,
        scratch(tmp_path, "import") as another,
    ):
        files.sweep(tmp_path)
        assert names_in(tmp_path) == {one.name, another.name}


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock = system.locked_folder  # the moment between two system calls

    def swept_first(path, *, wait):
        monkeypatch.setattr(system, "locked_folder", lock)
        files.sweep(tmp_path)
        return lock(path, wait=wait)

    monkeypatch.setattr(system, "locked_folder", swept_first)
    with scratch(tmp_path, "import") as folder:
        assert names_in(tmp_path) == {folder.name}


def test_a_lock_on_the_parent_folder_stops_nobody(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with scratch(tmp_path, "backup") as folder:
        assert folder.exists()
    os.close(descriptor)


@pytest.mark.slow
def test_a_start_of_the_service_removes_leftovers(tmp_path, start):
    (tmp_path / "instance").mkdir()
    left = leftover(tmp_path / "instance")
    start()
    assert not left.exists()


def test_folders_of_other_names_behind_links_or_of_other_users_are_left_alone(tmp_path):
    for name in ("import-2026.unfinished", "import-abcdefgh", "old-abcdefgh.unfinished"):
        leftover(tmp_path, name)
    (tmp_path / "import-alinkaaa.unfinished").symlink_to(tmp_path / "import-abcdefgh")
    if IS_ROOT:  # only root can give a folder away
        os.chown(leftover(tmp_path, "backup-theirs00.unfinished"), 65_534, 65_534)
    before = names_in(tmp_path)
    leftover(tmp_path, "backup-own00000.unfinished")
    files.sweep(tmp_path)
    assert names_in(tmp_path) == before
    assert (tmp_path / "import-abcdefgh" / "rows.db").exists()


@pytest.mark.usefixtures("free_for_all")
def test_a_private_file_is_never_made_through_a_link(tmp_path):
    system.make_private_file(tmp_path / "new")
    assert S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    for target in (tmp_path / "somebodys", tmp_path / "nowhere"):
        link = tmp_path / f"to-{target.name}"
        link.symlink_to(target)
        with pytest.raises(FileExistsError):
            system.make_private_file(link)
        assert not target.exists()


def test_a_database_that_others_can_read_is_made_private(tmp_path):
    path = tmp_path / "orders.db"
    opening.create(path)
    (tmp_path / "orders.db-wal").touch()
    for file in tmp_path.iterdir():
        file.chmod(0o664)
    opening.keep_private(path)
    modes = {file.name: S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"orders.db": 0o600, "orders.db-wal": 0o600}
