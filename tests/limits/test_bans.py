"""Bans: 30 answers of 429 within 60 s block a key for 300 s."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from orders import keys
from orders.domain import format_instant
from orders.store import keys as key_store
from tests.support.clocks import ONLY_WHERE_TIME_STANDS_STILL, WHERE_COUNTED
from tests.support.stores import assert_error

LIST = "/v1/store/orders"
BAN, DAY = 300, 86_400


def own(store, per_minute=1, per_day=100_000):
    """Return a client whose key has figures of its own."""
    return store.client(plan="enterprise", per_minute=per_minute, per_day=per_day)


def codes(client, times):
    """Send so many requests that are refused; return the codes of the answers."""
    return [client.get(LIST).get_json()["code"] for _ in range(times)]


def plain(times):
    """Return the codes of so many answers of 429 without a ban."""
    return ["rate_limit_exceeded"] * times


def spend(client):
    """Use up the one request of a client's window."""
    assert client.get(LIST).status_code == 200


def strike(client):
    """Be refused, and let the second pass in which further refusals would not count."""
    assert codes(client, 1) == plain(1)
    client.store.clock.advance(1)


def ban(client):
    """Use up the one request of a client's window, and go on until the key is banned."""
    spend(client)
    strike(client)
    assert codes(client, 29) == [*plain(28), "api_key_banned"]


def unban(store, client):
    """Lift a ban as the command does, and wait until that is in force."""
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


def test_the_thirtieth_429_within_a_minute_is_the_ban_already(store, caplog):
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


def test_refusals_in_the_second_after_the_first_do_not_count(store, clock):
    client = own(store)
    spend(client)
    assert codes(client, 96) == plain(96)
    clock.advance(0.5)
    assert codes(client, 96) == plain(96)
    clock.advance(0.5)
    assert codes(client, 29) == [*plain(28), "api_key_banned"]


def test_what_is_admitted_between_refusals_does_not_begin_the_count_anew(store, clock):
    client = own(store)
    spend(client)
    clock.advance(58)
    strike(client)
    assert codes(client, 14) == plain(14)
    clock.advance(1)
    spend(client)
    assert codes(client, 15) == [*plain(14), "api_key_banned"]


@ONLY_WHERE_TIME_STANDS_STILL
def test_sixty_seconds_after_the_first_429_and_not_before_the_count_begins_anew(store, clock):
    client = own(store, per_day=1)
    spend(client)
    strike(client)
    assert codes(client, 28) == plain(28)
    clock.advance(59)
    strike(client)
    clock.advance(58.9)
    assert codes(client, 29) == [*plain(28), "api_key_banned"]


def test_a_client_that_retries_every_three_seconds_is_never_banned(store, clock):
    client = own(store, per_day=1)
    spend(client)
    for _ in range(100):
        assert codes(client, 1) == plain(1)
        clock.advance(3)


def test_any_operation_counts_towards_a_ban(store):
    client = own(store)
    spend(client)
    strike(client)
    requests = [("POST", LIST), ("GET", "/v1/nothing"), ("HEAD", LIST)] * 10
    responses = [client.request(method, path) for method, path in requests[:29]]
    assert {each.status_code for each in responses} == {429}
    waits = [each.headers["Retry-After"] for each in responses]
    assert waits == ["59"] * 28 + [str(BAN)]


def test_the_three_figures_are_settings(make_store, clock):
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


def test_among_sixteen_threads_exactly_the_thirtieth_bans(store):
    client = own(store)
    spend(client)
    strike(client)
    likes = [type(client)(store, client.key_id, client.secret) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        answers = [code for some in pool.map(lambda like: codes(like, 10), likes) for code in some]
    assert sorted(answers) == ["api_key_banned"] * 132 + plain(28)


# While a ban lasts.


def test_requests_during_a_ban_neither_prolong_it_nor_count(store, clock):
    client = own(store)
    ban(client)
    for rest in range(BAN - 5, 0, -5):
        clock.advance(5)
        response = client.post(LIST, data="{") if rest % 2 else client.get("/v1/nothing")
        assert_error(response, 429, "api_key_banned")
        assert response.headers["Retry-After"] == str(rest)
    assert response.headers["RateLimit"] == '"minute";r=1;t=60, "day";r=99999;t=86104'
    clock.advance(4.999)
    assert client.get(LIST).headers["Retry-After"] == "1"
    clock.advance(0.001)
    ban(client)
    assert client.get(LIST).headers["Retry-After"] == str(BAN)


def test_a_request_that_was_under_way_when_the_ban_began_is_told_its_end(store, clock):
    client = own(store)
    ban(client)
    clock.advance(10)
    with store.database.read() as connection:
        (key,) = key_store.get_all(connection)
    assert store.services.limits.bans.strike(key) == BAN - 10


# The figures of a key; the requests before, with the seconds after them; and the answer to the next
# request: X-RateLimit-Limit, and the seconds to -Reset and of Retry-After; what RateLimit has.
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


def test_other_keys_and_the_address_of_a_banned_key_are_untouched(store):
    ban(own(store))
    other = own(store)
    spend(other)
    assert codes(other, 1) == plain(1)
    assert_error(store.anonymous().get(LIST), 401, "missing_api_key")


def test_an_address_is_never_banned(store, clock):
    anonymous = store.anonymous()
    assert codes(anonymous, 60) == ["missing_api_key"] * 60
    assert codes(anonymous, 100) == plain(100)
    assert anonymous.get(LIST).headers["Retry-After"] == "60"
    clock.advance(60)
    assert codes(anonymous, 1) == ["missing_api_key"]


def test_a_ban_holds_for_both_secrets_of_a_rotated_key_and_on_another_plan(store, clock):
    client = own(store)
    ban(client)
    new = keys.generate()
    until = clock.now() + timedelta(hours=1)
    with store.database.write() as connection:
        key_store.rotate(connection, client.key_id, new[:8], keys.digest(new), until)
        key_store.change_plan(connection, client.key_id, "business", None, None)
    clock.advance(1)
    for secret in (client.secret, new):
        client.secret = secret
        response = client.get(LIST)
        assert_error(response, 429, "api_key_banned")
        assert restriction_of(response) == (1_000, 0, clock.time() + BAN - 1, BAN - 1)


# After a ban.


def test_after_a_ban_the_count_begins_at_zero(store, clock):
    client = own(store, per_day=1)
    ban(client)
    clock.advance(BAN)
    strike(client)
    assert codes(client, 29) == [*plain(28), "api_key_banned"]
    assert client.get(LIST).headers["Retry-After"] == str(DAY - BAN - 2)


def test_after_unban_the_windows_are_as_they_were_and_the_count_begins_at_zero(store):
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


def test_a_ban_that_another_process_wrote_is_in_force_and_can_be_lifted(store, clock):
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


def test_a_ban_is_written_at_once_survives_a_restart_and_can_be_lifted_then(
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


def test_refusals_counted_before_a_restart_count_after_it(store, start_again):
    client = own(store)
    spend(client)
    strike(client)
    assert codes(client, 28) == plain(28)
    assert codes(start_again(client), 1) == ["api_key_banned"]


def test_a_ban_that_was_over_before_a_restart_stays_over(store, clock, start_again):
    client = own(store)
    ban(client)
    clock.advance(BAN)
    assert start_again(client).get(LIST).status_code == 200


def test_a_ban_is_cut_to_its_length_when_the_clock_was_set_back(store, clock, start_again):
    client = own(store)
    ban(client)
    clock.set_wall(-3_600)
    client = start_again(client)
    assert client.get(LIST).headers["Retry-After"] == str(BAN)
    clock.advance(BAN)
    assert client.get(LIST).status_code == 200


@pytest.mark.parametrize("jump", [3_600, -3_600])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_jumps_neither_ends_nor_prolongs_a_ban(
    store, clock, start_again, jump, is_restarted
):
    client = own(store)
    ban(client)
    clock.advance(100)
    if is_restarted:
        client = start_again(client)
    clock.set_wall(jump)
    assert restriction_of(client.get(LIST)) == (1, 0, clock.time() + 200, 200)
    clock.advance(199)
    assert codes(client, 1) == ["api_key_banned"]
    clock.advance(1)
    spend(client)


def test_a_clock_that_is_set_back_does_not_bring_an_old_ban_back(store, clock):
    client = own(store)
    ban(client)
    clock.advance(BAN)
    store.services.limits.bans.flush()
    clock.set_wall(-BAN)
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
    clock.advance(100)  # the row is read again, and knows of no ban
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
        store.services.limits.bans.flush()
    clock.advance(2)
    store.services.limits.bans.flush()
    assert store.rows("SELECT banned_until FROM api_keys") == [{"banned_until": until}]
    unban(store, client)
    assert client.get(LIST).status_code == 429, "the window is still full"
    clock.advance(60)
    assert client.get(LIST).status_code == 200
