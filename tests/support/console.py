"""A shop for tests of the console: the real service, and a person's actions on its page."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace

from orders.clock import Clock
from orders.settings import Settings
from orders.store import apikeys as key_store
from tests.support import stores
from tests.support.browser import expect
from tests.support.machine import wait_until
from tests.support.service import running
from tests.support.stores import Store

ORDERS = "/v2/store/orders"
PLENTY = {"plan": "enterprise", "per_minute": 100_000, "per_day": 10_000_000}


class DeskShop:
    """A running service, and changes made to it outside the page."""

    def __init__(self, store, service):
        self.store, self.service, self.url = store, service, service.url
        _, self.elsewhere = store.issue(**PLENTY)

    @property
    def database(self):
        return self.store.settings.instance / "orders.db"

    def api(self, method, path, key=None, **kwargs):
        """Send a request as another client."""
        return self.service.request(method, path, key=key or self.elsewhere, **kwargs)

    def place(self, pet_id=7, **order):
        """Place an order; return its id."""
        return self.api("POST", ORDERS, json={"petId": pet_id, **order}).json()["id"]

    def ship(self, order_id):
        assert self.api("POST", f"{ORDERS}/{order_id}/ship").status == 200

    def cancel(self, order_id):
        assert self.api("DELETE", f"{ORDERS}/{order_id}").status == 204

    def order(self, order_id):
        return self.api("GET", f"{ORDERS}/{order_id}").json()

    def count(self, **filters):
        """Count the orders with these filters, up to 200."""
        query = "&".join(f"{name}={value}" for name, value in filters.items())
        return len(self.api("GET", f"{ORDERS}?limit=200&{query}").json()["orders"])

    def revoke(self, key_id):
        with self.store.database.write() as connection:
            key_store.change(connection, key_id, revoked_at=self.store.clock.now())

    def renew(self, key_id):
        """Change a key's plan, which begins new windows."""
        with self.store.database.write() as connection:
            key_store.change_plan(connection, key_id, **PLENTY)


@contextmanager
def desk_shop(instance, orders=0, forks=None, **environment):
    """Run the service over a new folder with some orders, the first of which has shipped."""
    stores.make(instance, [])
    store = Store(replace(Settings(), instance=instance), Clock())
    with running(instance, forks=forks, **environment) as service:
        shop = DeskShop(store, service)
        for number in range(1, orders + 1):
            shop.place(quantity=number, reference=f"R-{number}")
        if orders:
            shop.ship(1)
        yield shop
    store.database.close()


def sign_in(page, secret):
    page.get_by_label("Key", exact=True).fill(secret)
    press(page, "Sign in")
    expect(page.locator("#shop")).to_be_visible()


def wait_for_rows(page):
    expect(page.locator("tbody tr").first).to_be_visible()


def go_to(page, place):
    page.evaluate("hash => { location.hash = hash }", f"#/{place}")


def press(page, button):
    page.get_by_role("button", name=button).click()


def ship(page, order_id):
    """Ship an order from the list, and don't wait for the seconds in which it can be undone."""
    press(page, re.compile(rf"^Ship order( {order_id})?$"))
    send_now(page)


def press_ship(page, *orders):
    """Press Ship for each order; again where the page says that the list had just moved."""
    for order_id in orders:
        button = page.get_by_role("button", name=f"Ship order {order_id}", exact=True)
        undo = page.get_by_role("button", name=f"Undo shipping order {order_id}", exact=True)
        wait_until(lambda button=button, undo=undo: undo.count() or button.click())


def send_now(page):
    """Do what leaving the page does: send the changes that could still be undone."""
    page.evaluate("dispatchEvent(new Event('pagehide'))")


def next_poll(page):
    """Make a page poll at once, by its clock, which must be the test's."""
    expect(page.locator("#updated")).to_contain_text("Updated")
    page.clock.fast_forward(5_000)


def announced(page, text):
    """Check what the page announces to screen readers, too."""
    expect(page.locator("#announcement")).to_contain_text(text)


def requests_of(page):
    """Return the requests that a page sends from now on, but for polls."""
    sent = []

    def on_request(request):
        if "/v2/" in request.url and "store/events?" not in request.url:
            sent.append(f"{request.method} {request.url.split('/v2/')[1].split('?')[0]}")

    page.on("request", on_request)
    return sent


def row(page, order_id):
    return page.locator(f'tbody tr[data-id="{order_id}"]')


def figure(page, status):
    return page.locator(f".tab.{status} b")


def too_wide(page):
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


def in_plain_words(text):
    """Return whether a text is without programmers' words."""
    return not re.search(r"_|\b[45]\d\d\b|HTTP|JSON|null|undefined|petId|shipDate", text)


def see_old_backups(page):
    """Refresh, and have the figures say that the newest backup is old, and on the same disk."""

    def say_old(route):
        answer = route.fetch()
        backups = {"last": "2020-02-03T08:00:00Z", "sameDisk": True}
        route.fulfill(response=answer, json={**answer.json(), "backups": backups})

    page.route("**/stats?*", say_old)
    press(page, "Refresh")
