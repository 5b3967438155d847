"""The checks of proofs complain of each doctored history and database."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from copy import deepcopy
from itertools import count
from types import SimpleNamespace

import pytest

from tests.proofs.core import checks, history
from tests.proofs.core.history import UNSENT, Kind, Operation
from tests.support.orders import REPEATED, sql_copy

pytestmark = pytest.mark.sqlite_only("its inspector reads a file")

ORDERS = "/v1/store/orders"
_SHOWN = ("id", "petId", "quantity", "shipDate", "complete")
DATE = "2026-12-24T18:00:00.000Z"
ANSWERS = {
    Kind.PLACE: (201, 422),
    Kind.SHIP: (200, 404, 409),
    Kind.CANCEL: (204, 404, 409),
    Kind.GET: (200, 404),
    Kind.CHANGE: (200,),
}


class Clerk:
    """A client that records its requests; answers may be lost on the way."""

    def __init__(self, store):
        self.client = store.client()
        self.history, self.time = [], count()

    def place(self, pet_id, value=None, *, lost=False, **order):
        facts = {"body": {"petId": pet_id, **order}, "idempotency_key": value, "lost": lost}
        if value:
            facts["headers"] = {"Idempotency-Key": value}
        return self.note(Kind.PLACE, "POST", ORDERS, **facts)

    def ship(self, order_id, *, lost=False):
        path = f"{ORDERS}/{order_id}/ship"
        return self.note(Kind.SHIP, "POST", path, order_id=order_id, lost=lost)

    def change(self, order_id, note):
        facts = {"idempotency_key": note, "headers": {"Idempotency-Key": note}}
        path = f"/v2/store/orders/{order_id}"
        changing = self.note(
            Kind.CHANGE, "PATCH", path, order_id=order_id, body={"note": note}, **facts
        )
        changing.order = {name: changing.order[name] for name in _SHOWN if name in changing.order}
        return changing

    def cancel(self, order_id):
        return self.note(Kind.CANCEL, "DELETE", f"{ORDERS}/{order_id}", order_id=order_id)

    def look(self, order_id):
        return self.note(Kind.GET, "GET", f"{ORDERS}/{order_id}", order_id=order_id)

    def note(self, kind, method, path, *, body=None, lost=False, headers=None, **facts):
        sent = {"json": body} if body else {}
        actor = f"key:{self.client.key_id}"
        noted = Operation(kind, actor, ANSWERS[kind], body=body or {}, **facts)
        noted.began = next(self.time)
        response = self.client.request(method, path, headers=headers or {}, **sent)
        noted.ended = next(self.time)
        if not lost:
            noted.status = response.status_code
            noted.order = response.get_json() if noted.status in {200, 201} else None
            noted.request_id = response.headers["X-Request-Id"]
            noted.replayed = "Idempotent-Replayed" in response.headers
        self.history.append(noted)
        return noted


@pytest.fixture(scope="module")
def sound(shared_store):
    """The history of a sound store's clients, whose operations have names."""
    clerk = Clerk(shared_store)
    names = SimpleNamespace(history=clerk.history)
    names.placed = clerk.place(1, "a")
    names.replayed = clerk.place(1, "a")
    names.dated = clerk.place(2, quantity=3, shipDate=DATE)
    names.pending = clerk.look(2)
    names.shipped = clerk.ship(2)
    names.shipped_again = clerk.ship(2)
    names.complete = clerk.look(2)
    names.changed = clerk.change(2, "of-a-shipped-one")
    clerk.place(3)
    clerk.change(3, "of-a-pending-one")
    names.cancelled = clerk.cancel(3)
    names.cancelled_again = clerk.cancel(3)
    names.lost = clerk.place(4, "b", lost=True)
    names.ship_lost = clerk.ship(4, lost=True)
    names.ship_replied = clerk.ship(4)
    names.refused = clerk.place(6, quantity=0)
    names.missing = clerk.look(99)
    names.unsent = Operation(Kind.PLACE, names.lost.actor, (201,), body={"petId": 7})
    names.unsent.status = UNSENT
    never = Operation(Kind.PLACE, names.lost.actor, (201,), body={"petId": 5}, idempotency_key="c")
    names.history += [names.unsent, never]
    names.listed = clerk.client.get(ORDERS).get_json()
    shared_store.database.close()
    return names


@pytest.fixture
def case(sound, shared_store, tmp_path):
    """A copy of the history and of the database, for a test to doctor."""
    names = deepcopy(sound)
    names.path = tmp_path / "orders.db"
    shutil.copyfile(shared_store.database.path, names.path)
    return names


def complaints(case):
    return checks.complaints(case.history, history.read(case.path))


def doctor(case, *statements):
    """Change the database in ways that the service and its triggers would not."""
    with closing(sqlite3.connect(case.path)) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_sound_store_leads_to_no_complaint(case):
    assert complaints(case) == []


def test_an_unknown_placing_may_have_happened_or_not(case):
    case.history.remove(case.ship_replied)
    doctor(
        case,
        "DELETE FROM idempotency_keys WHERE value = 'b'",
        "DELETE FROM order_events WHERE order_id = 4",
        "DELETE FROM orders WHERE id = 4",
    )
    unknown = [each for each in case.history if each.is_unknown and each.kind is Kind.PLACE]
    assert len(unknown) == 2
    assert complaints(case) == []


def another_event(kind, order_id, request_id="other"):
    return (
        f"INSERT INTO order_events (type, order_id, at, actor, request_id, {REPEATED}) "
        f"SELECT '{kind}', id, '{DATE}', 'key:1', '{request_id}', {REPEATED} "
        f"FROM orders WHERE id = {order_id}"
    )


def another_order(pet_id):
    columns = {"pet_id": f"{pet_id}", "quantity": "1", "ship_date": "NULL", "status": "'pending'"}
    dates = {"placed_at": f"'{DATE}'", "updated_at": f"'{DATE}'"}
    another = sql_copy("orders", 1, id="50", reference="NULL", **columns, **dates)
    return another, another_event("order.placed", 50)


def another_key(value, event_id):
    row = f"1, 1, '{value}', {event_id}, '{DATE}', '', ''"
    return (
        "INSERT INTO idempotency_keys (key_id, version, value, event_id, at, request, answer) "
        f"VALUES ({row})"
    )


def rewritten(order_id, change):
    return (
        f"UPDATE orders SET {change} WHERE id = {order_id}",
        f"UPDATE order_events SET {change} WHERE order_id = {order_id}",
    )


# Changes to the database, and the expected complaints.
DATABASES = {
    "an acknowledged order is lost": (
        ("DELETE FROM order_events WHERE order_id = 1", "DELETE FROM orders WHERE id = 1"),
        "place 1 by key:1 .* is lost",
    ),
    "an order is lost, and its events are there": (
        ("DELETE FROM orders WHERE id = 1",),
        "events of order 1, and no order",
    ),
    "an acknowledged order is there twice": (another_order(1), "place 1 .* placed 2 orders"),
    "an unknown order is there twice": (another_order(4), "place 4 .* placed 2 orders"),
    "a refused order is there": (another_order(6), "nobody asked for event"),
    "an order is there that was not sent": (another_order(7), "nobody asked for event"),
    "the event of a placing is missing": (
        ("DELETE FROM order_events WHERE order_id = 1",),
        r"order 1 has the events \[\]",
    ),
    "the event of a ship is missing": (
        ("DELETE FROM order_events WHERE order_id = 2 AND type = 'order.shipped'",),
        "ship 2 .* has 0 events",
    ),
    "an event without a change": (
        (another_event("order.shipped", 1),),
        "event .* is order.shipped and says pending",
    ),
    "a change without an event": (
        ("UPDATE orders SET status = 'cancelled' WHERE id = 1",),
        "order 1 is not as its event",
    ),
    "an event is there twice": ((another_event("order.shipped", 2),), "order 2 has the events"),
    "an order is not as it was asked for": (rewritten(2, "quantity = 9"), "asked for"),
    "an order is not as it was answered": (
        rewritten(2, f"ship_date = '{DATE}'"),
        "ship 2 .* was answered",
    ),
    "an event is of another key": (
        ("UPDATE order_events SET actor = 'key:9' WHERE order_id = 2",),
        "by key:9.* is of place 2",
    ),
    "an event is of another request": (
        ("UPDATE order_events SET request_id = 'other' WHERE order_id = 2",),
        "nobody asked for event",
    ),
    "an event comes after one that began later": (
        ("UPDATE order_events SET id = 100 WHERE order_id = 1",),
        "comes after one that began later",
    ),
    "an Idempotency-Key is forgotten": (
        ("DELETE FROM idempotency_keys WHERE value = 'a'",),
        "is not remembered: .*'a'",
    ),
    "an Idempotency-Key that placed nothing is remembered": (
        (another_key("c", 1),),
        "did nothing: .*'c'",
    ),
}


@pytest.mark.parametrize(("statements", "expected"), DATABASES.values(), ids=DATABASES)
def test_a_doctored_database_is_reported(case, statements, expected):
    doctor(case, *statements)
    lines = complaints(case)
    assert re.search(expected, "\n".join(lines)), lines


def change(name, **facts):
    def doctored(case):
        for fact, value in facts.items():
            setattr(getattr(case, name), fact, value)

    return doctored


def refused_but_done(case):
    case.placed.status, case.placed.order = 422, None


def seen_before_it_happened(case):
    case.complete.began, case.complete.ended = case.pending.began - 2, case.pending.began - 1


HISTORIES = {
    "an answer of 500": (change("refused", status=500), "answered 500.* may be"),
    "an answer that no rule allows": (change("placed", status=409), "answered 409.* may be"),
    "an order that was refused and is there": (refused_but_done, "is of place 1"),
    "a placing that was answered with another order": (
        lambda case: case.placed.order.update(quantity=8),
        "was answered",
    ),
    "a replay of another order": (
        lambda case: case.replayed.order.update(id=8),
        "place 1 .* was answered",
    ),
    "a placing that was to be a replay": (change("replayed", replayed=False), "has 0 events"),
    "a ship that was acknowledged twice": (
        change("shipped_again", status=200),
        "ship 2 .* has 0 events",
    ),
    "a shipment that was answered otherwise the second time": (
        change("shipped_again", status=200, replayed=True, order={"id": 2}),
        "ship 2 .* again",
    ),
    "a shipped order that was not found": (change("complete", status=404), "get 2 .* found it"),
    "a cancelled order whose answer says shipped": (
        change("cancelled_again", status=409),
        "cancel 3 .* found it shipped",
    ),
    "an order that was found where there is none": (
        change("missing", status=200, order={"complete": False}),
        "get 99 .* found it pending",
    ),
    "an order that was still pending after it was shipped": (
        change("complete", order={"complete": False}),
        "order 2 can't have changed",
    ),
    "an order that was shipped before": (seen_before_it_happened, "order 2 can't have changed"),
    "a ship that explains a refusal, and was never sent": (
        lambda case: case.history.remove(case.ship_lost),
        "nobody asked for event",
    ),
}


@pytest.mark.parametrize(("doctored", "expected"), HISTORIES.values(), ids=HISTORIES)
def test_a_doctored_history_is_reported(case, doctored, expected):
    doctored(case)
    lines = complaints(case)
    assert re.search(expected, "\n".join(lines)), lines


def test_missing_or_different_events_are_reported(case):
    before = history.read(case.path)
    assert checks.rewritten(before, before) == []
    doctor(
        case,
        "UPDATE order_events SET at = '' WHERE id = 1",
        "DELETE FROM order_events WHERE id = (SELECT max(id) FROM order_events)",
    )
    assert len(checks.rewritten(before, history.read(case.path))) == 2


def test_a_list_that_differs_from_the_database_is_reported(case):
    contents, shown = history.read(case.path), case.listed
    assert checks.listed_otherwise(shown, contents) == []
    for wrong in (shown[1:], shown[::-1], [*shown, shown[-1]], [{**shown[0], "petId": 8}]):
        assert checks.listed_otherwise(wrong, contents)


@pytest.mark.parametrize(("counted", "behind"), [(3, 0), (2, 1.5), (1, 2), (0, 3), (-1, 3)])
def test_counters_are_behind_since_the_first_answer_that_they_lost(counted, behind):
    assert checks.seconds_behind([8.0, 7.0, 8.5], counted, 10.0) == behind


def test_a_damaged_file_and_a_broken_foreign_key_are_reported(case):
    assert history.damage(case.path) == []
    doctor(case, "DELETE FROM orders WHERE id = 1")
    assert any("foreign_key_check" in line for line in history.damage(case.path))
