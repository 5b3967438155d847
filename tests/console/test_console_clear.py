"""The console in a real browser: what could mislead whoever reads, prints or waits."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    go_to,
    press,
    row,
    too_wide,
)

pytestmark = pytest.mark.browser

SHOP = {"orders": 4}
LONG_NOTE = "Wrap it as a gift, and leave it with the neighbour, who is in from nine to five. " * 5

# Which cells of the packing list but the customers' texts are on more than one line.
BROKEN = """
[...document.querySelectorAll("#packing :is(th, td:not(:has(bdi)))")].filter((each) => {
    const text = document.createRange();
    text.selectNodeContents(each);
    return new Set([...text.getClientRects()].map(({ top }) => Math.round(top))).size > 1;
}).map((each) => each.textContent)
"""


def test_numbers_on_the_packing_list_never_break_and_a_long_note_has_its_own_width(shop, at_desk):
    order_id = shop.place(7777, quantity=1234, note=LONG_NOTE, shipDate="2020-02-03T08:00:00Z")
    for number in range(30):
        shop.place(7777, reference=f"WEB-{10040 + number}", note="Gift wrap")
    page = at_desk()
    expect(row(page, order_id)).to_be_visible()
    # A4 without its margins.
    page.set_viewport_size({"width": 718, "height": 1000})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator("#packing")).to_contain_text("No. 7777")
    assert page.evaluate(BROKEN) == []
    assert not too_wide(page)
    note = page.locator("#packing td", has_text="neighbour").bounding_box()
    assert note["width"] > 200
    assert page.pdf(format="A4").count(b"/Type /Page\n") == 2


def test_a_note_that_is_cut_ends_in_an_ellipsis(shop, at_desk):
    order_id = shop.place(note=LONG_NOTE)
    page = at_desk()
    note = row(page, order_id).locator(".note")
    assert note.evaluate("each => each.scrollHeight > each.clientHeight")
    expect(note).to_have_css("-webkit-line-clamp", "2")


def test_what_is_current_differs_in_forced_colours(at_desk):
    page = at_desk(forced_colors="active")
    page.get_by_role("link", name="Late").click()
    for parts in ("nav[aria-label=Main] a", ".dues a"):
        expect(page.locator(f"{parts}[aria-current]")).to_have_count(1)
        looks = [
            page.locator(f"{parts}{state}")
            .first.evaluate("each => getComputedStyle(each).backgroundColor")
            for state in ("[aria-current]", ":not([aria-current])")
        ]
        assert looks[0] != looks[1], parts
    page.get_by_role("link", name="Shipped").click()
    tab = page.locator(".tab[aria-current]")
    expect(tab).to_contain_text("Shipped")
    others = page.locator(".tab:not([aria-current])").first
    background = "each => getComputedStyle(each).backgroundColor"
    assert tab.evaluate(background) != others.evaluate(background)


def test_a_row_that_is_shipping_fits_and_the_table_stays_one_beside_a_scroll_bar(shop, at_desk):
    shop.place(note=LONG_NOTE, shipDate="2020-02-03T08:00:00Z")
    page = at_desk(viewport={"width": 1280, "height": 800})
    press(page, "Ship order 2")
    expect(row(page, 2)).to_contain_text("Shipping…")
    for width in (1280, 1265):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator("thead")).to_be_in_viewport()
        table = "document.querySelector('table').scrollWidth"
        assert page.evaluate(f"{table} <= document.querySelector('.results').clientWidth"), width
    press(page, "Undo shipping order 2")


def test_after_a_conflict_the_focus_is_on_what_it_says_and_then_on_what_was_taken(shop, at_desk):
    page = at_desk(refusals=(412, 422))
    order_id = shop.place(note="as it was")
    go_to(page, f"orders/{order_id}")
    press(page, "Change")
    page.get_by_label("Note").fill("mine")
    assert shop.api("PATCH", f"{ORDERS}/{order_id}", json={"note": "theirs"}).status == 200
    press(page, "Save")
    expect(page.get_by_role("alert").filter(has_text="Note is now theirs")).to_be_focused()
    press(page, "Use that note")
    expect(page.get_by_label("Note")).to_be_focused()
    expect(page.get_by_label("Note")).to_have_value("theirs")
