"""listOrders: GET /v1/store/orders."""

from __future__ import annotations

import gzip
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, text

from orders.domain import MAX_INT64, MAX_QUANTITY, Order, Status
from orders.store import listing
from orders.store.database.queries import Query
from orders.store.tables import OrderRow
from schemas.order import OrderSchema
from tests.support.stores import Client, assert_error

PATH = "/v1/store/orders"
NOW = "2026-12-01T12:00:00.000Z"
ROWS = 12_000
VISIBLE = 9_000


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def fill(store, rows=ROWS):
    """Insert many orders at once: every fourth is cancelled, every other has shipped."""
    now = datetime.fromisoformat(NOW)
    with store.database.write() as connection:
        connection.execute(
            insert(OrderRow),
            [
                {
                    "pet_id": i,
                    "quantity": 1 + i % 9,
                    "ship_date": now if i % 2 else None,
                    "status": "shipped" if i % 2 else "pending" if i % 4 else "cancelled",
                    "placed_at": now,
                    "updated_at": now,
                }
                for i in range(1, rows + 1)
            ],
        )


def filled(rows=ROWS):
    """Return what a list of those orders must be."""
    return [
        {
            "id": i,
            "petId": i,
            "quantity": 1 + i % 9,
            **({"shipDate": NOW} if i % 2 else {}),
            "complete": bool(i % 2),
        }
        for i in range(1, rows + 1)
        if i % 4
    ]


@pytest.fixture
def many(store, client):
    """A client of a store whose list is sent in several chunks."""
    assert listing.CHUNK_ROWS * 2 < VISIBLE
    fill(store)
    return client


@pytest.fixture
def patient(store):
    """A client without limits to speak of."""
    return store.client(plan="enterprise", per_minute=10**9, per_day=10**9)


# What is in the list.


def test_a_store_without_orders_has_an_empty_list(client):
    response = client.get(PATH)
    assert (response.status_code, response.data) == (200, b"[]")
    assert response.content_type == "application/json"


def test_the_list_is_a_bare_array_of_orders_by_id(client):
    client.place(7, quantity=2, shipDate="2026-12-05T08:00:00Z")
    client.place(9)
    client.place(8)
    client.ship(3)
    assert client.get(PATH).data == compact(
        [
            {
                "id": 1,
                "petId": 7,
                "quantity": 2,
                "shipDate": "2026-12-05T08:00:00.000Z",
                "complete": False,
            },
            {"id": 2, "petId": 9, "quantity": 1, "complete": False},
            {
                "id": 3,
                "petId": 8,
                "quantity": 1,
                "shipDate": "2026-12-01T12:00:00.000Z",
                "complete": True,
            },
        ]
    )


def test_a_cancelled_order_is_not_listed(client):
    for _ in range(3):
        client.place()
    client.cancel(2)
    assert [order["id"] for order in client.get(PATH).get_json()] == [1, 3]
    client.cancel(1)
    client.cancel(3)
    assert client.get(PATH).data == b"[]"


def test_query_parameters_are_ignored(client, subtests):
    client.place(7)
    client.place(8)
    plain = client.get(PATH)
    for query in ("limit=1", "petId=8&status=shipped", "complete=true", "limit=x&after=", "%ff&&="):
        with subtests.test(query):
            queried = client.get(f"{PATH}?{query}")
            assert (queried.status_code, queried.data) == (200, plain.data)
            assert queried.headers["ETag"] == plain.headers["ETag"]


def test_a_body_is_ignored(client):
    response = client.get(PATH, data=b"{" * 70_000, content_type="text/plain")
    assert (response.status_code, response.data) == (200, b"[]")


def test_a_read_key_may_list(store):
    assert store.client(scopes=("read",)).get(PATH).status_code == 200


INSTANTS = st.datetimes(timezones=st.just(UTC)).map(
    lambda instant: instant.replace(microsecond=instant.microsecond // 1000 * 1000)
)


@st.composite
def stored_orders(draw):
    """Any order that the store can hold."""
    status = draw(st.sampled_from([Status.PENDING, Status.SHIPPED, Status.CANCELLED]))
    return Order(
        id=draw(st.integers(1, MAX_INT64)),
        pet_id=draw(st.integers(1, MAX_INT64)),
        quantity=draw(st.integers(1, MAX_QUANTITY)),
        ship_date=draw(INSTANTS if status is Status.SHIPPED else st.none() | INSTANTS),
        status=status,
        placed_at=draw(INSTANTS),
        updated_at=draw(INSTANTS),
        reference=draw(st.none() | st.sampled_from(['"', "a\\b", "Hündin", '","complete":true'])),
    )


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(stored_orders(), unique_by=lambda order: order.id, max_size=8))
@example([])
def test_the_list_that_the_database_makes_is_the_one_that_the_schema_makes(patient, held):
    columns = OrderRow.__table__.columns.keys()
    with patient.store.database.write() as connection:
        connection.execute(delete(OrderRow))
        for order in held:
            connection.execute(
                insert(OrderRow).values({name: getattr(order, name) for name in columns})
            )
    visible = sorted(
        (order for order in held if order.status is not Status.CANCELLED),
        key=lambda order: order.id,
    )
    assert patient.get(PATH).data == compact(OrderSchema(many=True).dump(visible))


# Long lists.


def test_a_list_ends_well_wherever_its_chunks_end(client, monkeypatch):
    monkeypatch.setattr(listing, "CHUNK_ROWS", 3)
    for placed in range(10):
        assert [order["id"] for order in client.get(PATH).get_json()] == [*range(1, placed + 1)]
        client.place()


def test_a_long_list_is_streamed_whole(many):
    response = many.get(PATH)
    assert response.is_streamed
    assert response.content_type == "application/json"
    body = response.get_data()
    assert body == compact(filled())
    assert len(json.loads(body)) == VISIBLE
    response.close()


def test_a_long_list_shows_one_moment_however_long_it_takes(many):
    response = many.get(PATH)
    first = next(response.iter_encoded())
    assert many.cancel(ROWS - 2).status_code == 204
    assert many.place().status_code == 201
    assert first + b"".join(response.iter_encoded()) == compact(filled())
    response.close()
    later = many.get(PATH)
    assert later.headers["ETag"] != response.headers["ETag"]
    ids = {order["id"] for order in later.get_json()}
    assert ROWS - 2 not in ids
    assert ROWS + 1 in ids
    later.close()


def test_a_list_that_breaks_off_does_not_end_as_if_it_were_whole(many, monkeypatch):
    response = many.get(PATH)
    monkeypatch.setattr(listing, "_CHUNK", Query(text("no statement")))
    with pytest.raises(Exception, match="syntax error"):
        response.get_data()
    response.close()


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [("GET", {}, 200), ("HEAD", {}, 200), ("GET", {"If-None-Match": "*"}, 304)],
    ids=["reader who leaves", "HEAD", "304"],
)
def test_whoever_does_not_read_to_the_end_keeps_no_connection(many, method, headers, status):
    # More often than there are connections.
    for _ in range(20):
        response = many.request(method, PATH, headers=headers)
        assert response.status_code == status
        response.close()
    assert many.get(f"{PATH}/1").status_code == 200


# Compression.


@pytest.fixture
def hundreds(client):
    for _ in range(200):
        client.place()
    return client


@pytest.mark.parametrize("whose", ["hundreds", "many"])
@pytest.mark.parametrize("accepted", ["gzip", "br;q=1.0, gzip;q=0.5", "*", "GZIP"])
def test_a_large_list_comes_as_gzip_to_whoever_accepts_it(whose, accepted, request):
    client = request.getfixturevalue(whose)
    plain = client.get(PATH)
    packed = client.get(PATH, headers={"Accept-Encoding": accepted})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert len(packed.data) < len(plain.data) / 3
    for response in (plain, packed):
        assert response.headers["Vary"] == "Authorization, Accept-Encoding"
    assert packed.headers["ETag"] == plain.headers["ETag"]
    plain.close()
    packed.close()


@pytest.mark.parametrize("accepted", ["", "identity", "gzip;q=0", "br", "*;q=0"])
def test_a_large_list_comes_as_it_is_to_whoever_does_not(hundreds, accepted):
    response = hundreds.get(PATH, headers={"Accept-Encoding": accepted})
    assert "Content-Encoding" not in response.headers
    assert len(response.get_json()) == 200


def test_a_copy_of_a_large_list_is_still_good_however_it_came(hundreds):
    packed = hundreds.get(PATH, headers={"Accept-Encoding": "gzip"})
    again = hundreds.get(PATH, headers={"If-None-Match": packed.headers["ETag"]})
    assert again.status_code == 304
    assert again.headers["Vary"] == packed.headers["Vary"]


def test_a_short_list_comes_as_it_is(client):
    client.place()
    response = client.get(PATH, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in response.headers
    assert response.headers["Vary"] == "Authorization"


# ETag.


def test_the_list_has_a_weak_etag_and_says_how_it_may_be_kept(client):
    headers = client.get(PATH).headers
    assert re.fullmatch(r'W/"[!#-~]+"', headers["ETag"])
    assert headers["Cache-Control"] == "private, no-cache"
    assert "Authorization" in headers["Vary"].split(", ")


GOOD_COPIES = [
    "{tag}",
    "{strong}",
    "*",
    '{tag}, "another"',
    'W/"another", {tag}',
    'W/"another",{strong},"third"',
    '"a, b", {tag}',
]


def test_a_copy_that_is_still_good_is_not_sent_again(client, subtests):
    client.place()
    whole = client.get(PATH)
    tag = whole.headers["ETag"]
    for good in GOOD_COPIES:
        with subtests.test(good):
            header = good.format(tag=tag, strong=tag.removeprefix("W/"))
            response = client.get(PATH, headers={"If-None-Match": header})
            assert (response.status_code, response.data) == (304, b"")
            for name in ("ETag", "Cache-Control", "Vary"):
                assert response.headers[name] == whole.headers[name]
            assert "Content-Length" not in response.headers


OTHER_COPIES = (
    *("", '""', '"*"', '"another"', 'W/"another", "third"', "W/"),
    *('W/"{inside}0"', '"0{inside}"', 'W/"{inside} "', '"w/{inside}"'),
)


def test_a_copy_of_something_else_is_replaced(client, subtests):
    client.place()
    whole = client.get(PATH)
    inside = whole.headers["ETag"].removeprefix('W/"').removesuffix('"')
    for other in OTHER_COPIES:
        with subtests.test(other):
            header = {"If-None-Match": other.format(inside=inside)}
            response = client.get(PATH, headers=header)
            assert (response.status_code, response.data) == (200, whole.data)


def test_every_change_gives_the_list_another_etag(client):
    tags = [client.get(PATH).headers["ETag"]]
    for change in (client.place, client.place, lambda: client.ship(1), lambda: client.cancel(2)):
        assert change().status_code < 300
        tags.append(client.get(PATH, headers={"If-None-Match": tags[-1]}).headers["ETag"])
    assert len(set(tags)) == 5


def test_a_refused_change_leaves_the_etag_as_it_is(client):
    client.place()
    client.ship(1)
    tag = client.get(PATH).headers["ETag"]
    assert_error(client.ship(1), 409, "order_already_shipped")
    assert_error(client.cancel(1), 409, "order_already_shipped")
    assert_error(client.cancel(2), 404, "order_not_found")
    assert_error(client.place(0), 422, "validation_failed")
    assert client.get(PATH).headers["ETag"] == tag


def test_the_etag_of_another_store_is_not_good_here(make_store, tmp_path):
    here, there = make_store().client(), make_store(instance=tmp_path / "other").client()
    assert here.place().data == there.place().data
    tag = there.get(PATH).headers["ETag"]
    assert here.get(PATH, headers={"If-None-Match": tag}).status_code == 200


def test_the_etag_survives_a_restart(store, client):
    client.place()
    tag = client.get(PATH).headers["ETag"]
    again = store.restarted()
    restarted = Client(again, client.key_id, client.secret)
    assert restarted.get(PATH, headers={"If-None-Match": tag}).status_code == 304
    again.services.limits.storage.close()
    again.services.database.close()


def test_head_answers_like_get_without_the_body(client):
    client.place()
    whole, head = client.get(PATH), client.head(PATH)
    assert (head.status_code, head.data) == (200, b"")
    for name in ("ETag", "Cache-Control", "Vary", "Content-Type", "Content-Length"):
        assert head.headers[name] == whole.headers[name]
    tag = {"If-None-Match": whole.headers["ETag"]}
    assert client.head(PATH, headers=tag).status_code == 304


@pytest.mark.slow
def test_an_etag_stands_for_one_list_only_whoever_writes_meanwhile(store, patient):
    writers, readers = (
        [Client(store, patient.key_id, patient.secret) for _ in range(count)] for count in (2, 3)
    )
    done = threading.Event()

    def look(reader):
        response = reader.get(PATH)
        return response.headers["ETag"], response.data

    def write(writer):
        for _ in range(25):
            writer.place()

    def read(reader):
        seen = {look(reader)}
        while not done.is_set():
            seen.add(look(reader))
        return seen

    before = look(patient)
    with ThreadPoolExecutor(5) as pool:
        reading = [pool.submit(read, reader) for reader in readers]
        for writing in [pool.submit(write, writer) for writer in writers]:
            writing.result()
        done.set()
        seen = {before, look(patient)}.union(*(each.result() for each in reading))
    assert len({tag for tag, _ in seen}) == len({body for _, body in seen}) == len(seen)
