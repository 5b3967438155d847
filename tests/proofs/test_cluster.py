"""The short form of `python -m tests.proofs.cluster`, and what its comparisons complain of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.proofs.cluster import readers, verdict
from tests.proofs.cluster.__main__ import summary
from tests.proofs.cluster.run import TYPES, Findings, Run
from tests.proofs.cluster.shoppers import Shopping
from tests.proofs.cluster.stage import staged
from tests.proofs.core import followers
from tests.proofs.core.history import Contents, EventRow, Kind

PLACED = ("order.placed",)
AT = "2026-12-01T08:00:00.000Z"


@pytest.mark.cluster
def test_whichever_process_is_killed_the_store_agrees_with_its_clients_answers(tmp_path):
    with staged(tmp_path, processes=4) as stage:
        found = Run(stage, clients=2, seed=1).run(seconds=12, postgres=False)
        faults = verdict.complaints(found, clients=2)
    assert faults == [], summary(found)
    assert found.kills
    assert found.redis_was_away
    assert any(each.is_acknowledged for load in found.shopping for each in load.history)
    assert all(each.received for each in found.receivers)


def event(number, kind="order.placed"):
    return EventRow(
        number, kind, number, AT, "key:1", "r", 1, 1, None, "pending", AT, AT, None, None
    )


LOG = Contents([], [event(number) for number in (1, 2, 3)], [])


def came(*numbers, at=0.0, apart=1.0):
    return [
        SimpleNamespace(event=number, at=at + nth * apart) for nth, number in enumerate(numbers)
    ]


def test_lost_duplicate_or_out_of_order_events_are_noticed():
    for wrong in ((1, 3), (1, 2, 2, 3), (1, 3, 2), (1, 2, 3, 4)):
        seen = [{"id": each, "type": PLACED[0], "orderId": each, "at": AT} for each in wrong]
        assert followers.unlike_the_log(seen, LOG)
        assert readers.misdelivered(came(*wrong), PLACED, [], LOG)
    # A kill explains a double that was on its way, and not yet written down.
    assert readers.misdelivered(came(1, 2, 2, 3), PLACED, [1.5], LOG) == []
    assert readers.misdelivered(came(1, 2, 2, 3), PLACED, [0.5], LOG)
    assert readers.misdelivered(came(1, 2, 2, 3, apart=10), PLACED, [15.0], LOG)
    assert readers.misdelivered(came(1, 2, 1, 3), PLACED, [1.5], LOG)


@pytest.mark.parametrize(("unanswered", "kills"), [([10.0], []), ([10.0], [5]), ([10.0] * 99, [9])])
def test_requests_without_an_answer_though_no_process_was_killed_are_noticed(unanswered, kills):
    found = Findings(
        kills=kills,
        away=None,
        shopping=[Shopping(unanswered=[(at, Kind.PLACE, "502") for at in unanswered])],
        receivers=[SimpleNamespace(received=[]) for _ in TYPES],
        access_log="",
    )
    assert verdict.complaints(found, clients=2)
