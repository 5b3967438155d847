"""What stands beside the store goes wrong for a while: the counters' file, the clock, the log.

Counting goes on in memory, a clock that is set frees nobody and locks out nobody, and a log that
can't be written stops no request.
"""

from __future__ import annotations

import re
import socket
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orders.clock import Clock
from orders.settings import Settings
from orders.store.database import sqlite
from tests.support.machine import wait_until
from tests.support.running_shop import fill, open_shop
from tests.support.service import running
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.sqlite_only("the files beside the database")]

PLAIN = "/v1/nothing"


# The counters' file. It is written once a second.


def journalled(instance):
    """Return how many requests of keys the counters' file knows of today; None without one."""
    sql = "SELECT sum(count) FROM windows WHERE key LIKE 'key:%' AND length = 86400"
    try:
        with closing(sqlite.connect(instance / "counters.db")) as connection:
            return connection.execute(sql).fetchone()[0]
    except sqlite.sqlite_module().Error:
        return None


def counted(shop):
    """Count one more request; return how many the service has counted today."""
    left = re.findall(r";r=(\d+)", shop.request("GET", PLAIN).headers["RateLimit"])
    return 1_000_000 - int(left[1])


@contextmanager
def deleted(path):
    for file in path.parent.glob("counters.db*"):
        file.unlink()
    yield


@contextmanager
def overwritten(path):
    path.write_bytes(b"this is no database " * 2_000)
    yield


@contextmanager
def impossible(path):
    for file in path.parent.glob("counters.db*"):
        file.unlink()
    path.mkdir()
    yield
    path.rmdir()


@pytest.mark.parametrize("fault", [deleted, overwritten, impossible])
def test_without_the_counters_file_counting_goes_on_and_the_file_is_written_again(
    tmp_path, empty_database, fault
):
    with open_shop(tmp_path / "instance", empty_database) as shop:
        before = counted(shop)
        wait_until(lambda: journalled(shop.instance) == before)
        with fault(shop.instance / "counters.db"):
            assert counted(shop) == before + 1
            if fault is impossible:
                wait_until(lambda: shop.ready()["counters"].startswith("degraded"))
            assert counted(shop) == before + 2
            assert shop.place().status == 201
        last = counted(shop)
        wait_until(lambda: journalled(shop.instance) == last)
        # Reported a moment after it was written.
        wait_until(lambda: shop.ready()["counters"] == "ok")
        # Not what a stop writes: as it is while the service runs.
        shop.service.kill()
        assert journalled(shop.instance) == last
    warned = [line for line in shop.service.log if "warning" in line]
    assert len(warned) <= 2, warned
    shop.assert_log_is_clean()


# The clock. Wall time is set for one process, as libfaketime can; monotonic time runs on.

TWO_DAYS = 2 * 86_400


@pytest.fixture(scope="module")
def clock_folder(tmp_path_factory, empty_database):
    """An instance folder, and beside it the file that tells how far the clock is off."""
    folder = tmp_path_factory.mktemp("clock")
    set_clock(folder, 0)
    fill(folder / "instance", empty_database)
    return folder


@pytest.fixture(scope="module")
def timed(clock_folder):
    """A service whose wall clock can be set."""
    with timed_service(clock_folder) as service:
        yield service


def timed_service(folder):
    """Run a service whose wall clock is off by what `set_clock` has set for its folder."""
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "offset"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "ORDERS_HEAD_SECONDS": "1",
        "ORDERS_BAN_AFTER": "5",
    }
    return running(folder / "instance", **environment)


def set_clock(folder, seconds):
    """Set the wall clock forward or back by so many seconds from what is right."""
    unfinished = folder / "offset.new"
    unfinished.write_text(f"{seconds:+d}\n")
    unfinished.replace(folder / "offset")


def issue_three(instance):
    """Issue a key that stays below its limits, one that comes to them, and one to be banned."""
    store = Store(Settings(instance=instance), Clock())
    secrets = [store.issue("enterprise", per_minute=most, per_day=100)[1] for most in (50, 2, 1)]
    store.services.end()
    return secrets


def assert_waits(service, secret, code, most):
    """Check that a key is refused, and for at most so many seconds."""
    response = service.request("GET", PLAIN, key=secret)
    assert (response.status, response.json()["code"]) == (429, code)
    assert 0 < int(response.headers["Retry-After"]) <= most


@pytest.mark.parametrize("jump", [TWO_DAYS, -TWO_DAYS])
def test_a_clock_that_jumps_neither_frees_nor_locks_out_anyone(timed, clock_folder, jump):
    counted_key, full_key, banned_key = issue_three(clock_folder / "instance")
    for key, times in ((counted_key, 1), (full_key, 2), (banned_key, 6)):
        for _ in range(times):
            timed.request("GET", PLAIN, key=key)
    for seconds, left in ((jump, 48), (0, 47)):
        set_clock(clock_folder, seconds)
        response = timed.request("GET", PLAIN, key=counted_key)
        assert (response.status, response.headers["X-RateLimit-Remaining"]) == (404, str(left))
        reset = int(response.headers["X-RateLimit-Reset"])
        assert 0 < reset - seconds - time.time() <= 61
        assert_waits(timed, full_key, "rate_limit_exceeded", 60)
        assert_waits(timed, banned_key, "api_key_banned", 300)


@pytest.mark.parametrize("jump", [TWO_DAYS, -TWO_DAYS])
def test_connections_live_and_end_by_the_time_that_passes(timed, clock_folder, jump):
    with closing(connection(timed)) as kept:
        ask_how_it_is(kept)
        set_clock(clock_folder, jump)
        # Each is late in a second from now. That is found out in the rounds in which connections
        # are closed that have long been idle: after two of them the other one would be.
        for _ in range(2):
            with closing(connection(timed)) as slow:
                slow.sendall(b"GET /healthz HTTP/1.1\r\n")
                assert slow.recv(65_536).startswith(b"HTTP/1.0 408 ")
        ask_how_it_is(kept)
    set_clock(clock_folder, 0)


def connection(service):
    """Open a connection to a service."""
    return socket.create_connection(service.address, timeout=60)


def ask_how_it_is(kept):
    """Send a request over a connection, and read the answer to its end."""
    kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
    received = b""
    while not received.endswith(b'{"status":"ok"}\n'):
        received += kept.recv(65_536)
        assert received.startswith(b"HTTP/1.1 200 OK"), received


def test_a_start_after_the_clock_was_set_back_prolongs_no_ban(timed, clock_folder):
    *_, banned_key = issue_three(clock_folder / "instance")
    for _ in range(6):
        timed.request("GET", PLAIN, key=banned_key)
    timed.kill()
    set_clock(clock_folder, -TWO_DAYS)
    with timed_service(clock_folder) as service:
        assert_waits(service, banned_key, "api_key_banned", 300)
        set_clock(clock_folder, 0)
        assert_waits(service, banned_key, "api_key_banned", 300)
