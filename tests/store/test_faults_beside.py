"""Faults beside the database: of the counters' file, and of the clock.

Counting goes on in memory, and a clock that is set frees nobody and locks out nobody.
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


def journalled(instance):
    """Return how many requests of keys the counters' file has today; None without one."""
    sql = "SELECT sum(count) FROM windows WHERE key LIKE 'key:%' AND length = 86400"
    try:
        with closing(sqlite.connect(instance / "counters.db")) as connection:
            return connection.execute(sql).fetchone()[0]
    except sqlite.sqlite_module().Error:
        return None


def counted(shop):
    """Send a request; return how many the service has counted today."""
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
        # It is reported a moment after it was written.
        wait_until(lambda: shop.ready()["counters"] == "ok")
        # The file as it is while the service runs, not as a stop writes it.
        shop.service.kill()
        assert journalled(shop.instance) == last
    warned = [line for line in shop.service.log if "warning" in line]
    assert len(warned) <= 2, warned
    shop.assert_log_is_clean()


# libfaketime sets the wall clock of one process; its monotonic clock runs on.

TWO_DAYS = 2 * 86_400


@pytest.fixture(scope="module")
def clock_folder(tmp_path_factory, empty_database):
    """A folder with an instance folder, and the file that says how far the clock is off."""
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
    """Run a service whose wall clock is off by what `set_clock` set for its folder."""
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
    """Set the wall clock this many seconds ahead of, or behind, the right time."""
    unfinished = folder / "offset.new"
    unfinished.write_text(f"{seconds:+d}\n")
    unfinished.replace(folder / "offset")


def issue_three(instance):
    """Issue a key that stays below its limits, one that reaches them, and one to be banned."""
    store = Store(Settings(instance=instance), Clock())
    secrets = [store.issue("enterprise", per_minute=most, per_day=100)[1] for most in (50, 2, 1)]
    store.shop.end()
    return secrets


def ban(service, secret):
    """Send requests with a key until it is banned."""
    while b"api_key_banned" not in service.request("GET", PLAIN, key=secret).data:
        pass


def assert_waits(service, secret, code, most):
    """Check that a key is rejected for at most this many seconds."""
    response = service.request("GET", PLAIN, key=secret)
    assert (response.status, response.json()["code"]) == (429, code)
    assert 0 < int(response.headers["Retry-After"]) <= most


@pytest.mark.parametrize("jump", [TWO_DAYS, -TWO_DAYS])
def test_a_clock_that_jumps_neither_frees_nor_locks_out_anyone(timed, clock_folder, jump):
    counted_key, full_key, banned_key = issue_three(clock_folder / "instance")
    for key in (counted_key, full_key, full_key):
        timed.request("GET", PLAIN, key=key)
    ban(timed, banned_key)
    for seconds, left in ((jump, 48), (0, 47)):
        set_clock(clock_folder, seconds)
        response = timed.request("GET", PLAIN, key=counted_key)
        assert (response.status, response.headers["X-RateLimit-Remaining"]) == (404, str(left))
        reset = int(response.headers["X-RateLimit-Reset"])
        assert 0 < reset - seconds - time.time() <= 61
        assert_waits(timed, full_key, "rate_limit_exceeded", 60)
        assert_waits(timed, banned_key, "api_key_banned", 300)


@pytest.mark.parametrize("jump", [TWO_DAYS, -TWO_DAYS])
def test_connection_timeouts_follow_elapsed_time_and_not_the_wall_clock(timed, clock_folder, jump):
    with closing(connect(timed)) as kept:
        assert_answers(kept)
        set_clock(clock_folder, jump)
        # Each is late in a second. The round that closes late connections also closes idle ones:
        # after two of them, the other one would be closed.
        for _ in range(2):
            with closing(connect(timed)) as slow:
                slow.sendall(b"GET /healthz HTTP/1.1\r\n")
                assert slow.recv(65_536).startswith(b"HTTP/1.0 408 ")
        assert_answers(kept)
    set_clock(clock_folder, 0)


def connect(service):
    return socket.create_connection(service.address, timeout=60)


def assert_answers(kept):
    """Send a request over a connection, and check the answer."""
    kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
    received = b""
    while not received.endswith(b'{"status":"ok"}'):
        received += kept.recv(65_536)
        assert received.startswith(b"HTTP/1.1 200 OK"), received


def test_a_start_after_the_clock_was_set_back_prolongs_no_ban(timed, clock_folder):
    *_, banned_key = issue_three(clock_folder / "instance")
    ban(timed, banned_key)
    timed.kill()
    set_clock(clock_folder, -TWO_DAYS)
    with timed_service(clock_folder) as service:
        assert_waits(service, banned_key, "api_key_banned", 300)
        set_clock(clock_folder, 0)
        assert_waits(service, banned_key, "api_key_banned", 300)
