"""The soak in short, and that it notices what grows and what slows down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proofs.soak import __main__ as soak
from tests.proofs.soak.__main__ import MIB, Sample
from tests.proofs.soak.load import Record

FILES = {"orders.db": 10_000, "orders.db-wal": 0, "counters.db": 4_096, "counters.db-wal": 0}
RECORDS = [Record(at, 0.01, "place", 201, True) for at in range(300)]


def samples(**changes):
    """Return samples of five minutes; the last one differs."""
    steady = [Sample(at, 60 * MIB, 7, 30, 11, dict(FILES)) for at in range(5, 300, 5)]
    return [*steady[:-1], replace(steady[-1], **changes)]


@pytest.mark.parametrize(
    ("name", "most", "of"),
    [
        ("memory", 84 * MIB, "memory"),
        ("the number of threads", 7, "threads"),
        ("the number of descriptors", 30, "descriptors"),
        ("the descriptors of orders.db", soak.MOST_OF_DATABASE, "of_database"),
        # 236 changes after the first minute, and a MiB.
        ("orders.db", 10_000 + 236 * 1024 + MIB, "files"),
        ("orders.db-wal", 64 * MIB, "files"),
        ("counters.db", 4_096 + MIB, "files"),
        ("counters.db-wal", 64 * MIB, "files"),
    ],
)
def test_what_grows_beyond_its_bound_is_noticed(name, most, of):
    def faults(value):
        changes = {of: {**FILES, name: value} if of == "files" else value}
        return soak.faults_of_use(samples(**changes), RECORDS)

    assert faults(most) == []
    (fault,) = faults(most + 1)
    assert fault.startswith(f"{name} went from ")


@pytest.mark.parametrize(
    ("took", "slower"),
    [(0.010, []), (0.013, []), (0.014, ["50th"]), (0.026, ["50th", "99th"])],
)
def test_a_last_minute_slower_than_the_first_is_noticed(took, slower):
    records = [replace(each, took=took) if each.at > 239 else each for each in RECORDS]
    faults = soak.faults_of_time(*soak.ends_of(records))
    assert [fault.split()[1] for fault in faults] == slower


@pytest.mark.slow
def test_under_mixed_load_threads_descriptors_and_files_stay_as_they_are(tmp_path):
    records, seen = soak.soak(tmp_path, 8, seed=1, find_seconds=2, every=1)
    assert len(records) > 100
    assert soak.faults_of_answers(records) == []
    assert soak.faults_of_use(seen, records) == []
