"""Starts the service at boot, or when its user logs in.

By systemd's user units, launchd's agents, or a scheduled task of Windows.
"""

from __future__ import annotations

import platform
import plistlib
import shlex
import subprocess  # nosec B404
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from xml.sax.saxutils import escape  # nosec B406

if sys.platform == "win32":
    from orders.system.windows import user_id
else:
    from orders.system.posix import user_id

# Its name for systemd, launchd and the task scheduler.
_SERVICE = "store-orders"
# A stop answers what has been received, for at most 30 s, and ends webhooks, for at most 6.
_STOP_SECONDS = 45
# How long a program of the system may take: some wait until the service has stopped.
PATIENCE_SECONDS = _STOP_SECONDS + 15
# The service bounds its log; Python's own words about a crash can't go there.
_LOG = "log.txt"
_CRASHES = "crashes.txt"
# Where macOS has disks other than its own.
_VOLUMES = Path("/Volumes")


def install_at_boot(command: list[str], folder: Path) -> str:
    """Have the system start a service for this user; return what was installed, and its log.

    The service runs on this instance folder, which must exist. What was installed before is
    replaced. OSError says why it can't be done.
    """
    ways = {"Darwin": _to_launchd, "Windows": _to_task}
    return ways.get(platform.system(), _to_systemd)(command, folder)


def remove_at_boot() -> str:
    """Undo `install_at_boot`, and stop that service; return what was done."""
    ways = {"Darwin": _from_launchd, "Windows": _from_task}
    return ways.get(platform.system(), _from_systemd)()


def systemd_unit(command: list[str], folder: Path) -> str:
    """Return the unit of a service for one user (systemd.service(5))."""
    program, *arguments = (_in_unit(each) for each in command)
    return f"""\
# Made by `store-orders at-boot`, which also removes it.
[Unit]
Description=Store Orders

[Service]
Type=notify
# A single file runs as the child of what unpacks it.
NotifyAccess=all
TimeoutStartSec=infinity
# Its loop reports every second that it runs. If it stands still, it is ended with a report of
# where, and started again.
WatchdogSec=30
Environment=PYTHONFAULTHANDLER=1 {_in_unit(f"ORDERS_INSTANCE={folder}")}
ExecStart=:{" ".join([program, *arguments])}
Restart=always
RestartSec=5
TimeoutStopSec={_STOP_SECONDS}
KillMode=mixed

[Install]
WantedBy=default.target
"""


def _in_unit(word: str) -> str:
    # Percent signs are specifiers. The colon before the program keeps dollars as they are.
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped.replace("%", "%%")}"'


def _unit_path() -> Path:
    return Path.home() / ".config" / "systemd" / "user" / f"{_SERVICE}.service"


def _to_systemd(command: list[str], folder: Path) -> str:
    path = _unit_path()
    try:
        _run("systemctl", "--user", "daemon-reload")
    except OSError as error:
        line = shlex.join(["env", f"ORDERS_INSTANCE={folder}", *command])
        raise OSError(
            f"systemd runs no services for this user here ({error}). After su or sudo, log in as "
            f"the user itself. Without systemd, add this line by crontab -e: @reboot {line}"
        ) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(systemd_unit(command, folder), encoding="utf-8")
    _run("systemctl", "--user", "daemon-reload")
    _run("systemctl", "--user", "enable", _SERVICE)
    # Without waiting: the folder may be in use, and an upgrade of the store may take minutes.
    _run("systemctl", "--user", "restart", "--no-block", _SERVICE)
    return (
        f"{path} is installed, and the service is being started. "
        f"If it fails, it is started again. {_starts_when()}\n"
        f"Status: systemctl --user status {_SERVICE}\n"
        f"Log: journalctl --user -u {_SERVICE}"
    )


def _starts_when() -> str:
    # Without this, a user's services run while the user is logged in.
    try:
        _run("loginctl", "--no-ask-password", "enable-linger")
    except OSError:
        return (
            "It starts when you log in, and stops when you log out, until this is done once: "
            'sudo loginctl enable-linger "$USER"'
        )
    return "It starts when the computer does."


def _from_systemd() -> str:
    path = _unit_path()
    if not path.exists():
        return f"Nothing to remove: there is no {path}."
    _run("systemctl", "--user", "disable", "--now", _SERVICE)
    path.unlink()
    _run("systemctl", "--user", "daemon-reload")
    return (
        f"The service is stopped, and {path} is removed. "
        "If nothing else needs to run while you are logged out: loginctl disable-linger"
    )


def launchd_agent(command: list[str], folder: Path) -> bytes:
    """Return the property list of a service for one user (launchd.plist(5))."""
    return plistlib.dumps(
        {
            "Label": _SERVICE,
            "ProgramArguments": command,
            "EnvironmentVariables": {"ORDERS_INSTANCE": str(folder), "ORDERS_LOG_FILE": _LOG},
            "WorkingDirectory": str(folder),
            "RunAtLoad": True,
            "KeepAlive": True,
            "ExitTimeOut": _STOP_SECONDS,
            # People wait for it: any other type has its processor and disk throttled.
            "ProcessType": "Interactive",
            # launchd takes a number: 63 is 077.
            "Umask": 0o077,
            "StandardErrorPath": str(folder / _CRASHES),
        }
    )


def _agent_path() -> Path:
    return Path.home() / "Library" / "LaunchAgents" / f"{_SERVICE}.plist"


def _to_launchd(command: list[str], folder: Path) -> str:
    path, domain = _agent_path(), f"gui/{user_id()}"
    if path.exists():
        _from_launchd()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(launchd_agent(command, folder))
    try:
        _run("launchctl", "bootstrap", domain, str(path))
    except OSError as error:
        path.unlink()
        raise OSError(
            f"launchd runs no services for this user here ({error}). Log in at the computer "
            "itself, not over SSH, and run this in Terminal"
        ) from None
    return (
        f"{path} is installed, and the service is being started. It starts when you log in, and "
        f"again if it fails.{_hidden_from_agents(command, folder)}\n"
        f"Status: launchctl print {domain}/{_SERVICE}\n"
        f"Log: {folder / _LOG}"
    )


def _hidden_from_agents(command: list[str], folder: Path) -> str:
    # Terminal has the person's consent to read them, and what launchd starts has not.
    hidden = [*(Path.home() / name for name in ("Desktop", "Documents", "Downloads")), _VOLUMES]
    paths = [folder, *map(Path, command)]
    for each in hidden:
        if any(path.is_relative_to(each) for path in paths):
            return (
                f" macOS may deny it access to {each}: if there is no log, move the program and "
                "its folder into your home itself, and do this again."
            )
    return ""


def _from_launchd() -> str:
    path = _agent_path()
    if not path.exists():
        return f"Nothing to remove: there is no {path}."
    path.unlink()
    agent = f"gui/{user_id()}/{_SERVICE}"
    with suppress(OSError):  # it may be gone already
        _run("launchctl", "bootout", agent)
        _wait_until_gone(agent)
    return f"The service is stopped, and {path} is removed."


def _wait_until_gone(agent: str) -> None:
    # `bootout` doesn't wait until the service has ended, and until then there can't be another.
    for _ in range(_STOP_SECONDS):
        _run("launchctl", "print", agent)  # OSError where there is none of that name
        time.sleep(1)


# https://learn.microsoft.com/windows/win32/taskschd/task-scheduler-schema. Its second trigger, each
# minute, is ignored while it runs: what the scheduler calls a failure is only a start that fails.
_TASK = """\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>Made by store-orders at-boot, which also removes it.</Description>
  </RegistrationInfo>
  <Triggers>
    <{when}><Enabled>true</Enabled>{whose}</{when}>
    <TimeTrigger>
      <Enabled>true</Enabled>
      <StartBoundary>2026-01-01T00:00:00</StartBoundary>
      <Repetition><Interval>PT1M</Interval></Repetition>
    </TimeTrigger>
  </Triggers>
  <Principals><Principal id="Author">
    <UserId>{user}</UserId>
    <LogonType>{logon}</LogonType>
    <RunLevel>LeastPrivilege</RunLevel>
  </Principal></Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
  </Settings>
  <Actions Context="Author"><Exec>
    <Command>cmd.exe</Command>
    <Arguments>{arguments}</Arguments>
    <WorkingDirectory>{folder}</WorkingDirectory>
  </Exec></Actions>
</Task>
"""


def scheduled_task(command: list[str], folder: Path, user: str, *, at_boot: bool) -> str:
    """Return a task of Windows for a user, by SID, which starts at boot or when that user signs in.

    A task at boot has no window, and needs no password.
    """
    when = "BootTrigger" if at_boot else "LogonTrigger"
    whose = "" if at_boot else f"<UserId>{user}</UserId>"
    settings = f'set "ORDERS_INSTANCE={folder}"&& set "ORDERS_LOG_FILE={_LOG}"'
    line = f"{settings}&& {subprocess.list2cmdline(command)}"
    arguments = escape(f'/d /c "{line} >> "{folder / _CRASHES}" 2>&1"')
    return _TASK.format(
        when=when,
        whose=whose,
        user=user,
        logon="S4U" if at_boot else "InteractiveToken",
        arguments=arguments,
        folder=escape(str(folder)),
    )


def _to_task(command: list[str], folder: Path) -> str:
    if any(each in f"{folder}{command}" for each in '%"'):
        raise OSError(f"{folder} or {command[0]} has a % in its name: choose one without.")
    try:
        _make_task(scheduled_task(command, folder, user_id(), at_boot=True))
        starts = "It starts when the computer does."
    except OSError:  # for administrators only
        _make_task(scheduled_task(command, folder, user_id(), at_boot=False))
        starts = (
            "It starts when you sign in, in a window. To have it start when the computer does, "
            "without one, run this once as an administrator."
        )
    with suppress(OSError):  # it may be running already
        _run("schtasks", "/Run", "/TN", _SERVICE)
    return (
        f"The task {_SERVICE} is installed. {starts} "
        "If it ends, it is started again within a minute.\n"
        f"Status: schtasks /Query /TN {_SERVICE} /V /FO LIST\n"
        f"Log: {folder / _LOG}"
    )


def _make_task(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "task.xml")
        file.write_text(text, encoding="utf-16")
        _run("schtasks", "/Create", "/F", "/TN", _SERVICE, "/XML", str(file))


def _from_task() -> str:
    try:
        _run("schtasks", "/Query", "/TN", _SERVICE)
    except OSError:
        return f"Nothing to remove: there is no task {_SERVICE}."
    with suppress(OSError):  # it may not be running
        _run("schtasks", "/End", "/TN", _SERVICE)
    _run("schtasks", "/Delete", "/F", "/TN", _SERVICE)
    return f"The service is stopped, and the task {_SERVICE} is removed."


def _run(*command: str) -> None:
    try:
        status, said = _ended(command)
    except subprocess.TimeoutExpired:
        raise OSError(
            f"`{shlex.join(command)}` has not ended within {PATIENCE_SECONDS} s, and was stopped. "
            "Try again; if it does that each time, restart the computer"
        ) from None
    if status:
        said = " ".join(said.split()) or f"it ended with {status}"
        raise OSError(f"`{shlex.join(command)}` failed: {said}")


def _ended(command: tuple[str, ...]) -> tuple[int, str]:
    # Into a file: a pipe ends only when all have that a program started, which may be a service.
    with tempfile.TemporaryFile() as errors:
        # Fixed words and paths of our own; the program is found as the user's shell finds it.
        done = subprocess.run(  # noqa: S603 # nosec B603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        errors.seek(0)
        return done.returncode, errors.read().decode(errors="replace")
