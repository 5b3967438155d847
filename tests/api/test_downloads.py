"""Downloads of backups: whole, in ranges, interrupted and resumed, and who may download."""

from __future__ import annotations

import hashlib
import json
import socket
from contextlib import ExitStack

import pytest

from orders.apikeys import SCOPES
from orders.server import SEND_FILE
from tests.support.commands import command
from tests.support.machine import PATIENCE_SECONDS
from tests.support.serving import serving
from tests.support.stores import assert_error
from tests.support.wire import exchange

BACKUPS = "/v2/backups"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

pytestmark = pytest.mark.sqlite_only


@pytest.fixture
def owner(store):
    return store.client(scopes=SCOPES, name="the owner")


@pytest.fixture
def path(owner):
    """The path of a backup's download."""
    return f"{BACKUPS}/{owner.post(BACKUPS).get_json()['name']}"


@pytest.fixture
def content(store, owner, path):
    return (store.settings.backups_path / path.rpartition("/")[2]).read_bytes()


def downloads(store):
    """Return the downloads in the audit trail, oldest first."""
    acts = json.loads(command(store, "audit", "--json").stdout)
    return [each["subject"] for each in acts if each["action"] == "backup.downloaded"]


def test_a_backup_is_sent_whole_with_its_checksum(store, owner, path, content):
    response = owner.get(path)
    assert (response.status_code, response.data) == (200, content)
    assert response.headers["ETag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Length"] == str(len(content))
    name = path.rpartition("/")[2]
    assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    assert response.headers["Cache-Control"] == "no-store"
    assert downloads(store) == [name]


def test_head_reports_the_size_and_is_not_audited_as_a_download(store, owner, path, content):
    response = owner.head(path, headers={"Range": "bytes=0-1"})
    assert (response.status_code, response.data) == (200, b"")
    assert response.headers["Content-Length"] == str(len(content))
    assert response.headers["Accept-Ranges"] == "bytes"
    assert downloads(store) == []


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=100-199", slice(100, 200)),
        ("Bytes=100-", slice(100, None)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=-999999999999", slice(None)),
        ("bytes=5-999999999999999999", slice(5, None)),
    ],
)
def test_a_range_request_returns_that_part(owner, path, content, asked, part):
    response = owner.get(path, headers={"Range": asked})
    assert response.data == content[part]
    start = range(len(content))[part][0]
    if start or len(response.data) < len(content):
        assert response.status_code == 206
        shown = f"bytes {start}-{start + len(response.data) - 1}/{len(content)}"
        assert response.headers["Content-Range"] == shown
        assert downloads(owner.store) == [f"{path.rpartition('/')[2]}: {shown}"]


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=-",
        "bytes=9-1",
        "bytes=0-1,5-6",
        "lines=0-1",
        "bytes=x",
        "bytes=٣-",
        f"bytes={'9' * 50}-",
    ],
)
def test_an_invalid_range_or_several_return_the_whole_file(owner, path, content, asked):
    response = owner.get(path, headers={"Range": asked.encode().decode("latin-1")})
    assert (response.status_code, response.data) == (200, content)


def test_a_range_past_the_end_is_rejected_with_the_size(store, owner, path, content):
    for asked in (f"bytes={len(content)}-", "bytes=-0", "bytes=999999999999-"):
        response = owner.get(path, headers={"Range": asked})
        assert_error(response, 416, "range_not_satisfiable")
        assert response.headers["Content-Range"] == f"bytes */{len(content)}"
    assert downloads(store) == []


def test_a_range_of_a_file_that_has_changed_returns_the_whole_file(owner, path, content):
    tag = owner.head(path).headers["ETag"]
    for given, status in ((tag, 206), ('"another"', 200), (f"W/{tag}", 200)):
        headers = {"Range": "bytes=9-", "If-Range": given}
        response = owner.get(path, headers=headers)
        start = 9 if status == 206 else 0
        assert (response.status_code, response.data) == (status, content[start:]), given


@pytest.mark.parametrize(
    "name",
    [
        "orders-20261201T080000Z.db",
        "..",
        "%2e%2e%2forders.db",
        "..%2f..%2fconfig.toml",
        "..%5corders.db",
        "orders.db",
        "orders-20261201T120000Z-manual.db.sha256",
        "%00",
        "x" * 5_000,
    ],
)
def test_no_name_leads_to_another_file(store, owner, path, name):
    response = owner.get(f"{BACKUPS}/{name}")
    assert response.status_code == 404
    assert response.get_json()["code"] in {"backup_not_found", "not_found"}
    assert downloads(store) == []


def test_only_an_admin_key_of_the_live_store_can_download(store, path, owner):
    for scopes in (("read",), ("write",), ("webhooks",)):
        assert_error(store.client(scopes=scopes).get(path), 403, "insufficient_scope")
    assert_error(store.anonymous().get(path), 401, "missing_api_key")
    tested = store.test_client("business", "--scope", "admin")
    for response in (tested.get(path), tested.get(BACKUPS), tested.post(BACKUPS)):
        assert_error(response, 409, "backups_off")
    assert downloads(store) == []


def test_an_interrupted_download_that_is_resumed_has_the_same_bytes(start):
    service = start(ORDERS_BACKUPS="backups")
    key = service.issue("business", "--scope", "admin")
    answer = service.request("POST", BACKUPS, key)
    assert answer.status == 201, answer.data
    made = json.loads(answer.data)
    path = f"{BACKUPS}/{made['name']}"
    cut = service.request("GET", path, key, preload_content=False)
    first, tag = cut.read(50_000), cut.headers["ETag"]
    cut.close()
    headers = {"Range": f"bytes={len(first)}-", "If-Range": tag}
    rest = service.request("GET", path, key, headers=headers)
    assert rest.status == 206
    whole = first + rest.data
    assert len(whole) == made["bytes"]
    assert hashlib.sha256(whole).hexdigest() == tag.strip('"')
    whole_again = service.request("GET", path, key)
    assert (whole_again.headers["Content-Length"], whole_again.data) == (str(len(whole)), whole)
    service.stop()
    assert not [line for line in service.log if "too few bytes" in line or "Traceback" in line]


@pytest.fixture
def large(tmp_path):
    """A file that is too large for the system's buffers."""
    path = tmp_path / "large"
    path.write_bytes(hashlib.shake_128(b"").digest(24 * 1024 * 1024))
    return path


def sender_of(path):
    """Return an application that sends a file through the server, and three bytes at /short."""

    def application(environ, start_response):
        start_response("200 OK", [])
        if environ["PATH_INFO"] == "/short":
            return [b"yes"]
        environ[SEND_FILE](path.open("rb", buffering=0), 5, path.stat().st_size - 5)
        return []

    return application


def test_readers_that_stall_occupy_no_thread_and_a_removed_file_is_still_sent(large):
    content = large.read_bytes()
    with serving(sender_of(large), threads=1) as address, ExitStack() as clients:
        slow = [
            clients.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
            for _ in range(8)
        ]
        for each in slow:
            each.sendall(REQUEST)
            each.recv(1)
        large.unlink()
        short = exchange(address, REQUEST.replace(b"/ ", b"/short "))
        assert short.endswith(b"yes")
        rest = b"".join(iter(lambda: slow[0].recv(1 << 20), b""))
        assert rest.partition(b"\r\n\r\n")[2] == content[5:]


def test_a_file_truncated_while_it_is_sent_ends_the_connection(large):
    with (
        serving(sender_of(large), threads=1) as address,
        socket.create_connection(address, PATIENCE_SECONDS) as client,
    ):
        client.sendall(REQUEST)
        client.recv(1)
        with large.open("r+b") as file:
            file.truncate(10)
        came = b"".join(iter(lambda: client.recv(1 << 20), b""))
        assert len(came) < 24 * 1024 * 1024
