"""The console in a real browser, over the real service: a shop's day, from key to sign-out."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    announced,
    figure,
    go_to,
    in_plain_words,
    next_poll,
    press,
    row,
    send_now,
    wait_for_rows,
)

pytestmark = pytest.mark.browser

SHOP = {"orders": 6}

MARKUP = "<img src=x onerror=\"document.title='run'\">"


def question(page):
    return page.get_by_role("dialog")


ADDRESS = "Mia Wong\nHauptstr. 5\n50667 Köln"


def test_the_contents_and_customer_of_an_order_are_entered_shown_and_found(shop, at_desk):
    page = at_desk(refusals=(422,))
    go_to(page, "new")
    page.get_by_label("Pet number").fill("41")
    page.get_by_label("Item").fill("Red collar, 35 cm")
    page.get_by_label("Ship to").fill("\n" * 8 + "a\n" * 8 + "b")
    expect(page.get_by_label("Tracking")).to_have_count(0)
    press(page, "Place order")
    expect(page.locator("#enter-shipTo-fault")).to_contain_text("in at most 8 lines")
    page.get_by_label("Ship to").fill(ADDRESS)
    press(page, "Place order")
    expect(page.locator(".timeline li")).to_have_count(1)
    placed = int(re.search(r"#/orders/(\d+)", page.url)[1])
    expect(page.locator("#view .facts")).to_contain_text("Red collar, 35 cm")
    expect(page.locator("#view .facts .lines")).to_have_text(ADDRESS)
    assert shop.order(placed)["shipTo"] == ADDRESS
    go_to(page, "orders?pet=41")
    expect(row(page, placed).locator(".pet")).to_contain_text("Red collar, 35 cmNo.\u00a041")
    expect(row(page, placed)).to_contain_text("Mia Wong")
    expect(row(page, placed)).not_to_contain_text("Hauptstr.")
    page.get_by_role("searchbox").fill("KOLN")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Order {placed}")


def test_a_shipped_order_gets_its_tracking_and_is_reopened(shop, at_desk):
    page = at_desk()
    placed = shop.place(42, shipDate="2027-01-05T08:00:00Z")
    go_to(page, f"orders/{placed}")
    press(page, "Already shipped")
    question(page).get_by_label("Tracking").fill("AB 1")
    press(page, "It has shipped")
    expect(question(page)).to_have_count(0)
    expect(page.locator("#view .facts")).to_contain_text("AB 1")
    press(page, "Change note or tracking")
    expect(page.get_by_label("Item")).to_have_count(0)
    page.locator("#view").get_by_label("Tracking").fill("JD01 46")
    press(page, "Save")
    expect(page.locator("#view .facts")).to_contain_text("JD01 46")
    pending = int(figure_of(shop, "pending"))
    press(page, "Reopen order")
    expect(question(page)).to_contain_text("as if it had not been shipped")
    press(page, "Leave it shipped")
    assert shop.order(placed)["status"] == "shipped"
    press(page, "Reopen order")
    press(page, "Reopen the order")
    announced(page, f"Order {placed} reopened: it is pending again.")
    expect(page.locator(".timeline li").last).to_contain_text("Reopened")
    expect(page.get_by_role("button", name="Ship order")).to_be_visible()
    order = shop.order(placed)
    assert (order["status"], order["shipDate"]) == ("pending", "2027-01-05T08:00:00.000Z")
    assert "tracking" not in order
    go_to(page, "orders")
    expect(figure(page, "pending")).to_have_text(str(pending + 1))


def figure_of(shop, status):
    return shop.api("GET", "/v2/store/stats").json()["byStatus"][status]


def test_a_whole_day(shop, at_desk):
    page = at_desk({"name": "the counter"})
    expect(page.locator("#who-name")).to_have_text("the counter")
    to_ship = int(figure(page, "pending").inner_text())

    page.get_by_role("navigation", name="Main").get_by_role("link", name="New order").click()
    page.get_by_label("Pet number").fill("12")
    page.get_by_label("Quantity").fill("3")
    page.get_by_label("Reference").fill("Mrs Abel")
    press(page, "Place order")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order")
    placed = int(re.search(r"#/orders/(\d+)", page.url)[1])
    announced(page, f"Order {placed} placed")
    expect(page.locator(".timeline li")).to_have_count(1)

    page.get_by_role("link", name="Orders", exact=True).first.click()
    wait_for_rows(page)
    expect(figure(page, "pending")).to_have_text(str(to_ship + 1))
    page.get_by_role("searchbox").fill("Mrs Abel")
    page.keyboard.press("Enter")
    # It is the only hit, and another Enter ships it.
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Order {placed}")
    expect(page.get_by_role("button", name="Ship order")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(row(page, placed)).to_contain_text("Shipping…")
    send_now(page)
    expect(row(page, placed)).to_contain_text("Shipped")
    # The next one is scanned in its place.
    page.keyboard.type("#2\n")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 2")
    go_to(page, "orders")
    expect(figure(page, "pending")).to_have_text(str(to_ship))
    assert shop.order(placed).items() >= {"quantity": 3, "status": "shipped"}.items()

    page.get_by_role("link", name="Order 3", exact=True).click()
    press(page, "Cancel order")
    press(page, "Keep it")
    assert shop.order(3)["status"] == "pending"
    press(page, "Cancel order")
    press(page, "Cancel the order")
    expect(page.locator(".timeline li")).to_have_count(2)
    page.reload()
    expect(page.locator(".timeline li").nth(1)).to_contain_text("by you, on this page")
    expect(page.locator(".timeline li").first).not_to_contain_text("you")
    assert shop.order(3)["status"] == "cancelled"
    expect(page.get_by_role("button", name="Ship order")).to_have_count(0)

    press(page, "Sign out")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    # The key was never part of an address, and only version 2 was used.
    assert not [url for url in page.requested if page.secret in url]
    assert page.context.cookies() == []
    requested = {url.removeprefix(shop.url).split("?")[0].split("/")[1] for url in page.requested}
    assert requested == {"", "console", "v2"}


def test_a_concurrent_change_is_shown_and_not_overwritten(shop, at_desk):
    desk = at_desk(refusals=(409,))
    order_id = shop.place(reference="contested")
    press(desk, "Refresh")
    press(desk, re.compile(rf"^Ship order( {order_id})?$"))
    shop.cancel(order_id)
    send_now(desk)
    notice = desk.locator("#banner-ship")
    expect(notice).to_contain_text("Someone else was faster: this order has already been cancelled")
    no_violations(desk)
    press(desk, "Close")
    expect(notice).to_have_count(0)
    expect(row(desk, order_id)).to_have_count(0)


def test_changes_by_others_appear_automatically_and_their_text_as_text(shop, at_desk):
    desk = at_desk(is_clock_ours=True)
    before = int(figure(desk, "pending").inner_text())
    order_id = shop.place(reference=MARKUP)
    # Nothing is pressed.
    next_poll(desk)
    expect(row(desk, order_id)).to_contain_text(MARKUP)
    announced(desk, f"Order {order_id} was placed.")
    expect(figure(desk, "pending")).to_have_text(str(before + 1))
    desk.get_by_role("link", name=f"Order {order_id}", exact=True).click()
    press(desk, "Already shipped")
    expect(question(desk)).to_contain_text(MARKUP)
    press(desk, "Not yet")
    expect(desk.locator("#view .facts")).to_contain_text(MARKUP)
    expect(desk.locator(".timeline li")).to_have_count(1)
    shop.ship(order_id)
    next_poll(desk)
    expect(desk.locator(".timeline li")).to_have_count(2)
    expect(desk.get_by_role("heading", level=1)).to_contain_text("Shipped")
    assert desk.locator("img").count() == 0
    expect(desk).to_have_title(f"Order {order_id} · Store Orders")


def lose_the_answer(page):
    """Place an order, and lose the answer on its way."""

    def deliver_and_lose(route):
        if route.request.method != "POST":
            return route.continue_()
        route.fetch()
        return route.abort("connectionreset")

    page.route(f"**{ORDERS}", deliver_and_lose)
    press(page, "Place order")
    expect(page.get_by_role("alert").filter(has_text="can't tell whether")).to_be_visible()
    page.unroute(f"**{ORDERS}")


def test_an_order_whose_answer_was_lost_is_never_placed_twice(shop, at_desk):
    page = at_desk(loses=True)
    go_to(page, "new")
    page.get_by_label("Pet number").fill("77")
    page.get_by_label("Reference").fill("lost on its way")
    lose_the_answer(page)
    # Not even after a reload.
    page.reload()
    expect(page.get_by_label("Reference")).to_have_value("lost on its way")
    press(page, "Place order")
    announced(page, "was placed once")
    assert shop.count(petId=77) == 1


def test_an_order_changed_after_a_lost_answer_is_not_placed_as_well(shop, at_desk):
    page = at_desk(refusals=(422,), loses=True)
    go_to(page, "new")
    page.get_by_label("Pet number").fill("78")
    lose_the_answer(page)
    page.get_by_label("Quantity").fill("5")
    press(page, "Send again")
    alert = page.get_by_role("alert").filter(has_text="first attempt did go through")
    expect(alert).to_be_visible()
    assert shop.count(petId=78) == 1


def test_faults_are_shown_before_anything_is_sent_and_an_unknown_order_is_explained(shop, at_desk):
    desk = at_desk(refusals=(404,))
    before = shop.count()
    go_to(desk, "new")
    press(desk, "Place order")
    expect(desk.get_by_label("Pet number")).to_be_focused()
    expect(desk.get_by_text("Enter the pet's number, such as 7.")).to_be_visible()
    desk.get_by_label("Pet number").fill("Rex")
    desk.get_by_label("Quantity").fill("0")
    press(desk, "Place order")
    expect(desk.get_by_text("Enter a quantity from 1 to 2,147,483,647.")).to_be_visible()
    no_violations(desk)
    assert shop.count() == before
    go_to(desk, "orders/99999")
    expect(desk.get_by_role("alert")).to_contain_text("There is no order with this number")
    assert in_plain_words(desk.locator("#view").inner_text())
    no_violations(desk)


def test_a_read_key_sees_no_controls_that_change_anything(shop, at_desk):
    page = at_desk({"scopes": ("read",)})
    expect(page.locator("#who-may")).to_have_text("can only view")
    expect(page.get_by_role("link", name="New order")).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("Ship"))).to_have_count(0)
    go_to(page, "orders/2")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Ship|Cancel"))).to_have_count(0)
    go_to(page, "new")
    expect(page).to_have_url(f"{shop.url}/#/orders")


def test_everything_works_by_keyboard_alone(shop, visit):
    order_id = shop.place(reference="by keyboard")
    page = visit(shop.url)
    keys = page.keyboard
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    keys.type(shop.store.issue()[1])
    keys.press("Enter")
    wait_for_rows(page)
    expect(page.get_by_role("heading", name="Orders")).to_be_focused()
    page.get_by_role("link", name="Skip to content").focus()
    keys.press("Enter")
    expect(page.locator("#view")).to_be_focused()
    button = page.get_by_role("button", name=f"Ship order {order_id}", exact=True)
    for _ in range(60):
        keys.press("Tab")
        if button.evaluate("(each) => each === document.activeElement"):
            break
    keys.press("Enter")
    expect(row(page, order_id)).to_contain_text("Shipping…")
    send_now(page)
    # The row stays while the focus is in the list.
    expect(row(page, order_id)).to_contain_text("Shipped")
    assert page.evaluate("document.activeElement.closest('.results, h1') !== null")


def test_an_order_is_shown_with_its_long_pet_number_and_its_dates_in_the_viewers_zone(
    shop, at_desk
):
    order_id = shop.place(9223372036854775807, shipDate="2031-03-01T23:30:00Z")
    placed = shop.order(order_id)["placedAt"]
    shown = {}
    for zone in ("UTC", "Asia/Tokyo"):
        page = at_desk(timezone_id=zone)
        go_to(page, "figures")
        expect(page.locator(".chart + .hint")).to_contain_text(f"Days are those of {zone}.")
        assert f"zone={zone.replace('/', '%2F')}" in "".join(page.requested)
        go_to(page, f"orders/{order_id}")
        facts = page.locator("#view .facts")
        expect(facts).to_contain_text("No. 9223372036854775807")
        shown[zone] = facts.locator('time[datetime^="2031"]').inner_text()
        exactly = placed.replace("T", " ").replace("Z", "") + " UTC"
        expect(facts.locator("time").first).to_have_attribute("title", exactly)
    assert shown == {"UTC": "1 Mar 2031, 23:30", "Asia/Tokyo": "2 Mar 2031, 8:30"}
