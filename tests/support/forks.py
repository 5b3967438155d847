"""Services and commands as processes that fork from one that has imported the program.

Python takes a second to import the program; a fork takes none. An alarm ends a process that goes on
for too long.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.databases import DATABASES
from tests.support.service import ROOT, environment_for, launch, started

HOST = """
import gc
gc.disable()
import atexit, json, os, resource, signal, socket, sys, threading
import alembic.command, flask.cli, flask_limiter.commands
import orders.application, orders.store.care.backups, platformdirs
gc.freeze()
gc.enable()
link = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, outputs, _, _ = socket.recv_fds(link, 2**20, 2)
    if not message:
        sys.exit()
    order = json.loads(message)
    if "wait" in order:
        result = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
    else:
        result = os.fork()
        if result == 0:
            break
    for output in outputs:
        os.close(output)
    link.send(str(result).encode())
link.close()
signal.alarm(order["seconds"])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have ignored it
os.environ.clear()
os.environ.update(order["environment"])
outputs += [os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOCTTY) for path in order["files"]]
for number, output in enumerate(outputs, 1):
    os.dup2(output, number)
    os.close(output)
if order["limit"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
sys.argv[:] = order["arguments"]
exec(order["first"])
try:
    flask.cli.main() if sys.argv[0] == "flask" else orders.application.program.main()
    status = 0
except SystemExit as end:
    status = end.code or 0
# What Python does at its end, but for freeing its memory piece by piece, which takes longest.
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""
# Without forks, and without alarms: a process that runs too long prints its stack, and ends.
_START = """
import faulthandler
faulthandler.dump_traceback_later({seconds}, exit=True)
import app, flask.cli
sys.exit(flask.cli.main() if sys.argv[0] == "flask" else app.main())
"""
COMMAND_SECONDS = 60
# Two dozen at once took 270 s under Wine, on a machine with a load of 11.
START_SECONDS = 500
SERVICE_SECONDS = 1_800


class Forked:
    """A forked process, with the methods of `subprocess.Popen` that tests use."""

    returncode: int | None = None
    stdout = stderr = None

    def __init__(self, forks: Forks, pid: int) -> None:
        self._forks, self.pid = forks, pid
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit status, or None before the end."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = self._forks.ask(wait=self.pid)
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """The process that others fork from."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._one_at_a_time = link, threading.Lock()

    def launch(self, environment: dict[str, str], *arguments: str) -> Forked:
        """Start `app.py` with this environment, and pipes for its output."""
        pipes = [os.pipe(), os.pipe()]
        outputs = [written for _, written in pipes]
        forked = self._fork(
            ["app.py", *arguments], environment, outputs=outputs, seconds=SERVICE_SECONDS
        )
        for output in outputs:
            os.close(output)
        forked.stdout, forked.stderr = (os.fdopen(read, encoding="utf-8") for read, _ in pipes)
        return forked

    def begin(
        self, *arguments, instance, stdout, stderr, limit=None, first="", **environment
    ) -> Forked:
        """Begin `flask …` or `app.py …` over an instance folder, with its output into files.

        No file may grow beyond `limit` bytes. The program `first` is run before it.
        """
        environment = environment_for(instance, **DATABASES.environment(instance), **environment)
        files = [str(stdout), str(stderr)]
        return self._fork(
            arguments,
            environment,
            files=files,
            limit=limit,
            first=first,
            seconds=COMMAND_SECONDS,
        )

    def run(self, *arguments, instance, **environment) -> subprocess.CompletedProcess[str]:
        """Run one to its end; return the completed process."""
        with TemporaryDirectory() as folder:
            out, error = Path(folder, "out"), Path(folder, "error")
            status = self.begin(
                *arguments, instance=instance, stdout=out, stderr=error, **environment
            ).wait()
            return subprocess.CompletedProcess(
                arguments, status, out.read_text(), error.read_text()
            )

    def ask(self, outputs=(), **order) -> int:
        """Ask the process for a fork, or for the exit status of one; return its answer."""
        with self._one_at_a_time:
            socket.send_fds(self._link, [json.dumps(order).encode()], outputs)
            return int(self._link.recv(100))

    def _fork(self, arguments, environment, *, outputs=(), **order) -> Forked:
        order = {"files": [], "limit": None, "first": "", **order}
        arguments = list(map(str, arguments))
        return Forked(
            self, self.ask(outputs, arguments=arguments, environment=environment, **order)
        )


class Starts:
    """The same on a system without forks, where each process is started anew."""

    def launch(self, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        """Start `app.py` with this environment, and pipes for its output."""
        return launch(environment, *arguments)

    def begin(
        self, *arguments, instance, stdout, stderr, limit=None, first="", **environment
    ) -> subprocess.Popen[str]:
        """Begin `flask …` or `app.py …` over an instance folder, with its output into files."""
        assert limit is None, "there are no limits of files' sizes"
        environment = environment_for(instance, **environment)
        start = _START.format(seconds=START_SECONDS)
        program = f"import sys\nsys.argv[:] = {list(map(str, arguments))!r}\n{first}\n{start}"
        with Path(stdout).open("wb") as out, Path(stderr).open("wb") as error:
            return started("-c", program, environment=environment, stdout=out, stderr=error)

    def run(self, *arguments, instance, **environment) -> subprocess.CompletedProcess[str]:
        """Run one to its end; return the completed process."""
        # Under Wine, the files of a process that has just ended may be open for a moment.
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            out, error = Path(folder, "out"), Path(folder, "error")
            process = self.begin(
                *arguments, instance=instance, stdout=out, stderr=error, **environment
            )
            status = process.wait(COMMAND_SECONDS)
            texts = (path.read_text(encoding="utf-8") for path in (out, error))
            return subprocess.CompletedProcess(arguments, status, *texts)


@contextmanager
def forking() -> Iterator[Forks | Starts]:
    """Run the process that others fork from, where there are forks."""
    if not hasattr(os, "fork"):
        yield Starts()
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (
        ours,
        theirs,
        subprocess.Popen(
            [sys.executable, "-c", HOST, str(theirs.fileno())],
            cwd=ROOT,
            env=environment_for(ROOT),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        ),
    ):
        theirs.close()
        yield Forks(ours)
        ours.close()
