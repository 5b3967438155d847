"""Whatever happens to a shop, in any order, it behaves as a model of its rules.

The model has the rules in a few lines: orders with their states, the event log, remembered
Idempotency-Keys, the windows and bans of keys. The application is driven with a clock that is set,
stopped, started, and cut off at any moment; `tests.proofs.crash` kills the real process.
"""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import dataclass, field, replace
from itertools import chain, count
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orders import domain
from orders.domain import Origin
from orders.settings import DEFAULT_PLANS, Plan
from orders.store import apikeys as key_store
from orders.store import forgetting
from tests.support.clocks import SetClock
from tests.support.databases import DATABASES
from tests.support.stores import Client, Store, assert_error

pytestmark = pytest.mark.usefixtures("databases")

LIST = "/v1/store/orders"
LIST_2, SHIPMENTS = "/v2/store/orders", "/v2/store/shipments"
DAY = 86_400
PLANS = {"small": Plan("small", 8, 40), "wide": Plan("wide", 60, 10**9)}
BAN = SimpleNamespace(after=4, window=60, seconds=300)


# The model.


@dataclass
class Window:
    """A fixed window, which ends at a time of the model's clock."""

    length: int
    quota: int
    count: int = 0
    ends: float = 0.0

    def left(self, now):
        return self.quota if now >= self.ends else self.quota - self.count

    def take(self, now):
        if now >= self.ends:
            self.count, self.ends = 0, now + self.length
        self.count += 1


@dataclass
class Limits:
    """What a key has used up. A plan begins new windows; a ban is not among them."""

    plan: Plan
    strikes: int = 0
    strikes_end: float = 0.0

    def __post_init__(self):
        self.windows = [Window(60, self.plan.per_minute), Window(DAY, self.plan.per_day)]

    def are_used_up(self, now):
        return min(window.left(now) for window in self.windows) == 0

    def strike(self, now):
        """Count an answer of 429; return whether it was one too many."""
        if now >= self.strikes_end:
            self.strikes, self.strikes_end = 0, now + BAN.window
        if self.strikes != 1 or now >= self.strikes_end - BAN.window + 1:
            self.strikes += 1
        if self.strikes < BAN.after:
            return False
        self.strikes, self.strikes_end = 0, 0.0
        return True


@dataclass
class Key:
    """An API key. `flushed` are its limits as they are on the disk."""

    id: int
    secret: str
    limits: Limits
    banned_until: float = 0.0
    flushed: Limits = None
    remembered: dict = field(default_factory=dict)
    # Version 2's.
    written: dict = field(default_factory=dict)

    def judge(self, now):
        """Count a request; return None, or the code of its rejection."""
        if now < self.banned_until:
            return "api_key_banned"
        if not self.limits.are_used_up(now):
            for window in self.limits.windows:
                window.take(now)
            return None
        if not self.limits.strike(now):
            return "rate_limit_exceeded"
        self.banned_until = now + BAN.seconds
        return "api_key_banned"


class Model:
    """The orders by id, as version 1 shows them, with their states; and the event log."""

    def __init__(self):
        self.orders = {}
        self.states = {}
        self.notes = {}
        # The dates that they are expected to ship at.
        self.expected = {}
        self.events = []

    def record(self, kind, key, order_id):
        if kind not in {"changed", "forgotten"}:
            self.states[order_id] = {"placed": "pending", "reopened": "pending"}.get(kind, kind)
        state, order = self.states[order_id], self.orders[order_id]
        facts = order["petId"], order["quantity"], order.get("shipDate"), self.notes.get(order_id)
        actor = f"key:{key.id}" if key else "cli"
        self.events.append((f"order.{kind}", order_id, actor, state, *facts))

    def forget(self):
        """Forget the notes of settled orders; return the ids of those that had any."""
        noted = {order_id for _, order_id, *_, note in self.events if note}
        due = sorted(each for each in noted if self.states[each] != "pending")
        self.events = [(*event, None if event[1] in due else note) for *event, note in self.events]
        for order_id in due:
            self.notes[order_id] = None
            self.record("forgotten", None, order_id)
        return due

    def shown(self):
        return [
            order for order_id, order in self.orders.items() if self.states[order_id] != "cancelled"
        ]

    def error(self, order_id, version=1):
        """Return why an order can't be changed: status and code; None if it can."""
        gone = (404, "order_not_found") if version == 1 else (409, "order_already_cancelled")
        return {
            None: (404, "order_not_found"),
            "cancelled": gone,
            "shipped": (409, "order_already_shipped"),
            "pending": None,
        }[self.states.get(order_id)]


def without_notes(data, order_ids):
    """Return an answer of version 2 without the notes of some orders."""
    body = json.loads(data)
    for order in [body, *(each.get("order", {}) for each in body.get("results", ()))]:
        if order.get("id") in order_ids:
            order.pop("note", None)
    return json.dumps(body, separators=(",", ":")).encode()


EVENT_COLUMNS = "type, order_id, actor, status, pet_id, quantity, ship_date, note"


# The machine.

KEYS = st.integers(0, 1)
ORDER_IDS = st.integers(0, 5)
DATES = st.none() | st.sampled_from(["2026-12-24T18:00:00.000Z", "0001-01-01T00:00:00.000Z"])
ORDERS = st.fixed_dictionaries(
    {"petId": st.sampled_from([1, 7, 2**63 - 1])},
    optional={
        "quantity": st.sampled_from([1, 2, 2**31 - 1]),
        "shipDate": st.just("2026-12-24T18:00:00.000Z"),
    },
)
# Few, so that they repeat; the first two are the same order.
PATCHES = st.fixed_dictionaries(
    {}, optional={"quantity": st.integers(1, 2), "note": st.sampled_from([None, "A gift", "1\n2"])}
)
VALUES = st.none() | st.sampled_from("ab")
RETRIED = st.sampled_from([{"petId": 7}, {"petId": 7, "quantity": 1}, {"petId": 8}])


def has_been_busy(machine):
    """Return whether a restart is worth its time: each takes as long as many requests."""
    return machine.sent >= 8


class Shopping(RuleBasedStateMachine):
    """Places, ships, cancels, gets and lists orders, and compares with the model."""

    def __init__(self, folder, empty_database):
        super().__init__()
        self.folder, self.numbers = folder, count()
        self.clock = SetClock()
        settings = DATABASES.settings(
            folder / str(next(self.numbers)),
            plans={**DEFAULT_PLANS, **PLANS},
            ban_after=BAN.after,
            ban_window=BAN.window,
            ban_seconds=BAN.seconds,
        )
        DATABASES.empty(settings, empty_database)
        self.store = Store(settings, self.clock)
        self.model = Model()
        self.listed = None
        self.sent = 0
        self.keys = [Key(*self.store.issue("small"), Limits(PLANS["small"])) for _ in range(2)]
        self.remember_flushed()

    def now(self):
        return self.clock.monotonic()

    def request(self, number, method, path, **request):
        """Send a request; return the response, or None where the limits reject it."""
        self.sent += 1
        key = self.keys[number]
        rejection = key.judge(self.now())
        response = Client(self.store, key.id, key.secret).request(method, path, **request)
        lefts = [window.left(self.now()) for window in key.limits.windows]
        minute, day = (part.split(";")[1] for part in response.headers["RateLimit"].split(", "))
        assert [minute, day] == [f"r={left}" for left in lefts]
        if rejection is None:
            assert response.status_code != 429, response.text
            return response
        assert_error(response, 429, rejection)
        ends = [window.ends for window in key.limits.windows if window.left(self.now()) == 0]
        wait = max([key.banned_until, *ends]) - self.now()
        assert response.headers["Retry-After"] == str(int(wait))
        assert response.headers["X-RateLimit-Remaining"] == "0"
        return None

    def id_of(self, number):
        """Turn a number into an id, mostly of a new order; 0 for one that no order has."""
        return max(0, len(self.model.orders) + 1 - number)

    @rule(key=KEYS, order=ORDERS)
    def place(self, key, order):
        answer = self.request(key, "POST", LIST, json=order)
        if answer:
            self.assert_placed(self.keys[key], order, answer)

    @rule(key=KEYS, order=RETRIED, value=st.sampled_from("ab"))
    def place_once(self, key, order, value):
        answer = self.request(key, "POST", LIST, json=order, headers={"Idempotency-Key": value})
        if not answer:
            return
        key = self.keys[key]
        order = {"quantity": 1, **order}
        earlier = key.remembered.get(value)
        if earlier is None or self.now() - earlier.at >= DAY:
            self.assert_placed(key, order, answer)
            key.remembered[value] = SimpleNamespace(at=self.now(), order=order, answer=answer)
        elif earlier.order == order:
            assert (answer.status_code, answer.data) == (201, earlier.answer.data)
            assert answer.headers["Location"] == earlier.answer.headers["Location"]
            assert answer.headers["Idempotent-Replayed"] == "true"
        else:
            assert_error(answer, 422, "idempotency_key_reused")

    def assert_placed(self, key, order, answer):
        order_id = len(self.model.orders) + 1
        placed = {"id": order_id, "petId": order["petId"], "quantity": order.get("quantity", 1)}
        if "shipDate" in order:
            placed["shipDate"] = order["shipDate"]
        placed["complete"] = False
        assert (answer.status_code, answer.get_json()) == (201, placed)
        assert list(answer.get_json()) == list(placed)
        assert answer.headers["Location"] == f"{LIST}/{order_id}"
        assert "Idempotent-Replayed" not in answer.headers
        self.model.orders[order_id] = placed
        self.model.notes[order_id] = None
        self.model.expected[order_id] = placed.get("shipDate")
        self.model.record("placed", key, order_id)

    @rule(key=KEYS, order_id=ORDER_IDS, date=DATES)
    def ship(self, key, order_id, date):
        order_id = self.id_of(order_id)
        request = {"json": {"shipDate": date}} if date else {}
        answer = self.request(key, "POST", f"{LIST}/{order_id}/ship", **request)
        error = self.model.error(order_id)
        if not answer:
            return
        if error:
            assert_error(answer, *error)
            return
        shipped = self.shipped(order_id, date)
        assert (answer.status_code, answer.get_json()) == (200, shipped)
        self.model.orders[order_id] = shipped
        self.model.record("shipped", self.keys[key], order_id)

    def shipped(self, order_id, date=None):
        """Return an order as it is after it was shipped."""
        order = {k: v for k, v in self.model.orders[order_id].items() if k != "complete"}
        at = date or domain.format_instant(self.clock.now())
        return {**order, "shipDate": at, "complete": True}

    def write_once(self, key, value, check, *request):
        """Send a write of version 2, maybe with an Idempotency-Key; check a first answer."""
        headers = {"Idempotency-Key": value} if value else {}
        method, path, body = request
        answer, key = self.request(key, method, path, json=body, headers=headers), self.keys[key]
        if not answer:
            return
        earlier = key.written.get(value)
        if not value or earlier is None or self.now() - earlier.at >= DAY:
            check(key, answer)
            if value and answer.status_code == 200:
                earlier = SimpleNamespace(at=self.now(), request=request, data=answer.data)
                key.written[value] = earlier
        elif earlier.request == request:
            assert (answer.status_code, answer.data) == (200, earlier.data)
            assert answer.headers["Idempotent-Replayed"] == "true"
        else:
            assert_error(answer, 422, "idempotency_key_reused")

    @rule(key=KEYS, order_id=ORDER_IDS, fields=PATCHES, value=VALUES)
    def change(self, key, order_id, fields, value):
        order_id = max(1, self.id_of(order_id))

        def check(key, answer):
            order = self.model.orders.get(order_id)
            before = order and {"quantity": order["quantity"], "note": self.model.notes[order_id]}
            after = order and {**before, **fields}
            error = self.model.error(order_id, 2)
            if error and (not order or after["quantity"] != before["quantity"]):
                assert_error(answer, *error)
                return
            shown = answer.get_json()
            assert (shown["quantity"], shown.get("note")) == tuple(after.values())
            if after != before:
                self.model.orders[order_id] = {**order, "quantity": after["quantity"]}
                self.model.notes[order_id] = after["note"]
                self.model.record("changed", key, order_id)

        self.write_once(key, value, check, "PATCH", f"{LIST_2}/{order_id}", fields)

    @rule(key=KEYS, numbers=st.sets(st.integers(0, 4), min_size=1, max_size=4), value=VALUES)
    def ship_several(self, key, numbers, value):
        order_ids = sorted({max(1, self.id_of(number)) for number in numbers}, reverse=True)

        def check(key, answer):
            results = answer.get_json()["results"]
            assert [each["orderId"] for each in results] == order_ids
            for each in reversed(results):
                order_id, error = each["orderId"], self.model.error(each["orderId"], 2)
                if error:
                    assert (each["error"]["status"], each["error"]["code"]) == error
                    continue
                shipped = self.model.orders[order_id] = self.shipped(order_id)
                assert each["order"].items() >= shipped.items()
                self.model.record("shipped", key, order_id)

        self.write_once(key, value, check, "POST", SHIPMENTS, {"orderIds": order_ids})

    @rule(key=KEYS, order_id=ORDER_IDS)
    def cancel(self, key, order_id):
        order_id = self.id_of(order_id)
        answer = self.request(key, "DELETE", f"{LIST}/{order_id}")
        error = self.model.error(order_id)
        if answer and error:
            assert_error(answer, *error)
        elif answer:
            assert (answer.status_code, answer.data) == (204, b"")
            self.model.record("cancelled", self.keys[key], order_id)

    @rule(key=KEYS, order_id=ORDER_IDS, value=VALUES)
    def reopen(self, key, order_id, value):
        order_id = max(1, self.id_of(order_id))

        def check(key, answer):
            if order_id not in self.model.orders:
                assert_error(answer, 404, "order_not_found")
                return
            if self.model.states[order_id] != "pending":
                expected = self.model.expected[order_id]
                order = {**self.model.orders[order_id], "shipDate": expected, "complete": False}
                order = {name: each for name, each in order.items() if each is not None}
                self.model.orders[order_id] = order
                self.model.record("reopened", key, order_id)
            assert answer.get_json().items() >= self.model.orders[order_id].items()
            assert answer.get_json()["status"] == "pending"

        self.write_once(key, value, check, "POST", f"{LIST_2}/{order_id}/reopen", None)

    @rule()
    def forget(self):
        found = forgetting.due(self.store.database)
        forgotten = self.store.shop.orders.forget(found, Origin("cli"), "all", lambda _: None)
        order_ids = self.model.forget()
        assert [*chain(*forgotten)] == order_ids
        for earlier in (each for key in self.keys for each in key.written.values()):
            earlier.data = without_notes(earlier.data, order_ids)

    @rule(key=KEYS, order_id=ORDER_IDS)
    def get(self, key, order_id):
        order_id = self.id_of(order_id)
        answer = self.request(key, "GET", f"{LIST}/{order_id}")
        if answer and self.model.states.get(order_id) in {"pending", "shipped"}:
            assert (answer.status_code, answer.get_json()) == (200, self.model.orders[order_id])
        elif answer:
            assert_error(answer, 404, "order_not_found")

    @rule(key=KEYS)
    def list_all(self, key):
        answer = self.request(key, "GET", LIST)
        if answer:
            assert (answer.status_code, answer.get_json()) == (200, self.model.shown())
            self.listed = SimpleNamespace(tag=answer.headers["ETag"], events=len(self.model.events))

    @precondition(lambda self: self.listed)
    @rule(key=KEYS)
    def list_if_changed(self, key):
        answer = self.request(key, "GET", LIST, headers={"If-None-Match": self.listed.tag})
        if answer and self.listed.events == len(self.model.events):
            assert (answer.status_code, answer.data) == (304, b"")
        elif answer:
            assert (answer.status_code, answer.get_json()) == (200, self.model.shown())

    @invariant()
    def each_change_has_one_event_and_nothing_else_has_one(self):
        rows = self.store.rows(f"SELECT {EVENT_COLUMNS} FROM order_events ORDER BY id")
        assert [tuple(row.values()) for row in rows] == self.model.events

    @invariant()
    def the_figures_are_those_of_the_orders(self):
        ever = self.store.rows(
            "SELECT sum(placed) AS placed, sum(shipped) AS shipped, sum(cancelled) AS cancelled "
            "FROM order_quarters WHERE quarter = -1"
        )
        states = [*self.model.states.values()]
        counts = [len(states), states.count("shipped"), states.count("cancelled")]
        assert [count or 0 for count in ever[0].values()] == counts

    # Time, limits and restarts.

    def let_pass(self, seconds):
        """Let seconds pass, and have the service flush what it counted."""
        self.clock.advance(seconds)
        self.store.shop.counters.flush()
        self.store.shop.write_keys()
        self.remember_flushed()

    def remember_flushed(self):
        for key in self.keys:
            key.flushed = copy.deepcopy(key.limits)

    def write(self, key, change):
        """Change a key's row as a command would; it is in force within a second."""
        with self.store.database.write() as connection:
            change(connection, key.id)
        self.let_pass(1)

    @rule(key=KEYS, times=st.integers(2, 8))
    def hurry(self, key, times):
        for _ in range(times):
            self.list_all(key=key)

    @rule(key=KEYS, plan=st.sampled_from(["small", "wide"]))
    def change_plan(self, key, plan):
        key = self.keys[key]
        key.limits = Limits(PLANS[plan], key.limits.strikes, key.limits.strikes_end)
        self.write(key, lambda *which: key_store.change_plan(*which, plan, None, None))

    @precondition(lambda self: any(key.banned_until > self.now() for key in self.keys))
    @rule()
    def unban(self):
        key = next(key for key in self.keys if key.banned_until > self.now())
        key.banned_until = 0.0
        self.write(key, lambda *which: key_store.change(*which, banned_until=None))

    @rule(seconds=st.sampled_from([1, 30, 59, 60, 61, 240, 300, DAY - 1, DAY]))
    def let_time_pass(self, seconds):
        self.let_pass(seconds)

    @precondition(has_been_busy)
    @rule()
    def restart(self):
        self.store, self.sent = self.store.restarted(), 0
        self.remember_flushed()

    @precondition(has_been_busy)
    @rule()
    def crash(self):
        """Go on with what is on the disk at this moment, as after `kill -9`."""
        old, self.sent = self.store, 0
        settings = replace(old.settings, instance=self.folder / str(next(self.numbers)))
        shutil.copytree(old.settings.instance, settings.instance)
        old.shop.end()
        self.store = Store(settings, self.clock)
        self.store.shop.begin()
        for key in self.keys:
            key.limits = copy.deepcopy(key.flushed)

    def teardown(self):
        self.store.shop.end()
        for folder in self.folder.iterdir():
            shutil.rmtree(folder)


@pytest.mark.parametrize("examples", [7, pytest.param(20, marks=pytest.mark.slow)])
def test_the_service_behaves_as_the_model_through_restarts_and_crashes(
    tmp_path, empty_database, examples
):
    run_state_machine_as_test(
        lambda: Shopping(tmp_path, empty_database),
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )
