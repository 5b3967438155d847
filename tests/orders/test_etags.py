"""ETags of lists and of orders: a copy that is current is not sent again."""

from __future__ import annotations

import json
import re

import pytest

from orders.web.replies import FORMAT
from schemas.v1 import NewOrderSchema
from schemas.v2 import NewOrderSchema as NewOrderSchemaV2
from tests.support.orders import OPTIONAL, order_v1, order_v2
from tests.support.stores import BOTH_VERSIONS, Client

pytestmark = BOTH_VERSIONS


# How orders begin, by the format that is in their ETags. That of version 1 never changes.
SHOWN = {
    "1": {
        1: '{"id":1,"petId":7,"quantity":2,"shipDate":"2026-12-05T08:00:00.000Z","complete":false}',
        2: '{"id":1,"petId":7,"quantity":2,"shipDate":"2026-12-05T08:00:00.000Z","complete":false,'
        '"status":"pending","placedAt":"2026-12-01T12:00:00.000Z",'
        '"updatedAt":"2026-12-01T12:00:00.000Z","reference":"R-1041","note":"A gift\\nfor Anna"',
    }
}


def test_where_an_order_looks_different_the_format_in_its_etag_is_raised(client, version):
    order = {"quantity": 2, **OPTIONAL}
    if version == 1:
        order = {name: order[name] for name in ("quantity", "shipDate")}
    shown = client.place(**order).get_data(as_text=True)
    assert shown.startswith(SHOWN[FORMAT[:-8]][version]), "raise _FORMAT in orders/web/replies.py"
    assert json.loads(shown) == {1: order_v1, 2: order_v2}[version](**order)
    schema = {1: NewOrderSchema, 2: NewOrderSchemaV2}[version]
    # The request for a unique reference is neither stored nor shown.
    taken = {field.data_key for field in schema().fields.values()} - {"uniqueReference"}
    assert taken == {"petId", *order}
    lists = {1: f"[{shown}]", 2: f'{{"orders":[{shown}]}}'}
    assert client.get(client.orders).get_data(as_text=True) == lists[version]
    assert client.order(1).headers["ETag"].strip('W/"').split("-")[1] == FORMAT


@pytest.fixture
def paths(client):
    """The paths of the list and of its only order."""
    client.place()
    return client.orders, f"{client.orders}/1"


CURRENT = (
    *("{tag}", "{strong}", "*", '{tag}, "another"', 'W/"another", {tag}'),
    *('W/"another",{strong},"third"', '"a, b", {tag}'),
)


def test_a_current_copy_is_not_sent_again(client, paths, version, subtests):
    for path in paths:
        whole = client.get(path)
        tag = whole.headers["ETag"]
        # Of a list, which may be compressed, and so in version 1 also of an order, it is weak.
        is_strong = version == 2 and path.endswith("/1")
        assert re.fullmatch(r'"[!#-~]+"' if is_strong else r'W/"[!#-~]+"', tag)
        assert whole.headers["Cache-Control"] == "private, no-cache"
        assert "Authorization" in whole.headers["Vary"].split(", ")
        for copies in CURRENT:
            with subtests.test(copies):
                header = copies.format(tag=tag, strong=tag.removeprefix("W/"))
                response = client.get(path, headers={"If-None-Match": header})
                assert (response.status_code, response.data) == (304, b"")
                for name in ("ETag", "Cache-Control", "Vary"):
                    assert response.headers[name] == whole.headers[name]
                assert "Content-Length" not in response.headers


OTHERS = (
    *("", '""', '"*"', '"another"', 'W/"another", "third"', "W/"),
    *('W/"{inside}0"', '"0{inside}"', 'W/"{inside} "', '"w/{inside}"'),
)


def test_another_copy_is_replaced(client, paths, subtests):
    for path in paths:
        whole = client.get(path)
        inside = whole.headers["ETag"].removeprefix("W/").strip('"')
        for copies in OTHERS:
            with subtests.test(copies):
                header = {"If-None-Match": copies.format(inside=inside)}
                response = client.get(path, headers=header)
                assert (response.status_code, response.data) == (200, whole.data)


def test_head_answers_like_get_without_the_body(client, paths):
    for path in paths:
        whole, head = client.get(path), client.head(path)
        assert (head.status_code, head.data) == (200, b"")
        for name in ("ETag", "Cache-Control", "Vary", "Content-Type", "Content-Length"):
            assert head.headers[name] == whole.headers[name]
        tag = {"If-None-Match": whole.headers["ETag"]}
        assert client.head(path, headers=tag).status_code == 304
    assert client.head(f"{client.orders}/2").status_code == 404


def test_a_change_makes_another_etag_and_a_rejected_one_does_not(client, paths):
    before = [client.get(path) for path in paths]
    assert client.ship(1).status_code == 200
    tags = [{"If-None-Match": each.headers["ETag"]} for each in before]
    after = [client.get(path, headers=tag) for path, tag in zip(paths, tags, strict=True)]
    for path, old, new in zip(paths, before, after, strict=True):
        assert new.status_code == 200
        assert new.data == client.get(path).data != old.data
    rejected = (client.ship(1), client.cancel(1), client.cancel(2), client.place(0))
    assert [response.status_code for response in rejected] == [409, 409, 404, 422]
    tags = [client.get(path).headers["ETag"] for path in paths]
    assert tags == [each.headers["ETag"] for each in after]


def test_the_etag_of_another_store_is_not_current_here(client, paths, make_store, tmp_path):
    there = make_store(instance=tmp_path / "other").client().speaking(client.version)
    there.place()
    for path in paths:
        assert there.get(path).data == client.get(path).data
        tag = {"If-None-Match": there.get(path).headers["ETag"]}
        assert client.get(path, headers=tag).status_code == 200


def test_an_etag_survives_a_restart(client, paths):
    tags = [client.get(path).headers["ETag"] for path in paths]
    again = client.store.restarted()
    restarted = Client(again, client.key_id, client.secret)
    for path, tag in zip(paths, tags, strict=True):
        assert restarted.get(path, headers={"If-None-Match": tag}).status_code == 304
    again.shop.end()
