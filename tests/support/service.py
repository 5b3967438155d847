"""The service as its users run it: `python app.py` as a process, and commands beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import urllib3

import orders
from orders.application import give_shops, make_routes
from orders.clock import Clock
from orders.settings import Settings, load
from orders.web.api import OrdersFlask
from orders.web.logs import AnswerLog

ROOT = Path(__file__).resolve().parent.parent.parent
# Where the program's packages are: there, or where they were installed.
SOURCE = Path(orders.__file__).resolve().parent.parent
STOP_SECONDS = 40
COMMAND_SECONDS = 600
# Processes inherit the paths, and what coverage measures them by.
INHERITED = {
    name: value
    for name, value in os.environ.items()
    if name in {"PATH", "PYTHONPATH"}
    or name.startswith("COVERAGE_")
    # Without these, there are no sockets and no temporary files on Windows.
    or (sys.platform == "win32" and name in {"SYSTEMROOT", "TEMP", "USERPROFILE"})
}
_apps: dict[str, OrdersFlask] = {}


def app_with_shared_routes(settings: Settings, clock: Clock) -> OrdersFlask:
    """Return an application as `create_app` does, with the routes of others like it."""
    # Making them takes longer than most tests; they are the same wherever the data are.
    shape = repr(replace(settings, instance=ROOT))
    if shape not in _apps:
        _apps[shape] = make_routes(settings)
    app = copy(_apps[shape])
    app.answer_log = AnswerLog()
    give_shops(app, settings, clock)
    return app


class Service:
    """A running service over an instance folder, on a port of its own."""

    def __init__(
        self,
        instance: Path,
        *arguments: str,
        root: Path = ROOT,
        forks: Any = None,
        **environment: str,
    ) -> None:
        """Start the program in `root` with settings `ORDERS_…`, and wait until it serves.

        With `forks`, Python is not started anew: support/forks.
        """
        self.environment = environment_for(instance, **environment)
        self.root = root
        start = forks.launch if forks else partial(launch, root=root)
        self.process = start(self.environment, *arguments)
        self.log: list[str] = []
        self.url = self._wait_for_address()
        # If the pipe filled up, the service would block.
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.http = urllib3.PoolManager(maxsize=32, retries=False)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, for a socket."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def request(
        self, method: str, path: str, key: str | None = None, **kwargs: Any
    ) -> urllib3.BaseHTTPResponse:
        """Send a request over the network; return urllib3's response."""
        headers = kwargs.pop("headers", {})
        if key:
            headers = {"Authorization": f"Bearer {key}", **headers}
        return self.http.request(method, self.url + path, headers=headers, **kwargs)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a flask command beside the service; return the completed process."""
        return run_flask(*arguments, environment=self.environment, root=self.root)

    def output(self, *command: str) -> str:
        """Run a flask command that must succeed; return its output."""
        if self.root == ROOT:
            # In this process: starting another takes longest.
            settings = load(self.environment)
            app = app_with_shared_routes(settings, Clock())
            done = app.test_cli_runner().invoke(args=command)
            status, output, said = done.exit_code, done.stdout, done.stderr
        else:
            completed = self.command(*command)
            status, output, said = completed.returncode, completed.stdout, completed.stderr
        assert status == 0, said
        return output

    def issue(self, plan: str = "business", *options: str) -> str:
        """Issue a key with the command; return its secret."""
        return self.output("keys", "issue", "test", "--plan", plan, *options).strip()

    def stop(self) -> int:
        """Ask it to stop, as the system does; return the exit status."""
        stop(self.process)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def _wait_for_address(self) -> str:
        for line in self.process.stderr or ():
            self.log.append(line)
            serving = re.search(r"Serving on (\S+?)\. ", line)
            if serving:
                return serving[1]
        raise AssertionError(f"it did not start: {''.join(self.log)}")

    def _read_log(self) -> None:
        self.log.extend(self.process.stderr or ())

    def wait(self) -> int:
        """Wait until it has ended; return the exit status."""
        status = self.process.wait(STOP_SECONDS)
        self._reader.join(60)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.http.clear()
        return status


def environment_for(instance: Path, **settings: str) -> dict[str, str]:
    """Return the environment of a service over an instance folder, on any free port."""
    return {
        **INHERITED,
        "PYTHONWARNINGS": "error",
        "ORDERS_INSTANCE": str(instance),
        "ORDERS_PORT": "0",
        "ORDERS_BACKUPS": "off",
        **settings,
    }


def launch(
    environment: dict[str, str],
    *arguments: str,
    log: int | IO[str] = subprocess.PIPE,
    root: Path = ROOT,
) -> subprocess.Popen[str]:
    """Start `python app.py` with this environment; return the process, which may not serve yet."""
    return started(
        str(root / "app.py"),
        *arguments,
        environment=_known_to(root, environment),
        stdout=subprocess.PIPE,
        stderr=log,
        root=root,
    )


def started(
    *arguments: str,
    environment: dict[str, str],
    stdout: int | IO[Any],
    stderr: int | IO[Any],
    root: Path = ROOT,
) -> subprocess.Popen[str]:
    """Start Python with these arguments; `stop` can end the process."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        stdout=stdout,
        stderr=stderr,
        encoding="utf-8",
        # A console of its own, in which Ctrl-C stops no other process.
        creationflags=subprocess.CREATE_NO_WINDOW if sys.platform == "win32" else 0,
    )


# By another process, as a process has one console at a time.
_CTRL_C = """
import ctypes, sys
console = ctypes.WinDLL("kernel32")
console.FreeConsole()
if console.AttachConsole(int(sys.argv[1])):
    console.SetConsoleCtrlHandler(None, True)
    console.GenerateConsoleCtrlEvent(0, 0)
"""


def stop(process: Any) -> None:
    """Ask a service to stop, as the system does: by SIGTERM, on Windows by Ctrl-C."""
    if sys.platform != "win32":
        process.terminate()
        return
    if process.poll() is None:
        subprocess.run(
            [sys.executable, "-c", _CTRL_C, str(process.pid)], check=True, stdin=subprocess.PIPE
        )


def _known_to(root: Path, environment: dict[str, str]) -> dict[str, str]:
    # An older program knows no backups, and refuses settings that it does not know.
    unknown = set() if root == ROOT else {"ORDERS_BACKUPS"}
    return {name: value for name, value in environment.items() if name not in unknown}


@contextmanager
def running(
    instance: Path, *arguments: str, root: Path = ROOT, forks: Any = None, **environment: str
) -> Iterator[Service]:
    """Run the service; stop it at the end."""
    service = Service(instance, *arguments, root=root, forks=forks, **environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()


def run_flask(
    *arguments: str, environment: dict[str, str], root: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a flask command in the project's folder; return the completed process."""
    return _run("-m", "flask", *arguments, environment=environment, root=root)


def run_app(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `python app.py` where it should end by itself; return the completed process."""
    environment = {**INHERITED, "PYTHONWARNINGS": "error", "ORDERS_PORT": "0", **settings}
    return _run("app.py", *arguments, environment=environment)


def _run(
    *arguments: str, environment: dict[str, str], root: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=_known_to(root, environment),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=COMMAND_SECONDS,
    )
