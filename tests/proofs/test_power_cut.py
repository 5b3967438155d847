"""Power cuts, `tests.proofs.power_cut` in short: nothing acknowledged is lost."""

from __future__ import annotations

import importlib

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sqlite_only("a disk that forgets what SQLite did not sync"),
]


@pytest.fixture
def cut():
    """Cut the power so often, under the project's own settings or another `synchronous`."""
    # It needs apsw, which only the marked tests do.
    cut_power = importlib.import_module("tests.proofs.power_cut.__main__").cut_power
    return lambda cuts, *synchronous: cut_power(cuts, 1, *synchronous)


def test_a_power_cut_loses_nothing_that_was_acknowledged_and_damages_nothing(cut):
    tally = cut(20)
    assert "synchronous=FULL" in tally.settings
    assert (tally.lost, tally.damaged, tally.not_once) == (0, 0, 0), tally
    assert tally.cuts == 20
    assert tally.acknowledged > 1_000
    assert tally.checkpoints
    assert tally.cuts_in_checkpoint


def test_with_less_care_for_the_disk_orders_would_be_lost(cut):
    tally = cut(20, "NORMAL")
    assert tally.lost, tally
    assert not tally.damaged, tally


def test_without_any_care_the_database_would_be_damaged(cut):
    assert cut(6, "OFF").damaged
