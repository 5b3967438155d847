"""What a measurement was made on and with: the machine, and the versions of all parts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from orders.store.database import sqlite
from tests.bench.speed.peers.all import EVERYBODY, JsonServer

# Packages by another name than what is imported.
_DISTRIBUTIONS = {"flask_smorest": "flask-smorest", "flask_limiter": "flask-limiter"}


def machine() -> dict[str, str]:
    """Return facts about the machine, by name."""
    model = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s+(\d+) kB", _read("/proc/meminfo"))
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(memory[1]) / 1024**2:.0f} GiB" if memory else "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "measured": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def versions() -> dict[str, str]:
    """Return the versions of everything that takes part and is installed, by name."""
    found = {
        "Python": platform.python_version(),
        "SQLite": sqlite.sqlite_module().sqlite_version,
    }
    names = {name for each in EVERYBODY for name in each.packages} | {"limits"}
    for name in sorted(_DISTRIBUTIONS.get(each, each) for each in names):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if JsonServer.missing() is None:
        package = JsonServer.program.parents[2] / "package.json"
        found["json-server"] = json.loads(package.read_text(encoding="utf-8"))["version"]
        found["node"] = _output("node", "--version").removeprefix("v")
    wrk = re.search(r"wrk (\S+)", _output("wrk", "--version"))
    return {**found, "wrk": wrk[1] if wrk else "unknown"}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _output(program: str, *arguments: str) -> str:
    command = [shutil.which(program) or program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()
