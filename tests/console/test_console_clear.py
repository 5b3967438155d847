"""The console in a real browser: details that could mislead people who read, print or wait."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    PLENTY,
    announced,
    go_to,
    next_poll,
    press,
    requests_of,
    row,
    send_now,
    sign_in,
    too_wide,
)
from tests.support.machine import wait_until

pytestmark = pytest.mark.browser

SHOP = {"orders": 4, "ORDERS_BAN_AFTER": "5"}
LIMITED = {"plan": "enterprise", "per_minute": 60, "per_day": 60}
LONG_NOTE = "Wrap it as a gift, and leave it with the neighbour, who is in from nine to five. " * 5

# The cells of the packing list, except customers' texts, that are on more than one line.
BROKEN = """
[...document.querySelectorAll("#packing :is(th, td:not(:has(bdi)))")].filter((each) => {
    const text = document.createRange();
    text.selectNodeContents(each);
    return new Set([...text.getClientRects()].map(({ top }) => Math.round(top))).size > 1;
}).map((each) => each.textContent)
"""


def test_numbers_on_the_packing_list_never_break_and_a_long_note_has_its_own_width(shop, at_desk):
    shop.place(7777, quantity=1234, note=LONG_NOTE, shipDate="2020-02-03T08:00:00Z")
    for number in range(30):
        shop.place(7777, reference=f"WEB-{10040 + number}", note="Gift wrap")
    page = at_desk()
    go_to(page, "orders?pet=7777")
    expect(page.locator("tbody tr")).to_have_count(31)
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


# The numbers in the list that wrap, and whether the list is cut off on the right.
SQUEEZED = """
() => [
    [...document.querySelectorAll("tbody td:is(.order, .pet, .quantity)")].filter((each) => {
        const tops = new Set();
        const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) {
            const text = document.createRange();
            text.selectNode(texts.currentNode);
            for (const { top } of text.getClientRects()) tops.add(Math.round(top));
        }
        return tops.size > 1;
    }).map((each) => each.textContent),
    document.querySelector("table").scrollWidth > document.querySelector("table").offsetWidth,
]
"""


def test_numbers_in_the_list_never_break_whatever_the_notes_and_references_are(shop, at_desk):
    with closing(sqlite3.connect(shop.database)) as database, database:
        database.execute("UPDATE sqlite_sequence SET seq = 1234566 WHERE name = 'orders'")
    order = {"quantity": 1234567, "shipDate": "2099-02-03T08:00:00Z"}
    order_id = shop.place(1234567, reference="W" * 64, note="x" * 500, **order)
    shop.place(1234567, reference="WEB-10040", note=LONG_NOTE, **order)
    page = at_desk()
    go_to(page, "orders?pet=1234567")
    expect(row(page, order_id)).to_contain_text("1,234,567")
    # From the narrowest table to cards.
    for width in (1600, 1360, 1280, 1262, 900, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(SQUEEZED) == [[], False], width


def test_a_note_that_is_cut_ends_in_an_ellipsis(shop, at_desk):
    order_id = shop.place(note=LONG_NOTE)
    page = at_desk()
    note = row(page, order_id).locator(".note")
    assert note.evaluate("each => each.scrollHeight > each.clientHeight")
    expect(note).to_have_css("-webkit-line-clamp", "2")


# The lowest contrast of a part's texts with their background, as WCAG 2.2 defines it.
CONTRAST = """
(part) => {
    const light = (color) => {
        const [red, green, blue] = color.match(/[\\d.]+/g).map((each) => {
            const share = each / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const behind = (each) => {
        const color = getComputedStyle(each).backgroundColor;
        return /^rgba.*, 0\\)$/.test(color) ? behind(each.parentElement) : color;
    };
    return Math.min(...[part, ...part.querySelectorAll("b, span")].map((each) => {
        const both = [light(getComputedStyle(each).color), light(behind(each))];
        return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    }));
}
"""


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_what_is_current_differs_and_is_legible_in_forced_colours(at_desk, color_scheme):
    page = at_desk(forced_colors="active", color_scheme=color_scheme)
    background = "each => getComputedStyle(each).backgroundColor"
    for link, parts in (
        ("Late", "nav[aria-label=Main] a"),
        ("Late", ".dues a"),
        ("Shipped", ".tab"),
    ):
        page.get_by_role("link", name=link).click()
        current = page.locator(f"{parts}[aria-current]")
        other = page.locator(f"{parts}:not([aria-current])").first
        expect(current).to_have_count(1)
        assert current.evaluate(background) != other.evaluate(background), parts
        for part in (current, other):
            assert part.evaluate(CONTRAST) >= 4.5, parts


# The number of lines of the texts of a part.
LINES = """
(part) => {
    const text = document.createRange();
    text.selectNodeContents(part);
    const middles = [...text.getClientRects()].map(({ top, bottom }) => (top + bottom) / 2);
    return Math.round((Math.max(...middles) - Math.min(...middles)) / 12) + 1;
}
"""


def test_each_due_date_and_its_number_are_on_one_line_at_320_px(at_desk):
    page = at_desk(viewport={"width": 320, "height": 640})
    # A wide font, or larger text.
    page.evaluate("document.documentElement.style.fontSize = '20px'")
    for each in page.locator(".dues a").all():
        # The highest number that it shows.
        each.locator("b").evaluate("number => { number.textContent = '200+'; }")
        assert each.evaluate(LINES) == 1, each.inner_text()
    assert not too_wide(page)


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


def test_after_a_conflict_the_focus_is_on_its_message_and_then_on_the_chosen_value(shop, at_desk):
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


def test_lateness_follows_the_services_clock_where_the_computers_is_wrong(shop, visit):
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
    # Idle time is measured by the computer's clock alone.
    page.reload()
    expect(wrong).to_be_visible()
    no_violations(page)


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "api_key_banned"])
def test_a_limit_that_an_administrator_lifts_ends_on_the_page_as_well(shop, at_desk, code):
    page = at_desk(LIMITED, refusals=(429,), is_clock_ours=True)
    while shop.api("GET", "/v2/usage", key=page.secret).json().get("code") != code:
        pass
    page.get_by_role("link", name="Figures").click()
    expect(page.locator("#banner-limits")).to_contain_text("Available again")
    if code == "api_key_banned":
        shop.service.output("keys", "unban", f"{page.key_id}")
    shop.service.output("keys", "plan", f"{page.key_id}", "business")
    wait_until(lambda: shop.api("GET", "/v2/usage", key=page.secret).status == 200)
    page.clock.run_for(31_000)
    expect(page.locator(".picture").first).to_be_visible()
    expect(page.locator("#banner-limits")).to_have_count(0)
    expect(page.get_by_role("button", name="Refresh")).to_be_enabled()


def test_the_history_names_keys(shop, at_desk):
    page = at_desk({"name": "the counter"})
    _, till = shop.store.issue(name="<b>the till</b>")
    mine = {"json": {"note": "mine"}, "key": page.secret}
    order_id = shop.place()
    assert shop.api("PATCH", f"{ORDERS}/{order_id}", **mine).status == 200
    go_to(page, f"orders/{order_id}")
    steps = page.locator(".timeline li")
    expect(steps.first).to_contain_text("with the key “")
    expect(steps.last).to_contain_text("with your key, the counter")
    # Also of a key that joins while the history is shown.
    assert shop.api("PATCH", f"{ORDERS}/{order_id}", key=till, json={"note": "its"}).status == 200
    expect(steps.last).to_contain_text("with the key “<b>the till</b>”")


def test_a_pasted_tab_becomes_a_space(shop, at_desk):
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


# The browser counts each Playwright script as a user action: here, only clicks count.
TOUCHED = """
let isTouched = false;
addEventListener("pointerdown", () => { isTouched = true; }, true);
Object.defineProperty(UserActivation.prototype, "hasBeenActive", { get: () => isTouched });
"""


def test_a_blocked_sound_is_announced_after_a_reload_until_somebody_clicks(at_desk):
    page = at_desk()
    page.add_init_script(TOUCHED)
    go_to(page, "key")
    page.get_by_label("Play a sound").check()
    page.reload()
    told = page.locator("#banner-sound")
    expect(told).to_contain_text("New orders make no sound until you click")
    page.get_by_role("heading", level=1).click()
    expect(told).to_have_count(0)


def at(**later):
    return (datetime.now(UTC) + timedelta(**later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_the_most_urgent_come_first_among_all_orders_and_are_counted(shop, at_desk):
    for number in range(202):
        shop.place(6, **({"shipDate": at(days=-2)} if number < 52 else {}))
    late, due = shop.place(6, shipDate=at(days=-9)), shop.place(6, shipDate=at(days=30))
    page = at_desk(PLENTY, timezone_id="UTC", is_clock_ours=True)
    assert page.locator("tbody tr").count() == 200
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    before = shop.count(status="pending", shipsBefore=at(days=-8))
    first = page.locator("#packing tbody").nth(before - 1)
    expect(first.locator("td").nth(1)).to_have_text(f"{late}")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    dues = page.locator(".dues")
    count = shop.count(status="pending", shipsBefore=at(days=0))
    expect(dues).to_contain_text(f"Late {count}")
    shop.place(6, shipDate=at(seconds=-1))
    next_poll(page)
    expect(dues).to_contain_text(f"Late {count + 1}")
    today = f"{datetime.now(UTC):%Y-%m-%d}T"
    due_today = shop.count(
        status="pending", shipsFrom=f"{today}00:00:00Z", shipsBefore=f"{today}23:59:59.999Z"
    )
    expect(dues).to_contain_text(f"Due today {due_today}")
    # Only late orders are read for the file.
    dues.get_by_role("link", name="Late").click()
    expect(page.locator("tbody tr")).to_have_count(50)
    with page.expect_download() as download:
        press(page, "CSV of all orders")
    with Path(download.value.path()).open(encoding="utf-8-sig", newline="") as file:
        assert len(list(csv.DictReader(file))) == count + 1
    assert "shipsBefore" in [url for url in page.requested if "limit=200" in url][-1]
    dues.get_by_role("link", name="No date").click()
    expect(page.locator("tbody td.ships .none")).to_have_count(
        min(200, shop.count(status="pending", dated="false"))
    )
    expect(row(page, due)).to_have_count(0)


def test_more_than_a_hundred_are_shipped_in_hundreds_and_named_once(shop, at_desk):
    for _ in range(101):
        shop.place(65, shipDate=at(days=-1))
    page = at_desk(PLENTY)
    go_to(page, "orders?pet=65")
    expect(page.locator("tbody tr")).to_have_count(101)
    page.locator("#choose-all").click()
    sent = requests_of(page)
    press(page, "Ship 101 orders")
    page.get_by_role("dialog").get_by_role("button", name="Ship 101 orders").click()
    announced(page, "Shipping 101 orders. You have 10 seconds to undo it.")
    send_now(page)
    expect(page.locator("#shipping")).to_be_hidden()
    assert sent.count("POST store/shipments") == 2
    assert shop.count(petId=65, status="shipped") == 101


def test_opening_an_order_and_coming_back_keeps_the_selection(shop, at_desk):
    shop.place(66), shop.place(66)
    page = at_desk()
    go_to(page, "orders?pet=66")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("#choose-all").click()
    page.locator("tbody a").first.click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    page.get_by_role("link", name="Orders").last.click()
    expect(page.locator(".found")).to_have_text("2 chosen")
    page.reload()
    expect(page.locator(".found")).to_have_text("2 chosen")


def test_a_number_that_is_also_a_reference_is_asked_about_and_can_be_made_explicit(shop, at_desk):
    other = shop.place(reference="3")
    page = at_desk()
    search = page.get_by_role("searchbox")
    search.fill("3")
    search.press("Enter")
    expect(page.locator(".found")).to_have_text(
        "Several orders have 3 as their number or reference. Which one?"
    )
    expect(row(page, 3)).to_be_visible()
    expect(row(page, other)).to_be_visible()
    search.fill("No. 3")
    search.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 3")
