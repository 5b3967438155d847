"""Commands and starts as processes that fork from one that has imported the program.

Python takes a second to import the program; a fork takes none. An alarm ends a process that goes on
for too long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.databases import DATABASES
from tests.support.service import ROOT

HOST = """
import gc, json, os, resource, signal, sys
import alembic.command, flask.cli
import app, orders.store.care.backup
gc.freeze()
for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        result = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
    else:
        result = os.fork()
        if result == 0:
            break
    print(result, flush=True)
else:
    sys.exit()
signal.alarm(60)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have ignored it
os.environ.update(order["environment"])
for number, path in ((1, order["stdout"]), (2, order["stderr"])):
    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOCTTY), number)
if order["limit"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
sys.argv[:] = order["arguments"]
sys.exit(flask.cli.main() if sys.argv[0] == "flask" else app.main())
"""


class Forks:
    """The process that others fork from."""

    def __init__(self, process):
        self._process = process

    def begin(self, *arguments, instance, stdout, stderr, limit=None, **environment):
        """Begin `flask …` or `app.py …` over an instance folder; return the process' id.

        Its output goes to files. No file may grow beyond `limit` bytes.
        """
        return self._ask(
            arguments=list(map(str, arguments)),
            environment={
                "ORDERS_INSTANCE": str(instance),
                **DATABASES.environment(instance),
                **environment,
            },
            stdout=str(stdout),
            stderr=str(stderr),
            limit=limit,
        )

    def wait(self, pid):
        """Wait for the end of a process; return its exit status."""
        return self._ask(wait=pid)

    def run(self, *arguments, instance, **environment):
        """Run one to its end; return the completed process."""
        with TemporaryDirectory() as folder:
            out, error = Path(folder, "out"), Path(folder, "error")
            pid = self.begin(*arguments, instance=instance, stdout=out, stderr=error, **environment)
            status = self.wait(pid)
            return subprocess.CompletedProcess(
                arguments, status, out.read_text(), error.read_text()
            )

    def _ask(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def forking():
    """Run the process that others fork from."""
    with subprocess.Popen(
        [sys.executable, "-c", HOST],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Forks(process)
