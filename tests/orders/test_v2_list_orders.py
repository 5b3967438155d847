"""listOrders of version 2: GET /v2/store/orders."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import fields
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orders.domain import format_instant
from orders.store.pages import FILTERS, Filters
from schemas.v2 import OrdersQuerySchema
from tests.support.orders import ANY, order_v2
from tests.support.stores import assert_error

PATH = "/v2/store/orders"
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def ids(response):
    """Return the ids of the orders of a page."""
    assert response.status_code == 200, response.get_json()
    return [order["id"] for order in response.get_json()["orders"]]


def follow(client, query=""):
    """Return the ids of all orders of a list, page by page."""
    response = client.get(f"{PATH}?{query}")
    seen = ids(response)
    while "next" in response.get_json():
        response = client.get(f"{PATH}?{query}&after={response.get_json()['next']}")
        seen += ids(response)
    return seen


def fill(client):
    """Place six orders an hour apart: 3 has shipped, 4 was cancelled, 2 and 5 have no ship date."""
    dates = ["2026-12-09T08:00:00Z", None, "2026-12-07T08:00:00Z", "2026-12-08T08:00:00Z", None]
    for number, date in enumerate([*dates, "2026-12-07T08:00:00Z"], start=1):
        given = {"shipDate": date} if date else {}
        client.place(1 + number % 2, reference=f"R-{number % 3}", **given)
        client.store.clock.advance(3600)
    client.ship(3, shipDate="2026-12-06T08:00:00Z")
    client.cancel(4)
    return client


@pytest.fixture(scope="module")
def shelf(patient):
    """A client of a shop with those orders, which tests share and don't change."""
    return fill(patient.speaking(2))


@pytest.fixture
def own_shelf(client_v2):
    """A client of a shop of a test's own, with those orders."""
    return fill(client_v2)


# What is in the list.


def test_the_list_has_all_orders_by_id_cancelled_ones_too(shelf):
    response = shelf.get(PATH)
    assert ids(response) == [1, 2, 3, 4, 5, 6]
    assert response.get_json()["orders"][3] == order_v2(
        id=4,
        petId=1,
        shipDate="2026-12-08T08:00:00.000Z",
        status="cancelled",
        placedAt="2026-12-01T15:00:00.000Z",
        updatedAt="2026-12-01T18:00:00.000Z",
        reference="R-1",
    )


FILTERED = {
    "status=pending": [1, 2, 5, 6],
    "status=shipped&status=cancelled": [3, 4],
    "status=shipped&status=shipped": [3],
    "complete=true": [3],
    "complete=false": [1, 2, 4, 5, 6],
    "complete=false&status=shipped": [],
    "complete=false&status=cancelled&status=shipped": [4],
    "petId=2": [1, 3, 5],
    "petId=9223372036854775807": [],
    "petId=2&status=pending": [1, 5],
    "reference=R-1": [1, 4],
    "reference=r-1": [],
    "reference=R-1&petId=2": [1],
    "search=%233": [3],
    "search=3": [3],
    "search=%23": [],
    **{f"search={sign}3": [3] for sign in ("No.%20", "no.", "NO%20", "No", "No.%20%23")},
    **{f"search={text}": [] for text in ("No.%203x", "No.", "No.%20%203", "%23%233", "n3")},
    "search=r-1": [1, 4],
    # The prefix of a further part, which is not a separator.
    "search=1": [1, 4],
    "search=1&sort=-placedAt": [4, 1],
    "search=-1": [],
    "search=R": [1, 2, 3, 4, 5, 6],
    "search=R-_": [],
    "search=%25": [],
    "search=r-1&sort=-placedAt&complete=false": [4, 1],
    "search=r-1&petId=2": [1],
    "search=9223372036854775808": [],
    "updatedFrom=2026-12-01T18:00:00Z": [3, 4],
    "updatedFrom=2026-12-01T14:00:00Z&updatedBefore=2026-12-01T18:00:00Z": [5, 6],
    "placedFrom=2026-12-01T14:00:00Z": [3, 4, 5, 6],
    "placedBefore=2026-12-01T14:00:00Z": [1, 2],
    "placedFrom=2026-12-01T14:00:00%2B01:00&placedBefore=2026-12-01T15:00:00%2B01:00": [2],
    "shipsFrom=2026-12-07T08:00:00Z": [1, 4, 6],
    "shipsBefore=2026-12-07T08:00:00.001Z": [3, 6],
    # Bounds that are finer than stored times.
    "shipsFrom=2026-12-07T08:00:00.0009Z": [1, 4],
    "shipsBefore=2026-12-07T08:00:00.0001Z": [3, 6],
    "shipsBefore=2026-12-07T08:00:00.000000Z": [3],
    "shipsBefore=2026-12-07T07:59:59.9999999Z": [3],
    "placedFrom=2026-12-01T14:00:00.00000000001Z": [4, 5, 6],
    "placedBefore=2026-12-01T15:00:00.0001%2B01:00": [1, 2, 3],
    "shipsFrom=9999-12-31T23:59:59.9991Z": [],
    "shipsBefore=9999-12-31T23:59:59.9991Z": [1, 3, 4, 6],
    "placedFrom=2026-12-01T14:00:00Z&placedBefore=2026-12-01T13:00:00Z": [],
    "dated=true": [1, 3, 4, 6],
    "dated=false": [2, 5],
    "dated=false&sort=-shipDate": [5, 2],
    "dated=false&sort=-placedAt&petId=2": [5],
    "dated=false&shipsFrom=2026-12-01T00:00:00Z&sort=dueAt": [],
    "dated=false&status=shipped&sort=dueAt": [],
    "dated=true&status=pending&sort=dueAt": [6, 1],
    "status=pending&sort=dueAt&placedFrom=2026-12-01T14:00:00Z": [5, 6],
    "&petId=2&&": [1, 3, 5],
}


def test_every_parameter_but_those_of_the_page_is_a_filter():
    parameters = {*OrdersQuerySchema().fields} - {"status", "complete", "sort", "limit", "after"}
    # `dated=false` is a condition of its own.
    assert parameters == {*FILTERS} - {"undated"}
    assert parameters == {each.name for each in fields(Filters)} - {"statuses"}


def test_each_filter_has_orders_that_it_finds_and_values_that_are_rejected():
    def named(queries):
        return {name for query in queries for name, _ in parse_qsl(query)}

    parameters = {*OrdersQuerySchema().fields} - {"limit", "after"}
    names = {OrdersQuerySchema().fields[each].data_key for each in parameters}
    filters = names - {"sort"}
    found = named(query for query, ids_found in FILTERED.items() if ids_found)
    assert filters - found == set(), "FILTERED, whose queries no other query's cursor fits"
    assert names - {*REJECTED} == set(), "REJECTED"


def test_filters_find_exactly_the_orders_that_match(shelf):
    for query, expected in FILTERED.items():
        assert ids(shelf.get(f"{PATH}?{query}")) == expected, query
        assert follow(shelf, f"{query}&limit=2") == expected, query


def test_orders_are_found_by_any_part_of_a_reference_as_it_is_now(own_shelf):
    def found(text):
        return ids(own_shelf.get(f"{PATH}?search={text}"))

    order = own_shelf.place(reference="WEB-20040/b é").get_json()["id"]
    for text in ("web", "WEB-2", "20040", "20040/B", "b", "B%20%C3%A9", "%C3%A9"):
        assert found(text) == [order], text
    assert found("b%20e") == found("E") == [order]
    assert found("0040") == found("/b") == []
    path = f"{PATH}/{order}"
    for reference, text in (("2 x-77", "x-7"), ("-", "-"), ("77", "77"), (None, f"%23{order}")):
        own_shelf.request("PATCH", path, json={"reference": reference})
        assert found(text) == [order]
        assert found("20040") == []
    assert found("77") == []


# The prefix of a word of each text, and texts that are not words.
FOUND = {
    "red": ["item"],
    "collar, 3": ["item"],
    "35": ["item"],
    "CAFE": ["item"],
    "wong": ["shipTo"],
    "mia w": ["shipTo"],
    "koln": ["shipTo"],
    "Köln": ["shipTo"],
    "hauptstrasse": ["shipTo"],
    "lodz": ["shipTo"],
    "jd01": ["tracking"],
    "46 0": ["tracking"],
    "ollar": [],
    "wong haupt": [],
    "an": [],
}


def test_orders_are_found_by_words_of_their_texts_in_either_case_and_without_accents(own_shelf):
    texts = {
        "item": "Red collar, 35 cm, Cafe\u0301",
        "shipTo": "Mia Wong\r\nHauptstraße 5\n50667 KÖLN\nŁódź",
    }
    placed = {
        name: own_shelf.place(**{name: text}).get_json()["id"] for name, text in texts.items()
    }
    placed["tracking"] = own_shelf.place().get_json()["id"]
    own_shelf.ship(placed["tracking"], tracking="JD01 46 0041")
    for text, names in FOUND.items():
        expected = [placed[name] for name in names]
        assert ids(own_shelf.get(PATH, query_string={"search": text})) == expected, text
    own_shelf.request("PATCH", f"{PATH}/{placed['item']}", json={"item": "Leash"})
    assert ids(own_shelf.get(f"{PATH}?search=leas")) == [placed["item"]]
    assert ids(own_shelf.get(f"{PATH}?search=red")) == []


SORTED = {
    "id": [1, 2, 3, 4, 5, 6],
    "-id": [6, 5, 4, 3, 2, 1],
    "placedAt": [1, 2, 3, 4, 5, 6],
    "-placedAt": [6, 5, 4, 3, 2, 1],
    # Those without a date last, ties in the direction of the sort.
    "shipDate": [3, 6, 4, 1, 2, 5],
    "-shipDate": [1, 4, 6, 3, 5, 2],
    "dueAt": [2, 5, 3, 6, 4, 1],
    "-dueAt": [1, 4, 6, 3, 5, 2],
}


@pytest.mark.parametrize("sort", SORTED)
def test_each_sort_is_the_same_whatever_the_pages(shelf, sort):
    for limit in (1, 4, 6):
        assert follow(shelf, f"sort={sort}&limit={limit}") == SORTED[sort]


def test_a_page_has_fifty_orders_by_default(client_v2):
    for _ in range(51):
        client_v2.place()
    assert len(ids(client_v2.get(PATH))) == 50
    assert len(ids(client_v2.get(f"{PATH}?limit=200"))) == 51


def test_next_is_present_exactly_while_there_is_more_and_agrees_with_the_link(shelf):
    response = shelf.get(f"{PATH}?limit=4&sort=-placedAt&status=pending&status=shipped")
    page = response.get_json()
    target, relation = re.fullmatch("<(.*)>; (.*)", response.headers["Link"]).groups()
    assert relation == 'rel="next"'
    assert urlsplit(target).path == PATH
    assert parse_qsl(urlsplit(target).query) == [
        ("limit", "4"),
        ("sort", "-placedAt"),
        ("status", "pending"),
        ("status", "shipped"),
        ("after", page["next"]),
    ]
    last = shelf.get(target)
    assert (ids(response), ids(last)) == ([6, 5, 3, 2], [1])
    assert list(last.get_json()) == ["orders"]
    assert "Link" not in last.headers
    assert "next" not in shelf.get(f"{PATH}?limit=6").get_json()


def test_the_link_keeps_what_has_to_be_encoded(client_v2):
    for _ in range(2):
        client_v2.place(reference="50 % & ü+")
    reference = quote("50 % & ü+")
    first = client_v2.get(f"{PATH}?limit=1&reference={reference}")
    (target,) = re.findall("<(.*)>", first.headers["Link"])
    assert ids(client_v2.get(target)) == [2]


def test_the_link_has_the_path_of_the_public_address(make_store):
    client = make_store(base_url="https://example.com/shop/v1").client()
    client.version = 2
    for _ in range(2):
        client.place()
    assert client.get(f"{PATH}?limit=1").headers["Link"].startswith(f"</shop{PATH}?limit=1&after=")


# Cursors.


def test_a_cursor_survives_a_restart_and_changes_of_the_limit_and_of_its_order(own_shelf):
    cursor = own_shelf.get(f"{PATH}?limit=2&status=pending").get_json()["next"]
    own_shelf.cancel(2)
    again = own_shelf.store.restarted()
    client = type(own_shelf)(again, own_shelf.key_id, own_shelf.secret)
    assert ids(client.get(f"{PATH}?limit=200&status=pending&after={cursor}")) == [5, 6]
    again.shop.end()


def test_a_cursor_of_another_query_is_rejected(shelf):
    cursor = shelf.get(f"{PATH}?limit=1").get_json()["next"]
    for query in (*FILTERED, "sort=-id", "sort=placedAt"):
        assert_names(shelf.get(f"{PATH}?{query}&after={cursor}"), "after")


def test_a_cursor_of_another_store_is_rejected(shelf, make_store, tmp_path):
    cursor = shelf.get(f"{PATH}?limit=1").get_json()["next"]
    other = make_store(instance=tmp_path / "other").client()
    assert_names(other.get(f"{PATH}?after={cursor}"), "after")


def test_a_cursor_that_was_changed_is_rejected(shelf):
    cursor = shelf.get(f"{PATH}?limit=1").get_json()["next"]
    key, order_id, digest = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    for facts in ([key, order_id + 1, digest], [key, order_id], [key, str(order_id), digest], 7):
        forged = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode().rstrip("=")
        assert_names(shelf.get(f"{PATH}?after={forged}"), "after")


@given(st.text(ANY) | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode()))
@example("")
@example("[" * 3000)
@example(base64.b64encode(b"[" * 3000).decode())
def test_an_invalid_cursor_is_rejected(shelf, text):
    assert_names(shelf.get(f"{PATH}?after={quote(text)}"), "after")


# Parameters.


def assert_names(response, *names):
    """Check that an error names exactly these parameters."""
    assert_error(response, 422, "validation_failed")
    named = re.findall(r"(?:^|; )(\S+?): ", response.get_json()["message"])
    assert sorted(named) == sorted(names), response.get_json()


REJECTED = {
    "limit": (
        *("0", "201", "%2B1", "+1", "1.0", "01", "-1", "", "%D9%A1", "9" * 5000, "2&limit=2"),
    ),
    "petId": ("0", "9223372036854775808", "7,8"),
    "status": ("", "Pending", "pending,shipped", "pending&status=lost"),
    "complete": ("1", "True", "true&complete=true"),
    "dated": ("", "1", "no", "true&dated=false"),
    "reference": (*("", "%00", "R" * 65, "a&reference=b", "%ff", "%C3", "100%", "%zz"),),
    "search": ("", "%00", "R" * 65, "a&search=b", "%ff"),
    "updatedFrom": ("2026-12-01",),
    "updatedBefore": ("2026-12-01T08:00:00+0100",),
    "sort": ("", "quantity", "%2Bid", "id&sort=-id"),
    "placedFrom": ("2026-12-01", "2026-12-01T08:00:00"),
    "placedBefore": ("", "2026-12-32T08:00:00Z"),
    "shipsFrom": ("now",),
    "shipsBefore": ("1796112060",),
    "after": ("&after=",),
    "page": ("2",),
    "PetId": ("2",),
}


@pytest.mark.parametrize("name", REJECTED)
def test_unknown_parameters_and_invalid_values_are_rejected_by_name(shelf, name, subtests):
    for value in REJECTED[name]:
        with subtests.test(value[:40]):
            assert_names(shelf.get(f"{PATH}?{name}={value}"), name)


def test_all_invalid_parameters_are_named(shelf):
    response = shelf.get(f"{PATH}?page=2&limit&sort=x&petId=x")
    assert_names(response, "page", "limit", "sort", "petId")


def test_the_message_about_a_blank_in_place_of_a_plus_says_how_to_write_it(shelf):
    for name in ("placedFrom", "placedBefore", "shipsFrom", "shipsBefore"):
        response = shelf.get(f"{PATH}?{name}=2026-12-01T08:00:00+01:00")
        assert_names(response, name)
        assert "%2B" in response.get_json()["message"]
        plain = shelf.get(f"{PATH}?{name}=yesterday").get_json()["message"]
        assert "%2B" not in plain


def test_parameters_are_checked_before_the_etag(shelf):
    response = shelf.get(f"{PATH}?limit=0", headers={"If-None-Match": "*"})
    assert_names(response, "limit")


# ETag.


def test_the_etag_is_of_the_newest_event_whatever_the_query(own_shelf):
    first = own_shelf.get(PATH).headers["ETag"]
    for query in ("", "limit=1", "status=pending", "reference=none", "complete=true&petId=1"):
        response = own_shelf.get(f"{PATH}?{query}")
        assert response.headers["ETag"] == first
        again = own_shelf.get(f"{PATH}?{query}", headers={"If-None-Match": first})
        assert (again.status_code, again.data) == (304, b"")
    assert own_shelf.get("/v1/store/orders").headers["ETag"] == first
    own_shelf.ship(1)
    changed = own_shelf.get(f"{PATH}?reference=none", headers={"If-None-Match": first})
    assert (changed.status_code, changed.data) == (200, b'{"orders":[]}')
    assert changed.headers["ETag"] != first


def test_more_queries_than_fit_in_the_cache_are_answered_correctly(shelf):
    for _ in range(2):
        for day in range(1, 29):
            moment = quote(format_instant(NOON.replace(day=day)))
            expected = [1, 2, 3, 4, 5, 6] if day == 1 else []
            assert ids(shelf.get(f"{PATH}?placedFrom={moment}")) == expected
