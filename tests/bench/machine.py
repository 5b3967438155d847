"""The environment of a measurement: the machine, and the versions of all parts."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from orders.store.database import sqlite
from tests.bench.contestants import EVERYBODY, JsonServer


def machine() -> dict[str, str]:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / 2**30:.0f} GiB",
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
    for name in sorted({name for each in EVERYBODY for name in each.packages}):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name.replace("_", "-")] = importlib.metadata.version(name)
    if JsonServer.missing() is None:
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
        found |= {"json-server": "0.17", "node": node.stdout.strip().removeprefix("v")}
    said = subprocess.run(["wrk", "--version"], capture_output=True, text=True, check=False)
    return {**found, "wrk": said.stdout.split()[1]}
