"""Authentication and authorization: keys, scopes, expiry, rotation, proxies."""

from __future__ import annotations

import ipaddress
import re
from datetime import timedelta

import pytest
from sqlalchemy import Pool, event

from orders import apikeys
from orders.store import apikeys as key_store
from tests.support.commands import command
from tests.support.stores import assert_error

LIST = "/v1/store/orders"
# Less than a second, in which changes take effect.
SOON = 0.85


def change(store, client, **values):
    """Change a client's key as a command does."""
    with store.database.write() as connection:
        key_store.change(connection, client.key_id, **values)


def at(clock, seconds):
    """Return the instant this many seconds from now."""
    return clock.now() + timedelta(seconds=seconds)


def rotate(store, client, grace=None):
    """Rotate a client's key as the command does; return its new secret."""
    new = apikeys.generate()
    until = store.clock.now() + grace if grace else None
    with store.database.write() as connection:
        key_store.rotate(connection, client.key_id, new, until)
    return new


def send(store, authorization):
    """List the orders with this Authorization header; return the response."""
    return store.anonymous().get(LIST, headers={"Authorization": authorization})


def works(store, secret):
    """Return whether a request with this secret is answered."""
    return send(store, f"Bearer {secret}").status_code == 200


def left(response):
    """Return the requests left in the minute, from RateLimit."""
    return int(re.search(r'"minute";r=(\d+)', response.headers["RateLimit"])[1])


# The Authorization header.


@pytest.mark.parametrize(
    "header", ["Bearer {}", "bearer {}", "BEARER {}", "bEaReR {}", "Bearer   {}  "]
)
def test_bearer_is_case_insensitive_and_blanks_around_a_key_are_ignored(store, header):
    _, secret = store.issue()
    assert send(store, header.format(secret)).status_code == 200


def test_a_header_that_is_not_bearer_and_a_key_counts_as_a_missing_key(store):
    _, secret = store.issue()
    for header in (
        "",
        "Bearer",
        "Bearer ",
        secret,
        f"Basic {secret}",
        f"Token {secret}",
        f"Bearer:{secret}",
        f"BearerX {secret}",
        f'Digest username="{secret}"',
    ):
        response = send(store, header)
        assert_error(response, 401, "missing_api_key")
        assert "Authorization: Bearer" in response.get_json()["message"]


def test_a_key_that_differs_from_an_issued_one_is_invalid(store):
    _, secret = store.issue()
    for token in (
        secret[:-1],
        secret + "0",
        secret.removeprefix("sok_"),
        secret.replace("sok_", "SOK_"),
        secret.swapcase(),
        f"{secret} {secret}",
        f"{secret}, Bearer {secret}",
        f'"{secret}"',
        f"token={secret}",
        "sok_",
        "sok_" + "a" * 38,
        "x" * 5_000,
        "ÿ" * 42,
        "sok_" + "٣" * 3,
    ):
        assert_error(
            send(store, f"Bearer {token.encode().decode('latin-1')}"), 401, "invalid_api_key"
        )


def test_a_key_is_accepted_only_in_the_authorization_header(store):
    _, secret = store.issue()
    anonymous = store.anonymous()
    assert_error(anonymous.get(f"{LIST}?api_key={secret}"), 401, "missing_api_key")
    assert_error(anonymous.get(LIST, headers={"X-Api-Key": secret}), 401, "missing_api_key")
    assert_error(anonymous.get(LIST, headers={"Cookie": f"key={secret}"}), 401, "missing_api_key")


def test_unknown_revoked_and_expired_keys_get_the_same_answer(store):
    revoked = store.client(name="revoked")
    change(store, revoked, revoked_at=store.clock.now())
    expired = store.client(name="expired", expires_at=store.clock.now())
    answers = [
        send(store, f"Bearer {secret}")
        for secret in (apikeys.generate(), "nonsense", revoked.secret, expired.secret)
    ]
    assert {(each.status_code, each.data) for each in answers} == {(401, answers[0].data)}
    assert len({each.headers["WWW-Authenticate"] for each in answers}) == 1


@pytest.mark.sqlite_only("its driver reports the statements it executes")
def test_all_invalid_keys_cause_the_same_queries(store, clock):
    revoked, expired, rotated = (store.client() for _ in range(3))
    change(store, revoked, revoked_at=clock.now())
    change(store, expired, expires_at=clock.now())
    rotate(store, rotated, timedelta(hours=1))
    clock.advance(3600)
    statements = []

    def note(statement):
        if "api_keys" in statement:
            statements.append(re.sub(r"[xX]?'[^']*'", "…", statement))

    def watch(connection, _):
        connection.set_trace_callback(note)

    store.database.close()
    event.listen(Pool, "connect", watch)
    try:
        for secret in (apikeys.generate(), revoked.secret, expired.secret, rotated.secret):
            for _ in range(3):  # a valid key would be cached
                assert not works(store, secret)
    finally:
        event.remove(Pool, "connect", watch)
    assert len(statements) == 4 * 3
    assert len(set(statements)) == 1


# Changes while the service runs.


def test_a_new_key_works_at_once_even_if_it_was_tried_before_it_was_issued(store):
    secret = apikeys.generate()
    assert not works(store, secret)
    with store.database.write() as connection:
        key_store.issue(
            connection,
            key_store.NewKey("late", "free", ("read",)),
            secret,
            store.clock.now(),
        )
    assert works(store, secret)


@pytest.mark.parametrize("requests", [1, 8])
def test_a_revoked_key_stops_working_within_a_second(store, clock, requests):
    client = store.client()
    assert client.get(LIST).status_code == 200
    change(store, client, revoked_at=clock.now())
    for _ in range(requests):  # constant use does not keep it cached for longer
        clock.advance(SOON / requests)
        last = client.get(LIST)
    assert_error(last, 401, "invalid_api_key")


def test_a_key_expires_exactly_on_time(store, clock):
    client = store.client(expires_at=clock.now() + timedelta(seconds=10))
    assert client.get(LIST).status_code == 200
    clock.advance(9.999)
    assert client.get(LIST).status_code == 200
    clock.advance(0.001)
    for _ in range(2):
        assert_error(client.place(), 401, "invalid_api_key")
    assert store.events() == []


def test_a_start_with_a_slow_clock_revives_no_expired_key(store, clock, start_again, caplog):
    expiring, rotated = (store.client(**key) for key in ({"expires_at": at(clock, 10)}, {}))
    rotate(store, rotated, timedelta(seconds=10))
    clock.advance(10)
    other = store.client(expires_at=at(clock, 10))
    assert other.place().status_code == 201
    clock.set_wall(-3_600)
    for _ in range(2):  # the latest time stays noted, though a new event has an earlier one
        expiring, rotated, other = (start_again(each) for each in (expiring, rotated, other))
        assert [works(store, each.secret) for each in (expiring, rotated, other)] == [0, 0, 1]
        assert other.place().status_code == 201
    warning = "The clock is behind: it has been 2026-12-01T12:00:10.000Z before."
    assert caplog.messages[-1].startswith(warning)
    assert "`store-orders db check --clock-is-right`" in caplog.messages[-1]
    clock.set_wall(3_600)
    caplog.clear()
    other = start_again(other)
    assert caplog.messages == []
    assert other.place().status_code == 201


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "before it is noticed"])
def test_a_clock_set_back_while_running_revives_no_expired_key(
    store, clock, start_again, caplog, is_noticed
):
    expiring, other = store.client(expires_at=at(clock, 10)), store.client()
    assert works(store, expiring.secret)
    clock.advance(10)
    assert not works(store, expiring.secret)
    clock.set_wall(-3_600)
    assert not works(store, expiring.secret)
    if is_noticed:
        store.shop.write_keys()
        assert len(caplog.messages) == 1
    assert [works(store, each.secret) for each in (expiring, other)] == [False, True]
    assert other.place().status_code == 201
    expiring = start_again(expiring)
    assert not works(expiring.store, expiring.secret)
    assert caplog.messages[-1].startswith("The clock is behind: it has been 2026-12-01T12:00:10")
    assert command(expiring.store, "db", "check", "--clock-is-right").exit_code == 0
    for _ in range(2):
        assert works(expiring.store, expiring.secret)
        expiring.store.shop.write_keys()


def test_an_expiry_that_passed_unused_is_remembered_after_a_kill(store, clock, make_store):
    expiring = store.client(expires_at=at(clock, 10))
    clock.advance(7_200)
    store.shop.write_keys()  # as every half second; then it is killed
    clock.set_wall(-7_200)
    again = make_store()
    again.shop.begin()
    assert not works(again, expiring.secret)


def test_if_the_earlier_clock_was_fast_a_command_can_declare_the_clock_right(
    store, clock, start_again, caplog
):
    expiring = store.client(expires_at=at(clock, 3_600))
    clock.set_wall(86_400)
    assert store.client().place().status_code == 201
    clock.set_wall(-86_400)
    expiring = start_again(expiring)
    assert not works(expiring.store, expiring.secret)
    assert len(caplog.messages) == 2  # one at the stop and one at the start
    done = command(expiring.store, "db", "check", "--clock-is-right")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "Keys expire by the clock again.")
    assert works(expiring.store, expiring.secret)
    caplog.clear()
    expiring = start_again(expiring)
    assert (works(expiring.store, expiring.secret), caplog.messages) == (True, [])


# Rotation.


def test_both_secrets_share_the_keys_windows_and_act_as_the_same_key(store):
    client = store.client(plan="free")
    assert left(client.place()) == 59
    old, client.secret = client.secret, rotate(store, client, timedelta(hours=1))
    assert left(client.place()) == 58
    client.secret = old
    assert left(client.place()) == 57
    assert [event["actor"] for event in store.events()] == [f"key:{client.key_id}"] * 3


def test_a_revoked_key_has_no_working_secret(store, clock):
    client = store.client()
    new = rotate(store, client, timedelta(hours=1))
    change(store, client, revoked_at=clock.now())
    clock.advance(SOON)
    assert [works(store, secret) for secret in (client.secret, new)] == [False, False]


# When a key was last used.


def last_used(store):
    """Return when each key was last used, from the database."""
    return [row["last_used_at"] for row in store.rows("SELECT last_used_at FROM api_keys")]


def test_the_last_use_is_written_by_a_flush_once_a_minute(store, clock):
    client = store.client()
    clock.advance(0.5)
    client.get(LIST)
    assert last_used(store) == [None]
    store.shop.keyring.flush()
    assert last_used(store) == ["2026-12-01T12:00:00.000Z"]
    change(store, client, last_used_at=None)
    clock.advance(59)
    client.get(LIST)
    store.shop.keyring.flush()
    assert last_used(store) == [None]
    clock.advance(42.5)
    client.get(LIST)
    store.shop.keyring.flush()
    assert last_used(store) == ["2026-12-01T12:01:00.000Z"]


def test_a_flush_without_a_use_writes_nothing(store, clock):
    store.client().get(LIST)
    store.shop.keyring.flush()
    before = store.database.version()
    clock.advance(30)
    store.shop.keyring.flush()
    assert store.database.version() == before


def test_a_refused_request_counts_as_use_of_a_valid_key_only(store):
    store.client(expires_at=store.clock.now()).get(LIST)
    store.client(scopes=("read",)).place()
    store.shop.keyring.flush()
    assert last_used(store) == [None, "2026-12-01T12:00:00.000Z"]


def test_a_last_use_that_cannot_be_written_is_written_later_and_fails_no_request(store):
    one, other = store.client(), store.client()
    one.get(LIST)
    with store.away():
        store.shop.keyring.flush()
    assert last_used(store) == [None, None]
    assert other.get(LIST).status_code == 200
    store.shop.keyring.flush()
    assert last_used(store) == ["2026-12-01T12:00:00.000Z"] * 2


# Proxies.

NETWORKS = ("10.0.0.0/8", "2001:db8:ff::/48", "192.0.2.7")


def proxied(make_store, *trusted):
    """Return a store that trusts these proxies."""
    return make_store(trusted_proxy=tuple(map(ipaddress.ip_network, trusted)))


def clients_of(store, peer, forwarded):
    """Send a request; return the addresses for which it was counted."""
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    store.anonymous(peer).get(LIST, headers=headers)
    entries = re.split(r"[\s,]+", forwarded or peer)
    bare = [re.sub(r"^\[(.*)\].*|^([\d.]+):\d+$", r"\1\2", entry) for entry in entries]
    seen = {peer, *bare} - {""}
    return [each for each in seen if left(store.anonymous(each).get(LIST)) == 58]


CLIENTS = [
    ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
    ("192.0.2.7", "203.0.113.9", "203.0.113.9"),
    ("2001:db8:ff::1", "203.0.113.9", "203.0.113.9"),
    ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
    ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
    ("10.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
    ("10.0.0.1", "198.51.100.1,203.0.113.9", "203.0.113.9"),
    ("10.0.0.1", "203.0.113.9, 10.0.0.2", "203.0.113.9"),
    ("10.0.0.1", "198.51.100.1, 203.0.113.9, 192.0.2.7, 10.0.0.2", "203.0.113.9"),
    ("10.0.0.1", "nonsense, 203.0.113.9", "203.0.113.9"),
    # With brackets, or a port.
    ("10.0.0.1", "198.51.100.1, 203.0.113.9:50312", "203.0.113.9"),
    ("10.0.0.1", "203.0.113.9:50312, 10.0.0.2:443", "203.0.113.9"),
    ("10.0.0.1", "[2001:db8::1]:50312", "2001:db8::1"),
    ("10.0.0.1", "[2001:db8::1]", "2001:db8::1"),
    ("10.0.0.1", "203.0.113.9, [2001:db8:ff::2]:443", "203.0.113.9"),
    ("10.0.0.1", "2001:db8::1:443", "2001:db8::1:443"),
    # Empty elements are ignored.
    *(
        ("10.0.0.1", each, "203.0.113.9")
        for each in ("203.0.113.9,", ", ,203.0.113.9, , 10.0.0.2,")
    ),
    ("10.0.0.1", " , ,", "10.0.0.1"),
    # All entries are proxies, or there is none.
    ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
    ("10.0.0.1", None, "10.0.0.1"),
    ("10.0.0.1", "", "10.0.0.1"),
]


def test_the_client_behind_a_trusted_proxy_is_the_rightmost_entry_that_is_no_proxy(
    make_store, clock
):
    store = proxied(make_store, *NETWORKS)
    for peer, forwarded, client in CLIENTS:
        assert clients_of(store, peer, forwarded) == [client]
        clock.advance(60)


@pytest.mark.parametrize("trusted", [NETWORKS, ()])
@pytest.mark.parametrize("forwarded", ["203.0.113.9", "203.0.113.9, 10.0.0.1"])
def test_a_peer_that_is_not_a_trusted_proxy_is_the_client(make_store, trusted, forwarded):
    assert clients_of(proxied(make_store, *trusted), "192.0.2.1", forwarded) == ["192.0.2.1"]


NO_ADDRESSES = (
    *("unknown", "", "999.1.1.1", "_hidden", "203.0.113.9, -", "203.0.113.9:port", ":80"),
    *("[]:80", "[203.0.113.9", "fe80::1%eth0", "203.0.113.9:1:2", "[2001:db8::1]80"),
)


def test_a_request_with_a_malformed_entry_counts_for_the_proxy(make_store):
    proxy = proxied(make_store, "10.0.0.1").anonymous("10.0.0.1")
    for requests, entry in enumerate(NO_ADDRESSES, 1):
        assert left(proxy.get(LIST, headers={"X-Forwarded-For": entry})) == 60 - requests
