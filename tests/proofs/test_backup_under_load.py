"""A backup while writers place orders, and its restore: `tests.proofs.backup` in short."""

from __future__ import annotations

import math

import pytest

from tests.proofs import backup

pytestmark = pytest.mark.sqlite_only("a copy of a file while it is written")


@pytest.mark.slow
def test_a_backup_under_load_and_its_restore_lose_revive_and_mislead_nothing(tmp_path, capsys):
    assert backup.prove(tmp_path, orders=1_000, rounds=1, times=math.inf) == []
    said = capsys.readouterr().out
    assert "MiB at most, of 64" in said
    assert "remembered ETags   [200, 200]; the revoked key 401" in said
