"""How this program is installed: in a checkout, as a package, or as a single file to run.

That decides where its data is, how a command is typed, and how a package is added.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess  # nosec B404
import sys
from contextlib import suppress
from pathlib import Path

NAME = "store-orders"
# Only a checkout has app.py beside the package.
_CHECKOUT = Path(__file__).resolve().parent.parent
_IS_CHECKOUT = (_CHECKOUT / "app.py").exists()
# https://pyinstaller.org/en/stable/runtime-information.html
IS_SINGLE_FILE = hasattr(sys, "frozen")
_PACKAGES = {"postgres": "psycopg[binary]", "redis": "redis[hiredis]"}


def instance_folder() -> Path:
    """Return the folder of the data, unless ORDERS_INSTANCE names another.

    It is relative where this user has no home.
    """
    if _IS_CHECKOUT:
        return _CHECKOUT / "instance"
    import platformdirs  # not needed in a checkout

    try:
        return platformdirs.user_data_path(NAME, appauthor=False)
    except RuntimeError:
        return Path("~", NAME)


def unpacked_folder() -> Path | None:
    """Return the temporary folder that a single file has unpacked itself to."""
    return Path(vars(sys)["_MEIPASS"]) if IS_SINGLE_FILE else None


def command(words: str) -> str:
    """Return a command, such as `keys list`, as it is typed where this process was started."""
    return f"{_flask_beside_python() or program()} {words}"


def _flask_beside_python() -> str:
    # After `python app.py` in its folder, it is the shorter and the documented one.
    suffix = ".exe" if sys.executable.endswith(".exe") else ""
    flask = Path(sys.executable).with_name(f"flask{suffix}")
    is_here = sys.argv[0] == "app.py" and Path("app.py").exists()
    return _typed(str(flask)) if is_here and flask.exists() else ""


def service_command() -> list[str]:
    """Return the command that starts the service from any folder, for a supervisor."""
    if IS_SINGLE_FILE:
        return [sys.executable, "--no-open"]
    if _IS_CHECKOUT:
        return [sys.executable, str(_CHECKOUT / "app.py")]
    # Files in the folder where it is started must not be imported.
    return [sys.executable, "-P", "-m", "orders"]


def program() -> str:
    """Return how to type this program's start, as this process was started."""
    started = Path(sys.argv[0])
    if started.name == "app.py":
        return f"{_typed(sys.executable)} {_typed(sys.argv[0])}"
    if started.name == "__main__.py":  # of orders, or of flask
        return f"{_typed(sys.executable)} -m {started.parent.name}"
    if IS_SINGLE_FILE or started.stem in {NAME, "flask"}:
        return _typed(sys.argv[0])
    return NAME  # imported by another program, such as pytest


def how_to_add(extra: str) -> str:
    """Return how to add the package of an extra, which is not installed."""
    if IS_SINGLE_FILE:
        return f"install {NAME} with pipx or pip, as this executable can't be added to"
    package = f"-e '.[{extra}]'" if _IS_CHECKOUT else f"'{_PACKAGES[extra]}'"
    return f"run {_typed(sys.executable)} -m pip install {package}"


def _typed(path: str) -> str:
    name = Path(path).stem if path.endswith(".exe") else Path(path).name
    with suppress(OSError, ValueError):  # the working folder is gone, or another
        # The link itself: an environment's Python is a link to one without its packages.
        if Path(shutil.which(name) or "").absolute() == Path(path).absolute():
            return name
        path = str(Path(path).relative_to(Path.cwd())).removesuffix(".exe")
    # Single quotes mean nothing to a shell whose paths have backslashes.
    return shlex.quote(path) if os.sep == "/" else subprocess.list2cmdline([path])
