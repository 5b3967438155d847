"""The running service with Redis: failing starts, a Redis that goes down, four processes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.support.databases import copy_database
from tests.support.machine import wait_until
from tests.support.redis_server import redis_running
from tests.support.service import ROOT, Service, environment_for, run_flask

# Slow: on a machine that is busy with other tests, waiting for Redis may time out.
pytestmark = [pytest.mark.redis, pytest.mark.slow]

LIST = "/v1/store/orders"
NOTHING = "/v1/nothing"
PASSWORD = "s3cret/word"  # pragma: allowlist secret
ESCAPED = "s3cret%2Fword"


@pytest.fixture
def own_redis(tmp_path):
    """A Redis of its own, which a test may kill."""
    with redis_running(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def guarded(own_redis):
    """A Redis that requires a password."""
    own_redis.command("CONFIG", "SET", "requirepass", PASSWORD)
    return own_redis


# Starts.


@pytest.mark.parametrize("login", ["", "nobody:wrong-s3cret@"])
def test_a_redis_that_refuses_the_password_stops_the_start(tmp_path, forks, guarded, login):
    url = f"unix://{login}{guarded.socket}"
    done = forks.run("app.py", instance=tmp_path / "instance", ORDERS_LIMITS_URL=url)
    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("Error")]
    assert line.startswith(f"Error: Redis at {guarded.socket} refuses to count: ")
    assert line.endswith("Fix that or ORDERS_LIMITS_URL, then start again.")
    assert "s3cret" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_another_kind_of_server_stops_the_start(tmp_path, forks):
    def greet(listening):
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"220 mail.example.com ESMTP\r\n")
            connection.recv(1_000)

    with closing(socket.create_server(("127.0.0.1", 0))) as listening, ThreadPoolExecutor() as pool:
        pool.submit(greet, listening)
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        instance = tmp_path / "instance"
        done = forks.run("app.py", instance=instance, ORDERS_LIMITS_URL=f"redis://{place}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: Redis at {place} refuses to count: Protocol ")


def test_a_redis_with_a_password_is_used(guarded, start):
    service = start(ORDERS_LIMITS_URL=f"unix://:{ESCAPED}@{guarded.socket}")
    service.request("GET", LIST)
    assert any(b"address:127.0.0.1" in key for key in guarded.names())
    service.stop()
    log = "".join(service.log)
    assert f"Limits are counted in Redis at {guarded.socket}." in log
    assert "s3cret" not in log


def test_a_start_while_redis_is_down_warns_and_connects_later(tmp_path, own_redis, start):
    own_redis.kill()
    service = start(ORDERS_LIMITS_URL=f"unix://:{ESCAPED}@{own_redis.socket}?db=1")
    assert "is away" in "".join(service.log)
    assert service.request("GET", LIST).status == 401
    ready = service.request("GET", "/readyz")
    assert ready.status == 200
    assert ready.json()["counters"] == "degraded: Redis is away, each process counts in memory"
    own_redis.start()
    # This Redis has no password yet, and refuses one.
    wait_until(lambda: "refuses to count" in "".join(service.log))
    own_redis.command("CONFIG", "SET", "requirepass", PASSWORD)
    wait_until(lambda: "is back, and counts again" in "".join(service.log))
    service.stop()
    logged = [line for line in service.log if "Redis" in line]
    assert len(logged) == 3, logged
    assert "s3cret" not in "".join(service.log)


def test_a_service_that_counts_in_memory_does_not_import_redis():
    script = (
        "import sys; from orders.application import create_app; from orders.settings import "
        "Settings; create_app(Settings()); sys.exit('redis' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert done.returncode == 0


# A Redis that goes down and comes back.


def test_requests_are_served_while_redis_is_down_and_counted_there_once_it_is_back(
    own_redis, start, tmp_path
):
    for attempt in range(5):
        service = start(instance=tmp_path / str(attempt), ORDERS_LIMITS_URL=own_redis.url)
        remaining = counted_around_an_outage(service, own_redis)
        service.stop()
        logged = [line for line in service.log if "Redis" in line and "warning" in line]
        # On a busy machine, waiting for Redis may time out once more.
        if len(logged) == 2:
            break
    assert len(logged) == 2, logged
    # Windows begin again in memory, and in a Redis that has lost its data.
    for each in remaining:
        assert sorted(each) == list(range(999_960, 1_000_000))


def counted_around_an_outage(service, redis):
    """Return the requests left after each one, before, during and after an outage of Redis."""
    key = service.issue("enterprise", "--per-minute", "1000000", "--per-day", "1000000")

    def left(_):
        response = service.request("GET", LIST, key=key)
        assert response.status == 200
        return int(response.headers["X-RateLimit-Remaining"])

    with ThreadPoolExecutor(4) as threads:
        shared = list(threads.map(left, range(40)))
        redis.kill()
        alone = list(threads.map(left, range(40)))
        assert service.request("GET", "/readyz").status == 200
        redis.start()
        wait_until(lambda: service.request("GET", "/readyz").json()["counters"] == "ok")
        anew = list(threads.map(left, range(40)))
    return shared, alone, anew


# Several processes. Each has a copy of one database: the same store, with the same keys.


@contextmanager
def four_services(folder, empty_database, redis_url):
    """Run four services over one Redis; yield them and a key with 200 requests a minute."""
    first = folder / "instance0"
    first.mkdir(mode=0o700, parents=True)
    copy_database(empty_database, first / "orders.db")
    issued = run_flask(
        *("keys", "issue", "test", "--plan", "enterprise"),
        *("--per-minute", "200", "--per-day", "1000"),
        environment=environment_for(first),
    )
    with ExitStack() as stack:
        services = []
        for number in range(4):
            instance = folder / f"instance{number}"
            if number:
                shutil.copytree(first, instance)
            services.append(Service(instance, ORDERS_LIMITS_URL=redis_url))
            stack.callback(services[-1].stop)
        yield services, issued.stdout.strip()


def test_across_four_processes_a_limit_is_exact_and_the_thirtieth_429_bans(
    tmp_path, empty_database, own_redis
):
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        with four_services(folder, empty_database, own_redis.url) as (services, key):

            def use(number, services=services, key=key):
                response = services[number % 4].request("GET", NOTHING, key=key)
                return response.json()["code"], int(response.headers["X-RateLimit-Remaining"])

            with ThreadPoolExecutor(16) as threads:
                answers = list(threads.map(use, range(201)))
                time.sleep(1.1)  # within a second, only the first refusal counts
                answers += threads.map(use, range(49))
        # On a busy machine, a process may time out waiting for Redis and count by itself meanwhile.
        if not any("is away" in line for service in services for line in service.log):
            break
    admitted = [left for code, left in answers if code == "not_found"]
    refused = [code for code, _ in answers if code != "not_found"]
    assert sorted(admitted) == list(range(200))
    assert sorted(refused) == ["api_key_banned"] * 21 + ["rate_limit_exceeded"] * 29
