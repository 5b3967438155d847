"""`python app.py`: what it refuses to start on, what it says, how it ends. In real processes."""

from __future__ import annotations

import ctypes
import json
import operator
import os
import platform
import re
import shlex
import signal
import socket
import sys
import time
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from stat import S_IMODE
from types import SimpleNamespace

import pytest

from orders import VERSION, apikeys
from orders.clock import Clock
from orders.domain import NewOrder
from orders.service import BY_COMMAND
from orders.settings import DEFAULT_PLANS, Plan
from orders.store.care.files import locked
from orders.store.database import sqlite
from tests.support.databases import DATABASES
from tests.support.machine import wait_until
from tests.support.service import Service
from tests.support.stores import Store

# A start makes a store by itself.
pytestmark = pytest.mark.usefixtures("databases")

LIST = "/v1/store/orders"


@contextmanager
def opened(instance, **changes):
    """Open the store of a folder in this process, as a service that starts there would."""
    store = Store(DATABASES.settings(instance, **changes), Clock())
    DATABASES.make(store.settings)
    store.shop.begin()
    try:
        yield store
    finally:
        store.shop.end()


def left(response):
    """Return what is left of both windows, as RateLimit tells it."""
    return tuple(map(int, re.findall(r";r=(\d+)", response.headers["RateLimit"])))


def printed(service):
    """Return what a service has printed on standard output before it said that it serves."""
    return os.read(service.process.stdout.fileno(), 65_536).decode()


# What a start rejects, and the other commands that end by themselves.


def foreign(path):
    with closing(sqlite.connect(path, create=True)) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
        connection.execute("PRAGMA journal_mode = DELETE")


def damaged(path):
    with opened(path.parent) as store:
        store.issue()
    whole = bytearray(path.read_bytes())
    whole[4_096:] = os.urandom(len(whole) - 4_096)
    path.write_bytes(whole)


def of_schema(number):
    def make(path):
        with opened(path.parent):
            pass
        with closing(sqlite.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {number}")

    return make


def on_a_vanished_plan(path):
    with opened(path.parent, plans={**DEFAULT_PLANS, "gold": Plan("gold", 7, 70)}) as store:
        store.issue("free", name="Aquarium")
        store.issue("gold", name="Zoo")
        store.issue("gold", name="Pond", expires_at=store.clock.now())


UNFIT = {
    "a foreign database": (foreign, ["orders.db", "not a database of this program"]),
    "an empty file": (Path.touch, ["orders.db", "not a database of this program"]),
    "garbage": (
        lambda path: path.write_bytes(b"this is no database " * 1_000),
        ["orders.db", "damaged", "Restore a backup"],
    ),
    "a damaged database": (damaged, ["orders.db", "damaged", "Restore a backup"]),
    "a newer database": (of_schema(9999), ["orders.db", "newer version"]),
    "an old one": (of_schema(13), ["orders.db", "before version 1.0.0", "flask orders export"]),
    "keys on a vanished plan": (on_a_vanished_plan, ["not in config.toml: 2 (Zoo, gold). Put"]),
}
WORDS = {name: words for name, (_, words) in UNFIT.items()} | {
    "a port that is taken": ["can't be listened on", "ORDERS_PORT"],
    "an address of another machine": ["192.0.2.1", "ORDERS_HOST"],
    "a host that is no name": ["orders..example", "ORDERS_HOST"],
    "a folder below a file": ["file/instance", "ORDERS_INSTANCE"],
    "an unknown setting": ["ORDERS_PROT is not a setting", "ORDERS_PORT"],
    "a bad setting": ["ORDERS_THREADS", "from 1 to 64"],
    "a database in a missing folder": ["missing", "orders.db"],
    "a folder that another service uses": [
        *("Another service", "ORDERS_INSTANCE", "docs/growing.md"),
    ],
}

# On PostgreSQL, see test_postgres.
OF_FILES = pytest.mark.sqlite_only("starts on files that can't be used")
OTHERS = {
    "help": ["app.py", "--help"],
    "version": ["app.py", "--version"],
    "flask run": ["flask", "run"],
    "flask keys": ["flask", "keys", "list"],
    "a taken port, in JSON": ["app.py"],
    "a bad setting, in JSON": ["app.py"],
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory, service, forks):
    """Start on all that can't work, and the others; return folder, status, output of each."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "file").touch()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        environments = {
            "a port that is taken": {"ORDERS_PORT": str(taken.getsockname()[1])},
            "an address of another machine": {"ORDERS_HOST": "192.0.2.1"},
            "a host that is no name": {"ORDERS_HOST": "orders..example"},
            "a folder below a file": {"ORDERS_INSTANCE": str(folder / "file" / "instance")},
            "an unknown setting": {"ORDERS_PROT": "8080"},
            "a bad setting": {"ORDERS_THREADS": "none"},
            "a database in a missing folder": {
                "ORDERS_DATABASE_URL": f"sqlite:///{folder / 'missing' / 'orders.db'}"
            },
            "a folder that another service uses": {
                "ORDERS_INSTANCE": service.environment["ORDERS_INSTANCE"]
            },
            "flask keys": {"ORDERS_THREADS": "none"},
            "a taken port, in JSON": {
                "ORDERS_PORT": str(taken.getsockname()[1]),
                "ORDERS_LOG": "json",
            },
        }
        starts = {}
        for name in [*WORDS, *OTHERS]:
            instance = folder / name.replace(" ", "-")
            starts[name] = start = SimpleNamespace(
                instance=instance, stdout=folder / f"{name}.out", stderr=folder / f"{name}.err"
            )
            if name == "a bad setting, in JSON":
                instance.mkdir(mode=0o700)
                (instance / "config.toml").write_text('log = "json"\nthreads = "none"\n')
            if name in UNFIT:
                instance.mkdir(mode=0o700)
                UNFIT[name][0](instance / "orders.db")
                start.before = files_in(instance)
            start.process = forks.begin(
                *OTHERS.get(name, ["app.py"]),
                instance=instance,
                stdout=start.stdout,
                stderr=start.stderr,
                **{"ORDERS_PORT": "0", **environments.get(name, {})},
            )
        for start in starts.values():
            start.status = start.process.wait()
    return starts


def files_in(folder):
    """Return what the files of a database hold."""
    return {path.name: path.read_bytes() for path in folder.glob("orders.db*")}


@OF_FILES
@pytest.mark.parametrize("what", WORDS)
def test_a_start_that_cannot_work_says_in_one_line_how_to_fix_it_and_changes_no_database(
    ended, what
):
    message = ended[what].stderr.read_text()
    assert (ended[what].status, message.count("\n")) == (2, 1), message
    assert message.startswith("Error: ")
    for words in WORDS[what]:
        assert words in message
    assert ended[what].stdout.read_text() == ""
    assert what not in UNFIT or files_in(ended[what].instance) == ended[what].before


@OF_FILES
@pytest.mark.parametrize(
    ("name", "words"),
    [("a taken port, in JSON", "ORDERS_PORT"), ("a bad setting, in JSON", "threads in ")],
)
def test_where_the_log_is_json_so_is_why_a_start_cannot_work(ended, name, words):
    (line,) = ended[name].stderr.read_text().splitlines()
    facts = json.loads(line)
    assert (ended[name].status, facts["level"]) == (2, "error")
    assert words in facts["message"]


# Starts a service whose database goes away just before one of its steps.
_GOES_AWAY = """
from orders.shop import Shop
name = sys.argv.pop()
step = getattr(Shop, name)
def without(self):
    self.settings.database_path.rename(self.settings.instance / "moved.db")
    step(self)
setattr(Shop, name, without)
"""


@pytest.mark.sqlite_only("the file is moved")
@pytest.mark.parametrize("step", ["begin", "check_behind"])
def test_a_database_that_goes_away_during_a_start_ends_it_in_one_line(forks, tmp_path, step):
    done = forks.run("app.py", step, instance=tmp_path / "instance", first=_GOES_AWAY)
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.returncode == 2
    assert done.stderr.startswith("Error: The database ")
    assert "Fix that, then start again." in done.stderr


@OF_FILES
def test_a_service_goes_on_when_another_start_is_rejected(ended, service):
    assert service.request("GET", "/readyz").status == 200


@OF_FILES
@pytest.mark.parametrize(
    ("name", "words"), [("flask run", "python app.py"), ("flask keys", "ORDERS_THREADS")]
)
def test_a_command_that_cannot_work_says_why_in_one_line(ended, name, words):
    done = ended[name]
    message = done.stderr.read_text()
    assert (done.status != 0, message.count("\n"), done.stdout.read_text()) == (True, 1, "")
    assert words in message
    assert not done.instance.exists()


@OF_FILES
def test_help_names_the_demo_and_the_settings(ended):
    done = ended["help"]
    text = done.stdout.read_text()
    assert (done.status, done.stderr.read_text()) == (0, "")
    assert "--demo" in text
    assert "config.toml" in text
    assert not done.instance.exists()


@OF_FILES
def test_the_version_is_that_of_the_service_of_python_and_of_sqlite(ended):
    done = ended["version"]
    driver = sqlite.sqlite_module()
    assert (done.status, done.stderr.read_text()) == (0, "")
    assert done.stdout.read_text() == (
        f"Store Orders {VERSION}, Python {platform.python_version()}, "
        f"SQLite {driver.sqlite_version} ({driver.__name__.removesuffix('.dbapi2')})\n"
    )
    assert not done.instance.exists()


# A first start.


def test_a_start_without_a_key_prints_the_command_that_issues_one(service):
    before_serving, _, _ = "".join(service.log).partition("Serving on")
    assert "flask keys issue owner --plan business" in before_serving
    assert "TLS" not in before_serving  # of loopback there is nothing to warn


def test_the_folder_and_its_files_are_for_their_owner_only(service):
    instance = Path(service.environment["ORDERS_INSTANCE"])
    assert S_IMODE(instance.stat().st_mode) == 0o700
    modes = {path.name: S_IMODE(path.stat().st_mode) for path in instance.iterdir()}
    assert ("orders.db" in modes) is not DATABASES.are_on_postgres
    assert set(modes.values()) == {0o600}, modes


# A stop.


def write_lock(instance):
    """Hold the database's write lock, as a long command would."""
    return DATABASES.locked(DATABASES.settings(instance))


@pytest.fixture
def instance(tmp_path):
    """The folder of a service that `start` starts."""
    return tmp_path / "instance"


@pytest.fixture
def secret(instance):
    """The secret of key 1, on the plan free, in that folder."""
    with opened(instance) as store:
        return store.issue("free")[1]


def connect(service):
    """Open a connection to a service."""
    return socket.create_connection(service.address, timeout=10)


def message(method, path, secret, body=""):
    """Return a request as it goes over the network."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def refuses_connections(service):
    """Return whether a service has stopped listening."""
    try:
        connect(service).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # it stops just now: the next one is refused
    return False


@pytest.mark.slow
def test_a_stop_answers_what_has_arrived_and_keeps_the_counters_exactly(start, instance, secret):
    service = start()
    for _ in range(7):
        assert service.request("GET", LIST, key=secret).status == 200
    with closing(connect(service)) as idle, closing(connect(service)) as busy:
        idle.sendall(message("GET", "/healthz", secret))
        assert b"200 OK" in idle.recv(65_536)
        with write_lock(instance):
            busy.sendall(message("POST", LIST, secret, '{"petId": 7}'))
            assert service.request("GET", "/healthz").status == 200
            service.process.terminate()
            wait_until(lambda: refuses_connections(service))
            wait_until(lambda: idle.recv(1) == b"")
            assert service.process.poll() is None
        answer = b"".join(iter(lambda: busy.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert b'"petId":7' in answer
    assert service.stop() == 0
    assert any(line.endswith("Stopped.\n") for line in service.log)
    with opened(instance) as store:
        assert [event["actor"] for event in store.events()] == ["key:1"]
        client = store.anonymous()
        client.secret = secret
        assert left(client.get(LIST)) == (60 - 9, 1_000 - 9)


@pytest.mark.parametrize("name", ["{}/notify", "@{}"])
def test_systemd_is_told_that_it_serves_that_its_loop_runs_and_that_it_stops(start, tmp_path, name):
    name = name.format(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(30)
        systemd.bind(name.replace("@", "\0"))
        service = start(NOTIFY_SOCKET=name)
        assert [systemd.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
        assert service.stop() == 0
        told = [b"WATCHDOG=1"]
        while told[-1] == b"WATCHDOG=1":
            told.append(systemd.recv(100))
        assert told[-1] == b"STOPPING=1"


@pytest.mark.slow
def test_further_signals_during_a_stop_leave_its_status_at_0(start):
    service = start()
    while service.process.poll() is None:
        service.process.terminate()
        time.sleep(0.001)
    assert service.stop() == 0


def test_a_service_whose_log_goes_to_no_terminal_ignores_sighup(start):
    service = start()
    service.process.send_signal(signal.SIGHUP)
    assert service.request("GET", "/healthz").status == 200
    assert service.process.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's tgkill")
def test_a_signal_stops_it_whichever_of_its_threads_gets_it(start):
    # Linux gives one to another than the first, where that is only just continued after a SIGSTOP.
    service = start()
    pid = service.process.pid
    tasks = Path(f"/proc/{pid}/task")
    first = tasks / str(pid) / "stat"
    # Until the first only waits.
    wait_until(lambda: all(first.read_text().split()[2] == "S" for _ in range(1_000)))
    newest = max(int(each.name) for each in tasks.iterdir())
    assert ctypes.CDLL(None).tgkill(pid, newest, signal.SIGTERM) == 0
    assert service.wait() == 0


@pytest.mark.slow
def test_a_kill_loses_no_more_than_the_last_second(start, instance, secret):
    service = start()
    for _ in range(5):
        assert service.request("GET", LIST, key=secret).status == 200
    placed = service.request("POST", LIST, key=secret, json={"petId": 7})
    wait_until(lambda: counted(instance) == 6)
    service.kill()
    with opened(instance) as store:
        client = store.anonymous()
        client.secret = secret
        assert client.get(f"{LIST}/1").get_json() == placed.json()
        assert left(client.get(LIST)) == (60 - 8, 1_000 - 8)
        with locked(instance):
            pass


@pytest.mark.slow
def test_counters_are_written_while_the_database_is_locked(start, instance, secret):
    service = start()
    with write_lock(instance):
        for number in (1, 2):  # behind the first one, when the key was used waits for the database
            assert service.request("GET", LIST, key=secret).status == 200
            wait_until(lambda number=number: counted(instance) == number)


def counted(instance):
    """Return how many requests of keys the journal knows of today."""
    with closing(sqlite.connect(instance / "counters.db")) as connection:
        sql = "SELECT sum(count) FROM windows WHERE key LIKE 'key:%' AND length = 86400"
        return connection.execute(sql).fetchone()[0]


# The demo.


@pytest.mark.slow
def test_a_demo_over_a_shops_own_orders_leaves_them_alone_warns_and_ends_by_ctrl_c(instance):
    with opened(instance) as store:
        store.shop.orders.place(NewOrder(7), BY_COMMAND)
    service = Service(instance, "--demo", ORDERS_HOST="0.0.0.0", **DATABASES.environment(instance))
    output = printed(service)
    service.process.send_signal(signal.SIGINT)  # at once: it has said that it serves
    assert service.wait() == 0
    assert "orders of its own" in output
    assert "sok_" not in output
    log = "".join(service.log)
    assert "app.py keys issue NAME --plan business" in output + log
    assert "warning: Listening on 0.0.0.0: keys cross the network" in log
    assert "TLS" in log
    # Python would warn behind it of what is left open.
    assert log.splitlines()[-1].endswith("Stopped.")
    with opened(instance) as store:
        assert store.rows("SELECT id FROM orders") == [{"id": 1}]
        assert store.rows("SELECT id FROM api_keys") == []


def curls(output):
    """Return method, address, key and body of the curl lines that were printed."""
    for line in output.splitlines():
        if line.startswith("  curl "):
            words = shlex.split(line)
            options = dict(pairwise(words))
            body = options.get("-d")
            secret = re.search(r"Authorization: Bearer (\w+)", line)[1]
            yield options.get("-X", "POST" if body else "GET"), words[-1], secret, body


def follow(service, output):
    """Send the requests of the printed lines; return the statuses and the key."""
    statuses = []
    for method, address, secret, body in curls(output):
        assert address.startswith(service.url)
        path = address.removeprefix(service.url)
        kind = {"Content-Type": "application/json"}
        response = service.request(method, path, key=secret, body=body, headers=kind)
        statuses.append((method, response.status))
    return statuses, secret


STATUSES = [("GET", 200), ("POST", 201), ("GET", 200), ("POST", 200), ("DELETE", 409), ("GET", 200)]


@pytest.mark.slow
def test_the_demo_fills_an_empty_store_and_on_the_next_start_changes_its_key(start, instance):
    first = start("--demo", is_forked=False)
    output = printed(first)
    orders = first.request("GET", LIST, key=next(curls(output))[2]).json()
    assert 30 <= len(orders) <= 40
    assert {order["complete"] for order in orders} == {True, False}
    statuses, secret = follow(first, output)
    assert statuses == STATUSES
    assert apikeys.is_well_formed(secret)
    assert secret in output.splitlines()
    assert f"Open {first.url} in a browser and sign in with it." in output.splitlines()
    policy = first.request("GET", "/v1/pets/1", key=secret).headers["RateLimit-Policy"]
    assert policy == '"minute";q=1000;w=60, "day";q=100000;w=86400'
    assert first.stop() == 0
    assert secret not in "".join(first.log)

    second = start("--demo")
    output = printed(second)
    statuses, new = follow(second, output)
    assert statuses == STATUSES
    assert new != secret
    assert second.request("GET", LIST, key=secret).status == 401
    assert len(second.request("GET", LIST, key=new).json()) == len(orders) + 2
    assert second.stop() == 0
    with opened(instance) as store:
        assert store.rows("SELECT id, plan, scopes FROM api_keys") == [
            {"id": 1, "plan": "business", "scopes": "read write webhooks admin"}
        ]


# What it does before it serves.

REPORT_INSTEAD_OF_SERVING = """
import gc
from orders.server import Server
gc.unfreeze()
Server.run = lambda _: print(gc.isenabled(), gc.get_freeze_count(), *gc.get_threshold())
"""


def test_what_was_imported_is_left_to_no_pass_of_the_collector(forks, tmp_path):
    done = forks.run("app.py", instance=tmp_path / "instance", first=REPORT_INSTEAD_OF_SERVING)
    is_enabled, frozen, *thresholds = done.stdout.split()
    assert is_enabled == "True"
    assert int(frozen) > 50_000
    assert all(map(operator.gt, map(int, thresholds), (700, 10, 10)))
