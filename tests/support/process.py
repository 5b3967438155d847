"""What a running process uses, as Linux tells it: memory, threads, open files."""

from __future__ import annotations

import os
import re
from pathlib import Path


def resident_bytes(pid: int | None = None) -> int:
    """Return the bytes of memory that a process, or this one, has resident."""
    return _status(pid, "VmRSS") * 1024


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return _status(pid, "Threads")


def descriptors(pid: int) -> list[str]:
    """Return what each open descriptor of a process refers to."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except FileNotFoundError:
            continue  # closed just now
    return found


def _status(pid: int | None, field: str) -> int:
    status = Path(f"/proc/{pid or os.getpid()}/status").read_text(encoding="ascii")
    return int(re.findall(rf"^{field}:\s+(\d+)", status, re.MULTILINE)[0])
