"""The console in a real browser, under quick hands: a scanner, a held key, a double click."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import expect
from tests.support.console import PLENTY, go_to, press, requests_of

pytestmark = pytest.mark.browser

SHOP = {"orders": 12}
SCANNED_AFTER_MS = 500


def scan(page, text):
    """Type as a scanner does: characters a few milliseconds apart, and Enter."""
    page.keyboard.type(f"{text}\n", delay=4)


def stop_clock(page):
    """Have a page's clock, which must be the test's, go on only where the test says so."""
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
    """Return what was changed by these requests."""
    return [each for each in requests if not each.startswith("GET")]


def test_a_scan_finds_its_order_wherever_the_focus_is_and_presses_nothing(shop, at_desk):
    page = at_desk(PLENTY)
    sent = requests_of(page)
    # A row's button of which the next one has the focus by now, a link, a box, a question.
    press(page, "Ship order 2")
    expect(page.get_by_role("button", name="Ship order 3")).to_be_focused()
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
    # Somebody who is impatient presses nothing either, while the order is looked up.
    page.keyboard.press("Enter")
    opened(page, 12)
    assert searched == ["11", "12"]
    expect(page.locator("#shipping")).to_be_hidden()


def test_a_key_that_is_held_presses_once(shop, at_desk):
    page = at_desk()
    sent = requests_of(page)
    page.get_by_role("button", name="Ship order 4").focus()
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
