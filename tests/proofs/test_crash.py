"""`tests.proofs.crash` in short: the real server, killed a few times under load."""

from __future__ import annotations

import pytest

from tests.proofs.crash.__main__ import Crashes, summary

pytestmark = pytest.mark.sqlite_only("its inspector reads the file of a killed service")

# No machine is so slow: how far the counters are behind is measured by the long form.
ANY_TIME = 600


@pytest.mark.slow
def test_after_each_kill_the_store_agrees_with_its_clients_answers(tmp_path):
    crashes = Crashes(tmp_path / "instance", kills=3, clients=4, seed=1)
    assert crashes.run(ANY_TIME) == [], summary(crashes)
    assert crashes.kills == 3
    assert crashes.kills_of_starts < 3
    assert any(each.is_acknowledged for each in crashes.history.operations)
    assert crashes.inspector.contents.orders
    assert crashes.inspector.bans_seen > 0
    assert all(each.openings > 1 and each.seen for each in crashes.followers)
