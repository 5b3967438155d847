"""How light a plain install is: its packages, and their size.

Run it as `python -m tests.bench.light`: it installs into a new virtual environment, and
takes a while.
Exits 1 over 40 packages or 60 MB.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_PACKAGES = 40
MAX_MEGABYTES = 60
# What every virtual environment has, before anything is installed, and this project itself.
_NOT_COUNTED = re.compile(r"(pip|setuptools|store_orders|_distutils_hack|__editable__.*)\b")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        packages, megabytes = weigh(Path(folder))
    print(f"packages  {packages} (at most {MAX_PACKAGES})")
    print(f"size      {megabytes:.1f} MB (at most {MAX_MEGABYTES})")
    return 0 if packages <= MAX_PACKAGES and megabytes <= MAX_MEGABYTES else 1


def install(folder: Path) -> None:
    """Install the project as README does, in a new virtual environment."""
    venv.create(folder, with_pip=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-e", ROOT]
    subprocess.run(command, check=True)


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


if __name__ == "__main__":
    sys.exit(main())
