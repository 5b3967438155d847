"""The console in a real browser: easy mistakes that do harm, in a short visit each."""

from __future__ import annotations

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    PLENTY,
    announced,
    go_to,
    in_plain_words,
    next_poll,
    press,
    row,
    sign_in,
    wait_for_rows,
)
from tests.support.machine import wait_until
from tests.support.slow_network import slow_way

pytestmark = pytest.mark.browser

SHOP = {"orders": 4}

UNFINISHED = "Complete the date, or clear it."


def begin_a_date(page, label):
    """Type only the day into a date field."""
    page.get_by_label(label).focus()
    page.keyboard.type("24")


def test_an_incomplete_date_never_means_now_or_none(shop, at_desk):
    page = at_desk()
    before = shop.count()
    go_to(page, "orders/2")
    press(page, "Already shipped")
    begin_a_date(page, "Shipped at")
    press(page, "It has shipped")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(UNFINISHED)
    expect(page.get_by_label("Shipped at")).to_be_focused()
    assert shop.order(2)["status"] == "pending"
    press(page, "Not yet")

    go_to(page, "new")
    page.get_by_label("Pet number").fill("7")
    begin_a_date(page, "Ship date")
    press(page, "Place order")
    expect(page.get_by_text(UNFINISHED).filter(visible=True)).to_be_visible()
    expect(page.get_by_label("Ship date")).to_be_focused()
    assert shop.count() == before

    go_to(page, "orders")
    page.get_by_text("Filter and sort").click()
    begin_a_date(page, "Ship date to")
    # The unfinished date is out of sight, and something else is searched for.
    page.get_by_text("Filter and sort").click()
    page.get_by_role("searchbox").fill("R-3")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Ship date to")).to_be_focused()
    assert page.url == f"{shop.url}/#/orders"


def test_an_unfinished_date_in_a_dialog_that_a_scan_closes_is_reported(shop, at_desk):
    page = at_desk()
    go_to(page, "orders/2")
    press(page, "Already shipped")
    begin_a_date(page, "Shipped at")
    page.get_by_role("button", name="Not yet").focus()
    page.keyboard.type("3\n", delay=4)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 3 ")
    expect(page.locator("#banner-question")).to_contain_text("about order 2 was closed")
    # Without a date there is nothing to report.
    page.locator("#banner-question").get_by_role("button", name="Close").click()
    press(page, "Already shipped")
    page.keyboard.type("2\n", delay=4)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 2 ")
    expect(page.locator("#banner-question")).to_have_count(0)


def test_an_address_with_a_name_that_every_object_has_leads_to_the_orders(shop, at_desk):
    page = at_desk(refusals=(422,))
    for name in ("constructor", "__proto__", "toString"):
        go_to(page, name)
        expect(page).to_have_url(f"{shop.url}/#/orders")
        wait_for_rows(page)
    go_to(page, "orders?status=all&sort=constructor")
    expect(page.locator("tbody tr")).to_have_count(shop.count())
    go_to(page, "orders?status=constructor")
    expect(page.locator("#view").get_by_role("alert")).to_be_visible()
    go_to(page, "figures")
    expect(page.locator(".picture").first).to_be_visible()


def test_only_numbers_are_requested_as_orders(shop, at_desk):
    page = at_desk()
    for order_id in ("..", "%2e%2e", ".", "02", "2e0"):
        go_to(page, f"orders/{order_id}")
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Order {order_id}")
        notice = page.locator("#view").get_by_role("alert")
        expect(notice).to_contain_text("no order with this number")
        expect(page.get_by_role("button", name="Ship")).to_have_count(0)
    # The only history requested is the newest order's, where polling begins.
    newest = f"{shop.url}{ORDERS}/{shop.count()}/events"
    assert {url for url in page.requested if "/events" in url and ORDERS in url} == {newest}


def test_a_late_body_shows_nothing_and_one_that_never_comes_times_out(shop, visit):
    with slow_way(shop.url) as way:
        page = visit(way.url, loses=True)
        page.clock.install()
        sign_in(page, shop.store.issue()[1])
        wait_for_rows(page)
        let_go = way.hold("orders?limit=50&sort=-shipDate&status=shipped")
        with page.expect_response("**/v2/store/orders?*status=shipped"):
            page.get_by_role("link", name="Shipped").click()
        page.get_by_role("link", name="All").click()
        expect(page.locator("tbody tr")).to_have_count(shop.count())
        let_go()
        page.wait_for_timeout(300)
        expect(page.locator("tbody tr")).to_have_count(shop.count())

        let_go = way.hold("stats?days=30")
        with page.expect_response("**/v2/store/stats?days=30*"):
            page.get_by_role("link", name="Figures").click()
        page.clock.run_for(21_000)
        expect(page.locator("#view").get_by_role("alert")).to_contain_text("Can't connect")
        let_go()
        way.hold("nothing")
        page.clock.run_for(5_000)
        # By itself.
        expect(page.locator(".picture").first).to_be_visible()


def test_polling_begins_even_if_the_first_attempt_fails(shop, visit):
    page = visit(shop.url, refusals=(503,))
    page.clock.install()
    newest = "**/v2/store/orders?sort=-id&limit=1"
    page.route(newest, lambda route: route.fulfill(status=503))
    sign_in(page, shop.store.issue(**PLENTY)[1])
    wait_for_rows(page)
    expect(page.locator("#updated")).to_contain_text("Not updated yet, retrying")
    page.unroute(newest)
    page.clock.fast_forward(5_000)
    expect(page.locator("#updated")).to_contain_text("Updated")
    placed = shop.place()
    next_poll(page)
    expect(row(page, placed)).to_be_visible()


# As where site data are blocked.
NO_STORAGE = """
Object.defineProperty(window, "sessionStorage", {
    get() { throw new DOMException("Access is denied for this document.", "SecurityError"); },
});
"""


def test_a_browser_without_storage_is_explained(shop, visit):
    page = visit(shop.url)
    page.add_init_script(NO_STORAGE)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("doesn't let the page store anything")
    expect(page.get_by_label("Key", exact=True)).to_be_disabled()
    no_violations(page)


OLDER_BROWSER = """
const parse = JSON.parse;
JSON.parse = (text, reviver) => parse(text, reviver && ((name, value) => reviver(name, value)));
"""


def test_an_older_browser_shows_no_wrong_number_for_a_long_one(shop, at_desk):
    order_id = shop.place(9223372036854775807)
    page = at_desk()
    page.add_init_script(OLDER_BROWSER)
    go_to(page, f"orders/{order_id}")
    page.reload()
    expect(page.locator("#view .facts")).to_contain_text("No. too long for this browser")


def test_the_api_documentation_opens_in_a_tab_without_a_key(at_desk):
    page = at_desk()
    go_to(page, "key")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="API documentation").click()
    docs = opened.value
    expect(docs.locator("#description .info")).to_be_visible()
    assert docs.url.endswith("/docs")
    assert docs.evaluate("sessionStorage.length") == 0
    assert docs.evaluate("window.opener") is None
    assert page.evaluate("sessionStorage.getItem('key')").startswith("sok_")


def test_a_revoked_key_leads_to_the_sign_in_page_and_keeps_only_typed_text(shop, visit):
    page = visit(shop.url, refusals=(401,))
    page.clock.install()
    key_id, secret = shop.store.issue()
    page.get_by_label("Show key").check()
    sign_in(page, secret)
    go_to(page, "new")
    page.get_by_label("Pet number").fill("7")
    shop.revoke(key_id)
    # It takes effect within a second, and the page polls automatically.
    wait_until(lambda: shop.api("GET", "/v2/usage", key=secret).status == 401)
    next_poll(page)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    notice = page.get_by_role("alert")
    expect(notice).to_contain_text("no longer valid: it has expired or has been revoked")
    expect(notice).to_contain_text("Not saved yet: a new order. Sign in to continue.")
    assert in_plain_words(notice.inner_text())
    no_violations(page)
    assert page.evaluate("Object.keys(sessionStorage)") == ["draft"]
    assert secret not in page.evaluate("sessionStorage.getItem('draft')")
    # The next key is not shown because this one was.
    expect(page.get_by_label("Show key")).not_to_be_checked()
    expect(page.get_by_label("Key", exact=True)).to_have_attribute("type", "password")


def test_rows_and_tabs_stay_in_place_while_somebody_clicks_and_keep_the_focus(shop, at_desk):
    page = at_desk(PLENTY, is_clock_ours=True)
    order_id = shop.place()
    next_poll(page)
    expect(row(page, order_id)).to_be_visible()
    about_to_be_pressed = [
        row(page, order_id).get_by_role("link").element_handle(),
        page.get_by_role("link", name="To ship").element_handle(),
    ]
    page.get_by_role("link", name="All").click()
    expect(row(page, 1)).to_be_visible()
    assert all(each.evaluate("one => one.isConnected") for each in about_to_be_pressed)
    # The focus stays in a row that changes.
    row(page, 3).get_by_role("button").focus()
    shop.ship(3)
    next_poll(page)
    expect(row(page, 3)).to_contain_text("Shipped")
    expect(row(page, 3).get_by_role("link")).to_be_focused()
    # A column that has another name is replaced.
    expect(page.get_by_role("columnheader", name="Ship date")).to_be_visible()
    page.get_by_role("link", name="Shipped").click()
    expect(page.get_by_role("columnheader", name="Shipped")).to_be_visible()


def test_the_outcome_of_a_closed_dialog_is_announced_and_disturbs_no_other(shop, at_desk):
    page = at_desk(viewport={"width": 1360, "height": 900})
    left, next_one = shop.place(), shop.place()
    press(page, "Refresh")
    waiting = []
    page.route(f"**{ORDERS}/{left}", lambda route: waiting.append(route))  # noqa: PLW0108 - Playwright marks it
    go_to(page, f"orders/{left}")
    press(page, "Cancel order")
    with page.expect_request(f"**{ORDERS}/{left}"):
        press(page, "Cancel the order")
    page.keyboard.press("Escape")
    go_to(page, f"orders/{next_one}")
    press(page, "Cancel order")
    waiting[0].continue_()
    announced(page, f"Order {left} cancelled.")
    expect(page.get_by_role("dialog")).to_contain_text(f"Cancel order {next_one}?")
    expect(page.get_by_role("button", name="Cancel the order")).to_be_enabled()
