"""A year of a shop in minutes, in which everything happens to it that happens in a year.

A customer places, ships, cancels and looks, on a clock that is moved; webhooks are sent over HTTP.
Each week the service is restarted, its clock set and set back, its disk full, its power cut, its
subscriber down and refusing; backups are made, kept and drilled, logs and keys swept. In the middle
the program becomes the next one, by a migration that only tests have, and upgrades the store. Each
week, and at the end, everything is compared with what the customer was told. A seed replays a year.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from random import Random

from orders.cli import serve
from orders.cli.common import progress
from orders.store.care import checks
from tests.proofs.core import command, history
from tests.proofs.core.clients import ORDERS, Key
from tests.proofs.core.history import History
from tests.proofs.power_cut.disk import in_memory
from tests.proofs.year.books import (
    MOST_HOURS,
    BackupBook,
    Slice,
    Week,
    deliveries_wrong,
    rows_of,
    slice_of,
)
from tests.proofs.year.customer import Regular
from tests.proofs.year.faults import FAULTS
from tests.proofs.year.shop import BEGIN, DAY, TABLES, WANTED, Shop, Subscriber, columns
from tests.support import stores
from tests.support.migrations import next_program
from tests.support.process import descriptors, resident_mib
from tests.support.receiver import receiving

STEP = 1_800.0
WEEK = 7
PLENTY = 1_000_000_000
MOST_CHANGES_UNTIL_CUT = 1_500
# By how many hours a clock is wrong: ahead so far that it would forget every Idempotency-Key.
AHEAD, BEHIND = (24, MOST_HOURS), (1, MOST_HOURS)
# How far the use may grow beyond that of the second week's end.
MOST_GROWTH = {
    "MiB of memory": 128,
    "threads": 2,
    "descriptors": 4,
    "files": 16,
    "MiB of log": 64,
    "ms of a start": 5_000,
}
# The wait for refused messages: longer than the schedule of attempts.
MOST_QUARTERS = 60


class Year:
    """A shop, its customer, and what happens to them."""

    def __init__(
        self, folder: Path, subscriber: Subscriber, days: int, orders: int, seed: int
    ) -> None:
        self.days, self.faults = days, list[str]()
        self.chance = Random(seed)
        self.happened: Counter[str] = Counter()
        self.shop = Shop(folder / "instance", subscriber, self.chance)
        self.shop.open()
        self.shop.subscribe()
        self._history = History()
        quotas = [(PLENTY, PLENTY)]
        key, reader = (
            Key(secret, f"key:{number}")
            for scopes in (("read", "write"), ("read",))
            for secret, number in stores.issue(self.shop.parts.database, quotas, scopes).items()
        )
        self._key = key
        self.customer = Regular(self.shop, self._history, key, reader, str(seed), per_day=orders)
        self.book = BackupBook(self.shop.clock, self.shop.backups)
        self._slices = [Slice(0, 0)]
        self.use: list[dict[str, int]] = []
        self.counts: Counter[str] = Counter()

    def live(self, become_next: Callable[[], int]) -> list[str]:
        with progress("days", self.days) as advance:
            for begin in range(0, self.days, WEEK):
                days = min(WEEK, self.days - begin)
                self._live_week(days)
                self._check_week()
                if begin <= self.days // 2 < begin + days and not self.faults:
                    self._upgrade(become_next)
                if self.faults:
                    break
                advance(days)
            else:
                self._end()
        self.shop.close()
        return self.faults

    # What happens.

    def _live_week(self, days: int) -> None:
        kinds = [self._cut, self._fill, self._set_clock, self._restart, self._be_down, self._refuse]
        now = self.shop.clock.monotonic()
        due = sorted(
            (now + self.chance.uniform(0.2, days - 0.2) * DAY, n) for n in range(len(kinds))
        )
        while due or self.shop.clock.monotonic() < now + days * DAY:
            if due and due[0][0] <= self.shop.clock.monotonic():
                incident: Callable[[], None] = kinds[due.pop(0)[1]]
                self.happened[incident.__name__] += 1
                incident()
            self._step()

    def _step(self, seconds: float = STEP) -> None:
        self.customer.come(seconds)
        self.shop.tend()
        if not self.shop.is_dark:
            self.book.look(self._newest_event())

    def _newest_event(self) -> int:
        with self.shop.parts.database.read() as connection:
            found = connection.exec_driver_sql("SELECT max(id) FROM order_events").scalar()
        return int(found or 0)

    def _cut(self) -> None:
        with self.shop.on_a_disk_of_ours() as disk:
            disk.until_cut = self.chance.randint(1, MOST_CHANGES_UNTIL_CUT)
            while not disk.is_off:
                self._step(STEP / 3)

    def _fill(self) -> None:
        with self.shop.on_a_disk_of_ours() as disk:
            self._step(STEP / 3)
            with self.shop.no_room(disk):
                self._step(STEP / 3)
                self._expect_no_room()
            self._step(STEP / 3)

    def _expect_no_room(self) -> None:
        try:
            self.shop.backups.make()
        except OSError:
            pass
        else:
            self.faults.append("a backup filled the disk")
        headers = {"Authorization": f"Bearer {self._key.secret}"}
        for path in ("/healthz", "/v2/store/orders?limit=1"):
            status = self.shop.request("GET", path, headers).status
            if status != HTTPStatus.OK:
                self.faults.append(f"{path} is answered {status} while the disk is full")
        status = self.shop.request("POST", ORDERS, headers, json={"petId": 1}).status
        if status != HTTPStatus.SERVICE_UNAVAILABLE:
            self.faults.append(f"an order is answered {status} while the disk is full")

    def _set_clock(self) -> None:
        ahead, behind = (self.chance.uniform(*hours) * 3_600 for hours in (AHEAD, BEHIND))
        for seconds in (ahead, -ahead, -behind, behind):
            self.shop.clock.wall += seconds
            self.shop.parts.write_keys()
            self.customer.repeat_some()
            for _ in range(6):
                self._step()

    def _restart(self) -> None:
        self.shop.close()
        self.shop.open()

    def _be_down(self) -> None:
        self._answer_webhooks(HTTPStatus.SERVICE_UNAVAILABLE)

    def _refuse(self) -> None:
        self._answer_webhooks(HTTPStatus.BAD_REQUEST)

    def _answer_webhooks(self, status: HTTPStatus) -> None:
        self.shop.subscriber.status = status
        for _ in range(self.chance.randint(1, 12)):
            self._step()
        self.shop.subscriber.status = HTTPStatus.NO_CONTENT

    def _upgrade(self, become_next: Callable[[], int]) -> None:
        self._deliver_all()
        self.shop.close()
        with closing(history.connect(self.shop.path)) as connection:
            names = {table: columns(connection, table) for table in TABLES}
        before = rows_of(self.shop.path, names)
        become_next()
        self.shop.open()
        after = rows_of(self.shop.path, names)
        self.faults += [
            f"the upgrade changed {each}" for each in TABLES if after[each] != before[each]
        ]
        self.happened["_upgrade"] += 1

    # What is compared.

    def _check_week(self) -> None:
        while not self.customer.is_settled:
            self._step()
        last = self._slices[-1]
        contents = history.read(self.shop.path, last.order, last.event)
        now = self.shop.clock.monotonic()
        week = Week(self._history.operations, contents, self.customer.keyed_at, now)
        self.faults += [*self.customer.faults, *week.complaints(), *self.book.faults]
        self.faults += [*self.book.gaps(), *self._beyond_bounds()]
        self.faults += deliveries_wrong(self.shop)
        self.counts["requests"] += len(self._history.operations)
        self.counts["orders"] += len(contents.orders)
        self.counts["events"] += len(contents.events)
        ends = contents.orders[-1].id, contents.events[-1].id
        self._slices.append(slice_of(self.shop.path, last, *ends))
        self.customer.begin_anew()

    def _beyond_bounds(self) -> Iterator[str]:
        gc.collect()
        folder = self.shop.path.parent
        files = [path for path in folder.rglob("*") if path.is_file()]
        use = {
            "MiB of memory": round(resident_mib()),
            "threads": threading.active_count(),
            "descriptors": len(descriptors(os.getpid())),
            "files": len(files),
            "MiB of log": sum(path.stat().st_size for path in files if path.match("*-wal")) >> 20,
            "ms of a start": round(self.shop.starts[-1] * 1000),
        }
        self.use.append(use)
        begun = self.use[min(1, len(self.use) - 1)]
        for name, most in MOST_GROWTH.items():
            if use[name] > begun[name] + most:
                yield f"{use[name]:,} {name}; there were {begun[name]:,}"

    def _deliver_all(self) -> None:
        for _ in range(MOST_QUARTERS):
            self.shop.tend()
            self.book.look(self._newest_event())
            if not self.shop.has_messages_waiting():
                break
            self.shop.clock.advance(DAY / 4)
        with closing(history.connect(self.shop.path)) as connection:
            query = "SELECT id FROM order_events WHERE type = ?"
            wanted = {event for (event,) in connection.execute(query, (WANTED,))}
        accepted = self.shop.subscriber.accepted
        lost, surplus = wanted - accepted.keys(), accepted.keys() - wanted
        self.faults += [f"the message about event {event} never arrived" for event in sorted(lost)]
        self.faults += [f"event {event} was sent, and is not there" for event in sorted(surplus)]
        again, disks = (
            accepted.total() - len(accepted),
            self.happened["_cut"] + self.happened["_fill"],
        )
        if again > disks:
            self.faults.append(f"{again} messages arrived again after {disks} faults of a disk")

    def _end(self) -> None:
        self._deliver_all()
        for earlier, later in pairwise(self._slices):
            if slice_of(self.shop.path, earlier, later.order, later.event) != later:
                self.faults.append(f"what was until event {later.event} has changed since")
        with self.shop.parts.database.read() as connection:
            complaint = checks.complaint(connection)
        self.faults += [complaint] if complaint else []
        self.faults += history.damage(self.shop.path)


def prove(
    _: Path, *, days: int = 365, orders: int = 1_000, seed: int = 1, fault: str = ""
) -> list[str]:
    """Live a year, print the figures; return the violations."""
    if fault not in FAULTS:
        raise SystemExit(f"--fault is one of: {', '.join(filter(None, FAULTS))}.")
    began = time.monotonic()
    with (
        in_memory() as folder,
        undisturbed(),
        receiving() as receiver,
        next_program(folder / "next") as become_next,
        FAULTS[fault](),
    ):
        year = Year(folder, Subscriber(receiver), days, orders, seed)
        found = year.live(become_next)
    report(year, time.monotonic() - began)
    if found:
        again = f" --fault {fault}" if fault else ""
        print(f"again       --seed {seed} --days {days} --orders {orders}{again}")
    return found


@contextmanager
def undisturbed() -> Iterator[None]:
    """Log nothing meanwhile, for much fails on purpose; collect garbage as seldom as a service."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*serve.COLLECTOR_THRESHOLDS)
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.set_threshold(*thresholds)


def report(year: Year, seconds: float) -> None:
    use, accepted = year.use, year.shop.subscriber.accepted
    facts = {
        "lived": f"{(year.shop.clock.monotonic() - BEGIN) / DAY:.0f} days in {seconds:,.0f} s",
        "counted": ", ".join(f"{number:,} {name}" for name, number in year.counts.items()),
        "happened": ", ".join(f"{name[1:]} {times}" for name, times in year.happened.items()),
        "webhooks": f"{len(accepted):,} messages, {accepted.total() - len(accepted)} of them twice",
        "backups": f"{len(year.book.made)} made, {len(year.book.expected)} kept",
        "starts": f"{len(year.shop.starts)}, {max(year.shop.starts):.2f} s of a processor at most",
        **{name: f"{use[0][name]:,} after a week, {use[-1][name]:,} at last" for name in use[0]},
    }
    print(command.table(facts))


if __name__ == "__main__":
    sys.exit(
        command.run(
            prove,
            days="days of the year",
            orders="orders a day",
            seed="replays a year",
            fault=f"plant a fault, which is to be found: {', '.join(filter(None, FAULTS))}",
        )
    )
