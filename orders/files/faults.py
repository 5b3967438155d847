"""What is wrong in a file: line, column and reason of each fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orders.domain import Refusal

# The first faults are reported, the rest only counted.
REPORTED = 100
MAX_NAME_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a file. `column` is empty where it is not about one column."""

    line: int
    column: str
    reason: str

    def __str__(self) -> str:
        """Return it in words."""
        # A column's name comes from the file and may be of any length.
        column = f", {self.column[:MAX_NAME_SHOWN]}" if self.column else ""
        return f"line {self.line}{column}: {self.reason}"


class FileRefused(Refusal):
    """A file has faults, and nothing of it was imported."""

    def __init__(self, faults: Sequence[Fault], count: int) -> None:
        """Refuse because of these first faults, of `count` in all."""
        more = f"; and {count - len(faults):,} more" if count > len(faults) else ""
        super().__init__(
            f"Nothing was imported. {'; '.join(map(str, faults))}{more}. Fix the file."
        )


class Faults:
    """Collects the faults of a file."""

    def __init__(self) -> None:
        """Begin without any."""
        self._first: list[Fault] = []
        self._count = 0

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        self._count += 1
        if len(self._first) < REPORTED:
            self._first.append(fault)

    def raise_if_any(self) -> None:
        """Refuse the file if it has faults.

        Raises:
            FileRefused: it has.
        """
        if self._count:
            raise FileRefused(self._first, self._count)
