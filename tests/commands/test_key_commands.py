"""`flask keys …`: issue, list, revoke, unban, plan, rotate."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from stat import S_IMODE

import pytest

from orders import apikeys
from orders.clock import Clock
from orders.settings import DEFAULT_PLANS, Plan
from orders.store import apikeys as key_store
from tests.support.commands import command, rejected, said
from tests.support.databases import DATABASES
from tests.support.service import ROOT, run_flask
from tests.support.stores import Store, assert_error

# Commands create stores by themselves.
pytestmark = pytest.mark.usefixtures("databases")

LIST = "/v1/store/orders"
# Less than a second, in which changes take effect.
SOON = 0.85


def run(store, *arguments):
    """Run `flask keys …`, which must work; return what it prints on standard output."""
    done = command(store, "keys", *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def issue(store, *arguments):
    """Issue a key with the command; return its client."""
    secret = run(store, "issue", *arguments).strip()
    client = store.anonymous()
    client.secret, client.key_id = secret, listed(store)[-1]["id"]
    return client


def listed(store):
    """Return what `flask keys list --json` lists."""
    return json.loads(run(store, "list", "--json"))


def policy(response):
    """Return the limits of both windows, from RateLimit-Policy."""
    return tuple(map(int, re.findall(r"q=(\d+)", response.headers["RateLimit-Policy"])))


def left(response):
    """Return what is left of both windows, from RateLimit."""
    return tuple(map(int, re.findall(r";r=(\d+)", response.headers["RateLimit"])))


# issue


def test_only_the_issued_key_is_printed_and_it_can_read_and_write(store):
    done = command(store, "keys", "issue", "Zoo Linz", "--plan", "pro")
    assert re.fullmatch(r"sok_[0-9A-Za-z]{38}\n", done.stdout)
    assert "Zoo Linz" in done.stderr
    client = store.anonymous()
    client.secret = done.stdout.strip()
    assert client.secret not in done.stderr
    assert client.place().status_code == 201
    assert policy(client.get(LIST)) == (300, 10_000)


def test_a_key_has_the_limits_of_its_plan_or_its_own(make_store):
    store = make_store(plans={**DEFAULT_PLANS, "gold": Plan("gold", 7, 70)})
    assert policy(issue(store, "goldie", "--plan", "gold").get(LIST)) == (7, 70)
    figures = ["--per-minute", "5000", "--per-day", "2000000"]
    big = issue(store, "big", "--plan", "enterprise", *figures)
    assert policy(big.get(LIST)) == (5_000, 2_000_000)


ENTERPRISE = ["shop", "--plan", "enterprise"]
FREE = ["--plan", "free"]
PLANS = ", ".join(DEFAULT_PLANS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["shop", "--plan", "gold"], PLANS),
        (["shop", "--plan", "two\nlines"], PLANS),
        (ENTERPRISE, "--per-minute and --per-day"),
        ([*ENTERPRISE, "--per-minute", "5"], "--per-day"),
        ([*ENTERPRISE, "--per-day", "5"], "--per-minute"),
        (["shop", *FREE, "--per-minute", "5", "--per-day", "5"], "own figures"),
        (["shop", *FREE, "--per-day", "5"], "own figures"),
        *(([name, *FREE], "name") for name in ("", "   ", "x" * 101, "two\nlines", "\x1b[31mred")),
        (["shop"], "--plan"),
        (FREE, "NAME"),
        (["shop", *FREE, "--scope", "owner"], "owner"),
        (["shop", *FREE, "--expires", "0"], "--expires"),
        (["shop", *FREE, "--expires", "tomorrow"], "tomorrow"),
        ([*ENTERPRISE, "--per-minute", "0", "--per-day", "1"], "--per-minute"),
        (["shop", *FREE, "--colour", "red"], "--colour"),
        (["shop", "keeper", *FREE], "keeper"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else value,
)
def test_a_key_with_invalid_options_is_not_issued(store, arguments, words):
    assert words in rejected(store, "keys", "issue", *arguments)
    assert listed(store) == []


def test_a_key_passed_by_mistake_is_not_repeated(store):
    secret = apikeys.generate()
    assert secret not in rejected(store, "keys", "issue", secret, "--plan", "free")
    assert listed(store) == []
    for name in ("revoke", "unban", "rotate"):
        assert secret not in rejected(store, "keys", name, secret)


# list


def test_list_returns_exactly_the_documented_fields(store):
    client = issue(store, "Zoo", "--plan", "pro", "--scope", "read", "--expires", "2")
    (key,) = listed(store)
    assert list(key.items()) == [
        ("id", client.key_id),
        ("name", "Zoo"),
        ("prefix", client.secret[:8]),
        ("plan", "pro"),
        ("perMinute", 300),
        ("perDay", 10_000),
        ("scopes", ["read"]),
        ("created", "2026-12-01T12:00:00.000Z"),
        ("lastUsed", None),
        ("expires", "2026-12-03T12:00:00.000Z"),
        ("revoked", None),
        ("bannedUntil", None),
        ("graceUntil", None),
    ]


@pytest.fixture
def banned(store):
    """A client whose key is banned."""
    client = issue(store, "big", "--plan", "enterprise", "--per-minute", "1", "--per-day", "99")
    for _ in range(2):
        client.get(LIST)
    store.clock.advance(1)
    for _ in range(29):
        last = client.get(LIST)
    assert_error(last, 429, "api_key_banned")
    return client


def test_list_shows_last_use_ban_and_revocation(store, clock, banned):
    store.shop.keyring.flush()
    clock.advance(61)
    run(store, "revoke", banned.key_id)
    clock.advance(238.999)
    (key,) = listed(store)
    assert (key["perMinute"], key["perDay"], key["scopes"]) == (1, 99, ["read", "write"])
    assert key["lastUsed"] == "2026-12-01T12:00:00.000Z"
    assert key["revoked"] == "2026-12-01T12:01:02.000Z"
    assert key["bannedUntil"] == "2026-12-01T12:05:01.000Z"
    clock.advance(0.001)
    assert listed(store)[0]["bannedUntil"] is None


def test_the_list_for_people_has_one_line_per_key(store):
    clients = [issue(store, name, "--plan", "pro") for name in ("Zoo", "Café", "Café")]
    head, *lines = run(store, "list").splitlines()
    assert head.split() == list(listed(store)[0])
    assert [line.split()[1] for line in lines] == ["Zoo", "Café", "Café"]
    assert "read,write" in lines[0]
    assert not any(client.secret in line for client in clients for line in lines)


def test_an_empty_list_says_how_to_issue_a_key(store):
    assert listed(store) == []
    done = command(store, "keys", "list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "store-orders keys issue" in done.stderr


# revoke, unban, plan, rotate


def test_a_revoked_key_stops_working_for_good_within_a_second(store, clock):
    client = store.client()
    client.get(LIST)
    assert (
        said(store, "keys", "revoke", client.key_id) == f"Key {client.key_id} (test) is revoked.\n"
    )
    clock.advance(SOON)
    assert_error(client.get(LIST), 401, "invalid_api_key")
    run(store, "revoke", client.key_id)
    assert listed(store)[0]["revoked"] == "2026-12-01T12:00:00.000Z"  # not the second time


def test_unban_lifts_a_ban_within_a_second(store, clock, banned):
    assert run(store, "unban", banned.key_id) == ""
    assert listed(store)[0]["bannedUntil"] is None
    clock.advance(SOON)
    response = banned.get(LIST)
    assert_error(response, 429, "rate_limit_exceeded")
    assert left(response) == (0, 98)
    assert "is not banned" in rejected(store, "keys", "unban", banned.key_id)


def test_plan_changes_the_plan_and_begins_new_windows(store, clock):
    client = issue(store, "shop", "--plan", "free")
    client.get(LIST)
    assert run(store, "plan", client.key_id, "business") == ""
    clock.advance(SOON)
    response = client.get(LIST)
    assert (policy(response), left(response)) == ((1_000, 100_000), (999, 99_999))
    run(store, "plan", client.key_id, "enterprise", "--per-minute", "7", "--per-day", "70")
    clock.advance(SOON)
    assert policy(client.get(LIST)) == (7, 70)
    run(store, "plan", client.key_id, "free")
    (key,) = listed(store)
    assert (key["plan"], key["perMinute"], key["perDay"]) == ("free", 60, 1_000)


def test_an_invalid_plan_changes_nothing(store):
    client = issue(store, "shop", "--plan", "pro")
    before = listed(store)
    assert PLANS in rejected(store, "keys", "plan", client.key_id, "gold")
    assert "--per-minute" in rejected(store, "keys", "plan", client.key_id, "enterprise")
    assert "own figures" in rejected(store, "keys", "plan", client.key_id, "free", "--per-day", "5")
    assert listed(store) == before


def test_rotate_prints_only_a_new_secret_and_ends_the_old_one(store, clock):
    client = issue(store, "shop", "--plan", "pro")
    client.get(LIST)
    done = command(store, "keys", "rotate", client.key_id)
    new = done.stdout.strip()
    assert (done.exit_code, apikeys.is_well_formed(new)) == (0, True)
    assert new not in done.stderr
    clock.advance(SOON)
    assert_error(client.get(LIST), 401, "invalid_api_key")
    client.secret = new
    assert left(client.get(LIST)) == (298, 9_998)
    (key,) = listed(store)
    assert (key["id"], key["prefix"], key["plan"]) == (client.key_id, new[:8], "pro")


def test_rotate_with_grace_keeps_the_old_secret_valid_for_those_hours(store, clock):
    client = issue(store, "shop", "--plan", "pro")
    new = run(store, "rotate", client.key_id, "--grace", "2").strip()
    clock.advance(2 * 3_600 - 1)
    assert client.get(LIST).status_code == 200
    assert listed(store)[0]["graceUntil"] == "2026-12-01T14:00:00.000Z"
    clock.advance(1)
    assert listed(store)[0]["graceUntil"] is None
    assert_error(client.get(LIST), 401, "invalid_api_key")
    client.secret = new
    assert client.get(LIST).status_code == 200


def test_a_rotation_that_would_end_a_secret_in_its_grace_needs_force(store, clock):
    client = issue(store, "shop", "--plan", "pro")
    rotate = ("rotate", client.key_id, "--grace", "2")
    second = run(store, *rotate).strip()
    words = "key 1 works until 2026-12-01T14:00:00.000Z, and may be in use. Rotate again after that"
    assert words in rejected(store, "keys", *rotate)
    assert words in rejected(store, "keys", "rotate", client.key_id)
    assert client.get(LIST).status_code == 200
    run(store, *rotate, "--force")
    clock.advance(1)
    assert client.get(LIST).status_code == 401
    client.secret = second
    clock.advance(2 * 3_600 - 2)
    assert client.get(LIST).status_code == 200
    clock.advance(1)
    run(store, *rotate)


def test_a_revoked_or_expired_key_is_not_rotated(store, clock):
    revoked = issue(store, "shop", "--plan", "pro")
    run(store, "revoke", revoked.key_id)
    assert "revoked or expired" in rejected(store, "keys", "rotate", revoked.key_id)
    expired = issue(store, "shop", "--plan", "pro", "--expires", "1")
    clock.advance(86_400)
    assert "revoked or expired" in rejected(store, "keys", "rotate", expired.key_id)


@pytest.mark.parametrize("name", ["revoke", "unban", "rotate", "plan"])
@pytest.mark.parametrize(
    ("key_id", "words"),
    [
        ("7", "no key 7"),
        ("9223372036854775807", "no key 9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("seven", "seven"),
    ],
)
def test_an_unknown_key_id_is_reported_in_one_line(store, name, key_id, words):
    rest = ["free"] if name == "plan" else []
    assert words in rejected(store, "keys", name, key_id, *rest)


# In processes of their own: before the first start, and beside a running service.


def environment(instance):
    """Return the environment of a command on an instance folder."""
    path = {"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"}
    return {**path, **DATABASES.environment(instance), "ORDERS_INSTANCE": str(instance)}


@pytest.mark.slow
def test_the_first_key_is_issued_before_the_first_start(tmp_path):
    instance = tmp_path / "new" / "instance"
    before = os.umask(0o022)
    try:
        done = run_flask(
            "keys", "issue", "shop", "--plan", "free", environment=environment(instance)
        )
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert apikeys.is_well_formed(done.stdout.removesuffix("\n"))
    assert S_IMODE(instance.stat().st_mode) == 0o700
    assert {S_IMODE(path.stat().st_mode) for path in instance.iterdir()} == {0o600}
    found = Store(DATABASES.settings(instance), Clock())
    (key,) = listed(found)
    found.database.close()
    assert (key["name"], key["prefix"]) == ("shop", done.stdout[:8])


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["keys", "issue", "shop", "--plan", "free"], ["orders", "export"]]
)
def test_nothing_is_done_if_standard_output_is_closed(tmp_path, arguments):
    instance = tmp_path / "instance"
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "flask", *arguments],
        cwd=ROOT,
        env=environment(instance),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "Standard output is closed" in done.stderr
    assert not instance.exists()


@pytest.fixture
def beside(service):
    """Run commands on the folder of the running service, from this other process."""
    settings = DATABASES.settings(Path(service.environment["ORDERS_INSTANCE"]))
    store = Store(settings, Clock())
    yield store
    store.database.close()


def wait_for(service, secret, wanted):
    """Send requests until one gets the status wanted; return the answer.

    It takes a second at most, unless the machine is busy; the tests above prove it by a set clock.
    """
    ends = time.monotonic() + 60
    while True:
        response = service.request("GET", LIST, key=secret)
        if wanted(response):
            return response
        assert time.monotonic() < ends, response.data
        time.sleep(0.02)


def issue_beside(store, *plan):
    """Issue a key in the running service's folder; return its id and secret."""
    secret = run(store, "issue", "test", "--plan", *plan).strip()
    with store.database.read() as connection:
        return key_store.find_by_secret(connection, apikeys.digest(secret)).id, secret


def test_changes_reach_a_running_service(service, beside):
    revoked_id, revoked = issue_beside(beside, "free")
    changed_id, changed = issue_beside(beside, "free")
    rotated_id, rotated = issue_beside(beside, "free")
    banned_id, banned = issue_beside(beside, "enterprise", "--per-minute", "1", "--per-day", "9")
    for secret in (revoked, changed, rotated):
        assert service.request("GET", LIST, key=secret).status == 200
    wait_for(service, banned, lambda answer: b"api_key_banned" in answer.data)

    run(beside, "revoke", revoked_id)
    run(beside, "plan", changed_id, "pro")
    new = run(beside, "rotate", rotated_id).strip()
    run(beside, "unban", banned_id)
    assert service.request("GET", LIST, key=new).status == 200
    for secret in (revoked, rotated):
        response = wait_for(service, secret, lambda answer: answer.status == 401)
        assert response.json()["code"] == "invalid_api_key"
    wait_for(service, changed, lambda answer: policy(answer) == (300, 10_000))
    wait_for(service, banned, lambda answer: b"api_key_banned" not in answer.data)
