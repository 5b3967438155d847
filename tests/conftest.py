"""What each process of a run needs; what those that run tests need is in support/fixtures."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

import pytest

FIXTURES = ("tests.support.fixtures", "tests.support.browser")
# Before anything imports them, so that their assertions say what differs.
pytest.register_assert_rewrite(*FIXTURES)

# Where files are in memory, a commit that waits for the disk waits for nothing.
MEMORY = Path("/dev/shm")
MANY_DATABASES = 4 * 2**30
if os.access(MEMORY, os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if shutil.disk_usage(MEMORY).free > MANY_DATABASES:
        os.environ.setdefault("PG_FOLDER", str(MEMORY))


def pytest_addoption(parser):
    parser.addoption(
        "--database",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="where the stores of tests are: files, or a PostgreSQL server of this run's own",
    )


def pytest_configure(config):
    # The process that only hands out tests to others need not import the program.
    hands_out = getattr(config.option, "numprocesses", None) and not config.option.collectonly
    if hasattr(config, "workerinput") or not hands_out:
        for name in FIXTURES:
            config.pluginmanager.register(importlib.import_module(name), name)
