"""Checks that the rows of a store agree with the history of its clients.

Acknowledged operations happened, refused ones did not, unknown ones may have; each change has
exactly one event, and no event is without a change. Checks yield complaints, one line each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

from orders.domain import EventType, Status
from tests.proofs.core.history import UNSENT, Contents, EventRow, Kind, Operation, shown

EVENT_OF = {
    Kind.PLACE: EventType.PLACED,
    Kind.SHIP: EventType.SHIPPED,
    Kind.CANCEL: EventType.CANCELLED,
    Kind.CHANGE: EventType.CHANGED,
}
_STATUS_AFTER = {
    EventType.PLACED: Status.PENDING,
    EventType.SHIPPED: Status.SHIPPED,
    EventType.CANCELLED: Status.CANCELLED,
}
_CONFLICT = 409
_NOT_FOUND = 404
_OK = 200
Complaints = Iterator[str]


def complaints(history: Sequence[Operation], contents: Contents) -> list[str]:
    return list(Comparison(history, contents).complaints())


@dataclass
class Comparison:
    """A history and the rows after it."""

    history: Sequence[Operation]
    contents: Contents

    @cached_property
    def answered(self) -> dict[tuple[str | None, int | None], Operation]:
        """The operations whose request id is known, by that and what they are about."""
        return {(each.request_id, each.subject): each for each in self.history if each.request_id}

    def complaints(self) -> Complaints:
        return chain(
            self.impossible_answers(),
            self.orders_unlike_their_events(),
            self.events_without_a_change(),
            self.changes_without_an_event(),
            self.placings_unlike_their_orders(),
            self.states_that_cannot_have_been_seen(),
            self.events_out_of_order(),
            self.keys_unlike_their_orders(),
        )

    def impossible_answers(self) -> Complaints:
        """Complain of statuses that no rule explains, such as 500."""
        for each in self.history:
            if not each.is_unknown and each.status not in {*each.allowed, UNSENT}:
                yield f"{each}: only {sorted(each.allowed)} may be"

    def orders_unlike_their_events(self) -> Complaints:
        """Complain of orders that differ from their events, and of events out of sequence."""
        contents = self.contents
        for order in contents.orders:
            events = contents.events_of.get(order.id, [])
            kinds = [event.type for event in events]
            ends = [kind for kind in kinds[1:] if kind != EventType.CHANGED]
            if kinds[:1] != [EventType.PLACED] or len(ends) > 1 or EventType.PLACED in ends:
                yield f"order {order.id} has the events {kinds}"
            elif events[-1].order != order:
                yield f"order {order.id} is not as its event {events[-1].id} says: {order}"
            status: str = Status.PENDING
            for event in events:
                status = _STATUS_AFTER.get(EventType(event.type), status)
                if event.status != status:
                    yield f"event {event.id} is {event.type} and says {event.status}"
        for order_id in contents.events_of.keys() - {order.id for order in contents.orders}:
            yield f"there are events of order {order_id}, and no order"
        for earlier, later in pairwise(contents.events):
            if later.id <= earlier.id:
                yield f"event {later.id} comes after event {earlier.id}"

    def events_without_a_change(self) -> Complaints:
        """Complain of events that nobody caused, or whose request had another answer."""
        unknown = {_change(each) for each in self.history if each.is_unknown}
        for event in self.contents.events:
            subject = _subject(event)
            change = (event.type, subject, event.actor)
            cause = self.answered.get((event.request_id, subject))
            if cause is None:
                if change not in unknown:
                    yield f"nobody asked for event {event.id}: {event}"
            elif not cause.is_acknowledged or cause.replayed:
                yield f"event {event.id} is of {cause}"
            elif _change(cause) != change:
                yield f"event {event.id} ({event.type} {subject} by {event.actor}) is of {cause}"

    def changes_without_an_event(self) -> Complaints:
        """Complain of acknowledged changes with no event, with two, or with a different one."""
        events = {(each.request_id, _subject(each)): each for each in self.contents.events}
        times = Counter((each.request_id, _subject(each)) for each in self.contents.events)
        orders = {(each.type, _subject(each)): shown(each.order) for each in self.contents.events}
        for each in self.history:
            if each.kind not in EVENT_OF or not each.is_acknowledged:
                continue
            if each.replayed:
                if each.kind is Kind.SHIP and each.order != orders.get(_change(each)[:2]):
                    yield f"{each} was answered {each.order} again"
                continue
            name = each.request_id, each.subject
            if times[name] != 1:
                yield f"{each} has {times[name]} events"
            elif each.order is not None and each.order != shown(events[name].order):
                yield f"{each} was answered {each.order}; its event is {events[name]}"
            elif each.kind is Kind.CHANGE and each.body["note"] != events[name].note:
                yield f"{each} asked for {each.body}; its event is {events[name]}"

    def placings_unlike_their_orders(self) -> Complaints:
        """Complain of orders that are lost, doubled, or other than their request or answer."""
        placed: dict[int, list[EventRow]] = {}
        for event in self.contents.events:
            if event.type == EventType.PLACED:
                placed.setdefault(event.pet_id, []).append(event)
        for each in self.history:
            if each.kind is not Kind.PLACE:
                continue
            found = placed.get(each.body["petId"], [])
            if len(found) > 1:
                yield f"{each} placed {len(found)} orders"
            elif each.is_acknowledged and not found:
                yield f"{each} is lost"
            elif each.replayed and each.order != shown(found[0].order):
                yield f"{each} was answered {each.order}; placed was {found[0]}"
            elif found and {"quantity": 1, **each.body} != _body(found[0]):
                yield f"{each} asked for {each.body}; placed was {found[0]}"

    def states_that_cannot_have_been_seen(self) -> Complaints:
        """Complain of answers about an order that no sequence of changes explains.

        But for its note an order changes once: after the begin of every request that still found
        it pending, and before the end of every request that found it changed.
        """
        about: dict[int, list[Operation]] = {}
        for each in self.history:
            if each.kind is not Kind.PLACE and each.order_id is not None:
                about.setdefault(each.order_id, []).append(each)
        for order_id, operations in about.items():
            events = self.contents.events_of.get(order_id, [])
            ends = (each for each in events[1:] if each.type != EventType.CHANGED)
            change = next(ends, None)
            yield from _wrong_states(operations, change, exists=bool(events))
            if change is not None and not self._can_have_happened(operations, change):
                yield f"order {order_id} can't have changed when it did: {change}"

    def _can_have_happened(self, operations: Sequence[Operation], change: EventRow) -> bool:
        pending = [each.began for each in operations if _seen(each) == Status.PENDING]
        changed = [each.ended for each in operations if _seen(each) == change.status]
        since, until = max(pending, default=-math.inf), min(changed, default=math.inf)
        cause = self.answered.get((change.request_id, change.order_id))
        return any(
            max(since, each.began) < min(until, each.ended)
            for each in operations
            if (each is cause if cause else each.is_unknown)
            and EVENT_OF.get(each.kind) == change.type
        )

    def events_out_of_order(self) -> Complaints:
        """Complain where a change was answered before another began, and has the higher id."""
        newest = -math.inf
        for event in self.contents.events:
            cause = self.answered.get((event.request_id, _subject(event)))
            if cause is None:
                continue
            if cause.ended < newest:
                yield f"event {event.id} comes after one that began later: {cause}"
            newest = max(newest, cause.began)

    def keys_unlike_their_orders(self) -> Complaints:
        """Complain where the stored Idempotency-Keys are not those that placed and changed."""
        sent = {
            each.body.get("note", each.subject): (each.actor, each.idempotency_key)
            for each in self.history
            if each.kind in {Kind.PLACE, Kind.CHANGE} and each.idempotency_key
        }
        own = {EventType.PLACED: "pet_id", EventType.CHANGED: "note"}
        made_by = [
            (getattr(event, own[EventType(event.type)]), event.id)
            for event in self.contents.events
            if event.type in own
        ]
        expected = {(*sent[name], event_id) for name, event_id in made_by if name in sent}
        rows = self.contents.idempotency_keys
        stored = {(f"key:{row.key_id}", row.value, row.event_id) for row in rows}
        for missing in sorted(expected - stored, key=str):
            yield f"an Idempotency-Key is not remembered: {missing}"
        for surplus in sorted(stored - expected, key=str):
            yield f"an Idempotency-Key is remembered that did nothing: {surplus}"


def _subject(event: EventRow) -> int:
    return event.pet_id if event.type == EventType.PLACED else event.order_id


def _change(operation: Operation) -> tuple[str | None, int | None, str]:
    return EVENT_OF.get(operation.kind), operation.subject, operation.actor


def _body(event: EventRow) -> dict[str, object]:
    order = shown(event.order)
    return {name: value for name, value in order.items() if name not in {"id", "complete"}}


def _wrong_states(
    operations: Iterable[Operation], change: EventRow | None, *, exists: bool
) -> Complaints:
    state = Status(change.status) if change else Status.PENDING if exists else Status.CANCELLED
    for each in operations:
        if _seen(each) not in {None, state} and (change is None or _seen(each) != Status.PENDING):
            yield f"{each} found it {_seen(each)}; it is {state if exists else 'not there'}"


def _seen(operation: Operation) -> Status | None:
    # The state that an answer shows. For version 1 a cancelled order is not there.
    if operation.status == _CONFLICT:
        return Status.SHIPPED
    if operation.status == _NOT_FOUND:
        return Status.CANCELLED
    if operation.kind is Kind.GET and operation.status == _OK and operation.order:
        return Status.SHIPPED if operation.order["complete"] else Status.PENDING
    return None


def rewritten(earlier: Contents, later: Contents) -> list[str]:
    """Return the events that have changed or gone: the log only ever grows."""
    after = [*later.events, *[None] * len(earlier.events)]
    return [
        f"event {event.id} was {event}"
        for event, now in zip(earlier.events, after, strict=False)
        if event != now
    ]


def listed_otherwise(listed: Sequence[dict[str, object]], contents: Contents) -> list[str]:
    """Return the orders that listOrders shows otherwise than the database has them."""
    shows = {str(order["id"]): order for order in listed}
    has = {str(o.id): shown(o) for o in contents.orders if o.status != Status.CANCELLED}
    if list(listed) == list(has.values()):
        return []
    different = [name for name in {**shows, **has} if shows.get(name) != has.get(name)]
    return [f"listOrders shows {shows.get(n)} for {has.get(n)}" for n in different] or [
        "listOrders is not in the order of ids, or shows one twice"
    ]


def seconds_behind(answered: Iterable[float], counted: int, killed_at: float) -> float:
    """Return how far the counters were behind when a service was killed.

    `answered` are the moments of the answers that count, `counted` is how many of them were still
    counted after the next start. The earliest that is missing says how far.
    """
    lost = sorted(answered)[max(0, counted) :]
    return max(0.0, killed_at - lost[0]) if lost else 0.0
