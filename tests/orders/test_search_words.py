"""The words that the search finds orders by, after changes in any sequence."""

from __future__ import annotations

import random
import re

import pytest

from orders.clock import Clock
from orders.domain import NewOrder, Refusal, Status
from orders.service import BY_COMMAND, OrderService
from orders.store import forgetting
from orders.store import orders as order_store
from orders.store.pages import Filters, PageQuery, Sort, read_page

pytestmark = pytest.mark.usefixtures("databases")

TEXTS = {
    "reference": [None, "WEB-7", "web-70", "A b", "7"],
    "item": [None, "Red collar", "Café-Leine", "b"],
    "ship_to": [None, "Mia Wong\nHauptstr. 7", "Wong"],
}
TRACKINGS = [None, "WEB-7", "T 70", "b"]
SEARCHES = [
    "7",
    "web-7",
    "WEB-7",
    "b",
    "a b",
    "cafe",
    "leine",
    "wong",
    "hauptstr. 7",
    "t 7",
    "ollar",
]


def change(service, chance, order_id):
    """Make any change to an order, allowed or not."""
    name = chance.choice([*TEXTS])
    changes = [
        lambda: service.change(order_id, {name: chance.choice(TEXTS[name])}, BY_COMMAND),
        lambda: service.ship(order_id, None, BY_COMMAND, tracking=chance.choice(TRACKINGS)),
        lambda: service.change(order_id, {"tracking": chance.choice(TRACKINGS)}, BY_COMMAND),
        lambda: service.cancel(order_id, BY_COMMAND),
        lambda: service.reopen(order_id, BY_COMMAND),
        lambda: service.reopen(order_id, BY_COMMAND),
        lambda: [
            *service.forget([forgetting.Due(order_id, 1)], BY_COMMAND.origin, "x", lambda _: None)
        ],
    ]
    try:
        chance.choice(changes)()
    except Refusal:
        return


def is_found(order, search):
    texts = "\n".join(filter(None, (order.reference, order.item, order.ship_to, order.tracking)))
    plain = texts.casefold().replace("é", "e")
    begins = rf"(?m)(?:^|(?<=[\W_])(?=[^\W_])){re.escape(search.casefold())}"
    return search == str(order.id) or re.search(begins, plain) is not None


@pytest.mark.parametrize("seed", range(3))
def test_orders_are_found_by_their_words_after_any_changes(store, seed):
    chance = random.Random(seed)
    database, service = store.database, OrderService(store.database, Clock())
    for _ in range(20):
        texts = {name: chance.choice(values) for name, values in TEXTS.items()}
        service.place(NewOrder(1, 1, **texts), BY_COMMAND)
    for _ in range(250):
        change(service, chance, chance.randint(1, 20))
    with database.read() as connection:
        orders = [order_store.find(connection, order_id) for order_id in range(1, 21)]
    assert {order.status for order in orders} == {*Status}
    assert order_store.misfound(database) == []
    for search in SEARCHES:
        page = read_page(database, PageQuery(Filters(search=search), Sort(), 50))
        expected = [order.id for order in orders if is_found(order, search)]
        found = [int(re.search(r'"id":(\d+)', text)[1]) for text in page.orders]
        assert found == expected, search
