"""Counters in Redis: exact among four processes, the cost of a hit, and an outage."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from orders.clock import Clock
from orders.counters.memory import CounterStorage
from orders.counters.redis import RedisCounterStorage
from tests.proofs.limits.million import print_cost, windows
from tests.support.redis_server import RedisServer, redis_running

PROCESSES = 4
THREADS = 4
QUOTA = 10_000
# Of each process; all together they ask for more than there is.
REQUESTS = 3_000
_KEYS = 10_000


def prove(folder: Path) -> list[str]:
    """Count in a redis-server of its own, in a new folder; return the faults."""
    with redis_running(folder) as server:
        _print_costs(server, folder)
        _print_size(server)
        return _faults_of_crowd(server) + _faults_of_outage(server)


def storage_of(url: str) -> RedisCounterStorage:
    """Return counters as a process of the service has them."""
    return RedisCounterStorage("shared://", url=url, store_id=lambda: "bench", clock=Clock())


def _print_costs(server: RedisServer, folder: Path) -> None:
    keys = [windows(f"key:{number}.0") for number in range(10)]
    print_cost("10 keys in memory", CounterStorage(path=folder / "none", clock=Clock()), keys)
    for among, url in (("a socket", server.url), ("TCP on one machine", server.tcp_url)):
        storage = storage_of(url)
        print_cost(f"10 keys in Redis, over {among}", storage, keys)
        storage.close()


def _print_size(server: RedisServer) -> None:
    before = server.command("INFO", "memory")["used_memory"]
    storage = storage_of(server.url)
    for number in range(_KEYS):
        storage.hit(windows(f"key:{number + 10_000}.0"))
    storage.close()
    each = (server.command("INFO", "memory")["used_memory"] - before) / _KEYS
    print(f"memory     {each:.0f} bytes of Redis for both windows of a key")


def rush(url: str) -> int:
    """Ask in a process of its own, with some threads; return how many requests were admitted."""
    logging.disable()
    storage = storage_of(url)
    wanted = windows("key:crowd", QUOTA)
    with ThreadPoolExecutor(THREADS) as threads:
        admitted = sum(threads.map(lambda _: storage.hit(wanted)[0], range(REQUESTS)))
    is_exact = storage.check()
    storage.close()
    return admitted if is_exact else -1


def _faults_of_crowd(server: RedisServer) -> list[str]:
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=spawned) as processes:
        admitted = list(processes.map(rush, [server.url] * PROCESSES))
    print(
        f"crowd      {PROCESSES} processes of {THREADS} threads: {sum(admitted):,} of "
        f"{PROCESSES * REQUESTS:,}, allowed {QUOTA:,}"
    )
    if -1 in admitted:
        return ["Redis did not answer in time: this machine is too busy to prove anything"]
    return [] if sum(admitted) == QUOTA else [f"{sum(admitted)} were admitted, allowed {QUOTA}"]


def _faults_of_outage(server: RedisServer) -> list[str]:
    logging.disable()
    storage, wanted = storage_of(server.url), windows("key:outage")
    for _ in range(10):
        storage.hit(wanted)
    server.pause()
    first = _milliseconds(lambda: storage.hit(wanted))
    others = max(_milliseconds(lambda: storage.hit(wanted)) for _ in range(1_000))
    server.kill()
    server.start()
    storage.flush()
    storage.hit(wanted)
    (count, *_) = (window.counted for window in storage.peek(wanted))
    storage.close()
    print(
        f"outage     the first request waited {first:.0f} ms, 1,000 others {others:.2f} at most; "
        f"a Redis that began anew counts {count}"
    )
    return [] if count == 1 else [f"after an outage Redis counted {count} of one request"]


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
