"""How light a plain install is: packages, their size, the time to start, the memory after it.

Run it as `python -m bench.light`: it installs into a new virtual environment, which takes a while.
Exits 1 over 40 packages or 60 MB.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.support.process import resident_mib

ROOT = Path(__file__).resolve().parent.parent
MAX_PACKAGES = 40
MAX_MEGABYTES = 60
MEGABYTES_PER_MIB = 2**20 / 1e6
# What every virtual environment has, before anything is installed, and this project itself.
_NOT_COUNTED = re.compile(r"(pip|setuptools|store_orders|_distutils_hack|__editable__.*)\b")


def main() -> int:
    """Measure and print; return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        python = install(Path(folder) / "venv")
        packages, megabytes = weigh(Path(folder) / "venv")
        seconds, resident = start(python, Path(folder) / "instance")
    print(f"packages  {packages} (at most {MAX_PACKAGES})")
    print(f"size      {megabytes:.1f} MB (at most {MAX_MEGABYTES})")
    print(f"start     {seconds:.2f} s until it serves")
    print(f"memory    {resident:.0f} MB resident after it")
    return 0 if packages <= MAX_PACKAGES and megabytes <= MAX_MEGABYTES else 1


def install(folder: Path) -> Path:
    """Install the project as README does; return the environment's Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-e", ROOT], check=True)  # noqa: S603
    return python


def weigh(folder: Path) -> tuple[int, float]:
    """Return how many packages there are, and the megabytes of their files."""
    (site_packages,) = folder.glob("lib/python*/site-packages")
    packages = [
        each for each in site_packages.glob("*.dist-info") if not _NOT_COUNTED.match(each.name)
    ]
    size = sum(
        file.stat().st_size
        for top in site_packages.iterdir()
        if not _NOT_COUNTED.match(top.name)
        for file in ([top] if top.is_file() else top.rglob("*"))
        # What Python compiles for itself comes and goes.
        if file.is_file() and file.suffix != ".pyc"
    )
    return len(packages), size / 1e6


def start(python: Path, instance: Path) -> tuple[float, float]:
    """Start the service on an existing store; return the seconds to an answer, and megabytes."""
    measured = (0.0, 0.0)
    for _ in range(2):  # the first start makes the store and compiles the code
        began = time.perf_counter()
        service = subprocess.Popen(  # noqa: S603 - this program
            [python, ROOT / "app.py"],
            env={**os.environ, "ORDERS_INSTANCE": str(instance), "ORDERS_PORT": "0"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in service.stderr or ():
            if "Serving on" in line:
                break
        measured = (time.perf_counter() - began, resident_mib(service.pid) * MEGABYTES_PER_MIB)
        service.terminate()
        service.communicate()
    return measured


if __name__ == "__main__":
    sys.exit(main())
