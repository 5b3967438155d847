"""Attacks by outsiders, by clients with keys and by other users (see docs/security.md)."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from stat import S_IMODE

import pytest

from orders import apikeys
from orders.store.care import opening
from tests.support import stores
from tests.support.databases import DATABASES
from tests.support.machine import IS_ROOT
from tests.support.service import ROOT, SOURCE, run_flask, running
from tests.support.stores import assert_error
from tests.support.wire import exchange

LIST = "/v1/store/orders"
SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NOBODY = 65_534
IS_LINUX = Path("/proc/self/environ").exists()


# Forged requests.


OVERRIDES = (
    {"headers": {"X-HTTP-Method-Override": "DELETE"}},
    {"headers": {"X-HTTP-Method": "DELETE"}},
    {"headers": {"X-Original-Method": "DELETE", "X-Original-URL": f"{LIST}/1"}},
    {"query_string": "_method=DELETE"},
    {"data": "_method=DELETE", "content_type": "application/x-www-form-urlencoded"},
)


def test_no_header_and_no_parameter_changes_the_method(store, client, subtests):
    client.place()
    reader = store.client(scopes=("read",))
    for trick in OVERRIDES:
        with subtests.test(trick):
            assert reader.get(f"{LIST}/1", **trick).status_code == 200
            assert reader.post(f"{LIST}/1", **trick).status_code == 403
            assert client.post(f"{LIST}/1", **trick).status_code == 405
    assert [event["type"] for event in store.events()] == ["order.placed"]


def test_trace_echoes_nothing(client):
    response = client.request("TRACE", LIST, headers={"X-Told": "hunter2"})
    assert_error(response, 405, "method_not_allowed")
    assert "hunter2" not in response.get_data(as_text=True)


def test_host_names_in_headers_are_never_echoed(client):
    headers = dict.fromkeys(
        ("Host", "X-Forwarded-Host", "X-Forwarded-Prefix", "Forwarded", "Origin"), "evil.example"
    )
    response = client.place(headers=headers)
    assert response.headers["Location"] == f"{LIST}/1"
    sent = f"{response.headers}{client.get('/openapi/v1.json', headers=headers).data}"
    assert "evil" not in sent


NO_FILES = (
    *("/openapi/../app.py", "/openapi/..%2f..%2fetc%2fpasswd", "/openapi//etc/passwd"),
    *("/openapi/%2e%2e/instance/orders.db", "/openapi/v1.json%00.py", "/static/../app.py"),
    *("/instance/orders.db", "/.git/config"),
)


def test_no_path_leads_to_a_file(store):
    for path in NO_FILES:
        assert_error(store.anonymous().send(path), 404, "not_found")


def raw(service, sent):
    """Send bytes over a connection of their own; return all text received until it is closed."""
    return exchange(service.address, sent).decode("latin-1")


@pytest.mark.slow
def test_no_request_injects_headers_into_its_answer(service):
    secret = service.issue()
    for path in (
        "/v1/x%0d%0aInjected:%20y",
        "/v1/x\rInjected: y",
        "/v1/store/orders?%0d%0aInjected:y",
    ):
        for name in ("Idempotency-Key", "If-None-Match", "X-Request-Id"):
            answer = raw(
                service,
                f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                f"{name}: a\x85b%0d%0aInjected: y\r\n"
                f"Authorization: Bearer {secret}\r\n\r\n".encode("latin-1"),
            )
            assert "injected" not in answer.partition("\r\n\r\n")[0].lower()


def test_an_error_echoes_little_of_a_request_and_is_not_html(client):
    name = "<script>alert(1)</script>" + "x" * 10_000
    response = client.post(LIST, json={"petId": 7, **{f"{name}{n}": 1 for n in range(5)}})
    assert_error(response, 422, "validation_failed")
    assert len(response.data) < 1_000
    assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_half_a_surrogate_pair_is_never_echoed(client):
    for body in (rb'{"petId":1,"\ud800":1}', rb'{"petId":1,"a\udfff\ud800b":1}'):
        response = client.post(LIST, data=body, content_type="application/json")
        assert_error(response, 422, "validation_failed")
        assert response.get_json()["message"].isascii()


def test_all_keys_of_a_shop_see_the_same_store(store, client):
    client.place()
    assert store.client(scopes=("read",)).get(f"{LIST}/1").status_code == 200


def test_the_service_sends_requests_only_to_webhook_receivers():
    names = r"requests|urllib3|httpx|http\.client|urllib\.request|smtplib|ftplib"
    clients = re.compile(rf"^\s*(?:import|from) (?:{names})\b", re.MULTILINE)
    sender = SOURCE / "orders" / "webhooks" / "sender.py"
    assert clients.search(sender.read_text(encoding="utf-8"))
    for file in {ROOT / "app.py", *(SOURCE / "orders").rglob("*.py")} - {sender}:
        assert not clients.search(file.read_text(encoding="utf-8")), file


# Keys are never shown.


def misuse(service, secret):
    """Send a key wherever it does not belong; return all responses."""
    sent = [
        ("GET", f"/{secret}", {}),
        ("GET", f"{LIST}/{secret}?key={secret}", {}),
        ("TRACE", LIST, {}),
        ("GET", LIST, {"headers": {"X-Request-Id": secret, "X-Forwarded-For": secret}}),
        ("POST", LIST, {"json": {secret: 1}}),
        *(("POST", LIST, {"json": each}) for each in ({"petId": secret}, {"shipDate": secret})),
        *(("POST", LIST, {"json": each}) for each in (secret, [secret], {"x" * 40 + secret: 1})),
        ("POST", LIST, {"body": f'{{"{secret}"', "headers": {"Content-Type": "application/json"}}),
        ("POST", LIST, {"body": "{}", "headers": {"Content-Type": f"text/{secret}"}}),
        ("GET", LIST, {"headers": {"Authorization": f"Basic {secret}"}}),
        ("GET", LIST, {"headers": {"Authorization": secret}}),
        ("POST", LIST, {"json": {"petId": 7}, "headers": {"User-Agent": secret}}),
        ("POST", LIST, {"json": {"petId": 7}, "headers": {"Idempotency-Key": secret + ","}}),
        ("GET", "/openapi/v1.json", {}),
        ("GET", "/readyz", {}),
    ]
    answers = [service.request(method, path, secret, **others) for method, path, others in sent]
    broken = raw(
        service, f"GET / HTTP/1.1\r\n{secret}\r\nAuthorization : {secret}\r\n\r\n".encode()
    )
    return broken + "".join(f"{each.headers}{each.data}" for each in answers)


def of_process(process_id):
    """Return what the process list shows of a process."""
    of = Path(f"/proc/{process_id}")
    return (of / "cmdline").read_text() + (of / "environ").read_text() if IS_LINUX else ""


@pytest.mark.slow
def test_a_key_is_in_no_log_no_answer_no_file_and_no_process_list(start, tmp_path):
    service = start(is_forked=False, ORDERS_LOG="json")
    first, reader = service.issue(), service.issue("free", "--scope", "read")
    rotated = service.command("keys", "rotate", "2", "--grace", "1").stdout.strip()
    shown = "".join(misuse(service, secret) for secret in (first, reader, rotated))
    for command in (
        ("keys", "list", "--json"),
        ("keys", "issue", first, "--plan", "free"),
        ("orders", "export", str(tmp_path / "out.csv")),
        ("db", "backup", str(tmp_path / "copy.db")),
    ):
        done = service.command(*command)
        shown += done.stdout + done.stderr
    shown += of_process(service.process.pid)
    kept = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    service.stop()
    shown += "".join(service.log)
    for secret in (first, reader, rotated):
        # The first characters are kept on purpose, so that people can tell keys apart.
        assert secret[8:] not in shown
        assert not [name for name, data in kept.items() if secret[8:].encode() in data]
    assert {"counters.db", "out.csv"} <= set(kept)
    if not DATABASES.are_on_postgres:
        assert {"orders.db", "orders.db-wal", "copy.db"} <= set(kept)
        assert apikeys.digest(first) in kept["copy.db"]


@pytest.mark.checkout("asks git")
def test_no_tracked_file_holds_a_key():
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        assert not [
            found
            for found in re.findall(r"sok_(?:test_)?[0-9A-Za-z]{38}", text)
            if apikeys.is_well_formed(found)
        ]


def test_the_pattern_for_scanners_finds_keys_but_not_their_shown_prefix():
    pattern = re.compile(re.search(r"^    (\S*sok_\S+)$", SECURITY, re.MULTILINE)[1])
    for number in range(100):
        secret = apikeys.generate(is_test=number % 2 > 0)
        assert pattern.findall(f"key={secret};") == [secret]
        assert not pattern.search(apikeys.shown_prefix(secret) + "… " + apikeys.redact(secret))


# Another user of the same machine.


@pytest.fixture
def open_folder():
    """A folder that every user of the machine can enter and write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def as_neighbour(*command):
    """Run a command as another user; return the completed process."""
    return subprocess.run(
        list(map(str, command)),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        check=False,
        timeout=20,
    )


@pytest.mark.slow
@pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")
def test_another_user_of_the_machine_reads_nothing_of_a_running_service(open_folder):
    (open_folder / "for-all").write_text("anything", encoding="utf-8")
    assert as_neighbour("cat", open_folder / "for-all").stdout == b"anything"
    instance = open_folder / "instance"
    instance.mkdir(mode=0o755)
    with running(instance) as service:
        service.issue()
        forbidden = [instance, instance / "orders.db", instance / "counters.db-wal"]
        if IS_LINUX:
            of = Path(f"/proc/{service.process.pid}")
            forbidden += [of / "environ", of / "mem", of / "fd"]
        for path in forbidden:
            done = as_neighbour("ls" if path.is_dir() else "cat", path)
            assert (done.returncode != 0, done.stdout) == (True, b""), path
        assert as_neighbour("kill", str(service.process.pid)).returncode != 0
        assert as_neighbour("mv", instance / "orders.db", open_folder / "mine").returncode != 0
        assert service.request("GET", "/readyz").status == 200


@pytest.mark.slow
def test_a_database_outside_of_the_instance_folder_is_private_too(open_folder, start):
    path = open_folder / "orders.db"
    opening.create(path)
    path.chmod(0o644)
    service = start(ORDERS_DATABASE_URL=f"sqlite:///{path}")
    service.issue()
    modes = {file.name: S_IMODE(file.stat().st_mode) for file in open_folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert set(modes) == {"orders.db", "orders.db-wal", "orders.db-shm"}


@pytest.mark.slow
@pytest.mark.parametrize("command", [("db", "backup"), ("orders", "export")], ids=" ".join)
def test_nothing_is_written_through_links_that_others_made(open_folder, tmp_path, command):
    target, victim = open_folder / "copy.csv", tmp_path / "victim"
    victim.write_text("as it was", encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "ORDERS_INSTANCE": str(tmp_path / "instance")}
    # Names that could be guessed: those with the command's process id.
    with subprocess.Popen(["true"]) as newest:
        newest.wait()
    for process_id in range(newest.pid, newest.pid + 500):
        (open_folder / f".copy.csv.{process_id}.tmp").symlink_to(victim)
    before = set(open_folder.iterdir())
    stores.make(tmp_path / "instance", [])
    done = run_flask(*command, str(target), environment=environment)
    assert done.returncode == 0, done.stderr
    assert set(open_folder.iterdir()) == before | {target}
    assert S_IMODE(target.stat().st_mode) == 0o600
    assert victim.read_text(encoding="utf-8") == "as it was"
