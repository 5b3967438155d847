"""The year, `tests.proofs.year` in short: it finds only planted faults."""

from __future__ import annotations

import importlib
import re

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sqlite_only("a disk that forgets what SQLite did not sync"),
]
# Each fault, and the check that finds it.
FOUND = {
    "lost-event": "is lost",
    "doubled-event": "placed 2 orders",
    "missing-sync": "has 0 events",
    "greedy-sweep": "the delivery of event .* is not in the log",
    "idle-sweep": "the Idempotency-Key of event .* is not forgotten",
    "partial-backup": "the backup of .* has events until",
    "wrong-retention": "backups of .* are kept instead of",
    "lost-webhook": "the message about event .* never arrived",
    "forgotten-key": "placed 2 orders",
    "ageing-keys": "placed 2 orders",
    "stale-etag": "a page begins with order .* is newer",
    "upgrade-drops-row": "the upgrade changed idempotency_keys",
}


@pytest.fixture
def days(tmp_path):
    """Live some days, with a fault if one is named; return the violations."""
    # It needs apsw, which only the marked tests do.
    prove = importlib.import_module("tests.proofs.year.__main__").prove
    return lambda fault="": prove(tmp_path, days=3, orders=80, fault=fault)


def test_after_some_days_a_shops_data_agrees_with_its_customers_answers(days, capsys):
    assert days() == []
    lived = capsys.readouterr().out
    kinds = ("cut", "fill", "set_clock", "restart", "be_down", "refuse", "upgrade")
    assert all(f"{kind} 1" in lived for kind in kinds), lived


def test_every_fault_that_can_be_planted_has_a_test():
    assert {"", *FOUND} == set(importlib.import_module("tests.proofs.year.faults").FAULTS)


@pytest.mark.parametrize("fault", FOUND)
def test_a_planted_fault_is_found_and_reported_with_how_to_replay_it(days, capsys, fault):
    violations = days(fault)
    assert any(re.search(FOUND[fault], each) for each in violations), violations[:9]
    assert f"--seed 1 --days 3 --orders 80 --fault {fault}" in capsys.readouterr().out
