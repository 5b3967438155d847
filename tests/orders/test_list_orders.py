"""listOrders: what both versions have in common, and version 1's list, which may be long."""

from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import delete, insert, text

from orders.domain import MAX_INT64, MAX_QUANTITY, Order, Status
from orders.store import orders_json, tables
from orders.store.database.database import Query
from schemas import v1, v2
from tests.support.stores import BOTH_VERSIONS, Client

PATH = "/v1/store/orders"
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def store_orders(store, orders):
    """Write orders into the table, replacing those that are there."""
    columns = tables.orders.columns.keys()
    rows = [{name: getattr(each, name) for name in columns} for each in orders]
    with store.database.write() as connection:
        connection.execute(delete(tables.orders))
        if rows:
            connection.execute(insert(tables.orders), rows)


# What is in the list.


@pytest.mark.parametrize(("version", "body"), [(1, b"[]"), (2, b'{"orders":[]}')])
def test_a_store_without_orders_has_an_empty_list(client, body):
    response = client.get(client.orders)
    assert (response.status_code, response.data) == (200, body)
    assert response.content_type == "application/json"
    assert "Link" not in response.headers


INSTANTS = st.datetimes(timezones=st.just(UTC)).map(
    lambda instant: instant.replace(microsecond=instant.microsecond // 1000 * 1000)
)
REFERENCES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=64)


@st.composite
def stored_orders(draw):
    """Any order that the store can hold."""
    status = draw(st.sampled_from(Status))
    return Order(
        id=draw(st.integers(1, MAX_INT64)),
        pet_id=draw(st.integers(1, MAX_INT64)),
        quantity=draw(st.integers(1, MAX_QUANTITY)),
        ship_date=draw(INSTANTS if status is Status.SHIPPED else st.none() | INSTANTS),
        status=status,
        placed_at=draw(INSTANTS),
        updated_at=draw(INSTANTS),
        reference=draw(st.none() | REFERENCES | st.just('"a\\b","complete":true')),
        note=draw(st.none() | REFERENCES | st.just("one\r\ntwo\n")),
    )


@pytest.mark.slow
@BOTH_VERSIONS
@given(st.lists(stored_orders(), unique_by=lambda each: each.id, max_size=8))
@example([])
def test_the_database_serializes_the_list_as_the_schema_does(patient, version, orders):
    store_orders(patient.store, orders)
    by_id = sorted(orders, key=lambda each: each.id)
    if version == 1:
        visible = [each for each in by_id if each.status is not Status.CANCELLED]
        expected = v1.OrderSchema(many=True).dump(visible)
    else:
        expected = {"orders": v2.OrderSchema(many=True).dump(by_id)}
    listed = patient.get(f"/v{version}/store/orders").get_data(as_text=True)
    assert listed == json.dumps(expected, separators=(",", ":"), ensure_ascii=False)


def test_query_parameters_and_a_body_are_ignored(client, subtests):
    client.place(7)
    client.place(8)
    plain = client.get(PATH)
    for query in ("limit=1", "petId=8&status=shipped", "complete=true", "limit=x&after=", "%ff&&="):
        with subtests.test(query):
            queried = client.get(f"{PATH}?{query}", data=b"{" * 70_000, content_type="text/plain")
            assert (queried.status_code, queried.data) == (200, plain.data)
            assert queried.headers["ETag"] == plain.headers["ETag"]


@pytest.mark.slow
def test_an_etag_stands_for_one_list_only_while_others_write(client_v2):
    writers, readers = (
        [Client(client_v2.store, client_v2.key_id, client_v2.secret) for _ in range(count)]
        for count in (2, 3)
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

    with ThreadPoolExecutor(5) as pool:
        reading = [pool.submit(read, reader) for reader in readers]
        for writing in [pool.submit(write, writer) for writer in writers]:
            writing.result()
        done.set()
        seen = {look(client_v2)}.union(*(each.result() for each in reading))
    assert len({tag for tag, _ in seen}) == len({body for _, body in seen}) == len(seen)


# Lists in several chunks.


@pytest.fixture
def chunked(client, monkeypatch):
    """A client of a shop whose list of eight orders is sent in three chunks."""
    monkeypatch.setattr(orders_json, "CHUNK_ROWS", 3)
    for _ in range(8):
        client.place()
    return client


def test_a_list_is_whole_wherever_its_chunks_end(client, monkeypatch):
    monkeypatch.setattr(orders_json, "CHUNK_ROWS", 3)
    orders = []
    for placed in range(10):
        response = client.get(PATH)
        assert response.content_type == "application/json"
        assert response.get_json() == orders
        orders.append(client.place(placed + 1, shipDate="2026-12-05T08:00:00Z").get_json())


def test_a_long_list_is_one_snapshot_however_long_it_takes(chunked):
    before = chunked.get(PATH).data
    response = chunked.get(PATH)
    first = next(response.iter_encoded())
    assert chunked.cancel(7).status_code == 204
    assert chunked.place().status_code == 201
    assert first + b"".join(response.iter_encoded()) == before
    response.close()
    later = chunked.get(PATH)
    assert later.headers["ETag"] != response.headers["ETag"]
    assert [each["id"] for each in later.get_json()] == [1, 2, 3, 4, 5, 6, 8, 9]


def test_an_interrupted_list_does_not_end_as_if_it_were_complete(chunked, monkeypatch):
    response = chunked.get(PATH)
    monkeypatch.setattr(orders_json, "_CHUNK", Query(text("no statement")))
    with pytest.raises(Exception, match="syntax error"):
        response.get_data()
    response.close()


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [("GET", {}, 200), ("HEAD", {}, 200), ("GET", {"If-None-Match": "*"}, 304)],
)
def test_a_client_that_stops_reading_holds_no_database_connection(chunked, method, headers, status):
    # More often than there are connections.
    for _ in range(20):
        response = chunked.request(method, PATH, headers=headers)
        assert response.status_code == status
        response.close()
    assert chunked.get(f"{PATH}/1").status_code == 200


# Compression.


@pytest.fixture(params=[4_000, 50], ids=["cached", "streamed"])
def large(client, monkeypatch, request):
    """A client of a shop with a large list, cached or streamed."""
    monkeypatch.setattr(orders_json, "CHUNK_ROWS", request.param)
    some = Order(
        id=1, pet_id=7, ship_date=NOON, status=Status.SHIPPED, placed_at=NOON, updated_at=NOON
    )
    store_orders(client.store, [replace(some, id=number) for number in range(1, 121)])
    return client


ACCEPTED = {
    **dict.fromkeys(("gzip", "br;q=1.0, gzip;q=0.5", "*", "GZIP", "x-gzip"), "gzip"),
    **dict.fromkeys(("gzip;q=0.1", "gzip, identity", "*;q=0, gzip", "br, *;q=0.1"), "gzip"),
    "identity;q=0, *": "gzip",
    **dict.fromkeys(("", "identity", "gzip;q=0", "br", "*;q=0", "x-gzip;q=0")),
    **dict.fromkeys(("gzip;q=0.1, identity", "gzip;q=0, *", "gzip;q=0.5, *", "identity, *;q=0.9")),
}


def test_a_large_list_is_compressed_for_clients_that_accept_gzip(large):
    plain = large.get(PATH)
    for accepted, encoding in ACCEPTED.items():
        response = large.get(PATH, headers={"Accept-Encoding": accepted})
        assert response.headers.get("Content-Encoding") == encoding, accepted
        assert (gzip.decompress(response.data) if encoding else response.data) == plain.data
        assert (len(response.data) < len(plain.data) / 3) == bool(encoding)
        current = large.get(PATH, headers={"If-None-Match": response.headers["ETag"]})
        assert current.status_code == 304
        for each in (plain, response, current):
            assert each.headers["Vary"] == "Authorization, Accept-Encoding"
            each.close()


def test_a_short_list_is_not_compressed(client):
    client.place()
    response = client.get(PATH, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in response.headers
    assert response.headers["Vary"] == "Authorization"
