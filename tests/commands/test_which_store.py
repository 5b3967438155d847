"""Which store a command acts on: the one in the settings, created only where that is intended."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from orders.settings import Settings
from orders.store.care import checks
from orders.store.database.sqlite import SqliteDatabase
from tests.support.clocks import SetClock
from tests.support.commands import command, messages, rejected
from tests.support.service import ROOT, environment_for
from tests.support.stores import Store

PETS = "id,name,status\n1,Mia,sold\n"
ORDERS = "petId\n7\n"
# Commands that create a missing store, with the content of their file.
MAKING = {
    ("keys", "issue", "shop", "--plan", "free"): "",
    ("orders", "import", "orders.csv"): ORDERS,
    ("pets", "import", "pets.csv"): PETS,
    ("db", "upgrade"): "",
}
OTHERS = [
    *("keys list", "keys revoke 1", "keys unban 1", "keys rotate 1", "keys plan 1 free"),
    *("orders export", "orders show 1", "events tail", "db check", "db backup copy.db"),
    *("db renew", "webhooks list", "webhooks add https://192.88.98.1/"),
]


@pytest.fixture
def nowhere(settings):
    """A store that was never created."""
    store = Store(settings, SetClock())
    yield store
    store.database.close()


@pytest.mark.usefixtures("databases")
@pytest.mark.parametrize("arguments", MAKING, ids=" ".join)
def test_a_command_that_creates_a_missing_store_says_so(nowhere, tmp_path, arguments):
    *words, last = arguments
    if content := MAKING[arguments]:
        (tmp_path / last).write_text(content)
        last = str(tmp_path / last)
    done = command(nowhere, *words, last)
    assert done.exit_code == 0, done.stderr
    said = f"There was no store yet: {nowhere.database.where} is new.\n"
    assert messages(done).startswith(said)
    again = command(nowhere, *words, last)
    assert (again.exit_code, said in again.stderr) == (0, False)
    assert nowhere.client().place().status_code == 201


@pytest.mark.sqlite_only("a file in the place of another")
def test_a_restore_that_creates_a_missing_store_says_so(nowhere, empty_database):
    done = command(nowhere, "db", "restore", empty_database)
    assert done.exit_code == 0, done.stderr
    assert "There was no store yet: " in done.stderr
    assert nowhere.client().place().status_code == 201


@pytest.mark.usefixtures("databases")
@pytest.mark.parametrize("arguments", OTHERS)
def test_all_other_commands_refuse_without_a_store_and_create_nothing(nowhere, arguments):
    message = rejected(nowhere, *arguments.split())
    assert f"There is no store in {nowhere.database.where}. If it is elsewhere" in message
    assert not nowhere.settings.instance.exists() or not any(nowhere.settings.instance.iterdir())


def test_a_store_that_is_not_the_default_one_is_named(store, monkeypatch):
    named = f"Store: {store.database.where}\n"
    assert command(store, "keys", "list").stderr.startswith(named)
    assert command(store, "keys", "revoke", 7).stderr.startswith(f"{named}Error: ")
    monkeypatch.setattr(Settings, "database_path", store.settings.database_path)
    assert "Store:" not in command(store, "keys", "list").stderr


def test_rehearsing_an_upgrade_on_a_copy_leaves_the_server_alone(tmp_path, empty_database):
    # As if the service's environment were exported: the store in the settings counts.
    url = "postgresql+psycopg://orders@127.0.0.1:1/orders"
    store = Store(Settings(instance=tmp_path, database_url=url), SetClock())
    (tmp_path / "orders.db").write_bytes(empty_database.read_bytes())
    message = rejected(store, "db", "upgrade")
    assert "which is meant? Unset ORDERS_DATABASE_URL, or move the file away." in message
    with closing(SqliteDatabase(tmp_path / "orders.db")) as file, file.write() as connection:
        checks.mark_as_moved(connection)
    assert "127.0.0.1:1" in rejected(store, "db", "upgrade")


ISSUE = ["keys", "issue", "shop", "--plan", "free"]


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["an upgrade", "the service"])
def test_commands_started_at_once_on_a_new_folder_all_work(tmp_path, start, beside):
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "flask", *arguments],
            cwd=ROOT,
            env=environment_for(tmp_path / "instance"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for arguments in [ISSUE, ISSUE, ["db", "upgrade"] if beside == "an upgrade" else ISSUE]
    ]
    service = start() if beside == "the service" else None
    said = [each.communicate() for each in begun]
    assert [each.returncode for each in begun] == [0] * len(begun), said
    new = sum("There was no store yet" in stderr for _, stderr in said)
    assert new == 1 or (service and not new)
    service = service or start()
    for key in filter(None, (stdout.strip() for stdout, _ in said)):
        assert service.request("GET", "/v1/store/orders", key).status == 200
