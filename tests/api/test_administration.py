"""Administration over HTTP: keys."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orders.apikeys import SCOPES
from orders.store import audit
from tests.support.commands import command
from tests.support.machine import wait_until
from tests.support.stores import assert_error

KEYS = "/v2/keys"
LIST = "/v2/store/orders"


@pytest.fixture
def owner(store):
    """A client with the only admin key, of the business plan: key 1."""
    return store.client(scopes=SCOPES, name="the owner")


def with_secret(store, secret):
    """Return a client that sends a secret."""
    client = store.anonymous()
    client.secret = secret
    return client


def issue(owner, name="shop", plan="pro", **fields):
    """Issue a key; return its JSON, with its secret."""
    response = owner.post(KEYS, json={"name": name, "plan": plan, **fields})
    assert response.status_code == 201, response.get_json()
    return response.get_json()


def listed_by_command(store):
    return json.loads(command(store, "keys", "list", "--json").stdout)


def trail(store):
    """Return who did what, oldest first."""
    acts = json.loads(command(store, "audit", "--json").stdout)
    return [(each["who"], each["action"], each["subject"]) for each in acts]


def at_once(count, work):
    """Call a function this many times at once; return the results in order of the calls."""
    together = threading.Barrier(count)

    def run(nth):
        together.wait()
        return work(nth)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


# Issuing


def test_a_key_is_listed_as_the_command_lists_it(store, owner):
    issue(owner, expiresInDays=2, scopes=["read"])
    response = owner.get(KEYS)
    assert response.get_json() == {"keys": listed_by_command(store)}
    assert response.headers["Cache-Control"] == "no-store"


def test_an_issued_key_works_at_once_and_shows_its_secret_once(store, owner):
    response = owner.post(KEYS, json={"name": " Zoo ", "plan": "pro"})
    key = response.get_json()
    assert (response.status_code, key["name"], key["scopes"]) == (201, "Zoo", ["read", "write"])
    assert response.headers["Cache-Control"] == "no-store"
    assert with_secret(store, key.pop("secret")).place().status_code == 201
    assert key in listed_by_command(store)
    assert trail(store) == [("key 1 (the owner)", "key.issued", "key 2 (Zoo): pro, read write")]


def test_admin_includes_all_scopes(owner):
    assert issue(owner, scopes=["admin"])["scopes"] == [*SCOPES]
    assert issue(owner, scopes=["webhooks"])["scopes"] == ["webhooks"]


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"plan": "pro"}, "name", "required"),
        ({"name": "shop"}, "plan", "required"),
        ({"name": " ", "plan": "pro"}, "name", "format"),
        ({"name": "a\nb", "plan": "pro"}, "name", "format"),
        ({"name": "sok_abc", "plan": "pro"}, "name", "format"),
        ({"name": 7, "plan": "pro"}, "name", "type"),
        ({"name": "shop", "plan": "gold"}, "plan", "range"),
        ({"name": "shop", "plan": "pro", "perMinute": 5}, "perMinute", "range"),
        ({"name": "shop", "plan": "enterprise", "perMinute": 5}, "perDay", "required"),
        ({"name": "shop", "plan": "pro", "perMinute": 0}, "perMinute", "range"),
        ({"name": "shop", "plan": "pro", "expiresInDays": 0}, "expiresInDays", "range"),
        *(
            ({"name": "shop", "plan": "pro", "scopes": scopes}, "scopes", code)
            for scopes, code in (
                *(([], "range"), (["owner"], "range"), (["read", "read"], "range")),
                *(("read", "type"), ([[]], "range"), (None, "null")),
            )
        ),
        ({"name": "shop", "plan": "pro", "secret": "x"}, "secret", "unknown"),
    ],
    ids=str,
)
def test_an_invalid_key_is_rejected_with_the_field_at_fault(store, owner, body, field, code):
    response = owner.post(KEYS, json=body)
    assert_error(response, 422, "validation_failed")
    assert [(each["field"], each["code"]) for each in response.get_json()["errors"]] == [
        (field, code)
    ]
    assert len(listed_by_command(store)) == 1


def test_no_key_can_grant_higher_limits_than_its_own(store, owner):
    def refused(response):
        assert_error(response, 422, "validation_failed")
        assert "1,000 a minute and 100,000 a day" in response.get_json()["message"]

    more = {"plan": "enterprise", "perMinute": 1_001, "perDay": 100_000}
    refused(owner.post(KEYS, json={"name": "big", **more}))
    refused(owner.patch(f"{KEYS}/1", json=more))
    other = issue(owner, scopes=["admin"])
    refused(owner.patch(f"{KEYS}/{other['id']}", json=more | {"perMinute": 1, "perDay": 100_001}))
    # Nor can a key that it issued, whose own limit is lower.
    clerk = with_secret(store, other["secret"])
    response = clerk.patch(f"{KEYS}/1", json={"plan": "pro", "name": "demoted"})
    assert response.status_code == 200
    assert_error(clerk.patch(f"{KEYS}/1", json={"plan": "business"}), 422, "validation_failed")
    same = {"plan": "enterprise", "perMinute": 300, "perDay": 10_000}
    assert clerk.patch(f"{KEYS}/1", json=same).get_json()["perDay"] == 10_000


def test_no_key_can_rotate_one_with_higher_limits(store, owner):
    less = issue(owner, scopes=["admin"], plan="pro")
    clerk = with_secret(store, less["secret"])
    response = clerk.post(f"{KEYS}/1/rotate", json={"graceHours": 1})
    assert_error(response, 422, "validation_failed")
    assert [each["field"] for each in response.get_json()["errors"]] == ["keyId"]
    assert "more requests than your own key" in response.get_json()["message"]
    assert owner.get(LIST).status_code == 200
    assert clerk.post(f"{KEYS}/{less['id']}/rotate", json={"graceHours": 1}).status_code == 200
    assert owner.post(f"{KEYS}/{less['id']}/rotate").status_code in {200, 409}
    # Keys of a plan that is no longer in the settings have the limits of the free plan.
    store.execute("UPDATE api_keys SET plan = 'gone' WHERE id = :id", id=less["id"])
    assert_error(clerk.post(f"{KEYS}/1/rotate", json={}), 422, "validation_failed")


# Changes


def test_a_change_is_audited_by_field_and_only_a_new_plan_begins_new_windows(store, owner):
    key = issue(owner)
    path = f"{KEYS}/{key['id']}"
    user = with_secret(store, key["secret"])
    user.get(LIST)
    changed = owner.patch(path, json={"name": "till", "expiresInDays": 1}).get_json()
    assert (changed["name"], changed["expires"]) == ("till", "2026-12-02T12:00:00.000Z")
    assert user.get(LIST).headers["X-RateLimit-Remaining"] == "298"
    changed = owner.patch(path, json={"plan": "free", "expiresInDays": None}).get_json()
    assert (changed["perMinute"], changed["expires"]) == (60, None)
    assert user.get(LIST).headers["X-RateLimit-Remaining"] == "59"
    assert owner.patch(path, json={"plan": "free"}).status_code == 200
    assert [act for _, *act in trail(store)][1:] == [
        ["key.changed", "key 2 (till): name and expires"],
        ["key.plan", "key 2 (till): free"],
        ["key.changed", "key 2 (till): expires"],
    ]


def test_a_revoked_key_stops_working_at_once(store, owner):
    key = issue(owner)
    user, path = with_secret(store, key["secret"]), f"{KEYS}/{key['id']}"
    assert user.get(LIST).status_code == 200
    response = owner.delete(path)
    assert (response.status_code, response.data) == (204, b"")
    assert_error(user.get(LIST), 401, "invalid_api_key")
    assert owner.delete(path).status_code == 204
    assert_error(owner.post(f"{path}/rotate"), 409, "key_is_over")


def test_a_rotated_key_has_a_new_secret_and_the_old_one_has_a_grace_period(store, owner, clock):
    key = issue(owner)
    path = f"{KEYS}/{key['id']}/rotate"
    response = owner.post(path, json={"graceHours": 1})
    assert response.headers["Cache-Control"] == "no-store"
    rotated = response.get_json()
    assert rotated["graceUntil"] == "2026-12-01T13:00:00.000Z"
    old, new = (with_secret(store, each["secret"]) for each in (key, rotated))
    assert (old.get(LIST).status_code, new.get(LIST).status_code) == (200, 200)
    assert_error(owner.post(path), 409, "rotation_in_grace")
    clock.advance(3_600)
    assert (old.get(LIST).status_code, new.get(LIST).status_code) == (401, 200)
    assert owner.post(path).status_code == 200
    assert_error(new.get(LIST), 401, "invalid_api_key")


def test_a_ban_is_lifted_at_once(store, owner, clock):
    key = issue(owner)
    user, path = with_secret(store, key["secret"]), f"{KEYS}/{key['id']}/unban"
    assert_error(owner.post(path), 409, "key_not_banned")
    for _ in range(400):
        user.get(LIST)
        clock.advance(0.05)
    assert_error(user.get(LIST), 429, "api_key_banned")
    clock.advance(61)
    assert owner.post(path).get_json()["bannedUntil"] is None
    assert user.get(LIST).status_code == 200


@pytest.mark.parametrize("key_id", ["9", "0", "-1", "x", "01", str(2**63), "%00"])
def test_an_unknown_key_is_not_found(owner, key_id):
    for response in (
        owner.patch(f"{KEYS}/{key_id}", json={"name": "x"}),
        owner.delete(f"{KEYS}/{key_id}"),
        owner.post(f"{KEYS}/{key_id}/rotate"),
        owner.post(f"{KEYS}/{key_id}/unban"),
    ):
        assert_error(response, 404, "key_not_found")


# The last admin key


def test_the_last_admin_key_cannot_be_ended_over_the_api(store, owner):
    own = f"{KEYS}/1"
    store.client(scopes=SCOPES, expires_at=store.clock.now())  # already expired
    issue(owner, scopes=["read", "write", "webhooks"])
    for response in (
        owner.delete(own),
        owner.post(f"{own}/rotate"),
        owner.patch(own, json={"expiresInDays": 36_500}),
    ):
        assert_error(response, 409, "last_admin_key")
    assert owner.patch(own, json={"name": "me"}).status_code == 200
    rotated = owner.post(f"{own}/rotate", json={"graceHours": 1}).get_json()
    owner = with_secret(store, rotated["secret"])
    other = issue(owner, scopes=["admin"])
    assert owner.delete(own).status_code == 204
    other = with_secret(store, other["secret"])
    assert_error(other.delete(f"{KEYS}/4"), 409, "last_admin_key")
    # The command can.
    assert command(store, "keys", "revoke", 4).exit_code == 0


def test_of_two_admins_that_revoke_each_other_at_once_one_remains(store, owner):
    for _ in range(10):
        first, second = (store.client(scopes=SCOPES) for _ in range(2))
        pair = [(first, second), (second, first)]
        assert owner.delete(f"{KEYS}/{owner.key_id}").status_code in {204, 401}
        answers = at_once(
            2, lambda nth, pair=pair: pair[nth][0].delete(f"{KEYS}/{pair[nth][1].key_id}")
        )
        assert sorted(each.status_code for each in answers) in ([204, 401], [204, 409])
        # A key that was looked up before it was revoked stays cached for less than a second.
        store.clock.advance(1)
        (owner,) = (each for each in (first, second) if each.get(KEYS).status_code == 200)


def test_of_four_admins_that_revoke_one_another_at_once_at_least_one_remains(store):
    admins = [store.client(scopes=SCOPES) for _ in range(4)]
    answers = at_once(
        4, lambda nth: admins[nth].delete(f"{KEYS}/{admins[(nth + 1) % 4].key_id}").status_code
    )
    assert set(answers) <= {204, 401, 409}
    assert len([each for each in admins if each.get(KEYS).status_code == 200]) >= 1


def test_a_key_revoked_a_moment_ago_issues_no_other(store, owner):
    admin = store.client(scopes=SCOPES)
    assert admin.get(KEYS).status_code == 200
    # By another process: this one still has the key in memory.
    assert command(store, "keys", "revoke", admin.key_id).exit_code == 0
    assert_error(admin.post(KEYS, json={"name": "x", "plan": "free"}), 401, "invalid_api_key")


# Concurrent rotations


@pytest.mark.parametrize(("hours", "statuses"), [(1, [200] + 99 * [409]), (0, 100 * [200])])
def test_of_100_concurrent_rotations_the_last_secret_works(store, owner, hours, statuses):
    key = issue(owner)
    path, body = f"{KEYS}/{key['id']}/rotate", {"graceHours": hours}
    answers = at_once(100, lambda _: owner.post(path, json=body))
    assert sorted(each.status_code for each in answers) == statuses
    for each in answers:
        if each.status_code == 409:
            assert_error(each, 409, "rotation_in_grace")
    secrets = [each.get_json()["secret"] for each in answers if each.status_code == 200]
    store.clock.advance(61)  # an address has few requests a minute
    working = [each for each in secrets if with_secret(store, each).get(LIST).status_code == 200]
    assert len(working) == 1
    store.clock.advance(61)
    assert with_secret(store, key["secret"]).get(LIST).status_code == (200 if hours else 401)
    assert sum(action == "key.rotated" for _, action, _ in trail(store)) == len(secrets)


# Idempotency, and where secrets are shown


def test_a_replayed_answer_is_the_first_one_without_its_secret(store, owner):
    sent = {"headers": {"Idempotency-Key": "once"}, "json": {"name": "shop", "plan": "pro"}}
    first, again = owner.post(KEYS, **sent), owner.post(KEYS, **sent)
    key = first.get_json()
    secret = key.pop("secret")
    assert (again.status_code, again.get_json()) == (201, key)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert len(listed_by_command(store)) == 2
    assert with_secret(store, secret).get(LIST).status_code == 200
    other = sent | {"json": {"name": "till", "plan": "pro"}}
    assert_error(owner.post(KEYS, **other), 422, "idempotency_key_reused")
    path = f"{KEYS}/{key['id']}"
    for method, end in (("POST", "/rotate"), ("PATCH", ""), ("DELETE", "")):
        sent = {"headers": {"Idempotency-Key": method + end}}
        sent |= {"json": {"name": "x"}} if method == "PATCH" else {}
        first, again = (owner.request(method, path + end, **sent) for _ in range(2))
        assert first.status_code == again.status_code, method
        assert "Idempotent-Replayed" in again.headers
        assert "secret" not in again.text
    assert sum(action == "key.rotated" for _, action, _ in trail(store)) == 1


def test_no_secret_is_in_any_file_or_message_but_the_answer(store, owner):
    once = {"headers": {"Idempotency-Key": "once"}}
    key = owner.post(KEYS, json={"name": "shop", "plan": "pro"}, **once).get_json()
    path = f"{KEYS}/{key['id']}"
    rotated = owner.post(
        f"{path}/rotate", json={"graceHours": 1}, headers={"Idempotency-Key": "twice"}
    ).get_json()
    messages = [
        owner.post(f"{path}/rotate", json={"graceHours": key["secret"]}),
        owner.patch(path, json={"name": rotated["secret"]}),
        owner.get(KEYS),
    ]
    done = command(store, "audit", "--json").stdout
    store.shop.end()
    files = [each.read_bytes() for each in store.settings.instance.rglob("*") if each.is_file()]
    assert files
    for secret in (key["secret"], rotated["secret"], owner.secret):
        assert not [each for each in files if secret.encode() in each]
        assert secret not in done
        assert not [each for each in messages if secret in each.text]


# The audit trail, and backups


def test_the_trail_comes_in_pages_newest_first_and_names_the_key(store, owner):
    for name in ("a", "b", "c"):
        issue(owner, name)
    page = owner.get("/v2/audit?limit=2").get_json()
    assert [each["subject"] for each in page["acts"]] == [
        "key 4 (c): pro, read write",
        "key 3 (b): pro, read write",
    ]
    assert {each["who"] for each in page["acts"]} == {"key 1 (the owner)"}
    rest = owner.get(f"/v2/audit?limit=2&after={page['next']}").get_json()
    assert ([each["subject"][:9] for each in rest["acts"]], rest["more"]) == (["key 2 (a)"], False)


@pytest.mark.sqlite_only
def test_a_repeated_backup_request_makes_one_backup_which_is_listed_and_audited(store, owner):
    assert owner.get("/v2/backups").get_json() == {"backups": [], "sameDisk": True}
    once = {"headers": {"Idempotency-Key": "once"}}
    first, again = owner.post("/v2/backups", **once), owner.post("/v2/backups", **once)
    made = first.get_json()
    assert (first.status_code, again.get_json()) == (201, made)
    assert (made["name"], made["state"]) == ("orders-20261201T120000Z-manual.db", "sound")
    assert owner.get("/v2/backups").get_json()["backups"] == [made]
    assert (store.settings.backups_path / made["name"]).stat().st_size == made["bytes"]
    assert trail(store) == [("key 1 (the owner)", "backup.made", made["name"])]


@pytest.mark.sqlite_only
def test_backups_of_the_same_second_differ_in_their_names(store, owner):
    made = [owner.post("/v2/backups").get_json()["name"] for _ in range(3)]
    assert made == [f"orders-20261201T12000{second}Z-manual.db" for second in range(3)]
    assert [each["name"] for each in owner.get("/v2/backups").get_json()["backups"]] == made[::-1]


@pytest.mark.sqlite_only
def test_a_backup_requested_again_while_it_is_recorded_is_made_once(store, owner, monkeypatch):
    once = {"headers": {"Idempotency-Key": "once"}}
    again = []

    def record(*arguments):
        monkeypatch.undo()
        store.clock.advance(1)  # a second backup would get another name
        again.append(threading.Thread(target=owner.post, args=("/v2/backups",), kwargs=once))
        again[0].start()
        backups = store.settings.backups_path
        wait_until(lambda: len([*backups.glob("*.db")]) > 1 or not again[0].is_alive())
        audit.record(*arguments)

    monkeypatch.setattr(audit, "record", record)
    assert owner.post("/v2/backups", **once).status_code == 201
    again[0].join()
    assert len(owner.get("/v2/backups").get_json()["backups"]) == 1


@pytest.mark.sqlite_only
def test_a_failed_backup_and_backups_that_are_off_are_reported_as_such(make_store):
    store = make_store()
    owner = store.client(scopes=SCOPES)
    store.settings.backups_path.write_text("no folder")
    assert_error(owner.post("/v2/backups"), 503, "backup_failed")
    store = make_store(backups="")
    owner = store.client(scopes=SCOPES)
    assert_error(owner.get("/v2/backups"), 409, "backups_off")
    assert_error(owner.post("/v2/backups"), 409, "backups_off")
