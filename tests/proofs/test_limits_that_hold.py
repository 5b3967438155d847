"""The proofs of the limits in short, and that they notice what they look for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.proofs.limits import crowd, million
from tests.proofs.limits.crowd import Limit
from tests.support.wire import Answer

LIMIT = Limit("a key's minute", {"minute": 3, "day": 10}, None)


def answer(status, minute, day, reset=1060, code="not_found"):
    headers = {
        "X-RateLimit-Limit": "3",
        "X-RateLimit-Remaining": str(min(minute, day)),
        "X-RateLimit-Reset": str(reset),
        "RateLimit": f'"minute";r={minute};t=60, "day";r={day};t=86400',
        "Retry-After": "60",
    }
    return Answer(status, headers, json.dumps({"code": code}).encode(), 0.0)


def refused(code="rate_limit_exceeded", minute=0, reset=1060):
    return answer(429, minute, 7, reset, code)


def sound():
    """Return the answers to a crowd of five: three are admitted, one is warned, one is banned."""
    return [
        answer(404, 1, 8),
        answer(404, 2, 9),
        answer(404, 0, 7, reset=1061),
        refused(),
        refused("api_key_banned", reset=1300),
    ]


def test_a_sound_crowd_has_no_faults():
    assert crowd.faults_of(sound(), LIMIT) == []


@pytest.mark.parametrize(
    ("index", "instead"),
    [
        (0, answer(404, 2, 8)),  # what is left of the minute is reported twice
        (0, answer(404, 1, 9)),  # and of the day
        (0, refused()),  # one too few is admitted
        (3, answer(404, 0, 6)),  # one too many
        (3, refused(minute=1)),  # refused though there is room
        (0, answer(404, 1, 8, reset=1063)),  # the end moves
    ],
)
def test_a_crowd_with_a_fault_is_noticed(index, instead):
    answers = sound()
    answers[index] = instead
    assert crowd.faults_of(answers, LIMIT)


@pytest.mark.parametrize(
    ("plain", "banned", "bans", "is_fault"),
    [
        (28, 2, True, False),
        (0, 2, True, False),  # the first second was over before the first crowd was
        (29, 1, True, True),
        (2, 0, True, True),
        (30, 0, False, False),
        (29, 1, False, True),
    ],
)
def test_a_ban_that_comes_late_or_to_an_address_is_noticed(plain, banned, bans, is_fault):
    answers = [refused()] * plain + [refused("api_key_banned")] * banned
    assert bool(crowd.faults_of_ban(answers, replace(LIMIT, bans=bans))) is is_fault


@pytest.mark.slow
def test_among_sixteen_clients_exactly_the_limit_is_admitted(tmp_path):
    assert crowd.prove(tmp_path / "instance") == []


@pytest.mark.slow
def test_many_addresses_are_bounded_and_push_out_no_key(tmp_path):
    assert million.prove(tmp_path / "counters.db", 20_000) == []
