"""How soon thousands of followers have an event, and what they cost, beside clients that poll.

Run it as `python -m tests.bench.followers`. Each follower has a stream of one store's events, and
orders are placed at a rate. A delay is from a placing's first byte to the last follower. The same
clients polling every five seconds, as before, would have the last one wait for five.
Exits 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import resource
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from orders.feed import MOST_OF_A_KEY
from tests.proofs.core.times import Read, Times
from tests.proofs.edge.followers import ORDERS, STREAM, keys_for
from tests.support.process import resident_mib
from tests.support.service import Service
from tests.support.wire import Wire

PER_SECOND = 50
RUN_SECONDS = 3.0
LATEST_SECONDS = 2.0
SETTLE_SECONDS = 5.0
REST_SECONDS = 30.0
POLL_SECONDS = 5
MOST_MS, MOST_TIMES, MOST_KIB, MOST_PERCENT = 250, 3, 12, 1
# Descriptors of this process beside the followers'.
_SPARE = 200


class Followers:
    """Streams that one thread reads, with little work: who got which event last, and when."""

    def __init__(self, service: Service, keys: list[str], count: int) -> None:
        self.sockets: dict[int, socket.socket] = {}
        self._newest: dict[int, int] = {}
        self._received: list[tuple[int, int, float]] = []
        self._poll, self._buffer = select.epoll(), bytearray(262_144)
        for number in range(count):
            one = socket.create_connection(service.address)
            one.sendall(STREAM.format(keys[number // MOST_OF_A_KEY]).encode())
            self.sockets[one.fileno()] = one
            self._poll.register(one, select.EPOLLIN)
            if number % 100 == 0:
                self.read(0.1)

    def read(self, seconds: float) -> None:
        """Read for so long."""
        ends, buffer = time.monotonic() + seconds, self._buffer
        while (now := time.monotonic()) < ends:
            for descriptor, _ in self._poll.poll(ends - now):
                size = self.sockets[descriptor].recv_into(buffer)
                if (begin := buffer.rfind(b"id: ", 0, size)) >= 0:
                    newest = int(buffer[begin + 4 : buffer.find(b"\n", begin)])
                    self._received.append((descriptor, newest, time.monotonic()))

    def arrivals(self) -> dict[int, list[float]]:
        """Return when the followers had each event since the last call: a moment for each."""
        found: dict[int, list[float]] = {}
        for descriptor, newest, at in self._received:
            for event in range(self._newest.get(descriptor, newest - 1) + 1, newest + 1):
                found.setdefault(event, []).append(at)
            self._newest[descriptor] = newest
        self._received.clear()
        return found

    def behind(self, event: int) -> int:
        """Return how many followers lack an event."""
        self.arrivals()
        return sum(newest < event for newest in self._newest.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.followers", description=__doc__)
    parser.add_argument("--followers", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, options.followers + _SPARE), most))
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(2) as pool:
        service = Service(Path(folder) / "instance")
        try:
            return measure(service, options.followers, options.runs, pool)
        finally:
            service.stop()


def measure(service: Service, count: int, runs: int, pool: ProcessPoolExecutor) -> int:
    place, *keys = keys_for(service, count)
    pid, where = service.process.pid, service.address
    order = Wire(where, place).ask("POST", ORDERS, {"petId": 7})
    read = Read(where, order.headers["Location"], place)
    alone, _ = one_run(pool, read, time.sleep)
    idle = busy(pid, REST_SECONDS, time.sleep)
    before = resident_mib(pid)
    followers = Followers(service, keys, count)
    followers.read(SETTLE_SECONDS)  # what was placed before
    memory = (resident_mib(pid) - before) * 1024 / count
    at_rest = busy(pid, REST_SECONDS, followers.read) - idle
    one_run(pool, read, followers.read)
    followers.arrivals()
    delays, reads, newest = [], [], 0
    for _ in range(runs):
        times, sent = one_run(pool, read, followers.read)
        arrived = followers.arrivals()
        reads.append(times.p99)
        newest = max(sent)
        late = [time.monotonic()]  # in the next run
        delays += [
            statistics.median(max(arrived.get(each, late)) - at for each, at in sent.items())
        ]
    followers.read(LATEST_SECONDS)
    behind = followers.behind(newest)
    polls = polled(service, keys[0]) * 100 * count / POLL_SECONDS
    last, p99 = statistics.median(delays) * 1000, statistics.median(reads)
    print(f"the last of {count:,} has an event after {last:.0f} ms (median of {runs} runs,")
    print(f"    of {min(delays) * 1000:.0f} to {max(delays) * 1000:.0f}); {behind} lacked some")
    print(f"getOrder beside, p99  {p99:.1f} ms; without followers {alone.p99:.1f} ms")
    print(f"memory of each        {memory:.1f} KiB")
    print(f"processor at rest     {at_rest:.2f} % of a core; if they polled, {polls:.0f} %")
    return not (
        not behind
        and last <= MOST_MS
        and p99 <= MOST_TIMES * alone.p99
        and memory <= MOST_KIB
        and at_rest <= MOST_PERCENT
    )


def one_run(
    pool: ProcessPoolExecutor, read: Read, meanwhile: Callable[[float], None]
) -> tuple[Times, dict[int, float]]:
    """Place orders, and read one; return how long reads took, and when events were sent."""
    times = pool.submit(timed, read)
    placing = pool.submit(placed, read.address, read.key)
    meanwhile(RUN_SECONDS + LATEST_SECONDS)
    return times.result(), placing.result()


def timed(read: Read) -> Times:
    ends = time.monotonic() + RUN_SECONDS
    return read.time(lambda _: time.monotonic() < ends)[0]


def placed(address: tuple[str, int], key: str) -> dict[int, float]:
    """Place orders at the rate; return when each was sent, by its event."""
    wire, sent = Wire(address, key), {}
    due, ends = time.monotonic(), time.monotonic() + RUN_SECONDS
    while due < ends:
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic()
        answer = wire.ask("POST", ORDERS, {"petId": 7})
        sent[int(answer.headers["ETag"].strip('"').rpartition("-")[2])] = began
        due += 1 / PER_SECOND
    wire.close()
    return sent


def polled(service: Service, key: str, count: int = 300) -> float:
    """Return the seconds of a processor that one poll of the feed takes."""
    pid = service.process.pid
    wire, began = Wire(service.address, key), processor(pid)
    for _ in range(count):
        wire.ask("GET", "/v2/store/events?after=1&limit=1")
    wire.close()
    return (processor(pid) - began) / count


def busy(pid: int, seconds: float, act: Callable[[float], None]) -> float:
    """Return how many percent of a core a process takes while something is done."""
    began, at = processor(pid), time.monotonic()
    act(seconds)
    return (processor(pid) - began) / (time.monotonic() - at) * 100


def processor(pid: int) -> float:
    """Return the seconds of a processor that a process has taken."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks) / 1e9


if __name__ == "__main__":
    sys.exit(main())
