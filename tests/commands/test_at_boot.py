"""Starting the service at boot or login, through systemd, launchd or Windows' task scheduler."""

from __future__ import annotations

import os
import plistlib
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orders import system
from orders.system import at_boot
from tests.support.machine import installed
from tests.support.service import ROOT

COMMAND = [sys.executable, "-P", "-m", "orders"]
# Every character with a special meaning in a unit.
AWKWARD = 'Hans\' shop, 100% $HOME "x" \\y'


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def calls(home, monkeypatch):
    """Replace the system's programs by ones that only record their calls; return the records.

    Programs in `calls.refuses` fail, those in `calls.hangs` never end, and those in `calls.leaves`
    leave a child running that keeps their output open.
    """

    class Calls(list):
        refuses, hangs, leaves = home / "refuses", home / "hangs", home / "leaves"

        def read(self):
            notes = home / "notes"
            self[:] = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
            notes.unlink(missing_ok=True)
            return self

    folder = home / "bin"
    folder.mkdir()
    for name in ("systemctl", "loginctl", "launchctl"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {home}/notes\n'
            f'if grep -qs "^{name} $1" {home}/hangs; then exec sleep 600; fi\n'
            f'if grep -qs "^{name} $1" {home}/leaves; then sleep 600 & echo $! >> {home}/left; fi\n'
            f'if grep -qs "^{name} $1" {home}/refuses; then echo "{name} says no" >&2; exit 1; fi\n'
        )
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Calls()


@pytest.fixture
def on_macos(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")


@pytest.fixture
def on_linux(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Linux")


def lines(path):
    """Return the values of a unit's lines by name, unquoted as systemd does."""
    pairs = (line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {name: shlex.split(words.replace("%%", "%")) for name, words in pairs}


@pytest.mark.usefixtures("on_linux")
def test_systemd_gets_a_unit_for_this_program_and_folder_and_starts_it(home, calls):
    said = system.install_at_boot(COMMAND, home / AWKWARD)
    unit = lines(home / ".config/systemd/user/store-orders.service")
    assert unit["ExecStart"] == [f":{COMMAND[0]}", *COMMAND[1:]]
    assert f"ORDERS_INSTANCE={home / AWKWARD}" in unit["Environment"]
    assert unit["NotifyAccess"] == ["all"]
    assert (unit["Restart"], unit["RestartSec"]) == (["always"], ["5"])
    assert calls.read() == [
        "systemctl --user daemon-reload",
        "systemctl --user daemon-reload",
        "systemctl --user enable store-orders",
        "systemctl --user restart --no-block store-orders",
        "loginctl --no-ask-password enable-linger",
    ]
    assert "It starts when the computer does." in said
    assert "journalctl --user -u store-orders" in said


@pytest.mark.usefixtures("on_linux")
def test_a_service_that_can_only_start_at_login_is_reported(home, calls):
    calls.refuses.write_text("loginctl --no-ask-password")
    said = system.install_at_boot(COMMAND, home)
    assert 'sudo loginctl enable-linger "$USER"' in said
    assert "when the computer does" not in said


@pytest.mark.usefixtures("on_linux")
def test_installing_and_removing_twice_does_no_harm(home, calls):
    system.install_at_boot(COMMAND, home / "one")
    system.install_at_boot(COMMAND, home / "two")
    unit = home / ".config/systemd/user/store-orders.service"
    assert f"ORDERS_INSTANCE={home}/two" in lines(unit)["Environment"]
    calls.read()
    assert str(unit) in system.remove_at_boot()
    assert not unit.exists()
    assert calls.read() == [
        "systemctl --user disable --now store-orders",
        "systemctl --user daemon-reload",
    ]
    assert system.remove_at_boot().startswith("Nothing to remove")
    assert calls.read() == []


@pytest.mark.usefixtures("on_linux")
def test_without_systemd_nothing_is_written_and_cron_is_named(home, calls):
    calls.refuses.write_text("systemctl --user")
    with pytest.raises(OSError, match=r"systemctl says no.*crontab") as raised:
        system.install_at_boot(COMMAND, home / AWKWARD)
    line = str(raised.value).partition("@reboot ")[2]
    assert shlex.split(line) == ["env", f"ORDERS_INSTANCE={home / AWKWARD}", *COMMAND]
    assert not (home / ".config").exists()


@pytest.mark.usefixtures("on_linux")
def test_a_program_that_hangs_is_given_up_after_a_time_limit(home, calls, monkeypatch):
    monkeypatch.setattr(at_boot, "PATIENCE_SECONDS", 0.1)
    calls.hangs.write_text("systemctl --user")
    with pytest.raises(OSError, match=r"daemon-reload` has not ended within 0.1 s.*Try again"):
        system.install_at_boot(COMMAND, home)


@pytest.mark.usefixtures("on_linux")
def test_a_programs_children_are_not_waited_for(home, calls, monkeypatch):
    monkeypatch.setattr(at_boot, "PATIENCE_SECONDS", 10)
    calls.leaves.write_text("systemctl --user")
    try:
        assert "is installed" in system.install_at_boot(COMMAND, home)
    finally:
        for process in (home / "left").read_text().split():
            os.kill(int(process), signal.SIGKILL)


@pytest.mark.usefixtures("on_macos")
def test_launchd_gets_an_agent_for_this_program_and_folder(home, calls):
    folder = home / AWKWARD
    said = system.install_at_boot(COMMAND, folder)
    path = home / "Library/LaunchAgents/store-orders.plist"
    agent = plistlib.loads(path.read_bytes())
    assert agent["ProgramArguments"] == COMMAND
    assert agent["EnvironmentVariables"] == {
        "ORDERS_INSTANCE": str(folder),
        "ORDERS_LOG_FILE": "log.txt",
    }
    assert (agent["RunAtLoad"], agent["KeepAlive"], agent["Umask"]) == (True, True, 0o077)
    assert agent["ProcessType"] == "Interactive"
    # The program limits the size of its own log, but not of this file.
    assert agent["StandardErrorPath"] == f"{folder}/crashes.txt"
    assert calls.read() == [f"launchctl bootstrap gui/{os.getuid()} {path}"]
    assert f"{folder}/log.txt" in said


@pytest.mark.usefixtures("on_macos")
def test_an_agent_is_replaced_once_the_previous_one_has_ended(home, calls):
    calls.refuses.write_text("launchctl print")  # no such agent is loaded any more
    system.install_at_boot(COMMAND, home / "one")
    calls.read()
    system.install_at_boot(COMMAND, home / "two")
    recorded = [each.split()[1] for each in calls.read()]
    assert recorded == ["bootout", "print", "bootstrap"]
    path = home / "Library/LaunchAgents/store-orders.plist"
    assert str(path) in system.remove_at_boot()
    assert not path.exists()
    assert system.remove_at_boot().startswith("Nothing to remove")


@pytest.mark.usefixtures("on_macos")
def test_if_launchd_refuses_nothing_is_left_behind_and_the_message_says_what_to_do(home, calls):
    calls.refuses.write_text("launchctl bootstrap")
    with pytest.raises(OSError, match=r"launchctl says no.*Log in at the computer itself"):
        system.install_at_boot(COMMAND, home)
    assert not list((home / "Library/LaunchAgents").iterdir())


@pytest.mark.usefixtures("on_macos")
@pytest.mark.parametrize("place", ["Desktop", "Documents", "Downloads"])
def test_a_folder_that_macos_may_deny_the_service_is_reported(home, calls, place):
    calls.refuses.write_text("launchctl print")
    hint = f"macOS may deny it access to {home / place}"
    assert hint in system.install_at_boot(COMMAND, home / place / "store/instance")
    assert hint in system.install_at_boot([str(home / place / "store-orders")], home)
    assert "macOS" not in system.install_at_boot(COMMAND, home / "store/instance")


# A systemd for the user, which only runs if the whole system appears to run on systemd.
WITH_SYSTEMD = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system
{systemd} --user > "$HOME/systemd.log" 2>&1 &
for _ in $(seq 100); do systemctl --user is-system-running 2> /dev/null && break; sleep 0.1; done
"$@"
status=$?
kill $! && wait $!
exit $status
"""
IN_ITS_LIFE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from orders import system

def asked(*what):
    command = ["systemctl", "--user", *what, "store-orders"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()

def main_process():
    return asked("show", "--property=MainPID", "--value")

def wait_until_active(but=""):
    ends = time.monotonic() + 60
    while asked("is-active") != "active" or main_process() == but:
        assert time.monotonic() < ends, "it did not become active within a minute"
        time.sleep(0.1)

for _ in range(2):
    system.install_at_boot([sys.executable, sys.argv[1]], Path(sys.argv[2]))
    wait_until_active()
    print(asked("is-active"), asked("is-enabled"))
os.kill(int(killed := main_process()), signal.SIGKILL)
wait_until_active(but=killed)
print("again")
system.remove_at_boot()
print(asked("is-active"), asked("is-enabled"))
"""


@pytest.mark.slow
def test_a_real_systemd_restarts_it_after_a_crash_and_stops_it(home):
    systemd = installed("/lib/systemd/systemd", package="systemd")
    (home / "run").mkdir(mode=0o700)
    folder = home / AWKWARD
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text('port = 0\nbackups = "off"\n')
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", WITH_SYSTEMD.format(systemd=systemd), "sh"),
            *(sys.executable, "-c", IN_ITS_LIFE, ROOT / "app.py", folder),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={home}/run/bus",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    log = Path(home / "systemd.log").read_text(encoding="utf-8")
    said = done.stdout.splitlines()[-4:]
    assert said == ["active enabled", "active enabled", "again", "inactive "], (done, log)
    assert (folder / "orders.db").exists()


SCHTASKS = """#!{python}
import pathlib, sys
home, arguments = pathlib.Path({home!r}), sys.argv[1:]
with (home / "notes").open("a") as notes:
    print("schtasks", *arguments[:4], file=notes)
if "/XML" in arguments:
    text = pathlib.Path(arguments[-1]).read_text(encoding="utf-16")
    (home / "task.xml").write_text(text.partition("?>")[2])
    sys.exit("Access is denied." if (home / "refuses").exists() and "BootTrigger" in text else 0)
sys.exit("/Query" in arguments and not (home / "task.xml").exists())
"""


@pytest.fixture
def on_windows(calls, home, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Windows")
    program = home / "bin" / "schtasks"
    program.write_text(SCHTASKS.format(python=sys.executable, home=str(home)))
    program.chmod(0o700)
    return calls


def task(home):
    """Return the texts of a scheduled task by the names of their elements."""
    elements = ET.parse(home / "task.xml").iter()
    return {each.tag.partition("}")[2]: each.text for each in elements}


def test_windows_gets_a_task_for_this_program_and_folder_and_runs_it(home, on_windows):
    folder = Path("C:\\A & B")
    said = system.install_at_boot(["C:\\my shop\\python.exe", "-m", "orders"], folder)
    made = task(home)
    assert made["Command"] == "cmd.exe"
    assert made["Arguments"] == (
        '/d /c "set "ORDERS_INSTANCE=C:\\A & B"&& set "ORDERS_LOG_FILE=log.txt"'
        f'&& "C:\\my shop\\python.exe" -m orders >> "{folder / "crashes.txt"}" 2>&1"'
    )
    assert (made["LogonType"], made["ExecutionTimeLimit"]) == ("S4U", "PT0S")
    # This restarts it after it has ended, which RestartOnFailure does not.
    assert (made["Interval"], made["MultipleInstancesPolicy"]) == ("PT1M", "IgnoreNew")
    assert "RestartOnFailure" not in made
    assert "It starts when the computer does." in said
    assert on_windows.read() == [
        "schtasks /Create /F /TN store-orders",
        "schtasks /Run /TN store-orders",
    ]
    assert "store-orders is removed" in system.remove_at_boot()
    assert on_windows.read()[1:] == [
        "schtasks /End /TN store-orders",
        "schtasks /Delete /F /TN store-orders",
    ]


def test_without_administrator_rights_the_task_starts_at_sign_in(home, on_windows):
    on_windows.refuses.touch()
    said = system.install_at_boot(COMMAND, home)
    made = task(home)
    assert made["UserId"] == system.user_id()
    assert "LogonTrigger" in made
    assert made["LogonType"] == "InteractiveToken"
    assert "as an administrator" in said


def test_a_folder_with_a_percent_sign_is_rejected_as_a_task_cannot_have_one(home, on_windows):
    with pytest.raises(OSError, match="has a % in its name"):
        system.install_at_boot(COMMAND, home / "100%")
    assert on_windows.read() == []
    assert system.remove_at_boot().startswith("Nothing to remove")
