"""The differences between systems: private files, syncing, names, locks, signals, users, boot.

Nothing else asks which system it is. `posix` is Linux' and macOS' part,
`windows` that of Windows; `at_boot` has all systems'.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from orders.system.at_boot import install_at_boot, remove_at_boot

# All that one of the two defines: every name that has no underscore before it.
if sys.platform == "win32":
    from orders.system.windows import *  # noqa: F403
else:
    from orders.system.posix import *  # noqa: F403

__all__ = ["install_at_boot", "remove_at_boot"]


@contextmanager
def locked_file(
    path: Path, patience: float, unless: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Lock a file, which is made where there is none; TimeoutError where another process has.

    Waits for at most `patience` seconds, or until `unless` returns true. The system releases the
    lock when the process ends, however it ends.
    """
    lock = filelock.FileLock(path, mode=0o600)
    lock.acquire(timeout=patience, cancel_check=unless)
    try:
        yield
    finally:
        lock.release()


def ignore_stop_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def stop_this_process() -> None:
    signal.raise_signal(signal.SIGTERM)
