"""The short form of `python -m proofs.cluster`, and what its comparisons complain of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from proofs.cluster import readers, verdict
from proofs.cluster.__main__ import summary
from proofs.cluster.quotas import QUOTA, Attack
from proofs.cluster.run import TYPES, Findings, Run
from proofs.cluster.shoppers import Shopping
from proofs.cluster.stage import staged
from proofs.core.clients import Key
from proofs.core.history import Contents, EventRow, Kind, Operation

PLACED = ("order.placed",)
AT = "2026-12-01T08:00:00.000Z"


@pytest.mark.cluster
def test_whichever_process_is_killed_the_store_is_as_its_clients_were_told(tmp_path):
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


def seen(*numbers):
    return [{"id": each, "type": "order.placed", "orderId": each, "at": AT} for each in numbers]


def test_a_reader_of_the_feed_sees_each_event_once_and_in_order():
    assert readers.unlike_the_log(seen(1, 2, 3), LOG) == []
    for wrong in (seen(1, 3), seen(1, 2, 2, 3), seen(1, 3, 2), seen(1, 2, 3, 4)):
        assert readers.unlike_the_log(wrong, LOG)


@pytest.mark.parametrize(
    ("received", "kills", "is_fine"),
    [
        (came(1, 2, 3), [], True),
        (came(1, 3, 2), [], False),
        (came(1, 2, 3, 4), [], False),
        (came(1, 2, 2, 3), [], False),
        (came(1, 2, 2, 3), [1.5], True),
        # Killed before it came, or so long after it that it had been written down.
        (came(1, 2, 2, 3), [0.5], False),
        (came(1, 2, 2, 3, apart=10), [15.0], False),
        # The one before had been written down, or the other would not have come.
        (came(1, 2, 1, 3), [1.5], False),
    ],
)
def test_an_event_is_delivered_twice_only_where_a_process_was_killed(received, kills, is_fine):
    assert (readers.misdelivered(received, PLACED, kills, LOG) == []) is is_fine


@pytest.mark.parametrize(
    ("admitted", "limited", "unanswered", "sent_twice", "is_fine"),
    [
        (QUOTA, 29, 0, 0, True),
        (QUOTA + 1, 29, 1, 0, False),
        (QUOTA - 1, 29, 0, 0, False),
        (QUOTA - 1, 29, 1, 0, True),
        (QUOTA - 1, 29, 0, 1, True),
        (QUOTA, 30, 0, 0, True),
        (QUOTA, 28, 0, 0, False),
    ],
)
def test_a_key_is_admitted_as_often_as_its_quota_says(
    admitted, limited, unanswered, sent_twice, is_fine
):
    made = Attack(Key("", "key:1"), admitted, limited, 91, unanswered)
    assert (made.complaints(sent_twice) == []) is is_fine


def findings(*unanswered, kills=(), away=None, log=""):
    """What is left of a run in which nothing happened but that."""
    return Findings(
        kills=list(kills),
        away=away,
        attacks=[Attack(Key("", "key:1"), QUOTA, 29, 4)],
        shopping=[Shopping(unanswered=[(at, Kind.PLACE, "502") for at in unanswered])],
        receivers=[SimpleNamespace(received=[]) for _ in TYPES],
        access_log=log,
    )


@pytest.mark.parametrize(
    ("found", "is_fine"),
    [
        (findings(), True),
        (findings(10.0), False),
        (findings(10.0, kills=[9.9]), True),
        (findings(10.0, kills=[5.0]), False),
        (findings(10.0, away=(9.0, 11.0)), True),
        (findings(*[10.0] * 100, kills=[9.9]), False),
    ],
)
def test_what_is_not_answered_was_on_its_way_when_a_process_was_killed(found, is_fine):
    assert (verdict.complaints(found, clients=2) == []) is is_fine


def test_what_nginx_sent_twice_may_have_been_done_the_first_time():
    line = (
        '2026-12-01T08:00:00+00:00 127.0.0.1 DELETE "/v1/store/orders/7" 404 99 0.004s '
        "127.0.0.1:1, 127.0.0.1:2 502, 404 abc\n"
    )
    other = line.replace("127.0.0.1:1, ", "").replace("502, ", "").replace("abc", "def")
    cancels = [
        Operation(Kind.CANCEL, "key:1", (204, 404), 7, status=404, request_id=request_id)
        for request_id in ("abc", "def")
    ]
    found = findings(log=line + other)
    found.shopping[0].history.extend(cancels)
    twice = verdict.sent_twice(found)
    assert twice == {"abc"}
    history = list(verdict.whole_history(found, twice))
    assert [(each.request_id, each.is_unknown) for each in history] == [
        ("abc", False),
        (None, True),
        ("def", False),
    ]
