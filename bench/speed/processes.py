"""What a process and its children cost: processor time, memory. From Linux' /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_KIB_PER_MIB = 1024
# Where user, system, and the ended children's user and system time stand in /proc/PID/stat, after
# the name in brackets.
_TIMES = slice(11, 15)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process, its children and those that ended have taken."""
    ticks = 0
    for each in _family(pid):
        _, _, rest = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(") ")
        ticks += sum(map(int, rest.split()[_TIMES]))
    return ticks / _TICKS


def resident_mib(pid: int) -> float:
    """Return the memory that a process and its children have now."""
    return sum(_status(each, "VmRSS") for each in _family(pid)) / _KIB_PER_MIB


def peak_mib(pid: int) -> float:
    """Return the most memory a process and its children had since `forget_peak`, each added."""
    return sum(_status(each, "VmHWM") for each in _family(pid)) / _KIB_PER_MIB


def forget_peak(pid: int) -> None:
    """Begin anew to note the most memory (proc_pid_clear_refs(5))."""
    for each in _family(pid):
        Path(f"/proc/{each}/clear_refs").write_text("5", encoding="ascii")


def accepted_connections() -> int:
    """Return how many TCP connections were accepted on this machine since it was started."""
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
