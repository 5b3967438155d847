"""The console in a real browser, at a desk for days: what arrives, changes and is forgotten."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    PLENTY,
    announced,
    figure,
    go_to,
    next_poll,
    press,
    requests_of,
    row,
    send_now,
    too_wide,
    wait_for_rows,
)
from tests.support.machine import wait_until

pytestmark = pytest.mark.browser

SHOP = {"orders": 8}


def test_an_open_list_shows_the_current_day(shop, at_desk):
    page = at_desk(is_clock_ours=True, loses=True)
    placed = page.locator("tbody td.placed time").first
    expect(placed).to_contain_text("Today")
    # The page's clock can advance while the service's doesn't: the page follows the service's.
    page.context.set_offline(True)
    for _ in range(3):
        page.clock.fast_forward(8 * 3600 * 1000)
        page.keyboard.press("Shift")
    expect(placed).to_contain_text("Yesterday")


def test_new_orders_are_counted_in_the_title_and_marked_until_they_were_seen(shop, at_desk):
    page = at_desk(is_clock_ours=True)
    order_id = shop.place(reference="arrived")
    next_poll(page)
    expect(page).to_have_title("(1) Orders · Store Orders")
    expect(row(page, order_id)).to_have_class(re.compile("new"))
    row(page, order_id).scroll_into_view_if_needed()
    page.keyboard.press("Shift")
    expect(page).to_have_title("Orders · Store Orders")
    page.clock.fast_forward(5_000)
    expect(row(page, order_id)).not_to_have_class(re.compile("new"))


def test_an_order_is_edited_in_place_and_merged_with_a_concurrent_change(shop, at_desk):
    page = at_desk(refusals=(412,))
    order_id = shop.place(21, reference="mine", note="as it was")
    go_to(page, f"orders/{order_id}")
    press(page, "Change")
    page.get_by_label("Quantity").fill("3")
    page.get_by_label("Note").fill("Gift wrap")
    no_violations(page)
    patch = {"reference": "theirs", "note": "Fragile"}
    assert shop.api("PATCH", f"{ORDERS}/{order_id}", json=patch).status == 200
    press(page, "Save")
    notice = page.get_by_role("alert").filter(visible=True)
    expect(notice).to_contain_text("Someone else changed this order")
    expect(notice).to_contain_text("Note is now Fragile")
    expect(page.get_by_label("Reference")).to_have_value("theirs")
    no_violations(page)
    press(page, "Save")
    expect(page.locator("#view .facts")).to_contain_text("Gift wrap")
    changed = shop.order(order_id)
    assert (changed["quantity"], changed["reference"], changed["note"]) == (
        *(3, "theirs"),
        "Gift wrap",
    )


def test_a_date_years_away_needs_confirmation(shop, at_desk):
    page = at_desk()
    go_to(page, "new")
    page.get_by_label("Pet number").fill("31")
    page.get_by_label("Ship date").fill("2062-11-22T10:00")
    press(page, "Place order")
    expect(page.get_by_text("is more than a year away")).to_be_visible()
    assert shop.count(petId=31) == 0
    press(page, "Place order")
    announced(page, "placed")


TOLD = """
const tell = (what) => { document.documentElement.dataset.told += `${what} `; };
addEventListener("DOMContentLoaded", () => { document.documentElement.dataset.told = ""; });
window.Notification = class extends EventTarget {
    static requestPermission = async () => "granted";
    constructor(title, { body }) { super(); tell(body); }
};
const make = AudioContext.prototype.createOscillator;
AudioContext.prototype.createOscillator = function () {
    tell("sound");
    return make.call(this);
};
Object.defineProperty(document, "hidden", { get: () => window.isAway });
"""


def test_new_orders_are_announced_by_sound_and_notification_if_enabled(shop, at_desk):
    page = at_desk(PLENTY)
    page.add_init_script(TOLD)
    page.reload()
    go_to(page, "key")
    for name in ("Play a sound", "Show a notification"):
        page.get_by_label(name).check()
    told = page.locator("html")
    expect(told).to_have_attribute("data-told", "sound ")  # how it sounds
    page.evaluate("isAway = true")
    order_id = shop.place()
    press(page, "Refresh")
    expect(told).to_have_attribute("data-told", f"sound sound Order {order_id} was placed. ")


def test_a_remembered_key_outlives_the_tab_and_an_unused_one_is_forgotten(shop, visit):
    page = visit(shop.url)
    page.get_by_label("Remember on this computer").check()
    page.get_by_label("Key", exact=True).fill(shop.store.issue()[1])
    press(page, "Sign in")
    wait_for_rows(page)
    other = page.context.new_page()
    other.goto(shop.url)
    wait_for_rows(other)
    press(other, "Sign out")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_a_key_that_nobody_uses_for_twelve_hours_is_forgotten(at_desk):
    page = at_desk(is_clock_ours=True)
    page.clock.fast_forward(11 * 3600 * 1000)
    expect(page.locator("#shop")).to_be_visible()
    page.clock.fast_forward(3600 * 1000 + 5_000)
    expect(page.get_by_role("alert")).to_contain_text("signed out after 12 hours without use")


def test_a_middle_click_opens_a_tab_that_is_signed_in(shop, at_desk):
    page = at_desk()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Order 7", exact=True).click(button="middle")
    expect(opened.value.get_by_role("heading", level=1)).to_contain_text("Order 7")


@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
def test_no_width_and_no_content_makes_the_page_wider_than_its_window(shop, at_desk, locale):
    shop.place(
        9223372036854775807,
        quantity=2147483647,
        reference="W" * 64,
        shipDate="2020-02-03T08:00:00Z",
    )
    page = at_desk(locale=locale)
    for view in ("orders", f"orders/{shop.count()}"):
        go_to(page, view)
        for width in (320, 390, 768, 961, 1024, 1100, 1280, 1366, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            # Soon, not at once: the layout follows the width a moment later.
            wait_until(lambda: not too_wide(page))


def test_a_view_takes_one_request_and_rows_stay_when_a_limit_is_reached(shop, at_desk):
    newest = shop.place()
    page = at_desk({"plan": "enterprise", "per_minute": 30, "per_day": 5_000}, refusals=(429,))
    sent = requests_of(page)
    page.get_by_role("link", name="All").click()
    expect(row(page, newest)).to_be_visible()
    assert sent == ["GET store/orders"]
    while shop.api("GET", "/v2/usage", key=page.secret).status != 429:
        pass
    press(page, "Refresh")
    expect(page.locator("#banner-limits")).to_contain_text("Available again")
    expect(row(page, newest)).to_be_visible()
    # Not by the pointer, under which the list has just moved.
    page.get_by_role("button", name=f"Ship order {newest}", exact=True).press("Enter")
    send_now(page)
    expect(page.locator("#shipping")).to_contain_text(f"1 order waits to ship: {newest}.")
    expect(figure(page, "all")).not_to_have_text("…")
