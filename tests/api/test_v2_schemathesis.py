"""Schemathesis against version 2 of the running service, with its checks.

As for version 1 (`test_schemathesis`), what the contract decides otherwise is told to it:

- `after` is sound only where it is what the service gave, a cursor of the same query or the id of
  an event. So where sound data are to be made, it is left out (`HOOKS`); other tests go through the
  pages.
- `use_after_free` has what was deleted be gone. Here DELETE cancels an order, which is then shown
  as cancelled: it is the one check that is switched off (`CONFIG`).
"""

from __future__ import annotations

import collections
import re

import pytest
from test_schemathesis import EXAMPLES, endless, schemathesis

pytestmark = pytest.mark.schemathesis
__all__ = ["endless"]

OPERATIONS = 9
CONFIG = "checks.use_after_free.enabled = false\n"
HOOKS = """
@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta and case.meta.generation.mode.is_positive:
        (case.query or {}).pop("after", None)
"""


@pytest.fixture(scope="module")
def report(endless, tmp_path_factory):
    """The report of a whole run."""
    document = f"{endless.service.url}/openapi/v2.json"
    return schemathesis(
        endless, tmp_path_factory.mktemp("v2"), document, version=2, config=CONFIG, hooks=HOOKS
    )


def test_no_check_finds_a_fault(report):
    assert (report.failures, report.errors, report.status) == ([], [], 0), report.output


def test_no_operation_and_no_phase_is_left_out(report):
    assert report.complete
    assert report.operations["tested"] == report.operations["total"] == OPERATIONS
    told = {name: phase["status"] for name, phase in report.phases.items()}
    assert told == dict.fromkeys(("examples", "coverage", "fuzzing", "stateful"), "success")


def test_each_operation_was_seen_to_succeed_and_to_refuse(report, endless):
    assert report.test_cases["generated"] > OPERATIONS * EXAMPLES
    met = collections.defaultdict(set)
    for line in endless.service.log:
        if words := re.search(r" ([A-Z]+) /v2(/\S+) (\d{3}) ", line):
            shape = re.sub(r"^/store/orders/[^/]+", "/store/orders/*", words[2])
            met[f"{words[1]} {shape}"].add(int(words[3]))
    assert met["GET /store/orders"] >= {200, 401, 422}
    assert met["POST /store/orders"] >= {201, 400, 401, 415, 422}
    assert met["GET /store/orders/*"] >= {200, 401, 404}
    assert met["POST /store/orders/*/ship"] >= {200, 401, 404, 409, 422}
    assert met["DELETE /store/orders/*"] >= {204, 401, 404, 409}
    assert met["GET /store/orders/*/events"] >= {200, 401, 404}
    assert met["GET /store/events"] >= {200, 401, 422}
    assert met["GET /store/stats"] >= {200, 401, 422}
    assert met["GET /usage"] >= {200, 401}
    assert {status for statuses in met.values() for status in statuses if status >= 500} == set()
