"""The service starts at boot, or at log-in: what systemd and launchd are told."""

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
# All that a unit gives a meaning to.
AWKWARD = 'Hans\' shop, 100% $HOME "x" \\y'


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def told(home, monkeypatch):
    """Programs of the system that do nothing but note how they are called; return the notes.

    Those in `told.refuses` fail. Those in `told.hangs` never end; what those in `told.leaves` start
    goes on with their output.
    """

    class Notes(list):
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
    return Notes()


@pytest.fixture
def on_macos(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")


@pytest.fixture
def on_linux(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Linux")


def lines(path):
    """Return what each line of a unit sets, unquoted as systemd does."""
    pairs = (line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {name: shlex.split(words.replace("%%", "%")) for name, words in pairs}


@pytest.mark.usefixtures("on_linux")
def test_systemd_gets_a_unit_of_this_program_and_folder_and_starts_it(home, told):
    said = system.install_at_boot(COMMAND, home / AWKWARD)
    unit = lines(home / ".config/systemd/user/store-orders.service")
    assert unit["ExecStart"] == [f":{COMMAND[0]}", *COMMAND[1:]]
    assert f"ORDERS_INSTANCE={home / AWKWARD}" in unit["Environment"]
    assert unit["NotifyAccess"] == ["all"]
    assert (unit["Restart"], unit["RestartSec"]) == (["always"], ["5"])
    assert told.read() == [
        "systemctl --user daemon-reload",
        "systemctl --user daemon-reload",
        "systemctl --user enable store-orders",
        "systemctl --user restart --no-block store-orders",
        "loginctl --no-ask-password enable-linger",
    ]
    assert "It starts when the computer does." in said
    assert "journalctl --user -u store-orders" in said


@pytest.mark.usefixtures("on_linux")
def test_it_is_said_where_it_can_start_only_when_the_user_logs_in(home, told):
    told.refuses.write_text("loginctl --no-ask-password")
    said = system.install_at_boot(COMMAND, home)
    assert 'sudo loginctl enable-linger "$USER"' in said
    assert "when the computer does" not in said


@pytest.mark.usefixtures("on_linux")
def test_installing_and_removing_again_do_no_harm(home, told):
    system.install_at_boot(COMMAND, home / "one")
    system.install_at_boot(COMMAND, home / "two")
    unit = home / ".config/systemd/user/store-orders.service"
    assert f"ORDERS_INSTANCE={home}/two" in lines(unit)["Environment"]
    told.read()
    assert str(unit) in system.remove_at_boot()
    assert not unit.exists()
    assert told.read() == [
        "systemctl --user disable --now store-orders",
        "systemctl --user daemon-reload",
    ]
    assert system.remove_at_boot().startswith("Nothing to remove")
    assert told.read() == []


@pytest.mark.usefixtures("on_linux")
def test_without_systemd_nothing_is_written_and_cron_is_named(home, told):
    told.refuses.write_text("systemctl --user")
    with pytest.raises(OSError, match=r"systemctl says no.*crontab") as raised:
        system.install_at_boot(COMMAND, home / AWKWARD)
    line = str(raised.value).partition("@reboot ")[2]
    assert shlex.split(line) == ["env", f"ORDERS_INSTANCE={home / AWKWARD}", *COMMAND]
    assert not (home / ".config").exists()


@pytest.mark.usefixtures("on_linux")
def test_a_program_that_never_ends_is_not_waited_for_for_ever(home, told, monkeypatch):
    monkeypatch.setattr(at_boot, "PATIENCE_SECONDS", 0.1)
    told.hangs.write_text("systemctl --user")
    with pytest.raises(OSError, match=r"daemon-reload` has not ended within 0.1 s.*Try again"):
        system.install_at_boot(COMMAND, home)


@pytest.mark.usefixtures("on_linux")
def test_what_a_program_starts_is_not_waited_for(home, told, monkeypatch):
    monkeypatch.setattr(at_boot, "PATIENCE_SECONDS", 10)
    told.leaves.write_text("systemctl --user")
    try:
        assert "is installed" in system.install_at_boot(COMMAND, home)
    finally:
        for process in (home / "left").read_text().split():
            os.kill(int(process), signal.SIGKILL)


@pytest.mark.usefixtures("on_macos")
def test_launchd_gets_an_agent_of_this_program_and_folder(home, told):
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
    # Nothing cuts this one off.
    assert agent["StandardErrorPath"] == f"{folder}/crashes.txt"
    assert told.read() == [f"launchctl bootstrap gui/{os.getuid()} {path}"]
    assert f"{folder}/log.txt" in said


@pytest.mark.usefixtures("on_macos")
def test_an_agent_is_replaced_once_the_one_before_has_ended(home, told):
    told.refuses.write_text("launchctl print")  # it knows none of that name any more
    system.install_at_boot(COMMAND, home / "one")
    told.read()
    system.install_at_boot(COMMAND, home / "two")
    calls = [each.split()[1] for each in told.read()]
    assert calls == ["bootout", "print", "bootstrap"]
    path = home / "Library/LaunchAgents/store-orders.plist"
    assert str(path) in system.remove_at_boot()
    assert not path.exists()
    assert system.remove_at_boot().startswith("Nothing to remove")


@pytest.mark.usefixtures("on_macos")
def test_where_launchd_refuses_nothing_is_left_and_it_is_said_what_to_do(home, told):
    told.refuses.write_text("launchctl bootstrap")
    with pytest.raises(OSError, match=r"launchctl says no.*Log in at the computer itself"):
        system.install_at_boot(COMMAND, home)
    assert not list((home / "Library/LaunchAgents").iterdir())


@pytest.mark.usefixtures("on_macos")
@pytest.mark.parametrize("place", ["Desktop", "Documents", "Downloads"])
def test_it_is_said_where_macos_may_refuse_a_service_its_files(home, told, place):
    told.refuses.write_text("launchctl print")
    hint = f"macOS may deny it access to {home / place}"
    assert hint in system.install_at_boot(COMMAND, home / place / "store/instance")
    assert hint in system.install_at_boot([str(home / place / "store-orders")], home)
    assert "macOS" not in system.install_at_boot(COMMAND, home / "store/instance")


# A user's systemd, which runs only where the whole system seems to run on systemd.
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
        assert time.monotonic() < ends, "not within a minute"
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
def test_a_real_systemd_starts_it_after_a_crash_again_and_ends_it(home):
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
def on_windows(told, home, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Windows")
    program = home / "bin" / "schtasks"
    program.write_text(SCHTASKS.format(python=sys.executable, home=str(home)))
    program.chmod(0o700)
    return told


def task(home):
    """Return what a scheduled task is to do, by the names of its elements."""
    elements = ET.parse(home / "task.xml").iter()
    return {each.tag.partition("}")[2]: each.text for each in elements}


def test_windows_gets_a_task_of_this_program_and_folder_and_runs_it(home, on_windows):
    folder = Path("C:\\A & B")
    said = system.install_at_boot(["C:\\my shop\\python.exe", "-m", "orders"], folder)
    made = task(home)
    assert made["Command"] == "cmd.exe"
    assert made["Arguments"] == (
        '/d /c "set "ORDERS_INSTANCE=C:\\A & B"&& set "ORDERS_LOG_FILE=log.txt"'
        f'&& "C:\\my shop\\python.exe" -m orders >> "{folder / "crashes.txt"}" 2>&1"'
    )
    assert (made["LogonType"], made["ExecutionTimeLimit"]) == ("S4U", "PT0S")
    # So it starts again after it has ended. RestartOnFailure doesn't do that.
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


def test_who_is_no_administrator_has_it_started_at_sign_in(home, on_windows):
    on_windows.refuses.touch()
    said = system.install_at_boot(COMMAND, home)
    made = task(home)
    assert made["UserId"] == system.user_id()
    assert "LogonTrigger" in made
    assert made["LogonType"] == "InteractiveToken"
    assert "as an administrator" in said


def test_a_percent_sign_which_a_task_cannot_have_is_refused(home, on_windows):
    with pytest.raises(OSError, match="has a % in its name"):
        system.install_at_boot(COMMAND, home / "100%")
    assert on_windows.read() == []
    assert system.remove_at_boot().startswith("Nothing to remove")
