"""Folders for unfinished work: gone afterwards, and gone later if their makers were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from stat import S_IMODE

import pytest

from orders.store.care import scratch
from tests.support.service import ROOT

MAKE_AND_WAIT = """
import sys, pathlib
from orders.store.care import scratch
with scratch.folder(pathlib.Path(sys.argv[1]), "import") as folder:
    (folder / "rows.db").write_text("half")
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def maker(parent):
    """Make such a folder in a process that waits; return the process."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT, parent],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().startswith(str(parent))
        try:
            yield process
        finally:
            process.kill()


def killed(parent):
    with maker(parent) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    (left,) = parent.iterdir()
    assert (left / "rows.db").exists()


def test_a_folder_is_for_its_owner_and_gone_afterwards(tmp_path):
    with scratch.folder(tmp_path, "backup") as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "half").write_text("half")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_made_inside_of_another(tmp_path):
    with scratch.folder(tmp_path, "restore") as outer, scratch.folder(outer, "backup") as inner:
        assert inner.parent == outer
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_of_any_purpose(tmp_path):
    killed(tmp_path)
    with scratch.folder(tmp_path, "export") as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_what_a_process_uses_is_left_to_it(tmp_path):
    with maker(tmp_path), scratch.folder(tmp_path, "import") as folder:
        scratch.sweep(tmp_path)
        assert len(list(tmp_path.iterdir())) == 2
        assert folder.exists()


@pytest.mark.slow
def test_a_start_of_the_service_removes_what_was_left(tmp_path, start):
    instance = tmp_path / "instance"
    instance.mkdir()
    killed(instance)
    start(instance=instance)
    assert not list(instance.glob("*.unfinished"))


@pytest.mark.parametrize(
    "name", ["import-2026.unfinished", "import-abcdefgh", "old-abcdefgh.unfinished", ".unfinished"]
)
def test_what_is_the_shops_own_is_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    scratch.sweep(tmp_path)
    assert (tmp_path / name).is_dir()


def test_a_link_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (tmp_path / "import-abcdefgh.unfinished").symlink_to(elsewhere)
    scratch.sweep(tmp_path)
    assert (elsewhere / "kept").exists()
