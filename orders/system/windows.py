"""The differences between systems, for Windows.

Private means: an access control list (ACL) of its own, which inherits nothing and names only the
owner. Files that others make in a private folder, SQLite's among them, inherit that folder's.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import wintypes
from pathlib import Path

# So that mypy reads it for Windows only.
assert sys.platform == "win32"  # noqa: S101 # nosec B101

# An open file can be neither renamed nor replaced.
REPLACES_OPEN_FILES = False
# In PowerShell, curl is another command.
CURL = "curl.exe"
# A scanner or an indexer opens new files for a moment: for this long, a name is tried again.
_NAME_SECONDS = 2.0
_NAME_PAUSE = 0.02
# Access denied, a sharing violation: https://learn.microsoft.com/windows/win32/debug/system-error-codes
_IN_USE = {5, 32}
# Programs can't open longer paths everywhere, and SQLite never; work needs 80 characters of it.
_LONGEST_FOLDER = 259 - 80
_LOCK = ".lock"
_WAIT = 0.05
# winnt.h, winbase.h, accctrl.h, fileapi.h
_GENERIC_READ_WRITE, _GENERIC_WRITE = 0xC0000000, 0x40000000
_SHARE_ALL = 7
_CREATE_NEW, _OPEN_EXISTING, _OPEN_ALWAYS = 1, 3, 4
_DELETE_ON_CLOSE, _FOLDERS_TOO, _NOT_FOLLOWED = 0x04000000, 0x02000000, 0x00200000
_OWNER, _ACL, _PROTECTED = 1, 4, 0x80000000
_FILE_OBJECT = 1
_TOKEN_QUERY, _TOKEN_USER, _TOKEN_OWNER = 8, 1, 4
_PERSISTENT_ACLS, _READ_ONLY_VOLUME = 0x8, 0x80000
_REMOTE = 4
_UTF8 = 65001

_kernel = ctypes.WinDLL("kernel32", use_last_error=True)
_advapi = ctypes.WinDLL("advapi32", use_last_error=True)
_Pointer = ctypes.c_void_p
_kernel.CreateFileW.restype = wintypes.HANDLE
_kernel.LocalFree.argtypes = _kernel.CloseHandle.argtypes = [_Pointer]
_kernel.FlushFileBuffers.argtypes = [_Pointer]
_kernel.GetCurrentProcess.restype = wintypes.HANDLE
_INVALID_HANDLE = wintypes.HANDLE(-1).value


class _Attributes(ctypes.Structure):
    """SECURITY_ATTRIBUTES."""

    _fields_ = (
        ("length", wintypes.DWORD),
        ("descriptor", ctypes.c_void_p),
        ("inherits", wintypes.BOOL),
    )


def quoted(word: str) -> str:
    """Return a word as it is typed in the command prompt and in Windows PowerShell.

    To the one, a backslash and two quotes are a quote and the end of the quotation, which the next
    such pair begins again; the other hands on a backslash and one, which are a quote. So there can
    be no blank between quotes in the word.
    """
    return '"' + word.replace('"', '\\""') + '"'


def spare_other_programs() -> None:
    """Let programs that a single file starts find their own libraries, not those unpacked."""
    _kernel.SetDllDirectoryW(None)


def write_utf8() -> None:
    """Write text as UTF-8 from now on, to consoles, files and pipes, whatever the code page."""
    # The command prompt goes on with the one that it had.
    atexit.register(_kernel.SetConsoleOutputCP, _kernel.GetConsoleOutputCP())
    _kernel.SetConsoleOutputCP(_UTF8)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]


def has_own_window() -> bool:
    """Return whether the window of this process closes with it: it was started by a double-click.

    A single file is two processes, and a command prompt would be one more.
    """
    processes = (wintypes.DWORD * 3)()
    count = int(_kernel.GetConsoleProcessList(processes, len(processes)))
    return 0 < count < len(processes)


def keep_new_files_private() -> None:
    """Do nothing: they inherit the ACL of their folder."""


def make_private_folder(path: Path) -> None:
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            with _attributes(_descriptor({user_id()}, is_folder=True)) as attributes:
                made = _kernel.CreateDirectoryW(str(each), attributes)
            if not made and not each.is_dir():
                raise _last_error(each)
    _make_private(path)


def make_private_file(path: Path) -> None:
    with _attributes(_descriptor({user_id()}, is_folder=False)) as attributes:
        _kernel.CloseHandle(_open(path, _GENERIC_WRITE, 0, _CREATE_NEW, _NOT_FOLLOWED, attributes))


def open_private_file(path: Path) -> int:
    with suppress(FileExistsError):
        make_private_file(path)
    return os.open(path, os.O_RDWR | os.O_BINARY)


def overwrite(descriptor: int, content: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, content)


def leave_to_owner(path: Path, folder: Path) -> None:
    """Let the owner of a folder use what this process, such as a task of the system, made there."""
    if not _is_own(folder) and _has_acls(path):
        _set_acl(path, {_owner(folder), user_id()})


def revoke_rights_of_others(path: Path) -> None:
    if path.exists():
        _make_private(path)


def sync(path: Path) -> None:
    """Write a file, or where the system can the names in a folder, through to the disk."""
    if path.is_dir():
        # Where this is refused, NTFS has names in a journal of its own.
        with suppress(OSError):
            handle = _open(path, _GENERIC_WRITE, _SHARE_ALL, _OPEN_EXISTING, _FOLDERS_TOO)
            _kernel.FlushFileBuffers(handle)
            _kernel.CloseHandle(handle)
        return
    descriptor = os.open(path, os.O_RDWR | os.O_BINARY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    ends = time.monotonic() + _NAME_SECONDS
    while True:
        try:
            source.replace(target)
        except PermissionError as error:
            if error.winerror not in _IN_USE or time.monotonic() > ends:
                raise
            time.sleep(_NAME_PAUSE)
        else:
            return


def state_of(path: Path) -> tuple[int, ...]:
    status = path.stat()
    # The time of a change may be set only when the file is closed.
    return status.st_ino, status.st_size


@contextmanager
def locked_folder(path: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder by a file in it, which goes with the lock; yield whether it is this user's.

    OSError is raised where it can't be locked: at once, unless it is to wait for another process.
    """
    if path.lstat().st_file_attributes & stat.FILE_ATTRIBUTE_REPARSE_POINT:  # a link, a junction
        raise NotADirectoryError(path)
    flags = _DELETE_ON_CLOSE | _NOT_FOLLOWED
    while True:
        try:
            handle = _open(path / _LOCK, _GENERIC_READ_WRITE, 0, _OPEN_ALWAYS, flags)
        except PermissionError:
            if not wait:
                raise
            time.sleep(_WAIT)
        else:
            break
    try:
        yield _is_own(path)
    finally:
        _kernel.CloseHandle(handle)


def ignore_hangups() -> None:
    """Do nothing: there is no such signal."""


def user_name() -> str:
    size = wintypes.DWORD(257)
    name = ctypes.create_unicode_buffer(size.value)
    return name.value if _advapi.GetUserNameW(name, ctypes.byref(size)) else user_id()


def is_user(name: str) -> bool:
    sid, domain = ctypes.create_string_buffer(256), ctypes.create_unicode_buffer(256)
    sizes = wintypes.DWORD(256), wintypes.DWORD(256), wintypes.DWORD()
    of_sid, of_domain, kind = map(ctypes.byref, sizes)
    found = _advapi.LookupAccountNameW(None, name, sid, of_sid, domain, of_domain, kind)
    return bool(name and found)


def local_socket(kind: socket.SocketKind) -> socket.socket:
    """Raise OSError: Python has no such sockets here, and neither systemd nor Litestream runs."""
    raise OSError(f"there are no local sockets ({kind.name}) on Windows")


def is_read_only(path: Path) -> bool:
    return bool(_volume_flags(path) & _READ_ONLY_VOLUME)


def unfit_place(folder: Path) -> str:
    """Return why a database can't be in a folder, in a sentence; nothing where it can."""
    plain = str(folder).removeprefix("\\\\?\\")
    if plain.startswith(("\\\\", "UNC\\")) or _kernel.GetDriveTypeW(folder.anchor) == _REMOTE:
        return (
            f"{folder} is on another computer, where SQLite's files can be damaged. Choose a "
            "folder on a disk of this one with ORDERS_INSTANCE. Backups may go there."
        )
    if len(plain) > _LONGEST_FOLDER:
        return (
            f"{folder} is too long a name for Windows: choose a folder with at most "
            f"{_LONGEST_FOLDER} characters with ORDERS_INSTANCE."
        )
    return ""


def _make_private(path: Path) -> None:
    if not _has_acls(path):
        return  # FAT and exFAT, as sticks have them
    text = _security(path)
    trusted = {_owner(path), _shown(user_id())}
    # D:, flags, and entries in parentheses, each of which ends with its user.
    flags, *entries = text.partition("D:")[2].split("(")
    inherits = path.is_dir() and "P" not in flags
    names = {each.rpartition(")")[0].split(";")[5] for each in entries}
    if inherits or not entries or not names <= trusted:
        _set_acl(path, trusted)


def _set_acl(path: Path, sids: set[str]) -> None:
    with _described(_descriptor(sids, is_folder=path.is_dir())) as descriptor:
        if path.is_dir():
            _correct_inherited(path, descriptor)
        wanted = wintypes.DWORD(_ACL | _PROTECTED)
        if not _advapi.SetFileSecurityW(str(path), wanted, descriptor):
            raise _last_error(path)


def _correct_inherited(folder: Path, descriptor: ctypes.c_void_p) -> None:
    """Set a folder's ACL, and what the files in it inherit of it."""
    acl, is_there, is_default = _Pointer(), wintypes.BOOL(), wintypes.BOOL()
    _advapi.GetSecurityDescriptorDacl(
        descriptor, ctypes.byref(is_there), ctypes.byref(acl), ctypes.byref(is_default)
    )
    wanted = wintypes.DWORD(_ACL | _PROTECTED)
    code = _advapi.SetNamedSecurityInfoW(str(folder), _FILE_OBJECT, wanted, None, None, acl, None)
    if code:
        raise _error(code, folder)


def _descriptor(sids: set[str], *, is_folder: bool) -> str:
    """Return, in Windows' language for it (SDDL), an ACL that allows these users everything."""
    inherited = "OICI" if is_folder else ""
    return "D:P" + "".join(f"(A;{inherited};FA;;;{sid})" for sid in sorted(sids))


@contextmanager
def _described(text: str) -> Iterator[ctypes.c_void_p]:
    descriptor = _Pointer()
    if not _advapi.ConvertStringSecurityDescriptorToSecurityDescriptorW(
        text, 1, ctypes.byref(descriptor), None
    ):
        raise _last_error(None)
    try:
        yield descriptor
    finally:
        _kernel.LocalFree(descriptor)


@contextmanager
def _attributes(text: str) -> Iterator[object]:
    with _described(text) as descriptor:
        yield ctypes.byref(_Attributes(ctypes.sizeof(_Attributes), descriptor, False))


def _security(path: Path) -> str:
    """Return a file's owner and ACL, in SDDL."""
    descriptor = _Pointer()
    wanted = wintypes.DWORD(_OWNER | _ACL)
    code = _advapi.GetNamedSecurityInfoW(
        str(path), _FILE_OBJECT, wanted, None, None, None, None, ctypes.byref(descriptor)
    )
    if code:
        raise _error(code, path)
    try:
        return _text_of(descriptor)
    finally:
        _kernel.LocalFree(descriptor)


def _text_of(descriptor: ctypes.c_void_p) -> str:
    text = wintypes.LPWSTR()
    wanted = wintypes.DWORD(_OWNER | _ACL)
    if not _advapi.ConvertSecurityDescriptorToStringSecurityDescriptorW(
        descriptor, 1, wanted, ctypes.byref(text), None
    ):
        raise _last_error(None)
    try:
        return text.value or ""
    finally:
        _kernel.LocalFree(text)


def _owner(path: Path) -> str:
    return _security(path).removeprefix("O:").partition("D:")[0].partition("G:")[0]


def _is_own(path: Path) -> bool:
    # An administrator's files may belong to all administrators.
    return _owner(path) in {_shown(user_id()), _shown(user_id(_TOKEN_OWNER))}


def _shown(sid: str) -> str:
    """Return a SID as the system shows it in SDDL, where some have short names."""
    with _described(f"O:{sid}") as descriptor:
        return _text_of(descriptor).removeprefix("O:")


def user_id(kind: int = _TOKEN_USER) -> str:
    """Return the SID of this process' user or, by another kind, of the owner of its files."""
    token, size, text = wintypes.HANDLE(), wintypes.DWORD(), wintypes.LPWSTR()
    process = wintypes.HANDLE(_kernel.GetCurrentProcess())
    _advapi.OpenProcessToken(process, _TOKEN_QUERY, ctypes.byref(token))
    try:
        _advapi.GetTokenInformation(token, kind, None, 0, ctypes.byref(size))
        facts = ctypes.create_string_buffer(size.value)
        _advapi.GetTokenInformation(token, kind, facts, size, ctypes.byref(size))
        sid = _Pointer.from_buffer(facts)  # the first field of both structures
        if not _advapi.ConvertSidToStringSidW(sid, ctypes.byref(text)):
            raise _last_error(None)
        return text.value or ""
    finally:
        _kernel.LocalFree(text)
        _kernel.CloseHandle(token)


def _has_acls(path: Path) -> bool:
    return bool(_volume_flags(path) & _PERSISTENT_ACLS)


def _volume_flags(path: Path) -> int:
    root, flags = ctypes.create_unicode_buffer(1024), wintypes.DWORD()
    _kernel.GetVolumePathNameW(str(path), root, len(root))
    _kernel.GetVolumeInformationW(root, None, 0, None, None, ctypes.byref(flags), None, 0)
    return flags.value


def _open(  # noqa: PLR0913, PLR0917 - as CreateFileW has them
    path: Path, access: int, share: int, how: int, flags: int, attributes: object = None
) -> int:
    access_, flags_ = wintypes.DWORD(access), wintypes.DWORD(flags)
    handle = _kernel.CreateFileW(str(path), access_, share, attributes, how, flags_, None)
    if handle == _INVALID_HANDLE:
        raise _last_error(path)
    return int(handle)


def _last_error(path: Path | None) -> OSError:
    return _error(ctypes.get_last_error(), path)


def _error(code: int, path: Path | None) -> OSError:
    return OSError(0, ctypes.FormatError(code).strip(" .\r\n"), str(path) if path else None, code)
