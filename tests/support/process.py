"""Resources that a process and its children use: CPU time, memory, threads, open files (Linux)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_KIB_PER_MIB = 1024
# User, system, and the ended children's user and system time in /proc/PID/stat, after the name.
_TIMES = slice(11, 15)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, its children and those that have ended."""
    ticks = 0
    for each in _family(pid):
        _, _, rest = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(") ")
        ticks += sum(map(int, rest.split()[_TIMES]))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int | None = None) -> float:
    """Return the resident memory of a process, or of this one, with its children."""
    return sum(_status(each, "VmRSS") for each in _family(pid or os.getpid())) / _KIB_PER_MIB


def peak_mib(pid: int) -> float:
    """Return the total peak resident memory since `forget_peak`, or since the start."""
    return sum(_status(each, "VmHWM") for each in _family(pid)) / _KIB_PER_MIB


def forget_peak(pid: int) -> None:
    """Reset the record of peak memory (proc_pid_clear_refs(5))."""
    for each in _family(pid):
        Path(f"/proc/{each}/clear_refs").write_text("5", encoding="ascii")


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return _status(pid, "Threads")


def descriptors(pid: int) -> list[str]:
    """Return the target of each open descriptor of a process."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed just now
            found.append(str(link.readlink()))
    return found


def accepted_connections() -> int:
    """Return how many TCP connections this machine has accepted since it was started."""
    lines = Path("/proc/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("PassiveOpens")])


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # Threads end while they are listed.
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text(encoding="ascii").split():
                found += _family(int(child))
    return found


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
