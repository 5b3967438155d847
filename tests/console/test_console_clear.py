"""The console in a real browser: what could mislead whoever reads, prints or waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    PLENTY,
    announced,
    go_to,
    press,
    row,
    sign_in,
    too_wide,
)

pytestmark = pytest.mark.browser

SHOP = {"orders": 4, "ORDERS_BAN_AFTER": "5"}
LIMITED = {"plan": "enterprise", "per_minute": 60, "per_day": 60}
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
    assert note["width"] > 500
    assert page.pdf(format="A4").count(b"/Type /Page\n") <= 3


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
            page.locator(f"{parts}{state}").first.evaluate(
                "each => getComputedStyle(each).backgroundColor"
            )
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
    row(page, 2).get_by_role("button").click()
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


def test_what_is_late_goes_by_the_services_clock_where_the_computers_is_wrong(shop, visit):
    soon = f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"
    order_id = shop.place(reference="soon", shipDate=soon)
    page = visit(shop.url)
    page.clock.install(time=datetime.now(UTC) + timedelta(days=3))
    sign_in(page, shop.store.issue(**PLENTY)[1])
    expect(row(page, order_id)).to_be_visible()
    expect(row(page, order_id)).not_to_contain_text("late")
    expect(row(page, order_id).locator(".placed")).to_contain_text("Today")
    wrong = page.locator("#banner-clock")
    expect(wrong).to_contain_text("This computer's clock is 3 days ahead of the service's")
    no_violations(page)


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "api_key_banned"])
def test_a_limit_that_an_administrator_lifts_ends_on_the_page_as_well(shop, at_desk, code):
    page = at_desk(LIMITED, refusals=(429,), is_clock_ours=True)
    while shop.api("GET", "/v2/usage", key=page.secret).json().get("code") != code:
        pass
    page.get_by_role("link", name="Figures").click()
    expect(page.locator("#banner-limits")).to_contain_text("Available again")
    if code == "api_key_banned":
        shop.service.command("keys", "unban", f"{page.key_id}")
    shop.service.command("keys", "plan", f"{page.key_id}", "business")
    page.clock.run_for(31_000)
    expect(page.locator(".picture").first).to_be_visible()
    expect(page.locator("#banner-limits")).to_have_count(0)
    expect(page.get_by_role("button", name="Refresh")).to_be_enabled()


def test_the_history_names_ones_own_key_and_tells_it_from_others(shop, at_desk):
    page = at_desk({"name": "the counter"})
    mine = {"json": {"note": "mine"}, "key": page.secret}
    order_id = shop.place()
    assert shop.api("PATCH", f"{ORDERS}/{order_id}", **mine).status == 200
    go_to(page, f"orders/{order_id}")
    steps = page.locator(".timeline li")
    expect(steps.first).to_contain_text("with another key (no. 1)")
    expect(steps.last).to_contain_text("with your key, the counter")


def test_a_pasted_tab_becomes_a_blank(shop, at_desk):
    page = at_desk()
    go_to(page, "new")
    page.get_by_label("Pet number").fill("61")
    page.get_by_label("Note").fill("2\tpieces\nred\vblue")
    press(page, "Place order")
    announced(page, "placed")
    press(page, "Change")
    expect(page.get_by_label("Note")).to_have_value("2 pieces\nred blue")
    page.get_by_label("Note").fill("3\tpieces")
    press(page, "Save")
    expect(page.locator("#view .facts")).to_contain_text("3 pieces")


# To the browser, each script of Playwright's is a touch: here, only a person's click is one.
TOUCHED = """
let isTouched = false;
addEventListener("pointerdown", () => { isTouched = true; }, true);
Object.defineProperty(UserActivation.prototype, "hasBeenActive", { get: () => isTouched });
"""


def test_a_sound_that_the_browser_blocks_after_a_reload_is_told_until_somebody_clicks(at_desk):
    page = at_desk()
    page.add_init_script(TOUCHED)
    go_to(page, "key")
    page.get_by_label("Play a sound").check()
    page.reload()
    told = page.locator("#banner-sound")
    expect(told).to_contain_text("New orders make no sound until you click")
    page.get_by_role("heading", level=1).click()
    expect(told).to_have_count(0)
