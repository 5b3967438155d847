"""Imports of files into a test's store, or into one that is shared and never changed."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.clocks import SetClock
from tests.support.imports import import_file, import_rejected
from tests.support.stores import Store


@pytest.fixture
def take(store, tmp_path):
    """Import a file of this content and name; return the result of the command."""
    return partial(import_file, store, tmp_path)


@pytest.fixture
def rejected_here(store, tmp_path):
    """Import a file that must be rejected, and nothing of it stored; return the message."""
    return partial(import_rejected, store, tmp_path)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory, databases, empty_database):
    """An empty store that the tables of a file share: none of their files leaves a trace."""
    settings = databases.settings(tmp_path_factory.mktemp("untouched") / "instance")
    databases.make(settings, empty_database)
    store = Store(settings, SetClock())
    yield store
    store.services.database.close()


@pytest.fixture
def rejected(untouched, tmp_path):
    """As `rejected_here`, for tests that need no orders of their own."""
    return partial(import_rejected, untouched, tmp_path)
