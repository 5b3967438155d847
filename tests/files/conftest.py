"""Imports of files into a test's store, or into one that is shared and never changed."""

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
    """Import a file that must be rejected, and nothing of it stored; return the message."""
    return partial(import_rejected, store, tmp_path)


@pytest.fixture
def rejected(shared_store, tmp_path):
    """As `rejected_here`, in a store that all share, as none of the files leaves a trace."""
    return partial(import_rejected, shared_store, tmp_path)
