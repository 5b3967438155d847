"""The books of the year: what should be there, beside the history of the customer's requests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from orders.store.care.backups import Backups
from tests.proofs.core import history
from tests.proofs.core.checks import Comparison, Complaints
from tests.proofs.core.history import EventRow, Kind, OrderRow
from tests.proofs.year.customer import MARGIN
from tests.proofs.year.shop import DAY, Shop, YearClock

# No clock here jumps further, to or fro.
MOST_HOURS = 40
_JUMPS = MOST_HOURS * 3_600.0
# A day that a backup was dated on while the clock was ahead has one.
MOST_BETWEEN_BACKUPS = 3 * DAY + _JUMPS
LOG_DAYS = 30 * DAY
# Backups, drills and what they leave.
_SOON = timedelta(minutes=5)


@dataclass
class Week(Comparison):
    """A week's requests, and its rows: Idempotency-Keys are remembered for a day."""

    keyed_at: dict[int, float]
    now: float

    def keys_unlike_their_orders(self) -> Complaints:
        """Complain of keys that were forgotten early, or are still there long after their day."""
        sent = {e.subject: e.idempotency_key for e in self.history if e.kind is Kind.PLACE}
        stored = {row.value: row.event_id for row in self.contents.idempotency_keys}
        for event in self.contents.events:
            at = self.keyed_at.get(event.pet_id)
            if event.type != "order.placed" or at is None:
                continue
            stored_for = stored.get(sent[event.pet_id] or "", 0)
            if stored_for < event.id and self.now - at < DAY - MARGIN:
                yield f"the Idempotency-Key of event {event.id} is forgotten"
            if stored_for == event.id and self.now - at > 1.5 * DAY:
                yield f"the Idempotency-Key of event {event.id} is not forgotten"


@dataclass(frozen=True, slots=True)
class Slice:
    """What a week left, which is never to change: up to an order and an event."""

    order: int
    event: int
    digest: str = ""


def slice_of(path: Path, since: Slice, order: int, event: int) -> Slice:
    """Return the slice that follows another."""
    hashed = hashlib.sha256()
    with closing(history.connect(path)) as connection:
        for table, first, last in (
            ("orders", since.order, order),
            ("order_events", since.event, event),
        ):
            fields = (OrderRow if table == "orders" else EventRow)._fields
            query = f"SELECT {', '.join(fields)} FROM {table} WHERE id > ? AND id <= ? ORDER BY id"
            for row in connection.execute(query, (first, last)):
                hashed.update(repr(row).encode())
    return Slice(order, event, hashed.hexdigest())


@dataclass
class BackupBook:
    """The backups that should be there, and the faults of those that are."""

    clock: YearClock
    backups: Backups
    expected: list[datetime] = field(default_factory=list)
    made: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def look(self, events: int) -> None:
        """Compare the folder with what is to be kept; a new one must have so many events."""
        there = sorted(each.at for each in self.backups.all())
        for at in [at for at in there if at not in self.expected]:
            self.made.append(self.clock.monotonic())
            self.faults += self._faults_of(at, events)
            self.expected = retained([*self.expected, at], self.clock.now())
        if there != self.expected:
            self.faults.append(
                f"backups of {_days(there)} are kept instead of {_days(self.expected)}"
            )
            self.expected = there

    def _faults_of(self, at: datetime, events: int) -> Iterator[str]:
        (path,) = [each.path for each in self.backups.all() if each.at == at]
        found = _count(path)
        if found != events:
            yield f"the backup of {at} has events until {found} of {events}"

    def gaps(self) -> Iterator[str]:
        for earlier, later in pairwise([*self.made, self.clock.monotonic()]):
            if later - earlier > MOST_BETWEEN_BACKUPS:
                yield f"no backup for {(later - earlier) / DAY:.1f} days"


def retained(made: list[datetime], now: datetime) -> list[datetime]:
    """Return which of the backups of these times are to be kept, as the contract says."""
    past = sorted((at for at in made if at <= now + _SOON), reverse=True)
    days = {at.date(): at for at in reversed(past)}
    weeks = {at.isocalendar()[:2]: at for at in reversed(past)}
    kept = {*sorted(days.values())[-7:], *sorted(weeks.values())[-4:], *past[:1]}
    return sorted(kept | {at for at in made if at not in past})


def _days(times: list[datetime]) -> str:
    return ", ".join(f"{at.astimezone(UTC):%d %b %H:%M}" for at in times)


def _count(path: Path) -> int:
    # So that SQLite leaves no files beside it.
    with closing(history.connect(path, "&immutable=1")) as connection:
        ((newest,),) = connection.execute("SELECT max(id) FROM order_events").fetchall()
    return newest or 0


def rows_of(path: Path, names: dict[str, str]) -> dict[str, str]:
    """Return a digest of the rows of tables, of the columns that are named."""
    found = {}
    with closing(history.connect(path)) as connection:
        for table, listed in names.items():
            hashed = hashlib.sha256()
            for row in connection.execute(f"SELECT {listed} FROM {table} ORDER BY 1, 2, 3"):
                hashed.update(repr(row).encode())
            found[table] = hashed.hexdigest()
    return found


def deliveries_wrong(shop: Shop) -> Iterator[str]:
    """Complain of messages of the last month that the log forgot, and of older ones that it has."""
    with closing(history.connect(shop.path)) as connection:
        query = "SELECT event_id FROM webhook_deliveries WHERE outcome = 'delivered'"
        logged = {event for (event,) in connection.execute(query)}
    for event, at in shop.subscriber.at.items():
        age = shop.clock.monotonic() - at
        if age < LOG_DAYS - _JUMPS and event not in logged:
            yield f"the delivery of event {event}, {age / DAY:.1f} days ago, is not in the log"
        if age > LOG_DAYS + 2 * _JUMPS and event in logged:
            yield f"the delivery of event {event}, {age / DAY:.1f} days ago, is still in the log"
