"""Databases as earlier versions of the program made them."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from orders.store.care import checks
from orders.store.database import sqlite

# "--- 0001", what that version made, and so on.
_, *_PARTS = re.split(r"--- (\d{4})\n", Path(__file__).with_name("earlier_schemas.sql").read_text())
_CHANGES = dict(zip(map(int, _PARTS[::2]), _PARTS[1::2], strict=True))


def make(path, version, fill=lambda _: None):
    """Make a file as it was at a version; `fill` gets the connection once the first was made."""
    with closing(sqlite.connect(path, create=True)) as connection:
        for number in range(1, version + 1):
            connection.executescript(_CHANGES[number])
            if number == 1:
                fill(connection)
        connection.executescript(
            f"PRAGMA application_id = {checks.APPLICATION_ID}; PRAGMA user_version = {version};"
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));"
            f"INSERT INTO alembic_version VALUES ('{version:04}')"
        )
