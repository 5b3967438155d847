"""The console in a real browser during failures: plain error messages, with a next step."""

from __future__ import annotations

import re

import pytest

from orders.domain import EventType
from orders.webhooks import endpoints, sender
from orders.webhooks.endpoints import NewEndpoint
from tests.support import faults as real_faults
from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    announced,
    go_to,
    in_plain_words,
    press,
    row,
    see_old_backups,
    ship,
    wait_for_rows,
)
from tests.support.machine import wait_until

pytestmark = pytest.mark.browser

SHOP = {"orders": 6, "ORDERS_BAN_AFTER": "5"}


def alert(page):
    return page.get_by_role("alert").filter(visible=True)


def assert_shown(page, text):
    """Check that an error is shown in plain words, on a page that is accessible."""
    expect(alert(page)).to_contain_text(text)
    assert in_plain_words(alert(page).inner_text())
    no_violations(page)


LIMITED = {"plan": "enterprise", "per_minute": 30, "per_day": 5_000}


def spend(shop, secret, code="rate_limit_exceeded"):
    """Use up a key's remaining requests elsewhere, until an answer has this code."""
    while shop.api("GET", "/v2/usage", key=secret).json().get("code") != code:
        pass


def sign_in_with(page, key):
    page.get_by_label("Key", exact=True).fill(key)
    press(page, "Sign in")
    return page.locator("#key-fault")


def test_text_that_is_not_a_key_is_rejected_before_it_is_sent(shop, visit):
    page = visit(shop.url)
    for key, words in (
        ("", "Enter or paste your key."),
        ("letmein", "This isn't a key: keys start with sok_."),
        ("schlüssel", "This isn't a key"),
    ):
        expect(sign_in_with(page, key)).to_contain_text(words)
        expect(page.get_by_label("Key", exact=True)).to_be_focused()
        no_violations(page)
    assert not [url for url in page.requested if "/v2/" in url]


def test_a_key_that_is_not_valid_and_one_over_its_limit(shop, visit):
    page = visit(shop.url, refusals=(401, 429))
    fault = sign_in_with(page, "sok_" + "a" * 38)
    expect(fault).to_contain_text("This key isn't valid")
    assert in_plain_words(fault.inner_text())
    assert page.evaluate("sessionStorage.length") == 0
    _, secret = shop.store.issue("enterprise", per_minute=1, per_day=5_000)
    spend(shop, secret)
    expect(sign_in_with(page, secret)).to_contain_text("Try again in")
    expect(page.locator("#sign-in button")).to_be_disabled()


def test_a_key_that_lost_its_right_to_write(shop, at_desk):
    page = at_desk(refusals=(403,))
    with shop.store.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE api_keys SET scopes = 'read' WHERE id = {page.key_id}")
    # A change is in force within a second.
    wait_until(lambda: shop.api("DELETE", f"{ORDERS}/99999", key=page.secret).status == 403)
    ship(page, 2)
    expect(page.locator("#banner-ship")).to_contain_text("can view orders, but not edit them.")
    no_violations(page)
    assert shop.order(2)["status"] == "pending"


def test_a_limit_is_shown_with_the_time_to_wait_and_then_retried(shop, at_desk):
    page = at_desk(LIMITED, refusals=(429,), is_clock_ours=True)
    spend(shop, page.secret)
    page.get_by_role("link", name="Shipped").click()
    assert_shown(page, "Retrying in")
    limits = page.locator("#banner-limits")
    expect(limits).to_contain_text(
        "You've reached this key's request limit. Available again today at"
    )
    expect(limits).to_contain_text("your administrator can raise the key's plan")
    expect(page.get_by_role("button", name="Refresh")).to_be_disabled()
    # Meanwhile no requests are sent, which could get the key banned.
    before = len(page.requested)
    page.get_by_role("link", name="All").click()
    page.get_by_role("link", name="Figures").click()
    page.clock.run_for(20_000)
    assert not [url for url in page.requested[before:] if "/v2/" in url]
    shop.renew(page.key_id)
    page.clock.run_for(61_000)
    expect(page.locator(".picture").first).to_be_visible()
    expect(page.locator("#banner-limits")).to_have_count(0)


def test_a_limit_met_while_shipping_counts_down_in_the_dialog(shop, at_desk):
    page = at_desk(LIMITED, refusals=(429,), is_clock_ours=True)
    go_to(page, "orders/3")
    press(page, "Already shipped")
    spend(shop, page.secret)
    press(page, "It has shipped")
    assert_shown(page, "You've reached this key's request limit.")
    expect(page.locator("#confirm-yes")).to_be_disabled()
    expect(page.locator("#confirm-yes")).to_contain_text("Wait ")
    shop.renew(page.key_id)
    page.clock.run_for(61_000)
    press(page, "Try again")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert shop.order(3)["status"] == "shipped"


def test_a_ban_is_shown(shop, at_desk):
    page = at_desk(LIMITED, refusals=(429,))
    spend(shop, page.secret, "api_key_banned")
    page.get_by_role("link", name="Figures").click()
    expect(page.locator("#banner-limits")).to_contain_text("blocked after too many requests")
    assert_shown(page, "Retrying in 5 min")


def test_an_unavailable_database_and_its_return(shop, at_desk):
    page = at_desk(refusals=(503,))
    go_to(page, "orders/4")
    press(page, "Already shipped")
    with real_faults.locked(shop.database):
        press(page, "It has shipped")
        assert_shown(page, "The service can't reach its database at the moment.")
    press(page, "Try again")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert shop.order(4)["status"] == "shipped"


def test_a_lost_network_and_its_return(at_desk):
    page = at_desk(loses=True)
    page.context.set_offline(True)
    page.get_by_role("link", name="Shipped").click()
    assert_shown(page, "Can't connect to the service.")
    expect(page.locator("#banner-connection")).to_be_visible()
    page.context.set_offline(False)
    # By itself.
    expect(page.locator("#banner-connection")).to_have_count(0)
    announced(page, "Back online.")
    wait_for_rows(page)


def test_shipping_again_after_a_lost_answer_is_shown_as_done(shop, at_desk):
    page = at_desk(loses=True)
    page.route(f"**{ORDERS}/5/ship", lambda route: (route.fetch(), route.abort("connectionreset")))
    ship(page, 5)
    expect(page.locator("#banner-connection")).to_be_visible()
    page.unroute(f"**{ORDERS}/5/ship")
    # Under a hand the row would stay.
    page.mouse.move(5, 5)
    # By itself.
    announced(page, re.compile("Order 5 (was )?shipped."))
    expect(row(page, 5)).to_have_count(0)


def test_a_change_retried_after_a_lost_answer_is_made_once(shop, at_desk):
    page = at_desk(loses=True)

    def deliver_and_lose(route):
        if route.request.method == "GET":
            return route.continue_()
        route.fetch()
        return route.abort("connectionreset")

    for begin, send, again in (
        ("Already shipped", "It has shipped", "Try again"),
        ("Cancel order", "Cancel the order", "Try again"),
        ("Change", "Save", "Save"),
    ):
        order_id = shop.place(51)
        go_to(page, f"orders/{order_id}")
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"Order {order_id}")
        press(page, begin)
        if begin == "Change":
            page.get_by_label("Quantity").fill("3")
        page.route("**/v2/**", deliver_and_lose)
        press(page, send)
        assert_shown(page, "we can't tell whether")
        page.unroute("**/v2/**")
        press(page, again)
        announced(page, f"Order {order_id} ")
        expect(page.locator(".timeline li")).to_have_count(2)
        assert len(shop.api("GET", f"{ORDERS}/{order_id}/events").json()["events"]) == 2


def test_a_paused_webhook_and_backups_on_the_same_disk_are_shown_in_the_footer(shop, at_desk):
    new = NewEndpoint("https://away.example.com/", (EventType.PLACED,), sender.generate_secret())
    with shop.store.database.write() as connection:
        endpoint_id = endpoints.add(connection, new, shop.store.clock.now())
        endpoints.pause(connection, endpoint_id, "a person did", shop.store.clock.now())
    page = at_desk()
    see_old_backups(page)
    foot = page.get_by_role("contentinfo")
    expect(foot).to_contain_text(f"webhook {endpoint_id} is paused")
    expect(foot).to_contain_text(
        "The newest backup was made 3 Feb 2020 at 8:00. Tell your administrator."
    )
    # To keys with write access, once a day.
    said = page.locator("#banner-same-disk")
    expect(said).to_contain_text("Backups are on the same disk as the orders")
    expect(said).to_contain_text("README")
    no_violations(page)
    page.unroute("**/stats?*")
    with shop.store.database.write() as connection:
        endpoints.remove(connection, endpoint_id)
    press(page, "Refresh")
    expect(page.locator("#banner-webhooks")).to_have_count(0)
    expect(said).to_have_count(1)
    page.reload()
    wait_for_rows(page)
    expect(page.locator("#banner-same-disk")).to_have_count(0)
    reader = at_desk({"scopes": ("read",)})
    expect(reader.locator(".tab b").first).not_to_have_text("…")
    expect(reader.locator("#banner-same-disk")).to_have_count(0)


def test_a_page_that_fails_to_load_says_so_and_loads_once_it_can(shop, at_desk):
    page = at_desk(loses=True)
    assert not [url for url in page.requested if url.endswith("/figures.js")]
    page.context.set_offline(True)
    page.get_by_role("link", name="Figures").click()
    expect(page.get_by_role("heading", name="No connection")).to_be_visible()
    no_violations(page)
    press(page, "Try again")
    expect(page.get_by_role("heading", name="No connection")).to_be_visible()
    # By itself, once the service answers.
    page.context.set_offline(False)
    expect(page.locator(".picture").first).to_be_visible()
    expect(page).to_have_title("Figures · Store Orders")
