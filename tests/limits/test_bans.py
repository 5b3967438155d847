"""Bans: 30 answers of 429 within 60 s block a key for 300 s."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from orders import apikeys
from orders.domain import format_instant
from orders.server import Rejection
from orders.store import apikeys as key_store
from orders.web.api import ServingPolicy
from tests.support.clocks import WHERE_COUNTED
from tests.support.stores import assert_error

LIST = "/v1/store/orders"
BAN, DAY = 300, 86_400


def own(store, per_minute=1, per_day=100_000):
    """Return a client whose key has limits of its own."""
    return store.client(plan="enterprise", per_minute=per_minute, per_day=per_day)


def codes(client, times):
    """Send this many requests that are refused; return the codes of the answers."""
    return [client.get(LIST).get_json()["code"] for _ in range(times)]


def plain(times):
    """Return the codes of this many 429 answers without a ban."""
    return ["rate_limit_exceeded"] * times


def spend(client):
    """Use up the one request of a client's window."""
    assert client.get(LIST).status_code == 200


def strike(client):
    """Get one refusal, and let the second pass in which further ones would not count."""
    assert codes(client, 1) == plain(1)
    client.store.clock.advance(1)


def ban(client):
    """Use up the one request of a client's window, and continue until the key is banned."""
    spend(client)
    strike(client)
    assert codes(client, 29) == [*plain(28), "api_key_banned"]


def unban(store, client):
    """Lift a ban as the command does, and wait until that takes effect."""
    with store.database.write() as connection:
        key_store.change(connection, client.key_id, banned_until=None)
    store.clock.advance(1)


def restriction_of(response):
    """Return the values of X-RateLimit-*: limit, remaining, reset; and of Retry-After."""
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After")
    return tuple(int(response.headers[name]) for name in names)


@pytest.fixture(params=WHERE_COUNTED)
def counting(request):
    return request.param


# When a ban begins.


def test_the_thirtieth_429_within_a_minute_already_reports_the_ban(store, caplog):
    client = own(store)
    spend(client)
    strike(client)
    assert codes(client, 28) == plain(28)
    assert caplog.messages == []
    banned = client.get(LIST)
    assert_error(banned, 429, "api_key_banned")
    assert f"Wait {BAN} s before" in banned.get_json()["message"]
    warning = f"Key {client.key_id} is banned for {BAN} s: it continued after 429."
    assert caplog.messages == [warning]
    assert banned.headers["Retry-After"] == str(BAN)


# The life of a key with one request a minute, or a day: `28 limited` are the answers to that many
# requests, `wait 40` is the next Retry-After, `+59` lets seconds pass, `clock -300` sets the clock.
BANNED = "1 ok, 1 limited, +1, 28 limited, 1 banned"
LIVES = {
    "refusals within a second of the first do not count": (
        "minute",
        "1 ok, 32 limited, +0.5, 32 limited, +0.5, 28 limited, 1 banned",
    ),
    "an admitted request in between does not reset the count": (
        "minute",
        "1 ok, +58, 1 limited, +1, 14 limited, +1, 1 ok, 14 limited, 1 banned",
    ),
    "the count begins again after sixty seconds, not before": (
        "day",
        "1 ok, 1 limited, +1, 28 limited, +59, 1 limited, +58, 28 limited, 1 banned",
    ),
    "a refusal every three seconds causes no ban": ("day", "1 ok" + ", 1 limited, +3" * 45),
    "after a ban the count begins at zero": (
        "day",
        f"{BANNED}, +300, 1 limited, +1, 28 limited, 1 banned, wait {DAY - BAN - 2}",
    ),
    "the count of refusals survives a restart": (
        "minute",
        "1 ok, 1 limited, +1, 28 limited, restart, 1 banned",
    ),
    "a ban that is over stays over after a restart": ("minute", f"{BANNED}, +300, restart, 1 ok"),
    "a ban is cut to its length after the clock was set back": (
        "minute",
        f"{BANNED}, clock -3600, restart, wait 300, +300, 1 ok",
    ),
    **{
        f"{restart} a clock that jumps by {jump} neither ends nor prolongs a ban": (
            "minute",
            f"{BANNED}, +100, {restart} clock {jump}, wait 200, +199, 1 banned, +1, 1 ok",
        )
        for jump in (3_600, -3_600)
        for restart in ("", "restart,")
    },
    "a clock set back revives no old ban": (
        "minute",
        f"{BANNED}, +300, flush, clock -300, 1 ok",
    ),
}
CODES = {"limited": "rate_limit_exceeded", "banned": "api_key_banned"}


@pytest.mark.parametrize(("window", "life"), LIVES.values(), ids=LIVES)
def test_a_key_goes_through_refusals_and_bans_as_described(store, clock, start_again, window, life):
    client = own(store, per_day=1) if window == "day" else own(store)
    for step in life.split(","):
        match step.split():
            case ["restart"]:
                client = start_again(client)
            case ["flush"]:
                client.store.shop.bans.flush()
            case ["wait", seconds]:
                response = client.get(LIST)
                wait = int(seconds)
                assert restriction_of(response)[1:] == (0, clock.time() + wait, wait), step
            case ["clock", seconds]:
                clock.set_wall(int(seconds))
            case [times, word]:
                if word == "ok":
                    spend(client)
                else:
                    assert codes(client, int(times)) == [CODES[word]] * int(times), step
            case [seconds]:
                clock.advance(float(seconds))


def test_any_operation_counts_towards_a_ban(store):
    client = own(store)
    spend(client)
    strike(client)
    requests = [("POST", LIST), ("GET", "/v1/nothing"), ("HEAD", LIST)] * 10
    responses = [client.request(method, path) for method, path in requests[:29]]
    assert {each.status_code for each in responses} == {429}
    waits = [each.headers["Retry-After"] for each in responses]
    assert waits == ["59"] * 28 + [str(BAN)]


def test_the_number_of_refusals_their_window_and_the_bans_length_are_settings(make_store, clock):
    store = make_store(ban_after=3, ban_window=10, ban_seconds=20)
    client = own(store, per_day=1)
    spend(client)
    strike(client)
    assert codes(client, 1) == plain(1)
    clock.advance(9)
    strike(client)
    assert codes(client, 2) == [*plain(1), "api_key_banned"]
    assert client.get(LIST).headers["Retry-After"] == str(DAY - 11)
    clock.advance(20)
    assert codes(client, 1) == plain(1)


def test_with_sixteen_threads_exactly_the_thirtieth_refusal_bans(store):
    client = own(store)
    spend(client)
    strike(client)
    likes = [type(client)(store, client.key_id, client.secret) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        answers = [code for some in pool.map(lambda like: codes(like, 4), likes) for code in some]
    assert sorted(answers) == ["api_key_banned"] * 36 + plain(28)


# While a ban lasts.


def test_requests_during_a_ban_neither_extend_it_nor_count(store, clock):
    client = own(store)
    ban(client)
    for rest in range(BAN - 15, 0, -15):
        clock.advance(15)
        response = client.post(LIST, data="{") if rest % 2 else client.get("/v1/nothing")
        assert_error(response, 429, "api_key_banned")
        assert response.headers["Retry-After"] == str(rest)
    assert response.headers["RateLimit"] == '"minute";r=1;t=60, "day";r=99999;t=86114'
    clock.advance(14.999)
    assert client.get(LIST).headers["Retry-After"] == "1"
    clock.advance(0.001)
    ban(client)
    assert client.get(LIST).headers["Retry-After"] == str(BAN)


def test_a_request_under_way_when_the_ban_began_reports_its_end(store, clock):
    client = own(store)
    ban(client)
    clock.advance(10)
    with store.database.read() as connection:
        (key,) = key_store.get_all(connection)
    assert store.shop.bans.strike(key) == BAN - 10


# The limits of a key; the earlier requests, with the seconds after them; and the answer to the next
# request: X-RateLimit-Limit, the seconds of -Reset and Retry-After, and the values of RateLimit.
COURSES = {
    "the ban itself": ((1, 500), [(2, 1), (28, 9)], (1, BAN), "0/50 499/86390"),
    "no exhausted window": ((1, 500), [(2, 1), (29, 100)], (1, BAN - 100), "1/60 499/86299"),
    "an exhausted day": ((5, 1), [(2, 1), (29, 100)], (1, DAY - 101), "5/60 0/86299"),
    "a day that ends before": (
        *((5, 3), [(1, DAY - 101), (3, 1), (28, 0)]),
        *((3, BAN), "3/59 0/100"),
    ),
}


@pytest.mark.parametrize("course", COURSES)
def test_the_headers_of_a_ban_show_the_longest_restriction(store, clock, course):
    figures, earlier, (limit, wait), standing = COURSES[course]
    client = own(store, *figures)
    for requests, seconds in earlier:
        for _ in range(requests):
            client.get(LIST)
        clock.advance(seconds)
    response = client.get(LIST)
    assert_error(response, 429, "api_key_banned")
    assert restriction_of(response) == (limit, 0, clock.time() + wait, wait)
    minute, day = (each.split("/") for each in standing.split())
    assert response.headers["RateLimit"] == (
        f'"minute";r={minute[0]};t={minute[1]}, "day";r={day[0]};t={day[1]}'
    )
    assert response.headers["RateLimit-Policy"] == (
        f'"minute";q={figures[0]};w=60, "day";q={figures[1]};w=86400'
    )


def test_a_refusal_by_the_server_itself_shows_the_ban_and_is_not_counted(store, clock):
    client = own(store, 1, 500)
    ban(client)
    clock.advance(100)
    policy = ServingPolicy(store.app, lambda: None)
    bearer = f"Bearer {client.secret}"
    headers, _ = policy.refusal(Rejection(431, "", None, bearer, "192.0.2.7", clock.monotonic()))
    shown = dict(headers)
    assert shown["X-RateLimit-Remaining"] == "0"
    assert int(shown["X-RateLimit-Reset"]) == clock.time() + BAN - 100
    assert shown["RateLimit"] == client.get(LIST).headers["RateLimit"]


def test_other_keys_and_the_address_of_a_banned_key_are_not_affected(store):
    ban(own(store))
    other = own(store)
    spend(other)
    assert codes(other, 1) == plain(1)
    assert_error(store.anonymous().get(LIST), 401, "missing_api_key")


def test_an_address_is_never_banned(store, clock):
    anonymous = store.anonymous()
    assert codes(anonymous, 60) == ["missing_api_key"] * 60
    assert codes(anonymous, 35) == plain(35)
    assert anonymous.get(LIST).headers["Retry-After"] == "60"
    clock.advance(60)
    assert codes(anonymous, 1) == ["missing_api_key"]


def test_a_ban_applies_to_both_secrets_of_a_rotated_key_and_on_another_plan(store, clock):
    client = own(store)
    ban(client)
    new = apikeys.generate()
    until = clock.now() + timedelta(hours=1)
    with store.database.write() as connection:
        key_store.rotate(connection, client.key_id, new, until)
        key_store.change_plan(connection, client.key_id, "business", None, None)
    clock.advance(1)
    for secret in (client.secret, new):
        client.secret = secret
        response = client.get(LIST)
        assert_error(response, 429, "api_key_banned")
        assert restriction_of(response) == (1_000, 0, clock.time() + BAN - 1, BAN - 1)


# After a ban.


def test_unban_leaves_the_windows_as_they_were_and_resets_the_count(store):
    client = own(store, per_minute=2, per_day=500)
    spend(client)
    ban(client)
    store.clock.advance(30)
    assert codes(client, 20) == ["api_key_banned"] * 20
    unban(store, client)
    response = client.get(LIST)
    assert_error(response, 429, "rate_limit_exceeded")
    assert response.headers["RateLimit"] == '"minute";r=0;t=28, "day";r=498;t=86368'
    store.clock.advance(1)
    assert codes(client, 29) == [*plain(28), "api_key_banned"]


def test_a_ban_written_by_another_process_applies_and_can_be_lifted(store, clock):
    client = own(store)
    spend(client)
    until = clock.now() + timedelta(seconds=100)
    with store.database.write() as connection:
        key_store.change(connection, client.key_id, banned_until=until)
    clock.advance(1)
    assert client.get(LIST).headers["Retry-After"] == "99"
    unban(store, client)
    assert codes(client, 1) == plain(1)


# Restarts and clocks.


def test_a_ban_is_written_at_once_survives_a_restart_and_can_then_be_lifted(
    store, clock, start_again
):
    client = own(store)
    ban(client)
    until = format_instant(clock.now() + timedelta(seconds=BAN))
    assert store.rows("SELECT banned_until FROM api_keys") == [{"banned_until": until}]
    clock.advance(100)
    client = start_again(client)
    response = client.get(LIST)
    assert_error(response, 429, "api_key_banned")
    assert response.headers["Retry-After"] == "200"
    unban(client.store, client)
    assert client.get(LIST).status_code == 200


# A database that is away.


def test_a_ban_that_cannot_be_written_is_kept_in_memory(store, clock, caplog):
    client = own(store)
    spend(client)
    strike(client)
    codes(client, 28)
    with store.away():
        assert_error(client.get(LIST), 429, "api_key_banned")
        assert_error(client.get(LIST), 429, "api_key_banned")
    kept = f"The ban of key {client.key_id} is kept in memory for now: the "
    assert any(message.startswith(kept) for message in caplog.messages), caplog.messages
    assert store.rows("SELECT banned_until FROM api_keys") == [{"banned_until": None}]
    clock.advance(100)  # the row is read again, and shows no ban
    response = client.get(LIST)
    assert_error(response, 429, "api_key_banned")
    assert response.headers["Retry-After"] == "200"


def test_a_ban_that_could_not_be_written_is_written_later_and_can_be_lifted(store, clock):
    client = own(store)
    spend(client)
    strike(client)
    codes(client, 28)
    until = format_instant(clock.now() + timedelta(seconds=BAN))
    with store.away():
        client.get(LIST)
        store.shop.bans.flush()
    clock.advance(2)
    store.shop.bans.flush()
    assert store.rows("SELECT banned_until FROM api_keys") == [{"banned_until": until}]
    unban(store, client)
    assert client.get(LIST).status_code == 429, "the window is still full"
    clock.advance(60)
    assert client.get(LIST).status_code == 200
