"""The console in a real browser: accessible views that keep their place, within the limits."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from orders.apikeys import SCOPES
from tests.support.browser import expect, no_violations
from tests.support.console import go_to, press, row, sign_in, too_wide, wait_for_rows

pytestmark = pytest.mark.browser

SHOP = {"orders": 130}
WIDE = {"width": 1360, "height": 900}
OWNER = {"scopes": SCOPES}
PHONE = {"width": 360, "height": 740}
# A pet with an order of each status, for axe-core, which takes seconds for a list of 50.
FEW = 815
VIEWS = ("orders", "orders?status=all", "orders/1", "orders/2", "new", "figures", "key", "webhooks")
# Views that only administrators see.
ADMIN_VIEWS = ("keys", "import", "backups")


def show(page, view):
    """Go to a view, and wait until it is shown."""
    go_to(page, view)
    # The previous view stays until the code of this one is loaded.
    name = "order" if view.startswith("orders/") else view.partition("?")[0]
    content = "table, .facts, .picture, form.place, .blank"
    expect(page.locator(f".view.{name}").locator(content).first).to_be_visible()


@pytest.fixture(scope="module")
def shop(shop):
    """A shop with orders of each status."""
    shop.cancel(5)
    for change in (shop.ship, shop.cancel, shop.order):
        change(shop.place(FEW))
    return shop


LOOKS = [
    # The others take minutes.
    pytest.param(
        scheme,
        width,
        marks=[] if (scheme, width) in {("light", 1440), ("dark", 320)} else pytest.mark.slow,
    )
    for scheme in ("light", "dark")
    for width in (1440, 1024, 390, 320)
]


@pytest.mark.parametrize(("color_scheme", "width"), LOOKS)
def test_every_view_is_accessible(at_desk, color_scheme, width):
    look = {"viewport": {"width": width, "height": 800}, "color_scheme": color_scheme}
    page = at_desk(OWNER, **look, refusals=(404,))

    def check():
        no_violations(page)
        assert not too_wide(page), page.url

    for view in (f"orders?status=all&pet={FEW}", *VIEWS[2:]):
        show(page, view)
        check()
    for blank in ("orders?pet=999999", "orders/999999"):
        show(page, blank)
        expect(page.locator(".blank")).to_be_visible()
        check()
    go_to(page, "figures")
    page.get_by_text("Show as a table").click()
    check()
    go_to(page, "orders/2")
    press(page, "Change")
    check()
    for question in ("Already shipped", "Cancel order"):
        go_to(page, "orders/3")
        press(page, question)
        check()
        page.keyboard.press("Escape")
    go_to(page, f"orders?pet={FEW}")
    page.get_by_text("Filter and sort").click()
    page.get_by_role("checkbox", name=re.compile("^Choose order")).click()
    check()
    press(page, "Ship 1 order")
    check()
    press(page, "Not yet")
    page.get_by_role("button", name=re.compile("^Ship order")).click()
    check()
    page.locator("#shipping").get_by_role("button", name="Undo").click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme=color_scheme)
    expect(page.get_by_role("heading", name="Packing list")).to_be_visible()
    check()
    page.emulate_media(media="screen", color_scheme=color_scheme)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    press(page, "Sign out")
    check()


@pytest.mark.parametrize(("color_scheme", "width"), LOOKS)
def test_every_view_of_administrators_is_accessible(at_desk, color_scheme, width):
    page = at_desk(
        {"scopes": SCOPES},
        viewport={"width": width, "height": 800},
        color_scheme=color_scheme,
        refusals=(409,),
    )
    for view in ADMIN_VIEWS:
        show(page, view)
        no_violations(page)
        assert not too_wide(page), view


def test_touch_targets_are_large_enough_on_a_phone_and_text_of_double_size_fits(at_desk):
    page = at_desk(OWNER, viewport=PHONE, has_touch=True, refusals=(409,))
    for view in (*VIEWS, *ADMIN_VIEWS):
        show(page, view)
        small = page.evaluate("""
            [...document.querySelectorAll("a, button, input, select, summary")]
                .filter((each) => each.checkVisibility() && !each.matches(".skip"))
                .map((each) => [each.outerHTML.slice(0, 80), each.closest("label") ?? each])
                .map(([text, each]) => [text, each.getBoundingClientRect()])
                .filter(([, box]) => box.height && (box.height < 43.9 || box.width < 43.9))
                .map(([text, box]) => `${text} ${box.width} x ${box.height}`)
        """)
        assert small == [], view
    page.set_viewport_size({"width": 640, "height": 800})
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    for view in VIEWS:
        show(page, view)
        assert not too_wide(page), view


@pytest.mark.parametrize("height", [740, 360])
@pytest.mark.parametrize("width", [320, 390, 600, 768])
def test_an_administrators_whole_menu_is_visible_on_phones_and_covers_nothing(
    at_desk, width, height
):
    page = at_desk(OWNER, viewport={"width": width, "height": height})
    menu = page.get_by_role("navigation", name="Main")
    expect(menu.get_by_role("link")).to_have_count(8)
    if width > 320:
        page.evaluate("document.documentElement.style.fontSize = '120%'")
    assert menu.evaluate("(nav) => nav.scrollWidth <= nav.clientWidth")
    page.keyboard.press("Home")
    for link in menu.get_by_role("link").all():
        expect(link).to_be_in_viewport(ratio=1)
    last = page.locator("tbody tr").last
    expect(last).to_be_visible()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(last).to_be_in_viewport(ratio=1)
    boxes = [each.bounding_box() for each in (last, menu)]
    assert boxes[1]["y"] < 0 or boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]


def test_nothing_moves_if_reduced_motion_is_preferred(shop, at_desk):
    page = at_desk(reduced_motion="reduce")
    shop.place()
    press(page, "Refresh")
    show(page, "figures")
    assert page.evaluate("document.getAnimations().length") == 0


def test_pages_keep_their_place_through_back_and_reload(at_desk):
    page = at_desk(viewport=WIDE)
    show(page, "orders?status=all&sort=placedAt")
    expect(page.locator("tbody tr").first).to_have_attribute("data-id", "1")
    press(page, "Next page")
    expect(page.locator(".pages")).to_contain_text("Page 2")
    expect(row(page, 51)).to_be_visible()
    page.reload()
    expect(page.locator(".pages")).to_contain_text("Page 2")
    row(page, 90).scroll_into_view_if_needed()
    scrolled = page.evaluate("scrollY")
    row(page, 90).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 90")
    page.get_by_role("link", name="Orders").last.click()
    expect(page.locator(".pages")).to_contain_text("Page 2")
    expect(row(page, 90)).to_be_in_viewport()
    assert abs(page.evaluate("scrollY") - scrolled) < 100
    press(page, "Previous page")
    expect(row(page, 1)).to_be_visible()
    expect(page.locator(".pages")).to_contain_text("Page 1")
    page.go_back()
    expect(row(page, 51)).to_be_visible()


def test_filters_are_part_of_the_address_and_a_number_leads_to_its_order(
    at_desk,
):
    page = at_desk(refusals=(422,))
    page.get_by_text("Filter and sort").click()
    page.get_by_label("Placed from").fill("2001-01-01")
    page.get_by_label("Placed to").fill("2001-12-31")
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_role("heading", name="No orders found")).to_be_visible()
    expect(page.locator(".badge")).to_have_text("2 active")
    page.reload()
    expect(page.get_by_role("heading", name="No orders found")).to_be_visible()
    no_violations(page)
    page.get_by_role("link", name="Show all orders").click()
    wait_for_rows(page)
    page.get_by_role("searchbox").fill("#17")
    press(page, "Search")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 17")
    # A cursor that is not valid leads to the first page.
    go_to(page, "orders?status=all&after=WzQxLCI5ZjhlIl0")
    wait_for_rows(page)
    expect(page).to_have_url(re.compile(r"#/orders\?status=all$"))


def test_a_late_answer_changes_nothing(at_desk):
    page = at_desk()
    late = []
    page.route("**/v2/store/orders?*status=cancelled*", lambda route: late.append(route))  # noqa: PLW0108 - Playwright marks it
    page.get_by_role("link", name="Cancelled").click()
    page.get_by_role("link", name="Shipped").click()
    expect(row(page, 1)).to_be_visible()
    for route in late:
        # The page has cancelled the request, as it should; otherwise the answer arrives now.
        with suppress(Exception):
            route.continue_()
    page.wait_for_timeout(300)
    assert late
    expect(row(page, 1)).to_be_visible()
    expect(row(page, 5)).to_have_count(0)


def test_the_figures_are_charts_and_a_table_and_the_keys_limits_are_bars(shop, at_desk):
    page = at_desk({"plan": "pro"})
    stats = shop.api("GET", "/v2/store/stats?days=7").json()
    show(page, "figures")
    for days in ("90", "7"):
        page.get_by_role("link", name=f"{days} days").click()
        expect(page.locator("details tbody tr")).to_have_count(int(days))
        assert page.locator(".chart").first.locator("rect.placed").count() == int(days)
    today = stats["days"][-1]
    picture = page.get_by_role("img", name=re.compile("^Placed, by day"))
    expect(picture.locator("desc")).to_contain_text(f"{today['placed']} in 7 days.")
    page.get_by_text("Show as a table").click()
    cells = page.locator("details tbody tr").first.locator("td").all_inner_texts()
    assert cells == [str(today[name]) for name in ("placed", "shipped", "cancelled")]
    status = page.get_by_role("img", name=re.compile("^Orders by status"))
    expect(status.locator("desc")).to_contain_text(f"To ship: {stats['byStatus']['pending']}")
    show(page, "key")
    expect(page.get_by_role("img", name=re.compile("Per minute: .* of 300"))).to_be_visible()
    minute, day = page.locator(".window").all()
    expect(minute).to_contain_text("of 300 left")
    expect(day).to_contain_text("of 10,000 left")
    expect(day).to_contain_text("Resets in")
    expect(page.locator("#view .facts")).to_contain_text("pro")


def test_an_empty_shop_sees_how_to_get_started(start, tmp_path, visit):
    service = start()
    page = visit(service.url)
    sign_in(page, service.issue())
    expect(page.get_by_role("heading", name="No orders yet")).to_be_visible()
    no_violations(page)
    page.get_by_role("link", name="New order").last.click()
    page.get_by_label("Pet number").fill("1")
    press(page, "Place order")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Order 1")


PAUSE = """
async ([minute, day, spent]) => {
    const { pause } = await import("/console/watch.js");
    const resets = 1e12 + 86_400_000;
    const windows = { minute: { limit: minute }, day: { limit: day, remaining: day, resets } };
    return pause(windows, 1e12, spent);
}
"""
# The number of requests in a day of polling.
A_DAY = """
async ([limit, minute]) => {
    const { pause } = await import("/console/watch.js");
    let [now, spent, day] = [0, 0, { limit, remaining: limit, resets: 86_400_000 }];
    while (now < day.resets) {
        now += 1000 * pause({ minute: { limit: minute }, day }, now, { spent, round: 3 });
        spent += 3;
        day.remaining -= 3;
    }
    return spent;
}
"""


def test_the_polling_interval_depends_on_the_plan(shop, visit):
    page = visit(shop.url)

    def pause(minute, day, **spent):
        return page.evaluate(PAUSE, [minute, day, spent])

    assert pause(1_000, 100_000) == 4
    # A quarter of the day: 250 and 2,500 requests.
    assert pause(60, 1_000) == pytest.approx(86_400 / 250)
    assert pause(300, 10_000) == pytest.approx(86_400 / 2_500)
    # A tenth of the minute, where a poll was followed by two more requests.
    assert pause(60, 10**9, round=3) == 30
    assert pause(60, 1_000, spent=125) == pytest.approx(86_400 / 125)
    assert pause(60, 1_000, spent=400) == 86_400
    assert pause(1_000, 100_000, hidden=True) == 60
    # Over a whole day, between a tenth and a quarter of all requests.
    for limit, minute in ((1_000, 60), (10_000, 300), (100_000, 1_000)):
        requests = page.evaluate(A_DAY, [limit, minute])
        assert limit / 10 < requests <= limit / 4 + 3
