"""Shared fixtures: a store per test, a clock they set, clients with keys, a real server."""

from __future__ import annotations

import gc
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from orders.store import pages
from orders.store.care import opening
from tests.support import faults as real_faults
from tests.support import migrations
from tests.support.clocks import ClockBesideRedis, SetClock
from tests.support.databases import DATABASES
from tests.support.forks import forking
from tests.support.receiver import receiving
from tests.support.redis_server import redis_running
from tests.support.service import ROOT, SOURCE, Service, running
from tests.support.stores import Store
from tests.support.webhooks import Hooks
from tests.support.windows import reason_to_skip

# The files whose few tests take longest.
LONGEST = {
    "test_backups",
    "test_cluster",
    "test_console_clear",
    "test_console_hands",
    "test_console_look",
    "test_copy",
    "test_deploy",
    "test_docs_page",
    "test_linear_time",
    "test_postgres",
    "test_redis_service",
    "test_restore",
    "test_schemathesis",
    "test_security",
    "test_silent_postgres",
    "test_state_machine",
    "test_v2_paging",
    "test_webhook_outbox",
}

hypothesis_settings.register_profile(
    "default",
    max_examples=40,
    deadline=None,  # nothing is asserted by the clock
    # A store lasts for all examples of a test, which are written to tolerate that.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
hypothesis_settings.register_profile(
    "postgres", hypothesis_settings.get_profile("default"), max_examples=15
)
# .ci/proofs'.
hypothesis_settings.register_profile(
    "thorough", hypothesis_settings.get_profile("default"), max_examples=1_000
)
hypothesis_settings.load_profile("default")


def pytest_configure(config):
    DATABASES.are_on_postgres = config.getoption("--database") == "postgres"
    if DATABASES.are_on_postgres:
        hypothesis_settings.load_profile("postgres")


def pytest_unconfigure():
    DATABASES.close()


def pytest_collection_modifyitems(config, items):
    for item in items:
        if reason := reason_to_skip(item):
            item.add_marker(pytest.mark.skip(reason=reason))
    # With --no-loadscope-reorder, these are begun first: at the end, other processes would wait.
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    if DATABASES.are_on_postgres:
        _keep(config, items, set(_of_postgres(items)))
    if SOURCE != ROOT:
        _keep(config, items, {item for item in items if not item.get_closest_marker("checkout")})


def _keep(config, items, kept):
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _of_postgres(items):
    """Yield the tests of a store's database: of a table of cases the first, for each version."""
    seen = set()
    for item in items:
        cases = item.callspec.params if hasattr(item, "callspec") else {}
        case = (item.path, item.originalname, cases.get("version"))
        is_bound = item.get_closest_marker("sqlite_only") or "databases" not in item.fixturenames
        if not is_bound and (case not in seen or item.path.parent.name == "store"):
            seen.add(case)
            yield item


def pytest_collection_finish():
    # Objects that exist by now stay to the end: scanning them again would take a tenth of the time.
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 20, 50)


def pytest_runtest_setup():
    """Under mutmut, build pages' statements anew: it forks from a process that has built them."""
    if "MUTANT_UNDER_TEST" in os.environ:
        for each in vars(pages).values():
            getattr(each, "cache_clear", int)()


@pytest.fixture(scope="session")
def databases():
    """Where stores are. With --database=postgres, the tests that ask for this are run."""
    return DATABASES


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A PostgreSQL server that the tests of a file have to themselves."""
    from tests.support.postgres import running_postgres  # which loads the driver

    with running_postgres() as one:
        one.make_template(tmp_path_factory.mktemp("template"))
        yield one


@pytest.fixture
def counting():
    return "memory"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    with redis_running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(redis_server, monkeypatch):
    """A real Redis with nothing in it, which is waited for however busy the machine is."""
    monkeypatch.setattr("orders.counters.redis.TIMEOUT_SECONDS", 10)
    redis_server.command("FLUSHALL")
    return redis_server


@pytest.fixture
def limits_url(counting, request):
    return request.getfixturevalue("redis").url if counting == "redis" else ""


@pytest.fixture
def clock(counting, request):
    if counting == "redis":
        return ClockBesideRedis(request.getfixturevalue("redis"))
    return SetClock()


@pytest.fixture
def settings(tmp_path, limits_url, databases):
    yield databases.settings(tmp_path / "instance", limits_url=limits_url)
    databases.forget(tmp_path)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database as a first start makes it: copying it takes less time than making one."""
    path = tmp_path_factory.mktemp("empty") / "orders.db"
    opening.create(path)
    return path


@pytest.fixture
def next_program(tmp_path):
    """Let this program be the next one; yield what adds, or replaces, its newest migration."""
    with migrations.next_program(tmp_path / "migrations") as add:
        yield add


@pytest.fixture
def make_store(settings, clock, empty_database):
    """Make stores over one instance folder, with settings that differ from the default."""
    made = []

    def make(**changes):
        if "instance" in changes:
            changes["database_url"] = DATABASES.settings(changes["instance"]).database_url
        given = replace(settings, **changes)
        DATABASES.make(given, empty_database)
        made.append(Store(given, clock))
        return made[-1]

    yield make
    for store in made:
        store.app.test_mode.stop()
        store.shop.counters.close()
        store.shop.database.close()


@pytest.fixture
def store(make_store):
    return make_store()


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory, databases, empty_database):
    """A store that the tests of a file share, for tables of cases that don't mind each other."""
    settings = databases.settings(tmp_path_factory.mktemp("shared") / "instance")
    databases.make(settings, empty_database)
    store = Store(settings, SetClock())
    yield store
    store.shop.counters.close()
    store.shop.database.close()


@pytest.fixture(scope="module")
def patient(shared_store):
    """A client of the shared store, without limits to speak of."""
    return shared_store.client(plan="enterprise", per_minute=10**9, per_day=10**9)


@pytest.fixture
def version():
    return 1


@pytest.fixture
def client(store, version):
    """A client with a business key that may read and write."""
    return store.client().speaking(version)


@pytest.fixture
def client_v2(store):
    """A client of version 2 without limits to speak of."""
    return store.client(plan="enterprise", per_minute=10**9, per_day=10**9).speaking(2)


@pytest.fixture
def hooks(store):
    return Hooks(store)


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


@pytest.fixture
def start(tmp_path, databases, forks):
    """Start services over this test's instance folder; they are stopped at the end of it."""
    started = []

    def start_one(*arguments, instance=tmp_path / "instance", is_forked=True, **environment):
        environment = databases.environment(instance) | environment
        host = forks if is_forked else None
        started.append(Service(instance, *arguments, forks=host, **environment))
        return started[-1]

    yield start_one
    for service in started:
        if service.process.poll() is None:
            service.stop()
    databases.forget(tmp_path)


@pytest.fixture(scope="session")
def forks():
    with forking() as host:
        yield host


@pytest.fixture(scope="session")
def service(tmp_path_factory, databases, forks):
    """One running service that many tests share; each takes keys of its own."""
    instance = tmp_path_factory.mktemp("shared") / "instance"
    with running(instance, forks=forks, **databases.environment(instance)) as one:
        yield one


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few MB, where this process may have one."""
    if not real_faults.may_mount():
        pytest.skip("this process may not mount a disk: a limit to the size of files stands for it")
    with real_faults.small_disk(tmp_path / "disk", "8m") as folder:
        yield folder
