"""Figures of other commands, which the document shows as they print them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.service import ROOT


@dataclass(frozen=True)
class Other:
    """A command, what it measures, and how many of its last lines are shown."""

    words: str
    command: str
    lines: int

    def run(self) -> dict[str, str]:
        """Run it; return it as JSON has it."""
        done = subprocess.run(
            [sys.executable, "-m", *self.command.split()],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        # What it is missing, or what went wrong, is said at the end.
        printed = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        shown = "\n".join(printed.splitlines()[-self.lines :])
        return {"words": self.words, "command": f"python -m {self.command}", "printed": shown}


_PAGES = "The pages of version 2, in every mix of filters and sorts"


def others(*, short: bool) -> Iterator[Other]:
    """Return all commands; in short one of them, over a small store."""
    if short:
        yield Other(_PAGES, "tests.bench.pages --orders 2000 --rounds 1", 1)
        return
    yield Other("A plain install", "tests.bench.light", 2)
    yield Other(_PAGES, "tests.bench.pages --rounds 3", 1)
    yield Other(f"{_PAGES}, on PostgreSQL", "tests.bench.pages --rounds 3 --database postgres", 1)
