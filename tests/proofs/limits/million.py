"""Counters among a million: their memory, their disk, and the cost of a hit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from orders.cli.output import progress
from orders.clock import Clock
from orders.counters.memory import CounterStorage
from orders.counters.windows import ADDRESS_PREFIX, MAX_ADDRESSES, Quota
from tests.support.process import resident_mib

if TYPE_CHECKING:
    from orders.counters.redis import RedisCounterStorage

# The windows of addresses may add so much to the memory and the disk, however many there are.
MOST_MEMORY_MIB = 96
MOST_DISK_MIB = 96
REAL_KEY = "key:1.0"
_MINUTE, _DAY = 60, 86_400
_QUOTA = 1_000_000_000
_FREE_QUOTA = 60
# As a key on the plan "business" has them.
_TERMS = "1000 per 1 minute;100000 per 1 day"
# So many new addresses at most come between two writings of the journal.
_ADDRESSES_A_FLUSH = 2_000
_HITS = 10_000


def windows(identity: str, quota: int = _QUOTA) -> tuple[Quota, ...]:
    """Return the quotas of one identity."""
    return (
        Quota(f"{identity}/minute", quota, _MINUTE, _TERMS),
        Quota(f"{identity}/day", quota, _DAY, _TERMS),
    )


def addresses(begin: int = 0) -> Iterator[str]:
    """Return the /64 networks of an attacker: there are cheap offers of 65,536 and more of them."""
    number = begin
    while True:
        yield f"{ADDRESS_PREFIX}2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::/64"
        number += 1


@dataclass
class Use:
    """The most that was seen of memory above the beginning, and of disk, in MiB."""

    path: Path
    begin: float = field(default_factory=resident_mib)
    memory: float = 0.0
    disk: float = 0.0

    def look(self) -> None:
        """Look once."""
        self.memory = max(self.memory, resident_mib() - self.begin)
        files = self.path.parent.glob(self.path.name + "*")
        self.disk = max(self.disk, sum(file.stat().st_size for file in files) / 2**20)


def prove(path: Path, count: int) -> list[str]:
    """Count so many addresses and as many keys, with the journal at a path; return the faults."""
    storage = CounterStorage(path=path, clock=Clock())
    storage.load()
    use = Use(path)
    few = [windows(f"key:{number}.0") for number in range(10)]
    print_cost("10 keys", storage, few)
    faults = _flood(storage, use, count)
    print_cost(f"{count:,} addresses", storage, few)
    print(f"addresses  {use.memory:.0f} MiB of memory, {use.disk:.0f} MiB of disk at most")
    faults += _faults_of_use(use) + _faults_of_forgetting(storage)
    many = [windows(f"key:{number}.0") for number in range(count)]
    for each in many:
        storage.hit(each)
    print_cost(f"{count:,} keys", storage, few)
    print_cost("all in turn", storage, many[:: max(1, count // _HITS)])
    faults += _faults_of_restart(storage, path)
    return faults


def _flood(storage: CounterStorage, use: Use, count: int) -> list[str]:
    for _ in range(7):
        storage.hit(windows(REAL_KEY))
    before = [standing.counted for standing in storage.peek(windows(REAL_KEY))]
    coming = addresses()
    with progress("addresses", count) as done:
        for _ in range(0, count, _ADDRESSES_A_FLUSH):
            for address in islice(coming, _ADDRESSES_A_FLUSH):
                storage.hit(windows(address))
            storage.flush()
            use.look()
            done(_ADDRESSES_A_FLUSH)
    # The minute may have ended; the day has not.
    after = [standing.counted for standing in storage.peek(windows(REAL_KEY))]
    return [] if after[1] == before[1] else [f"a key's counters went from {before} to {after}"]


def _faults_of_use(use: Use) -> list[str]:
    faults = []
    if use.memory > MOST_MEMORY_MIB:
        faults.append(f"addresses took {use.memory:.0f} MiB of memory, over {MOST_MEMORY_MIB}")
    if use.disk > MOST_DISK_MIB:
        faults.append(f"addresses took {use.disk:.0f} MiB of disk, over {MOST_DISK_MIB}")
    return faults


def _faults_of_forgetting(storage: CounterStorage) -> list[str]:
    """Count the requests that an attacker needs to have the windows of an address forgotten."""
    used_up = windows(f"{ADDRESS_PREFIX}203.0.113.9", _FREE_QUOTA)
    while storage.hit(used_up)[0]:
        pass
    others = 0
    for address in islice(addresses(begin=2**24), 2 * MAX_ADDRESSES):
        if storage.hit(windows(address))[0]:
            others += 1
        if storage.peek(used_up)[1].counted == 0:
            break
    print(
        f"forgotten  an address, after {others:,} requests from as many others, "
        f"for {_FREE_QUOTA} requests"
    )
    return [] if others >= MAX_ADDRESSES else [f"an address was forgotten after {others} others"]


def _faults_of_restart(storage: CounterStorage, path: Path) -> list[str]:
    before = [standing.counted for standing in storage.peek(windows(REAL_KEY))]
    storage.close()
    again = CounterStorage(path=path, clock=Clock())
    began = time.perf_counter()
    again.load()
    print(f"restart    {time.perf_counter() - began:.1f} s to load what all keys left")
    after = [standing.counted for standing in again.peek(windows(REAL_KEY))]
    again.close()
    return [] if after[1] == before[1] else [f"a restart made {after} of {before}"]


def print_cost(
    among: str, storage: CounterStorage | RedisCounterStorage, identities: Sequence[Sequence[Quota]]
) -> None:
    """Count many requests, in turn; print what one takes, at best of three."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter_ns()
        for number in range(_HITS):
            storage.hit(identities[number % len(identities)])
        best = min(best, (time.perf_counter_ns() - began) / _HITS)
    print(f"a hit      {best:,.0f} ns among {among}")
