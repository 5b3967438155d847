"""`store-orders`, `python -m orders`, `python app.py`: one program, however it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hatchling.builders.wheel import WheelBuilder

from orders import installation, settings, system
from orders.application import COMMANDS, program
from orders.settings import Settings, SettingsError
from tests.support.service import ROOT, environment_for


def test_without_a_command_it_serves_and_its_help_names_every_command():
    shown = CliRunner().invoke(program, ["--help"]).stdout
    assert "--demo" in shown
    for each in COMMANDS:
        assert f"  {each.name} " in shown
    assert str(installation.instance_folder()) in shown.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kyes"], "No such command 'kyes'. Did you mean 'keys'? See store-orders --help."),
        (["--dmo"], "No such option '--dmo'. Did you mean '--demo'? See store-orders --help."),
        (["keys", "lst"], "No such command 'lst'. Did you mean 'list'? See store-orders keys --h"),
        (["--demo", "keys", "list"], "--demo is an option of the service, not of a command."),
    ],
)
def test_an_unknown_command_or_option_is_reported_in_one_line(arguments, words):
    done = CliRunner().invoke(program, arguments)
    assert (done.exit_code != 0, done.stderr.count("\n"), done.stdout) == (True, 1, "")
    assert words in done.stderr


def test_the_help_of_a_module_that_is_run_shows_the_name_that_was_typed(tmp_path, forks):
    issued = subprocess.run(
        [sys.executable, "-m", "orders", "keys", "issue", "till", "--plan", "pro"],
        cwd=ROOT,
        env=environment_for(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert issued.stdout.startswith("sok_")
    shown = forks.run("app.py", "keys", "list", "--help", instance=tmp_path).stdout
    words = " ".join(shown.split())  # the path's length decides where lines break
    assert f"{Path(sys.executable).name} app.py keys list [OPTIONS]" in words


@pytest.mark.parametrize(
    ("started", "typed"),
    [
        ("app.py", "bin/python app.py"),
        ("shop/app.py", "bin/python shop/app.py"),
        ("{here}/my shop/app.py", "bin/python 'my shop/app.py'"),
        ("/lib/orders/__main__.py", "bin/python -m orders"),
        ("/lib/flask/__main__.py", "bin/python -m flask"),
        ("bin/flask", "bin/flask"),
        ("{here}/bin/store-orders", "bin/store-orders"),
        ("{here}/found/store-orders", "store-orders"),
        ("/usr/bin/pytest", "store-orders"),
    ],
)
def test_a_hint_shows_a_command_that_works_the_way_the_program_was_started(
    started, typed, tmp_path, monkeypatch
):
    for name in ("bin/store-orders", "found/python", "found/store-orders"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    # As in a virtual environment, where only its own python has the packages.
    (tmp_path / "bin" / "python").symlink_to("../found/python")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "found"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(sys, "argv", [started.format(here=tmp_path)])
    assert installation.command("keys list") == f"{typed} keys list"


# Where the data is.


@pytest.fixture
def a_package(tmp_path, monkeypatch):
    """Make this process look like an installed package; return its user's home."""
    monkeypatch.setattr(installation, "_IS_CHECKOUT", False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_an_installed_package_keeps_its_data_in_the_users_data_folder(a_package):
    folder = a_package / ".local" / "share" / "store-orders"
    assert settings.load({}).instance == Settings().instance == folder
    named = settings.load({"ORDERS_INSTANCE": str(a_package)})
    assert named.instance == a_package


@pytest.mark.usefixtures("a_package")
def test_a_user_without_a_home_has_to_name_a_folder(monkeypatch):
    def unknown(_):
        raise KeyError

    monkeypatch.setenv("HOME", "nowhere")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(SettingsError, match="Name a folder with ORDERS_INSTANCE"):
        settings.load({})
    monkeypatch.delenv("ORDERS_INSTANCE", raising=False)
    assert settings.of_the_log().log == "text"


@pytest.mark.usefixtures("a_package")
def test_the_hint_for_a_missing_package_fits_the_installation(monkeypatch):
    assert installation.how_to_add("postgres").endswith(" -m pip install 'psycopg[binary]'")
    monkeypatch.setattr(installation, "IS_SINGLE_FILE", True)
    assert "pipx" in installation.how_to_add("postgres")


@pytest.mark.parametrize("users_own", [None, "/opt/lib"])
def test_programs_started_by_the_executable_find_the_systems_libraries(users_own, monkeypatch):
    # As PyInstaller sets it.
    monkeypatch.setenv("LD_LIBRARY_PATH", "/tmp/_MEIabc")
    if users_own:
        monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", users_own)
    system.spare_other_programs()
    assert os.environ.get("LD_LIBRARY_PATH") == users_own


@pytest.mark.checkout("makes a package of it")
def test_a_package_includes_every_tracked_file_below_the_programs_folders():
    tracked = subprocess.run(
        ["git", "ls-files", "orders", "schemas"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    taken = [each.relative_path for each in WheelBuilder(str(ROOT)).recurse_included_files()]
    assert sorted(taken) == sorted(path for path in tracked if (ROOT / path).exists())
    # Without an __init__.py, a folder of that name in the working folder would be imported instead.
    modules = (Path(path) for path in taken if path.endswith(".py"))
    assert {str(path.parent / "__init__.py") for path in modules} <= set(taken)
