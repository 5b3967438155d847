"""Compares what clients know with what the store holds: see `history`.

Acknowledged means there, refused means not, unknown may be either; exactly one event for every
change, and none without one. Each check yields complaints, one line each; none means that the
store is as its clients were told.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from orders.domain import EventType, Status
from proofs.core.history import UNSENT, Contents, EventRow, Kind, Operation, shown

MAKES = {
    Kind.PLACE: EventType.PLACED,
    Kind.SHIP: EventType.SHIPPED,
    Kind.CANCEL: EventType.CANCELLED,
}
_STATE_AFTER = {
    EventType.PLACED: Status.PENDING,
    EventType.SHIPPED: Status.SHIPPED,
    EventType.CANCELLED: Status.CANCELLED,
}
_CONFLICT = 409
_NOT_FOUND = 404
_OK = 200


def complaints(history: Sequence[Operation], contents: Contents) -> list[str]:
    """Return what the clients' history and the database do not agree on."""
    heard = {each.request_id: each for each in history if each.request_id}
    return [
        *answers_that_may_not_be(history),
        *orders_unlike_their_events(contents),
        *events_without_a_change(history, heard, contents),
        *changes_without_an_event(history, contents),
        *placings_unlike_their_orders(history, contents),
        *states_that_cannot_have_been_seen(history, heard, contents),
        *events_out_of_time(heard, contents),
        *keys_unlike_their_orders(history, contents),
    ]


def answers_that_may_not_be(history: Iterable[Operation]) -> Iterator[str]:
    """Complain of statuses that no rule explains, such as 500."""
    for each in history:
        if not each.is_unknown and each.status not in {*each.allowed, UNSENT}:
            yield f"{each}: only {sorted(each.allowed)} may be"


def orders_unlike_their_events(contents: Contents) -> Iterator[str]:
    """Complain of orders that are not what their events make of them."""
    for order in contents.orders:
        events = contents.events_of.get(order.id, [])
        kinds = [event.type for event in events]
        if kinds[:1] != [EventType.PLACED] or len(kinds) > 2 or EventType.PLACED in kinds[1:]:  # noqa: PLR2004 - placed, and one change
            yield f"order {order.id} has the events {kinds}"
        elif events[-1].order != order:
            yield f"order {order.id} is not as its event {events[-1].id} says: {order}"
        for event in events:
            if event.status != _STATE_AFTER.get(EventType(event.type)):
                yield f"event {event.id} is {event.type} and says {event.status}"
    for order_id in contents.events_of.keys() - {order.id for order in contents.orders}:
        yield f"there are events of order {order_id}, and no order"
    for earlier, later in pairwise(contents.events):
        if later.id <= earlier.id:
            yield f"event {later.id} comes after event {earlier.id}"


def events_without_a_change(
    history: Iterable[Operation], heard: dict[str | None, Operation], contents: Contents
) -> Iterator[str]:
    """Complain of events that nobody asked for, or that were answered with something else."""
    unknown = {(MAKES.get(e.kind), e.subject, e.actor) for e in history if e.is_unknown}
    for event in contents.events:
        subject = event.pet_id if event.type == EventType.PLACED else event.order_id
        cause = heard.get(event.request_id)
        if cause is None:
            if (event.type, subject, event.actor) not in unknown:
                yield f"nobody asked for event {event.id}: {event}"
        elif not cause.is_acknowledged or cause.replayed:
            yield f"event {event.id} is of {cause}"
        elif (MAKES.get(cause.kind), cause.subject, cause.actor) != (
            event.type,
            subject,
            event.actor,
        ):
            yield f"event {event.id} ({event.type} {subject} by {event.actor}) is of {cause}"


def changes_without_an_event(history: Iterable[Operation], contents: Contents) -> Iterator[str]:
    """Complain of acknowledged changes that have no event, or two, or one that says otherwise."""
    events = {event.request_id: event for event in contents.events}
    times = Counter(event.request_id for event in contents.events)
    for each in history:
        if each.kind not in MAKES or not each.is_acknowledged or each.replayed:
            continue
        if times[each.request_id] != 1:
            yield f"{each} has {times[each.request_id]} events"
        elif each.order is not None and each.order != shown(events[each.request_id].order):
            yield f"{each} was answered {each.order}; its event is {events[each.request_id]}"


def placings_unlike_their_orders(history: Iterable[Operation], contents: Contents) -> Iterator[str]:
    """Complain of orders lost, doubled, refused and yet there, or not as they were asked for."""
    placed: dict[int, list[EventRow]] = {}
    for event in contents.events:
        if event.type == EventType.PLACED:
            placed.setdefault(event.pet_id, []).append(event)
    for each in history:
        if each.kind is not Kind.PLACE:
            continue
        found = placed.get(each.asked["petId"], [])
        if len(found) > 1:
            yield f"{each} placed {len(found)} orders"
        elif each.is_acknowledged and not found:
            yield f"{each} is lost"
        elif each.replayed and each.order != shown(found[0].order):
            yield f"{each} was answered {each.order}; placed was {found[0]}"
        elif found and {"quantity": 1, **each.asked} != _asked(found[0]):
            yield f"{each} asked for {each.asked}; placed was {found[0]}"


def _asked(event: EventRow) -> dict[str, object]:
    return {
        name: value for name, value in shown(event.order).items() if name not in {"id", "complete"}
    }


def states_that_cannot_have_been_seen(
    history: Iterable[Operation], heard: dict[str | None, Operation], contents: Contents
) -> Iterator[str]:
    """Complain of answers about an order that no order of happening explains.

    An order changes once: while what changed it went on, after all that began and still found it
    pending, and before the end of all that found it changed.
    """
    about: dict[int, list[Operation]] = {}
    for each in history:
        if each.kind is not Kind.PLACE and each.order_id is not None:
            about.setdefault(each.order_id, []).append(each)
    for order_id, operations in about.items():
        events = contents.events_of.get(order_id, [])
        change = events[1] if len(events) > 1 else None
        yield from _states_of_one(operations, change, is_there=bool(events))
        if change is not None and not _can_have_happened(operations, change, heard):
            yield f"order {order_id} can't have changed when it did: {change}"


def _states_of_one(
    operations: Iterable[Operation], change: EventRow | None, *, is_there: bool
) -> Iterator[str]:
    state = Status(change.status) if change else Status.PENDING if is_there else Status.CANCELLED
    for each in operations:
        if _seen(each) not in {None, state} and (change is None or _seen(each) != Status.PENDING):
            yield f"{each} found it {_seen(each)}; it is {state if is_there else 'not there'}"


def _can_have_happened(
    operations: Sequence[Operation], change: EventRow, heard: dict[str | None, Operation]
) -> bool:
    pending = [each.began for each in operations if _seen(each) == Status.PENDING]
    changed = [each.ended for each in operations if _seen(each) == change.status]
    since, until = max(pending, default=-math.inf), min(changed, default=math.inf)
    answered = heard.get(change.request_id)
    causes = [
        each
        for each in operations
        if (each is answered if answered else each.is_unknown and MAKES.get(each.kind))
        and MAKES[each.kind] == change.type
    ]
    return any(max(since, each.began) < min(until, each.ended) for each in causes)


def _seen(operation: Operation) -> Status | None:
    # What an answer says of the order's state. For version 1 a cancelled one is not there.
    if operation.status == _CONFLICT:
        return Status.SHIPPED
    if operation.status == _NOT_FOUND:
        return Status.CANCELLED
    if operation.kind is Kind.LOOK and operation.status == _OK and operation.order:
        return Status.SHIPPED if operation.order["complete"] else Status.PENDING
    return None


def events_out_of_time(heard: dict[str | None, Operation], contents: Contents) -> Iterator[str]:
    """Complain where a change was answered before another began, and has the higher event id."""
    newest = -math.inf
    for event in contents.events:
        cause = heard.get(event.request_id)
        if cause is None:
            continue
        if cause.ended < newest:
            yield f"event {event.id} comes after one that began later: {cause}"
        newest = max(newest, cause.began)


def keys_unlike_their_orders(history: Iterable[Operation], contents: Contents) -> Iterator[str]:
    """Complain where the Idempotency-Keys that are remembered are not those that placed orders."""
    sent = {each.subject: each for each in history if each.kind is Kind.PLACE and each.value}
    expected = {
        (sent[event.pet_id].actor, sent[event.pet_id].value, event.id)
        for event in contents.events
        if event.type == EventType.PLACED and event.pet_id in sent
    }
    found = {(f"key:{row.key_id}", row.value, row.event_id) for row in contents.remembered}
    for missing in sorted(expected - found, key=str):
        yield f"an Idempotency-Key is not remembered: {missing}"
    for surplus in sorted(found - expected, key=str):
        yield f"an Idempotency-Key is remembered that placed nothing: {surplus}"


def rewritten(earlier: Contents, later: Contents) -> list[str]:
    """Return the events that are no longer as they were: the log only ever grows."""
    return [
        f"event {before.id} was {before}"
        for before, after in zip(
            earlier.events, [*later.events, *[None] * len(earlier.events)], strict=False
        )
        if before != after
    ]


def listed_otherwise(listed: Sequence[dict[str, object]], contents: Contents) -> list[str]:
    """Return the orders that listOrders shows otherwise than the database has them."""
    told = {str(order["id"]): order for order in listed}
    has = {str(o.id): shown(o) for o in contents.orders if o.status != Status.CANCELLED}
    if list(listed) == list(has.values()):
        return []
    different = [name for name in {**told, **has} if told.get(name) != has.get(name)]
    return [f"listOrders shows {told.get(n)} for {has.get(n)}" for n in different] or [
        "listOrders is not in the order of ids, or shows one twice"
    ]


def seconds_behind(answered: Iterable[float], counted: int, killed_at: float) -> float:
    """Return how far the counters were behind when a service was killed.

    `answered` are the moments at which it answered what counts, `counted` is how many of them it
    still knew of when it was started again. Those before may be lost for no longer than that.
    """
    lost = sorted(answered)[max(0, counted) :]
    return max(0.0, killed_at - lost[0]) if lost else 0.0
