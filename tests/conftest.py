"""What each process of a run needs; what those that run tests need is in support/fixtures."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

# Until all is imported and collected (support/fixtures): looking for garbage, where there is none
# yet, would take a fifth of that time.
gc.disable()
# Tests are compiled once, not by each process of each run.
sys.dont_write_bytecode = False

# A pysqlite3 that can't be imported.
HIDDEN = Path(__file__).parent / "support" / "hidden"
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
    parser.addoption(
        "--sqlite",
        choices=("pysqlite3", "sqlcipher3"),
        default="pysqlite3",
        help="the driver of those files, here and in the services that tests start",
    )


def pytest_xdist_auto_num_workers(config):
    # One file's tests run here: a worker would only take time to start.
    paths = {argument.partition("::")[0] for argument in config.args}
    if len(paths) == 1 and Path(*paths).is_file():
        return 0
    # More than there are cores, as some tests wait for other programs.
    affinity = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return len(affinity(0)) + 1


def pytest_configure(config):
    if "MUTANT_UNDER_TEST" in os.environ:
        forget_what_the_original_returned()
    if config.option.sqlite == "sqlcipher3":
        sys.path.insert(0, str(HIDDEN))
        os.environ["PYTHONPATH"] = str(HIDDEN)
    # The process that only hands out tests to others need not import the program.
    hands_out = getattr(config.option, "numprocesses", None) and not config.option.collectonly
    if hasattr(config, "workerinput") or not hands_out:
        for name in FIXTURES:
            config.pluginmanager.register(importlib.import_module(name), name)


def forget_what_the_original_returned():
    # mutmut forks each mutant from a process in which all tests have passed: what that one has
    # cached, such as statements, would hide the mutant.
    for each in gc.get_objects():
        if type(each) is functools._lru_cache_wrapper:  # noqa: SLF001 - it has no other name
            each.cache_clear()
