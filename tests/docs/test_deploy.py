"""The files of deploy/ agree with the service, with each other, and with the documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client.parser import text_string_to_metric_families

from orders import settings as settings_of
from orders.server.connections import IDLE_SECONDS
from orders.server.loop import STOP_SECONDS
from orders.server.parser import MAX_BODY_BYTES, MAX_HEAD_BYTES
from orders.server.server import MAX_CONNECTIONS
from orders.settings import SETTINGS, Settings
from orders.store.database import sqlite
from orders.web import logs
from orders.web.refusals import EXAMPLES, SERVER_ANSWERS
from orders.webhooks.outbox import IN_FLIGHT_SECONDS
from tests.support import prometheus
from tests.support.machine import installed, wait_until
from tests.support.receiver import receiving
from tests.support.service import ROOT, running

DEPLOY = ROOT / "deploy"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
UNIT = (DEPLOY / "systemd" / "store-orders@.service").read_text(encoding="utf-8")
HTTP = (DEPLOY / "nginx" / "http.conf").read_text(encoding="utf-8")
PROXY = (DEPLOY / "nginx" / "proxy.conf").read_text(encoding="utf-8")
SITE = (DEPLOY / "nginx" / "store-orders.conf").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
ALERTS = {
    rule["alert"]: rule
    for rule in yaml.safe_load(prometheus.ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
}
DASHBOARD = json.loads(prometheus.DASHBOARD.read_text(encoding="utf-8"))
PANELS = prometheus.panels()
ORDERS = "/v1/store/orders"
SMALL_PLAN = "[plans.free]\nper_minute = 3\nper_day = 3\n"
PATIENCE_SECONDS = 120
EXPRESSIONS = [
    *(rule["expr"] for rule in ALERTS.values()),
    *(query for panel in PANELS for query in panel.queries),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory, forks):
    """The names of all samples of a service that has done some of everything."""
    instance = tmp_path_factory.mktemp("exported")
    (instance / "config.toml").write_text(SMALL_PLAN, encoding="utf-8")
    (instance / ".orders.db-litestream").mkdir()  # Litestream's own
    settings = {"ORDERS_METRICS": "on", "ORDERS_BACKUPS": "backups"}
    with running(instance, forks=forks, **settings) as service:
        key = service.issue()
        service.output("webhooks", "add", "http://127.0.0.1:1/", "--allow-private")
        service.request("POST", ORDERS, key, json={"petId": 7})
        for _ in range(4):
            service.request("GET", ORDERS)
        wait_until(lambda: "webhook_deliveries_total{" in metrics(service))
        families = text_string_to_metric_families(metrics(service))
    return {sample.name for family in families for sample in family.samples}


def metrics(service):
    """Return the page of metrics of a service."""
    return service.request("GET", "/metrics").data.decode()


def test_alerts_and_panels_use_only_metrics_that_there_are(exported):
    for expression in EXPRESSIONS:
        used = set(re.findall(r"\b(?:store_orders|process|python)_\w+", expression))
        assert used or "up" in expression
        assert used <= exported


def test_the_list_of_metrics_has_all_metrics(exported):
    text = OPERATIONS.split("\n- **Requests**: ")[1].split("\n\n")[0]
    said = {f"store_orders_{name}" for name in re.findall(r"`([a-z_]+)`", text)}
    meant = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported}
    assert said == {name for name in meant if name.startswith("store_orders_")}


def test_every_alert_says_what_to_do_here_and_in_the_documentation():
    assert re.findall(r"^### (StoreOrders\w+)$", OPERATIONS, re.MULTILINE) == list(ALERTS)
    for name, rule in ALERTS.items():
        severity = rule["labels"]["severity"]
        assert re.search(rf"^### {name}\n\n\*{severity}\.\*", OPERATIONS, re.MULTILINE)
        assert set(rule["annotations"]) == {"summary", "description"}


def test_every_alert_has_a_panel_that_shows_its_metrics():
    described = " ".join(panel.get("description", "") for panel in DASHBOARD["panels"])
    assert set(re.findall(r"StoreOrders\w+", described)) == set(ALERTS)


def test_the_panels_of_the_dashboard_do_not_overlap():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for one, other in combinations(PANELS, 2):
        (x, y, width, height), (left, top, columns, rows) = one.box, other.box
        assert x + width <= 24
        apart = x + width <= left or left + columns <= x or y + height <= top or top + rows <= y
        assert apart, (one.title, other.title)


def test_the_dashboard_queries_the_prometheus_that_is_chosen():
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "instance"}
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    sources = [panel["datasource"] for panel in panels]
    sources += [each["datasource"] for panel in panels for each in panel["targets"]]
    assert {source["uid"] for source in sources} == {"${datasource}"}


def test_files_name_only_settings_that_there_are():
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in [*DEPLOY.rglob("*"), ROOT / "Dockerfile", ROOT / "docs" / "operations.md"]
        if path.is_file()
    )
    named = set(re.findall(r"\bORDERS_([A-Z_]+)\b", text))
    assert {name.lower() for name in named} <= set(SETTINGS)
    assert {"INSTANCE", "HOST", "PORT", "TRUSTED_PROXY"} <= named


def test_the_settings_of_the_unit_are_settings_also_those_for_several_processes(tmp_path):
    text = (DEPLOY / "systemd" / "store-orders.toml").read_text(encoding="utf-8")
    (tmp_path / "config.toml").write_text(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    loaded = settings_of.load({"ORDERS_INSTANCE": str(tmp_path)})
    assert (loaded.is_on_postgres, loaded.limits_url != "", loaded.metrics) == (True, True, True)


def test_the_units_commands_have_its_user_program_and_folder(tmp_path):
    script = (DEPLOY / "systemd" / "store-orders").read_text(encoding="utf-8")
    for name in ("runuser", "sudo"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o700)
    (tmp_path / "id").write_text('#!/bin/sh\necho "$ID"\n')
    (tmp_path / "id").chmod(0o700)

    def run(user_id):
        return subprocess.run(
            ["sh", "-c", script, "store-orders", "keys", "issue", "two words"],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "ID": user_id},
            capture_output=True,
            text=True,
            check=True,
        )

    # Anybody else's goes through sudo, and so begins anew as root's.
    again = ["env", "PORT=8080", "store-orders", "keys", "issue", "two words"]
    assert run("1000").stdout.splitlines() == again
    done = run("0")
    program = value("WorkingDirectory", UNIT)
    folder = re.findall(r"ORDERS_INSTANCE=(\S+)", UNIT)[0].replace("%i", "8080")
    assert done.stdout.splitlines() == [
        *("-u", value("User", UNIT), "--", "env", f"FLASK_APP={program}/app.py"),
        *(f"ORDERS_INSTANCE={folder}", f"{program}/.venv/bin/flask", "keys", "issue", "two words"),
    ]
    assert f"/etc/store-orders.toml {folder.replace('8080', '%i')}/config.toml" in UNIT


def test_litestream_copies_the_units_database_as_its_user_and_starts_and_stops_with_it():
    unit = (DEPLOY / "litestream" / "litestream@.service").read_text(encoding="utf-8")
    for name in ("User", "Group", "StateDirectory", "StateDirectoryMode", "UMask"):
        assert value(name, unit) == value(name, UNIT)
    assert re.findall(r"ORDERS_INSTANCE=(\S+)", unit) == re.findall(r"ORDERS_INSTANCE=(\S+)", UNIT)
    for name in ("BindsTo", "Before", "WantedBy"):
        assert value(name, unit) == "store-orders@%i.service"
    program = value("WorkingDirectory", UNIT)
    config = yaml.safe_load((DEPLOY / "litestream" / "litestream.yml").read_text(encoding="utf-8"))
    database = Settings(instance=Path("${ORDERS_INSTANCE}")).database_path
    assert [each["path"] for each in config["dbs"]] == [str(database)]
    assert value("ExecStart", unit) == f"{program}/deploy/litestream/replicate"
    script = DEPLOY / "litestream" / "replicate"
    assert os.access(script, os.X_OK)
    names = set(re.findall(r"\${(\w+)}", str(config))) - {"ORDERS_INSTANCE"}
    names -= set(re.findall(r"^export (\w+)", script.read_text(encoding="utf-8"), re.MULTILINE))
    environment = (DEPLOY / "litestream" / "litestream.env").read_text(encoding="utf-8")
    assert names <= set(re.findall(r"^(\w+)=", environment, re.MULTILINE))


def value(name, text):
    """Return what a line of a unit sets."""
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)[0]


def seconds(name, text):
    """Return the seconds on a line of a file."""
    return int(re.findall(rf"^\s*{name}[=: ]*(\d+)s?;?$", text, re.MULTILINE)[0])


def test_nginx_waits_longer_than_the_service_and_accepts_more():
    assert seconds("proxy_read_timeout", PROXY) > STOP_SECONDS
    assert seconds("client_header_timeout", PROXY) == Settings().head_seconds
    assert seconds("client_body_timeout", PROXY) == Settings().body_seconds
    assert seconds("keepalive_timeout", SITE) < IDLE_SECONDS
    assert "client_max_body_size 2m;" in PROXY
    assert MAX_BODY_BYTES < 2 * 1024 * 1024
    assert "large_client_header_buffers 4 32k;" in PROXY
    assert MAX_HEAD_BYTES < 32 * 1024


def test_nginx_rejects_with_the_codes_of_the_service():
    codes = re.findall(r"^    (\d+) +([a-z_]+);$", HTTP, re.MULTILINE)
    answers = [*SERVER_ANSWERS.values(), *EXAMPLES.values()]
    meant = {(str(each.status), each.code) for each in answers}
    assert set(codes) <= meant
    assert "default store_unavailable;" in HTTP
    assert f"at most {MAX_HEAD_BYTES} bytes" in HTTP


def test_a_unit_allows_all_connections_and_the_time_of_a_stop():
    assert seconds("LimitNOFILE", UNIT) > MAX_CONNECTIONS + 200
    longest = STOP_SECONDS + IN_FLIGHT_SECONDS + logs.STOP_SECONDS + 1
    assert seconds("TimeoutStopSec", UNIT) > longest
    for name in ("orders-1", "orders-2"):
        assert int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s")) > longest


def test_the_addresses_in_compose_are_those_that_its_parts_know():
    services = COMPOSE["services"]
    address = {name: each["networks"]["inside"]["ipv4_address"] for name, each in services.items()}
    assert len(set(address.values())) == len(address)
    processes = [name for name in services if name.startswith("orders-")]
    for name in processes:
        assert services[name]["environment"]["ORDERS_TRUSTED_PROXY"] == address["nginx"]
    text = (DEPLOY / "compose" / "nginx.conf").read_text(encoding="utf-8")
    upstreams = re.findall(r"^    server ([\d.]+):8080 ", text, re.MULTILINE)
    assert upstreams == [address[name] for name in processes]
    (outside,) = COMPOSE["networks"]["outside"]["ipam"]["config"]
    assert f"set_real_ip_from {outside['gateway']};" in text


def test_containers_have_no_more_than_they_need():
    services = COMPOSE["services"]
    for name, each in services.items():
        assert each["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in each["security_opt"], name
        assert all("size=" in folder for folder in each.get("tmpfs", ())), name
    # What is kept is on a network that leads nowhere, and needs a password there.
    assert COMPOSE["networks"]["inside"]["internal"]
    assert {name for name in services if "outside" not in services[name]["networks"]} == {
        "postgres",
        "redis",
    }
    assert "requirepass $$REDIS_PASSWORD" in services["redis"]["command"][-1]


def test_the_image_has_all_that_the_program_imports_and_nothing_else():
    copied = re.findall(r"^COPY (\S+) ", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert [name for name in copied if not name.startswith("--")] == [
        "requirements.txt",
        "app.py",
        "orders",
        "schemas",
    ]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert let_in == {"app.py", "orders", "schemas", "requirements.txt"}
    assert "*" in ignored


LOCKED = re.findall(
    r"^([\w.-]+)==(\S+)(?: ; (.+))? \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    (ROOT / "requirements.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def needed(requirements):
    """Yield the requirements that hold here, and what their installed packages require in turn."""
    for requirement in map(Requirement, requirements):
        for extra in ("", *requirement.extras):
            if not requirement.marker or requirement.marker.evaluate({"extra": extra}):
                yield requirement
        with suppress(PackageNotFoundError):
            below = [Requirement(each) for each in requires(requirement.name) or ()]
            wanted = requirement.extras or {""}
            yield from needed(
                str(each)
                for each in below
                if not each.marker or any(each.marker.evaluate({"extra": one}) for one in wanted)
            )


def test_the_locked_packages_agree_with_what_is_declared_and_have_only_hashes_beside_them():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == sum(1 + each[-1].count("\n") for each in LOCKED)
    assert "://" not in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["postgres"], *extras["redis"]]
    versions = {
        name: version
        for name, version, marker, _ in LOCKED
        if not marker or Marker(marker).evaluate()
    }
    for requirement in needed(declared):
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    assert {name for name, *_ in LOCKED} >= {Requirement(each).name for each in declared}


DRIVERS = {
    "pysqlite3": (("linux", "x86_64"), ("darwin", "arm64"), ("win32", "AMD64")),
    "sqlcipher3": (("linux", "aarch64"), ("darwin", "x86_64"), ("win32", "ARM64")),
    "sqlite3": (("linux", "armv7l"),),
}


def test_each_platform_has_the_driver_of_which_there_is_a_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [Requirement(each) for each in project["dependencies"]]
    drivers = [each for each in declared if re.search("sqlite|sqlcipher", each.name)]
    for driver, platforms in DRIVERS.items():
        for system, machine in platforms:
            where = {"sys_platform": system, "platform_machine": machine}
            there = {each.name for each in drivers if each.marker.evaluate(where)}
            with pytest.MonkeyPatch.context() as patched:
                for each in drivers:
                    module = SimpleNamespace() if each.name in there else None
                    patched.setitem(sys.modules, each.name, module)
                    patched.setitem(sys.modules, f"{each.name}.dbapi2", module)
                taken = sqlite.sqlite_module.__wrapped__()
                assert taken is sys.modules[f"{driver}.dbapi2"], (system, machine)


def promtool(*arguments, cwd=DEPLOY / "prometheus"):
    """Run promtool; return the completed process."""
    command = [installed("promtool", package="prometheus"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.prometheus
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
)
def test_prometheus_finds_no_fault_with(arguments):
    done = promtool(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_an_alert_that_would_not_fire_fails_its_test(tmp_path):
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    alerts = tmp_path / "alerts.yml"
    changed = alerts.read_text(encoding="utf-8").replace("database_up == 0", "database_up == 2")
    alerts.write_text(changed, encoding="utf-8")
    done = promtool("test", "rules", "alerts_test.yml", cwd=tmp_path)
    assert "StoreOrdersDatabaseAway" in done.stderr


@pytest.mark.prometheus
def test_every_alert_is_tested_by_promtool():
    text = (DEPLOY / "prometheus" / "alerts_test.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"StoreOrders\w+", text)) == set(ALERTS)


@pytest.mark.prometheus
def test_every_panel_shows_something_of_a_real_service_and_no_alert_is_broken(tmp_path):
    instance = tmp_path / "instance"
    instance.mkdir()
    (instance / "config.toml").write_text(SMALL_PLAN, encoding="utf-8")
    (instance / ".orders.db-litestream").mkdir()  # Litestream's own
    with (
        running(instance, ORDERS_METRICS="on", ORDERS_BACKUPS="backups") as service,
        receiving() as receiver,
        prometheus.watching(tmp_path, "{}:{}".format(*service.address)) as watching,
    ):
        key = service.issue()
        service.command("webhooks", "add", receiver.url, "--allow-private")
        ends = time.monotonic() + PATIENCE_SECONDS
        waiting = [(panel.title, query) for panel in PANELS for query in panel.queries]
        while waiting and time.monotonic() < ends:
            service.request("POST", ORDERS, key, json={"petId": 7})
            service.request("GET", ORDERS)
            waiting = [each for each in waiting if not watching.query(each[1])]
        assert waiting == []
        wait_until(lambda: "unknown" not in {rule["health"] for rule in watching.rules()})
        assert [rule for rule in watching.rules() if rule["health"] != "ok"] == []
