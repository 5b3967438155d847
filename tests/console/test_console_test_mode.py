"""The console with a key of test mode: nobody takes its orders for real, on screen or on paper."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import go_to, press, sign_in, wait_for_rows
from tests.support.machine import installed

pytestmark = pytest.mark.browser

SHOP = {"orders": 2}
LIST = "/v2/store/orders"


@pytest.fixture(scope="module")
def key(shop):
    """A key of test mode, in which there are orders of other pets than in the shop."""
    secret = shop.service.issue("business", "--test")
    for _ in range(3):
        order = {"petId": 99, "reference": "TRY", "shipTo": "Ada Lovelace\nLondon"}
        assert shop.api("POST", LIST, secret, json=order).status == 201
    return secret


@pytest.fixture
def tried(shop, key, visit):
    """A page that is signed in with it."""

    def sign_in_to_try(**options):
        page = visit(shop.url, **options)
        page.add_init_script("window.print = () => {}")
        page.reload()
        sign_in(page, key)
        wait_for_rows(page)
        return page

    return sign_in_to_try


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320])
def test_every_view_has_a_band_that_says_nothing_is_real(tried, scheme, width):
    page = tried(color_scheme=scheme, viewport={"width": width, "height": 700})
    band = page.get_by_role("complementary", name="Test mode")
    for place in ("orders", "new", "orders/1", "figures", "key"):
        go_to(page, place)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(band).to_have_text("Test mode: these orders aren't real")
        page.mouse.wheel(0, 2_000)
        expect(band).to_be_in_viewport()
        box = band.bounding_box()
        assert (box["x"], box["width"]) == (0, page.evaluate("document.body.clientWidth"))
    no_violations(page)
    # It covers nothing of the frame.
    page.evaluate("scrollTo(0, 0)")
    assert page.locator(".bar .mark").bounding_box()["y"] >= box["height"]


def test_a_key_of_the_shop_shows_no_band(at_desk):
    expect(at_desk().locator("#mode")).to_be_hidden()


def printed(page, file):
    page.pdf(path=file, prefer_css_page_size=True)
    command = [installed("pdftotext", package="poppler-utils"), str(file), "-"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", ["one a page", "two a page", "Address labels"])
def test_each_slip_and_label_says_test(tried, tmp_path, kind):
    page = tried()
    press(page, "Slips and labels")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(kind).check()
    dialog.get_by_role("button", name="Print", exact=True).click()
    expect(dialog).to_be_hidden()
    text = printed(page, tmp_path / "print.pdf")
    for number in (1, 2, 3):
        assert f"TEST: Order {number}" in text


def test_the_packing_list_and_a_printed_page_say_so(tried, tmp_path):
    page = tried()
    assert "TEST: Packing list" in printed(page, tmp_path / "list.pdf")
    go_to(page, "orders/1")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 1")
    assert "Test mode: these orders" in printed(page, tmp_path / "page.pdf")


def test_shipping_in_test_mode_ships_no_order_of_the_shop(shop, key, visit):
    page = visit(shop.url)
    sign_in(page, key)
    wait_for_rows(page)
    order_id = shop.place()
    kept = '[{"id": 2, "name": "pressed", "isUncertain": false}]'
    page.evaluate("kept => sessionStorage.setItem('test outbox', kept)", kept)
    page.evaluate("localStorage.setItem('test left', '[2]')")
    page.evaluate(
        "import('/console/session.js').then(({ session }) => session.end({ keeps: true }))"
    )
    assert page.evaluate("sessionStorage.getItem('test outbox')") == kept
    page.reload()
    _, secret = shop.store.issue()
    sign_in(page, secret)
    wait_for_rows(page)
    expect(page.locator("#shipping")).to_be_hidden()
    assert shop.order(2)["status"] == shop.order(order_id)["status"] == "pending"
