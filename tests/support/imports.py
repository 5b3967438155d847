"""Files of orders and pets, and importing them by the command."""

from __future__ import annotations

import csv
import io
import json

from tests.support.commands import messages


def import_file(store, folder, content, name="orders.csv", *options):
    """Import a file with this content; return the command's result."""
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    group = "pets" if name.lower().startswith("pets") else "orders"
    return store.app.test_cli_runner().invoke(args=[group, "import", str(file), *options])


def import_rejected(store, folder, content, name="orders.csv", *options):
    """Import a file that must be rejected in one line, with nothing stored; return the line."""
    before = contents(store)
    done = import_file(store, folder, content, name, *options)
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.stdout, messages(done).count("\n")) == ("", 1), done.stderr
    assert contents(store) == before
    assert leftovers(store.settings.instance) == []
    return messages(done).rstrip("\n")


def imported(done, count, what="orders"):
    """Check that a command imported this many, and reported that on standard error."""
    assert done.exit_code == 0, done.stderr
    said = f"Imported {count:,} {what if count != 1 else what.removesuffix('s')}.\n"
    assert (done.stdout, messages(done)) == ("", said)


def contents(store):
    """Return all orders, pets and events."""
    tables = [store.rows(f"SELECT * FROM {table} ORDER BY id") for table in ("orders", "pets")]
    return *tables, store.events()


def orders_of(store, columns):
    """Return these columns of all orders, by id."""
    return [tuple(row.values()) for row in store.rows(f"SELECT {columns} FROM orders ORDER BY id")]


def leftovers(instance):
    """Return what imports left behind in the instance folder."""
    return sorted(instance.glob("import-*"))


def table(*rows):
    """Return a CSV file: a header and rows of cells."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def lines(*values):
    """Return a JSON Lines file."""
    return "".join(json.dumps(value) + "\n" for value in values)
