"""What differs between systems: private files, syncing, locks, signals, users, starts at boot.

Nothing else asks which system it is. `posix` is Linux' and macOS' part; `at_boot` has all systems'.
"""

from orders.system.at_boot import install_at_boot, remove_at_boot
from orders.system.posix import (
    ignore_hangups,
    ignore_stop_signals,
    is_user,
    keep_new_files_private,
    leave_to_owner,
    local_socket,
    locked_file,
    locked_folder,
    make_private_file,
    make_private_folder,
    open_private_file,
    overwrite,
    revoke_rights_of_others,
    stop_this_process,
    sync,
    user_name,
)

__all__ = [
    "ignore_hangups",
    "ignore_stop_signals",
    "install_at_boot",
    "is_user",
    "keep_new_files_private",
    "leave_to_owner",
    "local_socket",
    "locked_file",
    "locked_folder",
    "make_private_file",
    "make_private_folder",
    "open_private_file",
    "overwrite",
    "remove_at_boot",
    "revoke_rights_of_others",
    "stop_this_process",
    "sync",
    "user_name",
]
