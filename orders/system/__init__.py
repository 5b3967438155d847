"""What differs between systems: private files, syncing, names, locks, signals, users, boot.

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

if sys.platform == "win32":
    from orders.system import windows as this
else:
    from orders.system import posix as this

__all__ = ["install_at_boot", "remove_at_boot"]

CURL = this.CURL
REPLACES_OPEN_FILES = this.REPLACES_OPEN_FILES
ignore_hangups = this.ignore_hangups
is_read_only = this.is_read_only
is_user = this.is_user
keep_new_files_private = this.keep_new_files_private
leave_to_owner = this.leave_to_owner
local_socket = this.local_socket
locked_folder = this.locked_folder
make_private_file = this.make_private_file
make_private_folder = this.make_private_folder
open_private_file = this.open_private_file
overwrite = this.overwrite
quoted = this.quoted
replace = this.replace
revoke_rights_of_others = this.revoke_rights_of_others
spare_other_programs = this.spare_other_programs
state_of = this.state_of
sync = this.sync
unfit_place = this.unfit_place
user_id = this.user_id
user_name = this.user_name
write_utf8 = this.write_utf8


@contextmanager
def locked_file(
    path: Path, patience: float, unless: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Lock a file, which is made where there is none; TimeoutError where another process has.

    Waits for at most so many seconds, or until `unless` returns true. The system releases the lock
    when the process ends, however it ends.
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
