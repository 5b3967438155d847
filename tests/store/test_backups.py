"""Automatic backups: when they are made, which are kept, and whether they are sound."""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from stat import S_IMODE
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from orders.store.care import backups as module
from orders.store.care import checks, opening
from orders.store.care.backups import RETRY_SECONDS, Backup
from orders.store.database.database import driver_of
from tests.support import year
from tests.support.commands import command, messages, names_in, rejected
from tests.support.machine import IS_ROOT

pytestmark = pytest.mark.sqlite_only("backups of a file")

DAY = 86_400


@pytest.fixture
def filled(store, client):
    client.place()
    client.ship(1)
    return store


@pytest.fixture
def backups(filled):
    return filled.shop.backups


def names(backups):
    """Return the days and times of the backups, the newest first."""
    return [one.path.stem.removeprefix("orders-") for one in backups.all()]


def live(backups, clock, seconds):
    """Let time pass as for a running service."""
    step = max(1_800, seconds // 12 if seconds <= 3 * DAY else DAY // 2)
    for _ in range(0, seconds, step):
        backups.tend()
        clock.advance(step)
    backups.tend()


def test_the_first_backup_is_made_within_a_minute_of_a_start_then_one_a_day(filled, backups, clock):
    assert backups.tend() <= 60
    assert names(backups) == []
    clock.advance(45)
    backups.tend()
    assert names(backups) == ["20261201T120045Z"]
    live(backups, clock, 2 * DAY)
    assert [name[:8] for name in names(backups)] == ["20261203", "20261202", "20261201"]
    # A start finds today's backup.
    again = filled.restarted()
    live(again.shop.backups, clock, 3_600)
    assert len(names(backups)) == 3
    again.shop.end()


def test_a_backup_is_complete_private_to_its_owner_and_has_a_checksum_beside_it(
    backups, filled, tmp_path
):
    made = backups.make()
    assert made.path == filled.settings.instance / "backups" / "orders-20261201T120000Z.db"
    sums = made.path.with_name(f"{made.path.name}.sha256")
    assert sums.read_text() == f"{sha256(made.path.read_bytes()).hexdigest()}  {made.path.name}\n"
    assert names_in(backups.folder) == {made.path.name, sums.name}
    assert {S_IMODE(path.stat().st_mode) for path in (made.path, sums)} == {0o600}
    assert S_IMODE(backups.folder.stat().st_mode) == 0o700
    checks.check_whole(made.path)
    backups.drill(made)
    backups.check(made)
    assert names_in(backups.folder) == {made.path.name, sums.name}


def test_the_newest_of_each_day_and_week_that_has_one_are_kept(tmp_path):
    first = datetime(2026, 1, 1, 3, tzinfo=UTC)
    every = [
        Backup(tmp_path / f"{day} {hours}", first + timedelta(days=day, hours=hours), 1)
        for day in range(0, 90, 3)
        for hours in (0, 5)
    ]
    kept = module.retained(sorted(every, key=lambda one: one.at, reverse=True), (7, 4))
    days = sorted(one.at for one in kept)
    # Of the last seven days that have one, and of the last four weeks.
    assert [day.strftime("%m-%d %H") for day in days] == [
        *("03-08 08", "03-11 08", "03-14 08", "03-17 08", "03-20 08", "03-23 08", "03-26 08"),
        "03-29 08",
    ]


def test_a_year_keeps_seven_days_and_four_weeks_and_what_is_not_a_backup(backups, clock):
    clock.advance(60)
    (backups.folder).mkdir(mode=0o700)
    others = {"mine.db", "orders-99999999T999999Z.db", "orders-20261201T120000Z.db.bak"}
    for name in others:
        (backups.folder / name).touch()
    live(backups, clock, 40 * DAY)
    ages = [(clock.now() - one.at).days for one in backups.all()]
    assert ages[:7] == [0, 1, 2, 3, 4, 5, 6]
    assert 8 <= len(ages) <= 11
    assert max(ages) <= 28
    assert names_in(backups.folder) > others
    # Each has its checksum.
    assert len(names_in(backups.folder) - others) == 2 * len(ages)


def told(filled):
    """Return the messages that `flask db backups` shows with its table."""
    return command(filled, "db", "backups").stderr


def test_a_failed_backup_is_reported_at_once_and_retried_in_an_hour(
    filled, backups, clock, monkeypatch, caplog
):
    usage = SimpleNamespace(free=1_000, total=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    clock.advance(60)
    backups.tend()
    assert "20261201T120100Z: it takes" in backups.standing().failure
    assert "The service can't make its backup (20261201T120100Z: it takes" in told(filled)
    # A manual backup, elsewhere or by another user, says nothing about the service.
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
        assert (
            "The service can't make its backup" in command(filled, "db", "backups", "--now").stderr
        )
    for file in backups.folder.iterdir():
        file.unlink()
    live(backups, clock, 3 * 3_600)
    assert names(backups) == []
    failed = [line for line in caplog.messages if "tried again in an hour" in line]
    assert 3 <= len(failed) <= 4
    assert "twice as much must stay free of the 1,000 in" in failed[0]
    assert "older than 48 hours" in caplog.text
    assert backups.standing().is_old
    usage.free = 10**9
    clock.advance(RETRY_SECONDS)
    backups.tend()
    assert len(names(backups)) == 1
    assert not backups.standing().is_old
    assert not backups.standing().failure
    assert "The service can't" not in told(filled)


def test_a_corrupt_or_truncated_copy_is_not_kept(backups, clock, monkeypatch):
    def refuse(*_):
        raise checks.UnfitDatabase("damaged")

    clock.advance(60)
    with monkeypatch.context() as patch:
        patch.setattr(checks, "check_whole", refuse)
        backups.tend()
    assert names_in(backups.folder) == set()
    monkeypatch.setattr(opening, "_STEPS", 1)
    backups.stop()
    clock.advance(RETRY_SECONDS)
    backups.tend()
    assert names_in(backups.folder) == set()


def test_a_clock_that_jumps_causes_neither_many_backups_nor_none_and_loses_none(
    backups, clock, monkeypatch
):
    clock.advance(60)
    live(backups, clock, 2 * DAY)
    before = names(backups)
    # For three days, it is a year ahead.
    clock.set_wall(365 * DAY)
    live(backups, clock, 3 * DAY)
    ahead = [name for name in names(backups) if name > "2027"]
    assert len(ahead) >= 3
    clock.set_wall(-368 * DAY)
    live(backups, clock, 3 * DAY)
    assert set(before) <= set(names(backups))
    assert set(ahead) <= set(names(backups))
    clock.set_wall(20 * DAY)
    live(backups, clock, 3 * DAY)
    now = clock.now().strftime("%Y%m%d")
    assert any(name.startswith(now) for name in names(backups))
    assert set(ahead) <= set(names(backups))
    assert not backups.standing().is_old
    # The newest by today's date is what a drill restores, not one of next year.
    newest = next(one for one in backups.all() if one.at <= clock.now())
    flip(newest.path, newest.size // 2)
    assert [one for one, verdict in backups.check_all() if verdict != "sound"] == [newest]
    assert not backups.standing().is_sound
    live(backups, clock, 2 * 3_600)
    assert backups.standing().is_sound
    # Back and forth, for an hour.
    made = Mock(wraps=backups.make)
    monkeypatch.setattr(backups, "make", made)
    for _ in range(120):
        clock.set_wall(3 * DAY)
        clock.advance(30)
        backups.tend()
    assert made.call_count <= 1


def flip(path, at):
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_flipped_byte_is_found_by_the_weekly_drill_and_another_backup_made(
    backups, clock, caplog
):
    caplog.set_level(logging.INFO)
    clock.advance(60)
    live(backups, clock, DAY)
    assert "was restored beside the store, and is whole" in caplog.text
    live(backups, clock, 6 * DAY)
    newest = backups.all()[0]
    flip(newest.path, newest.size // 2)
    assert backups.standing().is_sound
    caplog.clear()
    live(backups, clock, DAY)
    assert "has changed since it was made" in caplog.text
    assert backups.verdict_on(newest) != "sound" or newest not in backups.all()
    live(backups, clock, 2 * 3_600)
    assert backups.all()[0] != newest
    assert backups.standing().is_sound


@pytest.mark.parametrize(
    "fault",
    [
        "UPDATE orders SET quantity = 7",
        "UPDATE order_quarters SET placed = 7",
        "UPDATE orders SET status = 'cancelled'",
    ],
)
def test_a_drill_finds_orders_and_days_that_differ_from_the_log(filled, backups, fault):
    filled.execute(fault)
    made = backups.make()
    with pytest.raises(module.NotSound, match="can't be restored whole"):
        backups.drill(made)


def test_the_time_of_a_drill_does_not_grow_with_the_quarters_of_an_hour(filled, tmp_path):
    # Orders of 2,000 quarters and more: SQLite's steps are as many on any machine.
    year.write(tmp_path / "year.csv", year.rows(2_000, seed=1))
    assert command(filled, "orders", "import", str(tmp_path / "year.csv")).exit_code == 0
    with filled.database.read() as connection:
        thousands = itertools.count()
        driver_of(connection).set_progress_handler(lambda: next(thousands) > 2_000, 1_000)
        assert checks.complaint(connection) is None


def test_the_command_lists_makes_and_checks_backups(filled, backups, clock):
    assert "There are no backups yet." in command(filled, "db", "backups").stderr
    assert "is on the same disk as the store" in command(filled, "db", "backups", "--now").stderr
    clock.advance(DAY)
    done = command(filled, "db", "backups", "--now", "--check")
    assert done.exit_code == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [
        "2026-12-02T12:00:00.000Z",
        "2026-12-01T12:00:00.000Z",
    ]
    flip(backups.all()[1].path, 5_000)
    done = command(filled, "db", "backups", "--check")
    assert "A backup is damaged." in messages(done)
    assert "has changed since it was made" in done.stdout.splitlines()[2]
    flip(backups.all()[0].path, 5_000)
    assert command(filled, "db", "backups", "--check").exit_code == 1
    # Which the list remembers of the newest.
    assert command(filled, "db", "backups").exit_code == 1


def test_a_manual_backup_replaces_no_daily_one_and_is_deleted_with_it(filled, backups, clock):
    clock.advance(60)
    backups.tend()
    for hours in (1, 2):
        clock.advance(3_600)
        command(filled, "db", "backups", "--now")
        assert len(names(backups)) == 1 + hours
    live(backups, clock, DAY)
    assert [name[:8] for name in names(backups)] == ["20261202"] + 3 * ["20261201"]
    assert [name[16:] for name in names(backups)] == ["", "-manual", "-manual", ""]
    live(backups, clock, 30 * DAY)
    assert not [name for name in names(backups) if name.startswith("20261201")]
    # On a day without another, a manual one counts as the day's.
    clock.advance(DAY - 7_200)
    command(filled, "db", "backups", "--now")
    live(backups, clock, 3_600)
    assert [name[16:] for name in names(backups)][:2] == ["-manual", ""]


@pytest.fixture
def elsewhere(make_store, tmp_path, clock):
    """A store whose backups are in a folder of a disk, which can be there or not."""
    disk = tmp_path / "usb"
    disk.mkdir()
    store = make_store(backups=str(disk / "shop"))
    clock.advance(60)
    return store, store.shop.backups, disk


def test_a_vanished_folder_is_a_failure_until_it_is_back_or_recreated(elsewhere, clock, tmp_path):
    store, backups, disk = elsewhere
    live(backups, clock, DAY)
    assert len(names(backups)) == 2
    disk.rename(tmp_path / "unplugged")
    for folder in (disk, disk / "shop"):  # not mounted; then as somebody, or a start, left it
        folder.mkdir()
        assert "is its disk mounted?" in backups.standing().failure
        live(backups, clock, DAY)
        assert names(backups) == []
        assert "is its disk mounted?" in rejected(store, "db", "backups", "--now")
    # Plugged in again.
    shutil.rmtree(disk)
    (tmp_path / "unplugged").rename(disk)
    assert "its disk mounted" in backups.standing().failure  # of the last attempt
    live(backups, clock, 3_600)
    assert not backups.standing().failure
    assert len(names(backups)) == 3
    shutil.rmtree(disk)
    done = command(store, "db", "backups", "--now", "--new-folder")
    assert done.exit_code == 0, done.stderr
    live(backups, clock, DAY)
    assert not backups.standing().failure


@pytest.mark.skipif(not IS_ROOT, reason="only root can give files away")
def test_backups_made_by_root_belong_to_the_folders_owner(filled, backups, tmp_path):
    folder = filled.settings.instance
    filled.shop.end()
    os.chown(folder, 65_534, 65_534)
    for arguments in (["backups", "--now"], ["restore", folder / "mine.db"], ["check"]):
        if arguments[0] == "restore":
            backups.all()[0].path.rename(folder / "mine.db")
        done = command(filled, "db", *arguments)
        assert done.exit_code == 0, done.stderr
    (folder / "orders.db").unlink()
    (folder / "lock").unlink()
    command(filled, "keys", "issue", "first", "--plan", "free")
    filled.database.close()
    owned = {path.name: path.stat().st_uid for path in folder.rglob("*")}
    made = {name for name in owned if not re.search(r"replaced|mine|counters", name)}
    assert made >= {"lock", "orders.db", "backups"}
    assert {name for name in made if owned[name] != 65_534} == set()


def test_an_incomplete_backup_is_reported_without_reading_it_all(filled, backups, clock):
    clock.advance(60)
    backups.tend()
    clock.advance(DAY)
    good = backups.make()
    cut, bare = (backups.folder / f"orders-2026120{day}T090000Z.db" for day in (1, 2))
    cut.write_bytes(b"SQLite f")
    shutil.copy(good.path, bare)
    newest = backups.folder / "orders-20261202T120200Z.db"
    newest.touch()
    done = command(filled, "db", "backups")
    assert done.exit_code == 1
    assert "A backup is damaged." in done.stderr
    assert [line.count("is cut off") for line in done.stdout.splitlines()] == [0, 1, 0, 0, 0, 1]
    assert "has no checksum beside it" in done.stdout.splitlines()[3]
    # It counts neither as the day's nor as the newest one.
    assert not backups.standing().is_sound
    clock.advance(RETRY_SECONDS)
    backups.tend()
    assert backups.standing().is_sound
    assert cut.exists()


def test_without_backups_the_command_says_so(make_store):
    assert "ORDERS_BACKUPS is off" in rejected(make_store(backups=""), "db", "backups")
