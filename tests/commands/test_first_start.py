"""A start by a person: the first key, the console in a browser, the command that issues a key."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from types import SimpleNamespace

import pytest

from orders import apikeys, installation, system
from orders.application import create_app
from orders.cli import first_start, serve
from orders.settings import Settings
from orders.web.pages import handover
from tests.support.commands import command
from tests.support.machine import wait_until
from tests.support.service import ROOT, running

HANDOVER = "/console/key"


@pytest.fixture
def desk(tmp_path):
    """A person's home, with a browser that records its command line and the page it opens."""

    class Desk:
        home = tmp_path
        instance = tmp_path / "instance"

        def opened(self):
            """Wait until a start has opened the browser; return the browser's command line."""
            wait_until((tmp_path / "command").exists)
            return (tmp_path / "command").read_bytes().rstrip(b"\0").decode().split("\0")

        def page(self):
            return (tmp_path / "page.html").read_text(encoding="utf-8")

        def code(self):
            return re.findall(r"#key=(\w+)", self.page())[0]

        def pages(self):
            """Return the pages that have not been opened yet."""
            return list(tmp_path.glob("store-orders-opens-*.html"))

    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\ncase $1 in file:*) cp "${{1#file://}}" {tmp_path}/page.html;; esac\n'
        f"cat /proc/$$/cmdline > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/command\n"
    )
    browser.chmod(0o700)
    desk = Desk()
    desk.environment = {"HOME": str(tmp_path), "BROWSER": f"{browser} %s"}
    return desk


@contextmanager
def started(desk, forks, *arguments, **environment):
    """Start the service at a desk."""
    options = {**desk.environment, **environment}
    with running(desk.instance, *arguments, forks=forks, **options) as service:
        yield service


def printed(service):
    return os.read(service.process.stdout.fileno(), 65_536).decode()


def listed(service):
    return service.output("keys", "list")


def test_a_first_start_makes_one_key_prints_it_once_and_opens_the_console(desk, forks):
    with started(desk, forks, "--open") as service:
        (key,) = re.findall(r"^sok_\w+$", printed(service), re.MULTILINE)
        usage = service.request("GET", "/v2/usage", key).json()
        assert (usage["name"], usage["plan"]) == ("owner", "business")
        assert usage["scopes"] == list(first_start.SCOPES)
        assert "key 1 (owner): business, read write" in service.output("audit")
        *_, target = desk.opened()
        (page,) = desk.pages()
        assert target == page.as_uri()
        assert S_IMODE(page.stat().st_mode) == 0o600
        assert f'url={service.url}/#key={desk.code()}"' in desk.page()
        # The process list shows neither the key nor the code, and the page does not show the key.
        assert key not in desk.page() + " ".join(desk.opened())
        assert desk.code() not in " ".join(desk.opened())
        taken = service.request("POST", HANDOVER, body=desk.code())
        assert taken.json() == {"key": key}
        assert taken.headers["Cache-Control"] == "no-store"
        assert service.request("POST", HANDOVER, body=desk.code()).status == 404
        assert desk.pages() == []
    for secret in (key, desk.code()):
        assert secret not in "".join(service.log)
    # Only the key's hash is on the disk.
    kept = b"".join(path.read_bytes() for path in desk.instance.iterdir() if path.is_file())
    assert key.encode() not in kept
    assert apikeys.digest(key) in kept


def test_a_later_start_makes_no_key_and_only_opens_the_console(desk, forks):
    with started(desk, forks) as service:
        service.issue()
    with started(desk, forks, "--open") as service:
        assert desk.opened()[-1] == f"{service.url}/"
        assert "owner" not in listed(service)
        assert desk.pages() == []


def test_the_demo_is_opened_with_its_own_key(desk, forks):
    with started(desk, forks, "--demo", "--open") as service:
        (key,) = set(re.findall(r"\bsok_\w+", printed(service)))
        desk.opened()
        assert service.request("POST", HANDOVER, body=desk.code()).json() == {"key": key}
        assert "owner" not in listed(service)


def test_a_second_start_opens_the_console_of_the_first(desk, forks):
    with started(desk, forks) as service:
        again = forks.run("app.py", "--open", instance=desk.instance, **desk.environment)
        assert again.returncode == 0, again.stderr
        assert desk.opened()[-1] == f"{service.url}/"
        refused = forks.run("app.py", instance=desk.instance, **desk.environment)
        assert (refused.returncode, "Another service uses" in refused.stderr) == (2, True)


def test_an_unopened_page_is_removed_by_a_stop_or_the_next_start(desk, forks):
    with started(desk, forks, "--open"):
        desk.opened()
        assert len(desk.pages()) == 1
    assert desk.pages() == []
    (desk.home / "command").unlink()
    left = desk.home / "store-orders-opens-0123456789abcdef.html"
    left.touch()
    with started(desk, forks, "--open", "--demo"):
        desk.opened()
        assert left not in desk.pages()


@pytest.mark.parametrize("browser", ["/nowhere/browser %s", "false %s", "w3m"])
def test_if_no_browser_opens_the_service_runs_and_logs_its_address(desk, forks, browser):
    folder = desk.home / "bin"
    folder.mkdir()
    (folder / "w3m").write_text(f"#!/bin/sh\ntouch {desk.home}/text\n")
    (folder / "w3m").chmod(0o700)
    path = f"{folder}:{os.environ['PATH']}"
    with started(desk, forks, "--open", BROWSER=browser, PATH=path) as service:
        said = f"No browser could be opened. Open {service.url}/ yourself."
        wait_until(lambda: said in "".join(service.log))
        key = re.findall(r"^sok_\w+$", printed(service), re.MULTILINE)[0]
        assert service.request("GET", "/v2/usage", key).status == 200
    assert not (desk.home / "text").exists()


def test_without_a_home_the_page_is_in_the_instance_folder(desk, forks):
    home = desk.home / "file"
    home.touch()
    with started(desk, forks, "--open", HOME=str(home)):
        assert f"file://{desk.instance}/store-orders-opens-" in desk.opened()[-1]


def test_a_key_that_cannot_be_shown_is_not_made(store, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("click.echo", full)
        assert first_start.issue_first_key(store.shop) is None
    assert store.rows("SELECT * FROM api_keys") == []
    assert first_start.issue_first_key(store.shop) is not None


def test_of_concurrent_starts_only_one_makes_the_key(store, capsys):
    made, threads = [], []
    for _ in range(8):
        issue = lambda: made.append(first_start.issue_first_key(store.shop))  # noqa: E731
        threads.append(threading.Thread(target=issue))
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (key,) = filter(None, made)
    assert capsys.readouterr().out.count("sok_") == 1
    assert len(store.rows("SELECT * FROM api_keys")) == 1
    assert store.rows("SELECT prefix FROM api_keys")[0]["prefix"] == key[:8]


# Handing the key over to the browser.


def take(store, code):
    return store.anonymous().post(HANDOVER, data=code)


def test_a_code_works_once_and_for_a_limited_time(store):
    done = []
    code = handover.offer(store.app, store.clock.run, "sok_one", lambda: done.append(1))
    for wrong in ("", code[:-1], f"{code} ", "é", code.upper()):
        assert take(store, wrong.encode()).status_code == 404
    answers = [take(store, code) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 404]
    assert answers[0].json == {"key": "sok_one"}
    assert done == [1]
    code = handover.offer(store.app, store.clock.run, "sok_two", lambda: done.append(2))
    store.clock.advance(handover.SECONDS)
    assert take(store, code).status_code == 404


def test_without_a_first_start_there_is_nothing_to_hand_over(store):
    answer = take(store, "code")
    assert (answer.status_code, answer.json["code"]) == (404, "not_found")
    assert store.anonymous().get(HANDOVER).status_code == 405


SECRET = apikeys.generate()


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("https://192.168.1.20/v1", "https://192.168.1.20/"),
        ("https://shop.tail1234.ts.net/orders/v1", "https://shop.tail1234.ts.net/orders/"),
        ("http://192.168.1.20/v1", None),
        ("https://localhost/v1", None),
        ("https://127.0.0.1/v1", None),
        ("https://[::1]/v1", None),
    ],
)
def test_a_phone_gets_a_code_only_for_an_https_address_that_it_can_reach(make_store, base, address):
    store = make_store(base_url=base)
    _, secret = store.issue()
    answer = store.anonymous().post("/console/phone", data=secret)
    assert (answer.status_code, answer.json["address"]) == (200, address)
    assert secret not in answer.text
    assert ("path" in answer.json) is (address is not None)


@pytest.mark.parametrize(
    "body",
    ["", "sok_", SECRET[:-1], f"{SECRET}\n", "é", "a" * 70_000],
    ids=["nothing", "beginning", "cut", "line", "letter", "long"],
)
def test_a_malformed_key_is_not_accepted_for_a_phone(store, body):
    assert store.anonymous().post("/console/phone", data=body.encode()).status_code == 400


def test_a_keys_newest_code_stays_valid_however_many_invalid_requests_arrive(make_store):
    store = make_store(base_url="https://192.168.1.20/v1")
    codes = [handover.offer(store.app, store.clock.run, secret) for secret in ("one", "two", "two")]
    # Any page in the shop's browser can send such requests.
    for _ in range(40):
        answer = store.anonymous().post("/console/phone", data=apikeys.generate())
        assert (answer.status_code, answer.json["code"]) == (401, "invalid_api_key")
    assert [take(store, code).status_code for code in codes] == [200, 404, 200]


# The command.


def test_the_command_that_a_start_prints_issues_a_key_for_that_service(tmp_path, forks):
    with running(tmp_path / "my shop", forks=forks) as service:
        (line,) = re.findall(
            r"no API key yet\. Issue one: (.*)$", "".join(service.log), re.MULTILINE
        )
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        usage = service.request("GET", "/v2/usage", done.stdout.strip())
        assert usage.status == 200, (line, done)
        assert usage.json()["plan"] == "business"


@pytest.mark.parametrize(
    ("started", "typed"),
    [
        ("app.py", "bin/flask keys issue owner --plan business --scope admin"),
        (
            "{here}/found/store-orders",
            "store-orders keys issue owner --plan business --scope admin",
        ),
    ],
)
def test_the_printed_command_runs_the_way_the_service_was_started(
    started, typed, tmp_path, monkeypatch
):
    (tmp_path / "bin").mkdir()
    (tmp_path / "found").mkdir()
    for name in ("bin/python", "bin/flask", "found/store-orders", "app.py"):
        (tmp_path / name).touch(mode=0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "found"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(sys, "argv", [started.format(here=tmp_path)])
    assert first_start.issuing_command(Settings()) == typed
    elsewhere = Settings(instance=Path("/my shop"))
    assert first_start.issuing_command(elsewhere) == f"ORDERS_INSTANCE='/my shop' {typed}"


def test_a_quoted_word_passes_unchanged_through_the_systems_shell():
    word = '{"petId": 7, "reference": "Max"}'
    show = f'"{sys.executable}" -c "import sys; print(sys.argv[1])" {system.quoted(word)}'
    done = subprocess.run(show, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == word


# A person or a supervisor.


@pytest.mark.parametrize(
    ("is_single_file", "has_terminal", "environment", "opens"),
    [
        (True, True, {}, True),
        (True, False, {"DISPLAY": ":0"}, True),
        (True, False, {}, False),
        (False, True, {"DISPLAY": ":0"}, False),
        (True, True, {"NOTIFY_SOCKET": "/run/notify"}, False),
    ],
)
def test_a_double_click_opens_the_console_and_a_supervisor_does_not(
    is_single_file, has_terminal, environment, opens, monkeypatch
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(installation, "IS_SINGLE_FILE", is_single_file)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: has_terminal))
    settings = Settings(notify_socket=environment.get("NOTIFY_SOCKET", ""))
    assert first_start.is_by_a_person(settings) is opens


@pytest.mark.parametrize("is_own", [True, False])
def test_the_window_of_a_double_click_stays_open_until_its_error_is_read(is_own, monkeypatch):
    shown = []
    monkeypatch.setattr("click.echo", lambda message, **_: shown.append(message))
    monkeypatch.setattr("click.pause", lambda info, **_: shown.append(info))
    monkeypatch.setattr(installation, "IS_SINGLE_FILE", True)
    monkeypatch.setattr(system, "has_own_window", lambda: is_own)
    for of_the_whole_process in ("keep_new_files_private", "ignore_hangups"):
        monkeypatch.setattr(system, of_the_whole_process, lambda: None)
    monkeypatch.setenv("ORDERS_PORT", "none")
    assert serve.main(create_app, with_demo=False) == serve.EXIT_CANNOT_START
    assert "ORDERS_PORT" in shown[0]
    assert shown[1:] == ["Press any key to close this window."] * is_own


# At boot.


def test_at_boot_installs_this_service_and_folder_and_says_how_to_undo_it(store, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "orders.system.install_at_boot", lambda *each: calls.append(each) or "Done."
    )
    monkeypatch.setattr("orders.system.remove_at_boot", lambda: "Undone.")
    monkeypatch.setenv("ORDERS_PORT", "8081")
    done = command(store, "at-boot")
    assert calls == [(installation.service_command(), store.settings.instance)]
    assert done.stderr.startswith("Done.\nUndo: store-orders at-boot --remove\n")
    assert "It does not get ORDERS_PORT from this shell's environment" in done.stderr
    assert command(store, "at-boot", "--remove").stderr == "Undone.\n"


def test_the_command_run_at_boot_works_in_any_folder_and_opens_no_browser(tmp_path, monkeypatch):
    version = [*installation.service_command(), "--version"]
    done = subprocess.run(version, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Store Orders")
    monkeypatch.setattr(installation, "IS_SINGLE_FILE", True)
    assert installation.service_command() == [sys.executable, "--no-open"]
    assert shlex.split(installation.command("x"))[-1] == "x"
