"""A migration that only tests have: with it, this program is the next one, and its stores old."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from orders.store.care import checks

ADD_A_COLUMN = 'op.add_column("orders", sa.Column("colour", sa.String(16)))\n'


@contextmanager
def next_program(folder: Path) -> Iterator[Callable[..., int]]:
    """Yield a function that adds, or replaces, a migration; it returns the schema's number.

    The migrations are copied into the folder, which must not exist, and are this program's until
    the end.
    """
    before = checks.schema_version()

    def add(upgrade: str = ADD_A_COLUMN) -> int:
        text = (
            "import os\nimport signal\n\nimport sqlalchemy as sa\nfrom alembic import op\n\n"
            f"revision = '{before + 1:04}'\ndown_revision = '{before:04}'\n\n\n"
            "def upgrade():\n" + "".join(f"    {line}\n" for line in upgrade.splitlines())
        )
        (folder / "versions" / f"{before + 1:04}_one_day.py").write_text(text)
        checks.schema_version.cache_clear()
        return before + 1

    shutil.copytree(checks.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with mock.patch.object(checks, "MIGRATIONS", folder):
        yield add
    checks.schema_version.cache_clear()
