"""Imports of files into a test's own store, or into a shared one that never changes."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.imports import import_file, import_rejected


@pytest.fixture
def take(store, tmp_path):
    """Import a file of this content and name; return the result of the command."""
    return partial(import_file, store, tmp_path)


@pytest.fixture
def rejected_here(store, tmp_path):
    """Import a file; check that it is rejected and nothing is stored; return the message."""
    return partial(import_rejected, store, tmp_path)


@pytest.fixture
def rejected(shared_store, tmp_path):
    """Do as `rejected_here`, in the shared store, as rejected files leave nothing in it."""
    return partial(import_rejected, shared_store, tmp_path)
