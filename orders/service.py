"""The use cases: what a shop does with its orders, each in one transaction.

Simultaneous changes share a transaction (see `commits`). The rule that a change depends on is part
of its statement, so that one of any number of racing requests wins; the others then learn the
order's new state. Changes are dated in their transaction, so that events are in the order of their
times.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import Connection

from orders import domain
from orders.clock import STEP_SECONDS, Clock
from orders.domain import NewOrder, Origin, Placement, ReferenceExists, Unchangeable
from orders.files import staging
from orders.files.rows import PETS, Cells, Fault, Faults, checked, orders, pet
from orders.files.staging import Staging
from orders.store import audit, forgetting, idempotency, pets
from orders.store import orders as order_store
from orders.store.database.commits import GroupCommit
from orders.store.database.database import Database
from orders.store.database.errors import StoreUnavailable
from orders.store.forgetting import Due
from orders.store.idempotency import Answer, IdempotencyKey, Written
from orders.store.orders import Changed, Result
from orders.strictjson import to_json

# Whether an order, or the list, with this revision may be changed.
Condition = Callable[[int], bool]
# SQLite looks ten times a second whether another process has ended its transaction.
_REST_SECONDS = 0.11
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a change: who makes it, under which condition, with which Idempotency-Key.

    A key makes it at most once in 24 hours.
    """

    origin: Origin
    condition: Condition | None = None
    key: IdempotencyKey | None = None


BY_COMMAND = Terms(Origin("cli"))


class IfKnown(StrEnum):
    """How an import treats a row without an id whose reference an order already has."""

    REFUSE = "refuse"
    SKIP = "skip"
    IMPORT = "import"


@dataclass(frozen=True)
class Imported:
    """The result of an import: how many orders, and the first of them, by their set fields.

    `remarks` has the number of rows that each is about. `replayed`: an earlier request did it.
    """

    count: int
    first: Sequence[Mapping[str, Any]] = ()
    remarks: Mapping[str, int] = field(default_factory=dict)
    replayed: bool = False


def retried(work: Callable[P, T]) -> Callable[P, T]:
    """Call a function once more if its change failed, did nothing, and can be retried at once."""

    @wraps(work)
    def call(*args: P.args, **options: P.kwargs) -> T:
        try:
            return work(*args, **options)
        except StoreUnavailable as error:
            if not error.retryable:
                raise
        return work(*args, **options)

    return call


@dataclass(frozen=True, slots=True)
class _Change:
    """A change that a request asks for; `earlier` is the answer remembered for its key."""

    connection: Connection
    now: datetime
    key: IdempotencyKey | None
    request: object
    earlier: Written[Any] | None

    def answer(self, answer: Answer) -> Written[Answer]:
        """Return the answer, which its Idempotency-Key repeats, if it has one."""
        written = Written(answer)
        if self.key is not None:
            idempotency.remember(self.connection, self.key, self.request, written, self.now)
        return written


class OrderService:
    """The use cases of orders. A `domain.Refusal` is raised where the rules forbid one."""

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        database: Database,
        clock: Clock,
        changes: GroupCommit | None = None,
        on_commit: Collection[threading.Event] = (),
        *,
        is_alone: bool = True,
        unique_references: bool = False,
    ) -> None:
        """Set up the use cases over a database, with the clock that dates changes.

        `changes` commits them, together with those of its other users; what is in `on_commit` then,
        is set after each commit. `is_alone` is false where other processes use the database. With
        `unique_references`, no two orders get the same.
        """
        self._database = database
        self._changes = changes or GroupCommit(database)
        self._on_commit = on_commit
        self._clock = clock
        self._is_alone = is_alone
        self._unique_references = unique_references
        self._following = threading.Lock()
        # How far wall time is ahead of monotonic time.
        self._to_wall: float | None = None

    def follow_clock(self) -> None:
        """Shift the times of Idempotency-Keys as the clock was set. Called twice a second."""
        to_wall = self._clock.time() - self._clock.monotonic()
        if self._to_wall is not None and abs(to_wall - self._to_wall) <= STEP_SECONDS:
            return
        with self._following:
            # Other processes' orders are dated by their clocks.
            step = to_wall - self._to_wall if self._to_wall is not None and self._is_alone else 0.0
            now = self._clock.now()
            with self._changes.transaction() as connection:
                idempotency.follow_clock(connection, step, now)
            self._to_wall = to_wall

    @retried
    def place(
        self,
        new: NewOrder,
        terms: Terms,
        *,
        is_unique: bool = False,
    ) -> Written[Changed]:
        """Place an order, whose reference no other order may have if it `is_unique`."""
        request = ("place", new, *(["unique"] if is_unique else []))
        with self._change(terms.key, request) as (connection, now, change):
            if change.earlier:
                return change.earlier
            _require_list(connection, terms.condition)
            placed = self._place(connection, Placement(new, is_unique), terms.origin, now)
            if isinstance(placed, ReferenceExists):
                raise placed
            return change.answer(placed)

    @retried
    def place_all(
        self,
        placements: list[Placement],
        terms: Terms,
        *,
        show: Callable[[list[Changed | ReferenceExists]], str],
    ) -> Written[str]:
        """Place some orders, each of them or not; `show` makes the body of all results."""
        request = ("place", placements)
        with self._change(terms.key, request) as (connection, now, change):
            if change.earlier:
                return change.earlier
            _require_list(connection, terms.condition)
            results = [self._place(connection, each, terms.origin, now) for each in placements]
            return change.answer(show(results))

    def _place(
        self, connection: Connection, placement: Placement, origin: Origin, now: datetime
    ) -> Changed | ReferenceExists:
        new, reference = placement.order, placement.order.reference
        is_unique = placement.is_unique or self._unique_references
        # No other can come before the commit: this transaction has the writers' lock.
        existing = _existing(connection, reference) if reference and is_unique else None
        return existing or order_store.insert_pending(connection, new, origin, now)

    @retried
    def ship(
        self,
        order_id: int,
        ship_date: datetime | None,
        terms: Terms,
        *,
        tracking: str | None = None,
    ) -> Written[Changed]:
        """Ship a pending order, at `ship_date` or now."""
        request = ("ship", order_id, ship_date, tracking)
        with self._change(terms.key, request) as (connection, now, change):
            if change.earlier:
                return change.earlier
            _require(connection, order_id, terms.condition)
            at, tracked = ship_date or now, {order_id: tracking}
            shipped = order_store.ship_pending(
                connection, [order_id], at, terms.origin, now, tracking=tracked
            )
            if not shipped:
                raise _refusal(connection, order_id)
            return change.answer(shipped[0])

    @retried
    def ship_all(
        self,
        order_ids: list[int],
        ship_date: datetime | None,
        terms: Terms,
        *,
        tracking: Mapping[int, str],
        show: Callable[[list[Result]], str],
    ) -> Written[str]:
        """Ship those of some orders that are pending; `show` makes the body of all results."""
        request = ("ship", order_ids, ship_date, sorted(tracking.items()))
        with self._change(terms.key, request) as (connection, now, change):
            if change.earlier:
                return change.earlier
            _require_list(connection, terms.condition)
            at = ship_date or now
            shipped = {
                order.order_id: order
                for order in order_store.ship_pending(
                    connection, order_ids, at, terms.origin, now, tracking=tracking
                )
            }
            results = [shipped.get(each) or _refusal(connection, each) for each in order_ids]
            return change.answer(show(results))

    @retried
    def cancel(
        self,
        order_id: int,
        terms: Terms,
    ) -> Written[Changed]:
        request = ("cancel", order_id)
        with self._change(terms.key, request) as (connection, now, change):
            if change.earlier:
                return change.earlier
            _require(connection, order_id, terms.condition)
            cancelled = order_store.cancel_pending(connection, order_id, terms.origin, now)
            if cancelled is None:
                raise _refusal(connection, order_id)
            return change.answer(cancelled)

    @retried
    def change(
        self,
        order_id: int,
        fields: Mapping[str, Any],
        terms: Terms,
    ) -> Written[Changed]:
        request = ("change", order_id, dict(fields))
        with self._change(terms.key, request) as (connection, now, change):
            if change.earlier:
                return change.earlier
            _require(connection, order_id, terms.condition, fields)
            if self._unique_references:
                _require_unique(connection, order_id, fields)
            changed = order_store.patch(connection, order_id, fields, terms.origin, now)
            changed = changed or _unchanged(connection, order_id, fields)
            return change.answer(changed)

    @retried
    def reopen(
        self,
        order_id: int,
        terms: Terms,
    ) -> Written[Changed]:
        """Make an order pending again, whatever its status; a pending one stays as it is."""
        request = ("reopen", order_id)
        with self._change(terms.key, request) as (connection, now, change):
            if change.earlier:
                return change.earlier
            latest = order_store.newest_event_of(connection, order_id)
            if not latest:
                raise domain.OrderNotFound(order_id)
            if terms.condition is not None and not terms.condition(latest):
                raise domain.PreconditionFailed(order_id)
            reopened = order_store.reopen(connection, order_id, terms.origin, now)
            reopened = reopened or order_store.recall(connection, latest)
            return change.answer(reopened)

    def forget(
        self,
        orders: Iterable[Due],
        origin: Origin,
        subject: str,
        rest: Callable[[float], object] = time.sleep,
    ) -> Iterator[list[int]]:
        """Delete the personal data of settled orders, in short transactions; yield the ids of each.

        The first of them adds the subject to the audit trail. `rest` waits after each, so that
        others can write; where it returns true, no other follows.
        """
        is_recorded = False
        batches = forgetting.Batches(orders)
        for batch in batches:
            began = self._clock.monotonic()
            with self._change() as (connection, now, _):
                forgotten = forgetting.forget(connection, batch, origin, now)
                if forgotten and not is_recorded:
                    who = None if origin.actor == "cli" else origin.actor
                    audit.record(connection, now, "orders.forgotten", subject, who)
                    is_recorded = True
            batches.learn(self._clock.monotonic() - began)
            yield forgotten
            if rest(_REST_SECONDS):
                return

    @contextmanager
    def _change(
        self, key: IdempotencyKey | None = None, request: object = None
    ) -> Iterator[tuple[Connection, datetime, _Change]]:
        """Yield a transaction and the time that dates the change; when left, it is committed."""
        if key is not None:
            self.follow_clock()
        with self._changes.transaction() as connection:
            now = self._clock.now()
            earlier = idempotency.recall(connection, key, request, now) if key else None
            yield connection, now, _Change(connection, now, key, request, earlier)
        self._report_commit()

    def _report_commit(self) -> None:
        for each in tuple(self._on_commit):
            each.set()

    def import_orders(  # noqa: PLR0913 - each by its name
        self,
        rows: Iterable[tuple[int, Cells]],
        faults: Faults,
        if_known: IfKnown = IfKnown.REFUSE,
        shown: int | None = None,
        *,
        terms: Terms = BY_COMMAND,
        request: object = None,
        unique_references: bool = False,
    ) -> Imported:
        """Import all rows of a file or none; return the result.

        `rows` are line numbers with cells; `faults` has what their reader found wrong. All rows are
        checked before the store is locked, then copied in one short transaction. With `shown`, it
        is a rehearsal: nothing is imported, the faults are added, so many rows returned. With
        `unique_references`, one that an order or an earlier line has is a fault. `request` is what
        an Idempotency-Key stands for: the file and how it is read.
        """
        is_unique = unique_references or self._unique_references
        if terms.key is not None:
            self.follow_clock()
        now = domain.format_instant(self._clock.now())
        with closing(Staging(self._database.folder)) as staged:
            staged.extend(orders(rows, now, faults))
            self._check_lines(staged, faults, if_known, is_unique=is_unique)
            staged.summarize()
            with self._database.write(staged.attached()) as connection:
                if earlier := idempotency.recall(connection, terms.key, request, self._clock.now()):
                    return Imported(**json.loads(str(earlier.answer)), replayed=True)
                _compare(connection, faults, if_known, is_unique=is_unique)
                if shown is not None:
                    return Imported(staged.count(), staged.first(shown), faults.remarks)
                faults.raise_if_any()
                at = self._clock.now()
                count = staging.copy_to_store(connection, terms.origin, at)
                answer = Written(to_json({"count": count, "remarks": faults.remarks}))
                idempotency.remember(connection, terms.key, request, answer, at)
        self._report_commit()
        return Imported(count, remarks=faults.remarks)

    def _check_lines(
        self, staged: Staging, faults: Faults, if_known: IfKnown, *, is_unique: bool
    ) -> None:
        """Leave out rows that are to be skipped; add the faults of the others beside each other."""
        if if_known is IfKnown.SKIP:
            with self._database.write(staged.attached_rows()) as connection:
                known = [line for line, *_ in staging.known_references(connection)]
            staged.leave_out(known)
            faults.remarks["left out, as an order has their reference"] += len(known)
        for line, order_id in staged.repeated_ids():
            faults.add(Fault(line, "id", f"{order_id} is also on an earlier line"))
        for line, reference, first in staged.repeated_references() if is_unique else ():
            faults.add(Fault(line, "reference", f"{reference!r} is also on line {first}"))

    def import_pets(self, rows: Iterable[tuple[int, Cells]], faults: Faults) -> int:
        """Import all pets of a file or none, replacing those with the same ids."""
        imported = {cells.get("id"): cells for _, cells in checked(rows, PETS, faults)}
        faults.raise_if_any()
        with self._database.write() as connection:
            pets.replace_all(connection, [pet(cells) for cells in imported.values()])
        return len(imported)


def _compare(connection: Connection, faults: Faults, if_known: IfKnown, *, is_unique: bool) -> None:
    """Add the faults of an import's rows beside the store's orders."""
    for line, order_id in staging.existing_ids(connection):
        faults.add(Fault(line, "id", f"order {order_id} exists already"))
    if is_unique or if_known is not IfKnown.IMPORT:
        hint = "" if is_unique else " (see --if-known)"
        known = staging.known_references(connection, also_of_rows_with_id=is_unique)
        for line, reference, order_id in known:
            reason = f"order {order_id} has {reference!r} already{hint}"
            faults.add(Fault(line, "reference", reason))


def _existing(connection: Connection, reference: str) -> ReferenceExists | None:
    order_id = order_store.first_with_reference(connection, reference)
    if order_id is None:
        return None
    return ReferenceExists(order_id, order_store.newest_event_of(connection, order_id))


def _require_unique(connection: Connection, order_id: int, fields: Mapping[str, Any]) -> None:
    """Raise ReferenceExists where another order has the reference that a change would set."""
    reference, order = fields.get("reference"), order_store.find(connection, order_id)
    if reference is None or order is None or reference == order.reference:
        return
    # Why it can't be changed at all comes first.
    if order.allows(fields) and (existing := _existing(connection, reference)):
        raise existing


def _require_list(connection: Connection, condition: Condition | None) -> None:
    if condition is not None and not condition(order_store.newest_event(connection)):
        raise domain.PreconditionFailed


def _require(
    connection: Connection,
    order_id: int,
    condition: Condition | None,
    fields: Mapping[str, Any] | None = None,
) -> None:
    # In the transaction of the change, before which no other can come: it has the writers' lock.
    if condition is None or condition(order_store.newest_event_of(connection, order_id)):
        return
    # Why it can't be changed at all comes first (RFC 9110, section 13.2.1).
    if fields is not None:
        _unchanged(connection, order_id, fields)
    elif (order := order_store.find(connection, order_id)) is None or not order.is_pending:
        raise _refusal(connection, order_id)
    raise domain.PreconditionFailed(order_id)


def _unchanged(connection: Connection, order_id: int, fields: Mapping[str, Any]) -> Changed:
    """Return an order that new values of its fields leave as it is, or raise why they may not."""
    order = order_store.find(connection, order_id)
    if order is None or not order.allows(fields):
        raise _refusal(connection, order_id)
    return order_store.recall(connection, order_store.newest_event_of(connection, order_id))


def _refusal(connection: Connection, order_id: int) -> Unchangeable:
    order = order_store.find(connection, order_id)
    return domain.refusal_to_change(order_id, order.status if order else None)
