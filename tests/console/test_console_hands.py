"""The console in a real browser, used fast: a scanner, a held key, a double click."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.browser import expect
from tests.support.console import (
    ORDERS,
    PLENTY,
    go_to,
    next_poll,
    press,
    press_ship,
    requests_of,
    row,
    send_now,
    sign_in,
)
from tests.support.machine import wait_until

pytestmark = pytest.mark.browser

SHOP = {"orders": 12}
SCANNED_AFTER_MS = 500
ONE_LINE_PX = 32
# Nothing of the list is below what is about to ship.
TALL = {"width": 1280, "height": 2400}


def scan(page, text):
    """Type as a scanner does: characters a few milliseconds apart, and Enter."""
    page.keyboard.type(f"{text}\n", delay=4)


def stop_clock(page):
    """Let a page's clock, which must be the test's, advance only when the test says so."""
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 1"))


def double_click(page, button):
    """Click twice on the spot of a button, 150 ms apart by the page's clock."""
    box = button.bounding_box()
    stop_clock(page)
    for _ in range(2):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.clock.run_for(150)


def opened(page, order_id):
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Order {order_id} ")


def pressed(requests):
    """Return the changes made by these requests."""
    return [each for each in requests if not each.startswith("GET")]


def test_a_scan_finds_its_order_wherever_the_focus_is_and_presses_nothing(shop, at_desk):
    page = at_desk(PLENTY)
    sent = requests_of(page)
    # A row's button (the next one has the focus by now), a link, a box, a dialog.
    press(page, "Ship order 2")
    expect(page.get_by_role("button", name="Ship order 3", exact=True)).to_be_focused()
    scan(page, 6)
    opened(page, 6)
    for place, begin, order_id in (
        ("orders", lambda: page.get_by_role("link", name="Late").focus(), 5),
        ("orders", lambda: page.get_by_role("checkbox", name="Choose order 4").focus(), 7),
        ("orders/8", lambda: press(page, "Cancel order"), 9),
        ("figures", lambda: page.evaluate("document.activeElement.blur()"), 10),
    ):
        go_to(page, place)
        begin()
        scan(page, order_id)
        opened(page, order_id)
    expect(page.get_by_role("dialog")).to_be_hidden()
    press(page, "Undo shipping order 2")
    assert pressed(sent) == []
    # In a text field, what is typed is text.
    go_to(page, "new")
    page.get_by_label("Note").focus()
    scan(page, "12")
    expect(page.get_by_label("Note")).to_have_value("12\n")


def test_a_scanned_number_opens_its_order_though_many_addresses_begin_with_it(shop, at_desk):
    orders = [{"petId": 7, "shipTo": f"Mia\n{each} 500 High St"} for each in range(60)]
    for order in orders:
        assert shop.api("POST", ORDERS, json=order).status == 201
    page = at_desk(PLENTY, refusals=(404,))
    for text in (5, 50, "#50"):
        scan(page, text)
        opened(page, str(text).removeprefix("#"))
    # A person chooses between two matches; anything without a number is a list.
    other = shop.place(7, reference="50")
    scan(page, 50)
    expect(page.locator(".found")).to_contain_text("Several orders have 50 as their number")
    for order_id in (50, other):
        expect(row(page, order_id)).to_be_visible()
    scan(page, 500)
    expect(page.locator(".found")).to_have_text("50 orders on this page.")


def test_scans_on_a_slow_network_wait_for_each_other_and_each_is_whole(shop, at_desk):
    page = at_desk(PLENTY)

    slow = {"offline": False, "latency": 600, "downloadThroughput": -1, "uploadThroughput": -1}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)
    page.get_by_role("searchbox").focus()
    searched = []
    page.on("request", lambda request: searched.extend(re.findall(r"search=([^&]+)", request.url)))
    scan(page, 11)
    page.wait_for_timeout(SCANNED_AFTER_MS)
    scan(page, 12)
    # Impatient typing presses nothing either, while the order is looked up.
    page.keyboard.press("Enter")
    opened(page, 12)
    assert searched == ["11", "12"]
    expect(page.locator("#shipping")).to_be_hidden()


def test_a_key_that_is_held_presses_once(shop, at_desk):
    page = at_desk()
    sent = requests_of(page)
    page.get_by_role("button", name="Ship order 4", exact=True).focus()
    for _ in range(6):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    expect(page.locator("#shipping li")).to_have_count(1)
    press(page, "Undo shipping order 4")
    assert pressed(sent) == []


@pytest.mark.parametrize("place", ["orders", "orders/5"])
def test_a_double_click_on_ship_ships_and_another_on_undo_does_not(shop, at_desk, place):
    page = at_desk(is_clock_ours=True)
    go_to(page, place)
    ship = page.get_by_role("button", name=re.compile("^Ship order( 5)?$"))
    line = page.locator('#shipping [data-id="5"]')
    double_click(page, ship)
    expect(line).to_be_visible()
    page.clock.run_for(800)
    double_click(page, page.locator("#view").get_by_role("button", name="Undo"))
    expect(line).to_have_count(0)
    expect(ship).to_be_visible()
    assert shop.order(5)["status"] == "pending"


def test_rows_stay_in_place_under_the_pointer_and_move_once_it_has_left(shop, at_desk):
    # In American English, a date and time takes two lines.
    page = at_desk(PLENTY, is_clock_ours=True, locale="en-US")
    gone, pointed_at = shop.place(61), shop.place(61)
    go_to(page, "orders?pet=61")
    expect(page.locator("tbody tr")).to_have_count(2)
    ship = row(page, pointed_at).get_by_role("button")
    ship.hover()
    before = ship.bounding_box()["y"]
    shop.ship(gone)
    came = shop.place(61, shipDate="2020-02-03T08:00:00Z")
    next_poll(page)
    # A row that is gone says so, and more urgent ones wait below.
    expect(row(page, gone)).to_contain_text("Shipped")
    expect(row(page, came)).to_be_visible()
    assert ship.bounding_box()["y"] == before
    page.mouse.down()
    shop.ship(came)
    next_poll(page)
    page.mouse.up()
    expect(page.locator("#shipping")).to_contain_text(f"Shipping {pointed_at}")
    assert row(page, pointed_at).locator(".chip").bounding_box()["height"] < ONE_LINE_PX
    assert row(page, pointed_at).get_by_role("button").bounding_box()["y"] == before
    press(page, f"Undo shipping order {pointed_at}")
    page.mouse.move(5, 5)
    page.clock.run_for(4_000)
    expect(page.locator("tbody tr")).to_have_count(1)
    assert shop.order(pointed_at)["status"] == "pending"


def cut(page):
    """Disconnect a page from the network."""
    page.context.set_offline(True)


def test_unsent_changes_survive_a_limit_and_a_reload(shop, at_desk):
    limited = {"plan": "enterprise", "per_minute": 40, "per_day": 5_000}
    orders = [shop.place(62) for _ in range(3)]
    page = at_desk(limited, refusals=(429,), is_clock_ours=True, viewport=TALL)
    sent = requests_of(page)
    press_ship(page, *orders)
    while shop.api("GET", "/v2/usage", key=page.secret).status != 429:
        pass
    page.clock.run_for(12_000)
    line = page.locator("#shipping .waiting")
    expect(line).to_contain_text("3 orders wait to ship")
    expect(line).to_contain_text("limit is reached, next try in")
    expect(row(page, orders[0])).to_contain_text("Waiting for the limit")
    page.reload()
    expect(line).to_contain_text("3 orders wait to ship")
    shop.renew(page.key_id)
    page.clock.run_for(62_000)
    expect(line).to_have_count(0)
    expect(page.locator("#shipping")).to_be_hidden()  # once all are answered
    assert {shop.order(each)["status"] for each in orders} == {"shipped"}
    # When the limit is reached, after the reload, and once the limit has reset.
    assert len(pressed(sent)) <= 9


def test_eight_orders_ship_after_a_service_that_was_away_for_50_seconds(shop, at_desk):
    orders = [shop.place(63) for _ in range(8)]
    page = at_desk(PLENTY, loses=True, is_clock_ours=True, viewport=TALL)
    cut(page)
    press_ship(page, *orders)
    for _ in range(12):
        page.clock.run_for(5_000)
        page.wait_for_timeout(20)
    expect(page.locator("#shipping .waiting")).to_contain_text("8 orders wait to ship")
    expect(page.locator("#shipping .waiting")).to_contain_text("next try in")
    expect(row(page, orders[7])).to_contain_text("No connection")
    expect(page.locator("[id^=banner-ship]")).to_have_count(0)
    page.context.set_offline(False)
    for _ in range(8):
        page.clock.run_for(5_000)
        page.wait_for_timeout(100)
    expect(page.locator("#shipping")).to_be_hidden()
    for order_id in orders:
        events = shop.api("GET", f"{ORDERS}/{order_id}/events").json()["events"]
        assert [each["type"] for each in events] == ["order.placed", "order.shipped"]


def test_unsent_changes_need_a_decision_at_sign_out_and_after_a_key_is_revoked(shop, at_desk):
    order_id = shop.place(64)
    page = at_desk(loses=True, refusals=(401,), is_clock_ours=True)
    cut(page)
    press_ship(page, order_id)
    press(page, "Sign out")
    expect(page.get_by_role("dialog")).to_contain_text(f"Not shipped yet: {order_id}")
    press(page, "Stay")
    shop.revoke(page.key_id)
    wait_until(lambda: shop.api("GET", "/v2/usage", key=page.secret).status == 401)
    page.context.set_offline(False)
    page.clock.run_for(70_000)
    expect(page.get_by_role("alert")).to_contain_text(f"Not shipped yet: {order_id}")
    expect(page.locator("#shipping")).to_be_hidden()
    sign_in(page, shop.store.issue()[1])
    expect(page.locator("#shipping .waiting")).to_contain_text("before you signed in")
    page.clock.run_for(15_000)
    assert shop.order(order_id)["status"] == "pending"
    press(page, "Ship them")
    page.clock.run_for(2_000)
    wait_until(lambda: shop.order(order_id)["status"] == "shipped")


def test_orders_refused_because_the_key_was_revoked_did_not_ship(shop, at_desk):
    orders = [shop.place(68) for _ in range(2)]
    page = at_desk(refusals=(401,), is_clock_ours=True, viewport=TALL)
    sent = requests_of(page)
    press_ship(page, *orders)
    # No poll finds out first.
    stop_clock(page)
    shop.revoke(page.key_id)
    wait_until(lambda: shop.api("GET", "/v2/usage", key=page.secret).status == 401)
    send_now(page)
    expect(page.get_by_role("alert")).to_contain_text("Not shipped yet")
    assert len(pressed(sent)) == 2
    sign_in(page, shop.store.issue()[1])
    press(page, "Don't ship")
    expect(page.locator("#shipping")).to_be_hidden()
    expect(page.locator("[id^=banner-ship]")).to_have_count(0)
    assert {shop.order(each)["status"] for each in orders} == {"pending"}


def test_a_pointer_that_rests_on_the_countdown_stops_it_for_a_moment_only(shop, at_desk):
    order_id = shop.place(65)
    page = at_desk(is_clock_ours=True)
    press_ship(page, order_id)
    page.get_by_role("button", name=f"Undo shipping order {order_id}").hover()
    for _ in range(8):
        page.clock.run_for(2_000)
        assert "-" not in page.locator("#shipping").inner_text()
    wait_until(lambda: shop.order(order_id)["status"] == "shipped")


def test_a_future_date_is_an_expected_date_and_never_a_shipment(shop, at_desk):
    order_id = shop.place(66)
    page = at_desk(timezone_id="UTC")
    go_to(page, f"orders/{order_id}")
    press(page, "Already shipped")
    expect(page.get_by_role("dialog")).to_contain_text("already shipped: when?")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    page.get_by_label("Shipped at").fill(f"{tomorrow:%Y-%m-%d}T14:15")
    expect(page.get_by_role("dialog")).to_contain_text("nothing ships now")
    press(page, "Set the ship date")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expected = shop.order(order_id)
    assert expected["status"] == "pending"
    assert expected["shipDate"].startswith(f"{tomorrow:%Y-%m-%d}T14:15")
    press(page, "Already shipped")
    page.get_by_label("Shipped at").fill("2026-01-02T10:00")
    # A date long ago needs confirmation.
    press(page, "It has shipped")
    press(page, "It has shipped")
    expect(page.get_by_role("dialog")).to_be_hidden()
    shipped = shop.order(order_id)
    assert (shipped["status"], shipped["shipDate"][:16]) == ("shipped", "2026-01-02T10:00")


def test_typed_text_survives_a_colleagues_change_a_reload_and_the_keys_end(shop, at_desk):
    order_id = shop.place(67, quantity=2)
    page = at_desk(refusals=(401, 409), is_clock_ours=True)
    go_to(page, f"orders/{order_id}")
    press(page, "Change")
    page.get_by_label("Quantity").fill("3")
    page.get_by_label("Note").fill("Ring twice")
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.reload()
    assert asked == ["beforeunload"]
    expect(page.get_by_label("Note")).to_have_value("Ring twice")
    go_to(page, "orders")
    expect(page.locator(f"#banner-change-{order_id}")).to_contain_text("is not saved")
    press(page, "Sign out")
    expect(page.get_by_role("dialog")).to_contain_text(f"Not saved: changes of order {order_id}")
    press(page, "Stay")
    shop.revoke(page.key_id)
    wait_until(lambda: page.clock.fast_forward(5_000) or page.get_by_role("alert").count())
    expect(page.get_by_role("alert")).to_contain_text(f"Not saved yet: changes of order {order_id}")
    go_to(page, f"orders/{order_id}")
    sign_in(page, shop.store.issue()[1])
    expect(page.get_by_label("Note")).to_have_value("Ring twice")
    # The note may still be saved, so it is; the rest is reported.
    shop.ship(order_id)
    press(page, "Save")
    expect(page.locator("#view .facts")).to_contain_text("Ring twice")
    told = page.locator(f"#banner-change-{order_id}")
    expect(told).to_contain_text("shipped by someone else meanwhile. Not saved: Quantity 3")
    expect(told).to_contain_text("Saved: Note.")
    changed = shop.order(order_id)
    assert (changed["note"], changed["quantity"]) == ("Ring twice", 2)
    assert page.evaluate("sessionStorage.getItem('changes')") is None
