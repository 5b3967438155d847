"""Rate limits: two windows for each key or address, the headers that show them, and 429."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_bans import own

from orders.server import Work, loop
from orders.settings import DEFAULT_PLANS, Plan
from orders.store import apikeys as key_store
from orders.web.api import ServingPolicy
from tests.support.clocks import ONLY_WHERE_TIME_STANDS_STILL, WHERE_COUNTED
from tests.support.serving import serving
from tests.support.stores import assert_error
from tests.support.wire import exchange

LIST = "/v1/store/orders"
MINUTE, DAY = 60, 86_400
LIMIT_HEADERS = [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit-Policy",
    "RateLimit",
]
FREE_POLICY = '"minute";q=60;w=60, "day";q=1000;w=86400'


def summary_of(response):
    """Return the values of X-RateLimit-*: limit, remaining, reset."""
    return tuple(int(response.headers[name]) for name in LIMIT_HEADERS[:3])


def left(response):
    """Return the requests left in both windows, from RateLimit."""
    minute, day = re.findall(r";r=(\d+);", response.headers["RateLimit"])
    return int(minute), int(day)


def use(client, times):
    """Send this many requests; return the last response."""
    for _ in range(times):
        response = client.get(LIST)
    return response


def change_plan(store, client, plan, per_minute=None, per_day=None):
    """Put a client's key on another plan, and wait until that takes effect."""
    with store.database.write() as connection:
        key_store.change_plan(connection, client.key_id, plan, per_minute, per_day)
    store.clock.advance(1)


@pytest.fixture(params=WHERE_COUNTED)
def counting(request):
    return request.param


# Windows and their headers.

# The limits of a key; the earlier requests, with the seconds after them; and the answer to the next
# request: both windows in RateLimit; X-RateLimit-Limit, -Remaining, and -Reset in seconds from the
# beginning; and Retry-After.
COURSES = {
    "the first": ((60, 1_000), [], "59/60 999/86400", (60, 59, 60), None),
    "seconds run down": ((60, 1_000), [(1, 17.5)], "58/43 998/86383", (60, 58, 60), None),
    "the day has fewer left": ((10, 3), [], "9/60 2/86400", (3, 2, DAY), None),
    "the minute has fewer left": ((3, 10), [], "2/60 9/86400", (3, 2, 60), None),
    "the last but one of a minute": ((10, 12), [(8, 0)], "1/60 3/86400", (10, 1, 60), None),
    "the next minute": ((10, 12), [(9, 60)], "9/60 2/86340", (12, 2, DAY), None),
    "the later of equals": ((2, 4), [(2, 60)], "1/60 1/86340", (4, 1, DAY), None),
    "the last of both": ((3, 3), [(2, 0)], "0/60 0/86400", (3, 0, DAY), None),
    "one too many": ((60, 1_000), [(60, 0)], "0/60 940/86400", (60, 0, 60), 60),
    "many too many": ((2, 10), [(9, 0)], "0/60 8/86400", (2, 0, 60), 60),
    "the day kept": ((2, 10), [(5, 60)], "1/60 7/86340", (2, 1, 120), None),
    "refused by the day": ((10, 3), [(7, 0)], "7/60 0/86400", (3, 0, DAY), DAY),
    "both exhausted": ((2, 4), [(2, 60), (4, 0)], "0/60 0/86340", (4, 0, DAY), DAY - 60),
    "the day nearly over": ((2, 4), [(2, DAY - 10), (2, 0)], "0/60 0/10", (2, 0, DAY + 50), 60),
    "the day over": ((2, 4), [(2, DAY - 10), (3, 10)], "0/50 4/86400", (2, 0, DAY + 50), 50),
    "a new day": ((2, 4), [(2, DAY - 10), (3, 60)], "1/60 3/86400", (2, 1, DAY + 110), None),
    "apart from the clock's": ((1, 10), [(0, 37), (1, 60)], "0/60 8/86340", (1, 0, 157), None),
    "the end stays": ((2, 10), [(1, 59)], "0/1 8/86341", (2, 0, 60), None),
    "a minute after the end": ((2, 10), [(1, 59), (1, 1)], "1/60 7/86340", (2, 1, 120), None),
    "begun by a request": ((2, 10), [(1, 75)], "1/60 8/86325", (2, 1, 135), None),
    "a day later": ((5, 2), [(2, DAY)], "4/60 1/86400", (2, 1, 2 * DAY), None),
}  # fmt: skip


def test_the_headers_describe_both_windows(store, clock):
    for course, (figures, earlier, standing, summary, retry_after) in COURSES.items():
        clock.advance(-clock.time() % 1)
        client, began = own(store, *figures), clock.time()
        for requests, seconds in earlier:
            for _ in range(requests):
                client.get(LIST)
            clock.advance(seconds)
        response = client.get(LIST)
        assert response.status_code == (429 if retry_after else 200), course
        minute, day = (each.split("/") for each in standing.split())
        assert response.headers["RateLimit"] == (
            f'"minute";r={minute[0]};t={minute[1]}, "day";r={day[0]};t={day[1]}'
        ), course
        assert response.headers["RateLimit-Policy"] == (
            f'"minute";q={figures[0]};w=60, "day";q={figures[1]};w=86400'
        )
        limit, remaining, reset = summary_of(response)
        assert (limit, remaining, reset - began) == summary, course
        assert response.headers.get("Retry-After") == (str(retry_after) if retry_after else None)


def test_a_refusal_has_the_documented_error_and_headers(store):
    refused = use(own(store, 1, 10), 2)
    assert_error(refused, 429, "rate_limit_exceeded")
    assert refused.get_json()["message"].startswith("Wait 60 s before")
    assert {*LIMIT_HEADERS, "Retry-After"} <= {name for name, _ in refused.headers}


def test_each_plan_has_the_limits_of_the_contract(store):
    policies = {
        name: store.client(plan=name).get(LIST).headers["RateLimit-Policy"]
        for name, plan in DEFAULT_PLANS.items()
        if plan.per_minute
    }
    # The limits of other plans are in docs/api.md, which another test compares.
    for name in policies.keys() - {"free", "pro", "business"}:
        plan = DEFAULT_PLANS[name]
        policy = f'"minute";q={plan.per_minute};w=60, "day";q={plan.per_day};w=86400'
        assert policies.pop(name) == policy
    assert policies == {
        "free": FREE_POLICY,
        "pro": '"minute";q=300;w=60, "day";q=10000;w=86400',
        "business": '"minute";q=1000;w=60, "day";q=100000;w=86400',
    }


@pytest.mark.parametrize("started", [1000 + 3 * 2**-43, 100_000 + 3 * 2**-36])
def test_a_window_never_has_more_seconds_left_than_it_is_long(store, clock, started):
    # At these times, a window's end is rounded up as a floating-point number.
    clock.run = started
    client = own(store, 1, 1)
    response = client.get(LIST)
    assert response.headers["RateLimit"] == '"minute";r=0;t=60, "day";r=0;t=86400'
    assert client.get(LIST).headers["Retry-After"] == str(DAY)


@ONLY_WHERE_TIME_STANDS_STILL
def test_retry_after_is_rounded_up_to_whole_seconds_and_is_enough(store, clock):
    for after, retry_after in ((0, 60), (0.25, 60), (1, 59), (58.5, 2), (59, 1), (59.99, 1)):
        client = own(store, 1, 10)
        client.get(LIST)
        ends = clock.time() + MINUTE
        clock.advance(after)
        refused = client.get(LIST)
        assert refused.headers["Retry-After"] == str(retry_after), after
        assert 0 <= summary_of(refused)[2] - ends < 1, after
        clock.advance(retry_after)
        assert client.get(LIST).status_code == 200, after


# Counting: each request counts once, which `test_every_response` checks for all kinds of answers.


def test_all_operations_and_addresses_share_a_keys_windows(store):
    client = own(store, 6, 100)
    client.place()
    client.cancel(1)
    client.get("/v1/pets/1")
    client.get("/v2/orders")
    client.get(LIST, headers={"If-None-Match": "*"})
    client.address = "203.0.113.9"
    assert left(client.get(LIST)) == (0, 94)
    assert left(own(store, 6, 100).get(LIST)) == (5, 99)
    assert_error(client.get("/v1/nothing"), 429, "rate_limit_exceeded")
    assert_error(client.put(LIST), 429, "rate_limit_exceeded")
    assert_error(client.post(LIST, data="{"), 429, "rate_limit_exceeded")
    assert_error(client.place(), 429, "rate_limit_exceeded")
    assert len(store.events()) == 2


# Callers without a valid key.


def test_requests_with_and_without_a_wrong_key_are_counted_by_address(store, clock):
    anonymous = store.anonymous("203.0.113.9")
    response = anonymous.get(LIST)
    assert_error(response, 401, "missing_api_key")
    assert summary_of(response) == (60, 59, clock.time() + MINUTE)
    assert response.headers["RateLimit-Policy"] == FREE_POLICY
    anonymous.get(LIST, headers={"Authorization": "Bearer wrong"})
    anonymous.get(LIST, headers={"Authorization": "Basic cGV0OnBldA=="})
    assert left(anonymous.get("/v1/nothing")) == (56, 996)


def test_guessing_keys_is_rate_limited(store):
    guesser = store.anonymous()
    codes = [
        guesser.get(LIST, headers={"Authorization": f"Bearer guess{n}"}).get_json()["code"]
        for n in range(61)
    ]
    assert codes == ["invalid_api_key"] * 60 + ["rate_limit_exceeded"]


@pytest.mark.parametrize("column", ["revoked_at", "expires_at"])
def test_requests_with_a_revoked_or_expired_key_count_for_the_address(store, column):
    client = store.client(plan="pro")
    client.get(LIST)
    with store.database.write() as connection:
        key_store.change(connection, client.key_id, **{column: store.clock.now()})
    store.clock.advance(1)
    refused = client.get(LIST)
    assert_error(refused, 401, "invalid_api_key")
    assert refused.headers["RateLimit-Policy"] == FREE_POLICY
    assert left(refused) == (59, 999)
    assert left(store.anonymous().get(LIST)) == (58, 998)


def test_an_address_and_a_valid_key_from_it_are_limited_separately(store):
    use(store.anonymous(), 61)
    response = store.client(plan="free").get(LIST)
    assert response.status_code == 200
    assert left(response) == (59, 999)
    use(own(store, 1, 10), 2)
    assert left(store.anonymous("203.0.113.9").get(LIST)) == (59, 999)


def test_only_views_marked_as_instant_are_answered_by_the_polling_thread(shared_store):
    work = ServingPolicy(shared_store.app, lambda: None).work
    instant = ("/", "/docs", "/console/app.js", "/healthz", "/openapi/v2.json")
    waiting = (
        *("/readyz", "/metrics", "/console/key", "/console/phone"),
        *("/docs/swagger-ui.css", "/a-view-of-tomorrow"),
    )
    assert {work("GET", each, {}) for each in instant} == {Work.INSTANT}
    assert {work("GET", each, {}) for each in waiting} == {Work.WAITING}


def test_a_refusal_by_the_server_itself_shows_a_known_keys_own_limits(store, monkeypatch):
    client, banned = own(store, 500, 5_000), own(store, 1, 5_000)
    use(client, 3)
    use(banned, 2)
    monkeypatch.setattr(loop, "QUEUE_SECONDS", -1)  # every request has waited too long
    shown = []
    with serving(store.app, ServingPolicy(store.app, lambda: None)) as address:
        for key in (client.secret, banned.secret, "unknown"):
            for length in (0, 2_000_000):
                head = f"Host: a\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}"
                request = f"GET {LIST} HTTP/1.1\r\n{head}\r\n\r\n".encode()
                answer = exchange(address, request).decode()
                shown.append((answer[9:12], *re.findall(r";r=(\d+);", answer)))
    assert shown == [
        ("503", "497", "4997"),
        ("413", "497", "4997"),
        ("503", "0", "4999"),
        ("413", "0", "4999"),
        ("503", "60", "1000"),
        ("413", "60", "1000"),
    ]


def test_addresses_are_counted_separately(store):
    for address in (
        "203.0.113.9",
        "203.0.113.10",
        "2001:db8::203.0.113.9",
        "2001:db8:0:1::1",
        "2001:db8:0:2::1",
        "::ffff:203.0.113.11",
        "::ffff:203.0.113.12",
    ):
        assert left(store.anonymous(address).get(LIST)) == (59, 999), address


def test_addresses_of_one_client_are_counted_together(store):
    for one, other in (
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"),
        ("2001:db8::1", "2001:0DB8:0000:0000:0000:0000:0000:0001"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
    ):
        store.anonymous(one).get(LIST)
        assert left(store.anonymous(other).get(LIST)) == (58, 998), one


# Plans.


CHANGES = {
    "another": ([("pro",)], (299, 9_999)),
    "another and back": ([("pro",), ("gold",)], (1, 19)),
    "other figures": ([("enterprise", 3, 30)], (2, 29)),
    "the same figures": ([("enterprise", 2, 20)], (1, 19)),
}


def gold(per_minute, per_day):
    """Return settings with a plan of these limits."""
    return {"plans": {**DEFAULT_PLANS, "gold": Plan("gold", per_minute, per_day)}}


@pytest.mark.parametrize("between", [0, 7])
def test_a_change_of_plan_begins_new_windows(make_store, clock, between):
    store = make_store(**gold(2, 20))
    for changes, remaining in CHANGES.values():
        client = store.client(plan="gold")
        assert use(client, 3).status_code == 429
        clock.advance(10)
        for change in changes:
            for _ in range(between):
                client.get(LIST)
            change_plan(store, client, *change)
        response = client.get(LIST)
        assert left(response) == remaining
        assert summary_of(response)[2] == clock.time() + MINUTE


def test_a_changed_free_plan_applies_to_addresses_too(make_store):
    store = make_store(plans={**DEFAULT_PLANS, "free": Plan("free", 2, 20)})
    anonymous = store.anonymous()
    assert left(anonymous.get(LIST)) == (1, 19)
    assert_error(use(anonymous, 2), 429, "rate_limit_exceeded")


def test_a_plans_new_limits_begin_new_windows(make_store, start_again):
    store = make_store(**gold(2, 20))
    client = store.client(plan="gold")
    response = client.get(LIST)
    assert response.headers["RateLimit-Policy"] == '"minute";q=2;w=60, "day";q=20;w=86400'
    assert left(response) == (1, 19)
    use(client, 2)
    client = start_again(client, **gold(3, 30))
    assert left(client.get(LIST)) == (2, 29)
    client = start_again(client, **gold(2, 20))
    assert left(client.get(LIST)) == (1, 19)


def test_an_unknown_plan_has_the_limits_of_the_free_plan(store, caplog):
    client = store.client(plan="gold")
    response = client.get(LIST)
    assert response.status_code == 200
    assert response.headers["RateLimit-Policy"] == FREE_POLICY
    assert left(response) == (59, 999)
    warning = f"Key {client.key_id} is on the plan 'gold', which needs a restart."
    assert caplog.messages == [warning]
    assert client.secret not in caplog.text


# Clocks, threads, and restarts.


def test_a_jump_of_the_wall_clock_changes_no_window(store, clock):
    for jump in (3_600, -3_600, 10 * 365 * DAY, -10 * 365 * DAY):
        client = own(store, 2, 10)
        client.get(LIST)
        clock.advance(20)
        clock.set_wall(jump)
        assert summary_of(client.get(LIST)) == (2, 0, clock.time() + 40)
        refused = client.get(LIST)
        assert refused.headers["Retry-After"] == "40"
        assert summary_of(refused) == (2, 0, clock.time() + 40)
        clock.advance(40)
        assert left(client.get(LIST)) == (1, 7)


def test_counts_and_ends_survive_a_restart_exactly(store, clock, start_again):
    client = own(store, 5, 50)
    use(client, 4)
    use(store.anonymous("203.0.113.9"), 7)
    clock.advance(12.5)
    store.shop.end()
    clock.advance(10)
    client = start_again(client)
    assert client.get(LIST).headers["RateLimit"] == '"minute";r=0;t=38, "day";r=45;t=86378'
    assert client.get(LIST).headers["Retry-After"] == "38"
    assert left(client.store.anonymous("203.0.113.9").get(LIST)) == (52, 992)
    clock.advance(38)
    assert left(client.get(LIST)) == (4, 44)


def test_counting_is_exact_with_sixteen_threads(store):
    _, secret = store.issue("enterprise", per_minute=80, per_day=1_000)

    def send(_):
        client = store.anonymous()
        client.secret = secret
        return [client.get("/v1/nothing") for _ in range(8)]

    with ThreadPoolExecutor(16) as pool:
        responses = [each for some in pool.map(send, range(16)) for each in some]
    admitted = [each for each in responses if each.status_code == 404]
    assert len(admitted) == 80
    assert sorted(left(each)[0] for each in admitted) == list(range(80))
    assert {each.status_code for each in responses} == {404, 429}
