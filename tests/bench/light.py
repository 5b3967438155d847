"""How light a plain install is: its packages, and their size.

Run it as `python -m tests.bench.light`: it installs into a new virtual environment, and takes a
while. Exits 1 over 40 packages or 60 MB.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.support.service import ROOT

MAX_PACKAGES, MAX_MEGABYTES = 40, 60
# What every virtual environment has, before anything is installed, and this project itself.
_NOT_COUNTED = re.compile(r"(pip|setuptools|store_orders|_distutils_hack|__editable__.*)\b")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        pip = [Path(folder, "bin", "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", "-e", ROOT], check=True)
        (site_packages,) = Path(folder).glob("lib/python*/site-packages")
        installed = [each for each in site_packages.iterdir() if not _NOT_COUNTED.match(each.name)]
        packages = sum(each.suffix == ".dist-info" for each in installed)
        # What Python compiles for itself comes and goes.
        files = (file for top in installed for file in [top, *top.rglob("*")] if file.is_file())
        megabytes = sum(file.stat().st_size for file in files if file.suffix != ".pyc") / 1e6
    print(f"packages  {packages} (at most {MAX_PACKAGES})")
    print(f"size      {megabytes:.1f} MB (at most {MAX_MEGABYTES})")
    return 0 if packages <= MAX_PACKAGES and megabytes <= MAX_MEGABYTES else 1


if __name__ == "__main__":
    sys.exit(main())
