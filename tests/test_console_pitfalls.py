"""The console in a real browser: what is easily got wrong and does harm, in a short visit each."""

from __future__ import annotations

import pytest
from console_desk import desk_shop, sign_in, wait_for_rows
from real_browser import expect

pytestmark = pytest.mark.browser

UNFINISHED = "Finish the date, or clear it."


@pytest.fixture(scope="module")
def shop(tmp_path_factory, empty_database):
    folder = tmp_path_factory.mktemp("pitfalls") / "instance"
    with desk_shop(folder, empty_database, orders=4) as one:
        yield one


@pytest.fixture
def at_desk(shop, visit):
    """Sign in on a visit with these options; give the page."""

    def sit_down(**options):
        page = visit(shop.url, **options)
        sign_in(page, shop.store.issue()[1])
        wait_for_rows(page)
        return page

    return sit_down


def begin_a_date(page, label):
    """Type a day into a field of a date, and not the rest of it."""
    page.get_by_label(label).focus()
    page.keyboard.type("24")


def test_a_date_that_is_half_there_never_means_now_or_none(shop, at_desk):
    page = at_desk()
    before = shop.count()
    page.get_by_role("button", name="Ship order 2").click()
    begin_a_date(page, "Shipped at")
    page.get_by_role("button", name="Ship it").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(UNFINISHED)
    expect(page.get_by_label("Shipped at")).to_be_focused()
    assert shop.order(2)["status"] == "pending"
    page.get_by_role("button", name="Not yet").click()

    page.evaluate("location.hash = '#/new'")
    page.get_by_label("Pet number").fill("7")
    begin_a_date(page, "Ships on")
    page.get_by_role("button", name="Place the order").click()
    expect(page.get_by_text(UNFINISHED).filter(visible=True)).to_be_visible()
    expect(page.get_by_label("Ships on")).to_be_focused()
    assert shop.count() == before

    page.evaluate("location.hash = '#/orders'")
    page.get_by_text("Filter and sort").click()
    begin_a_date(page, "Ships until")
    # Nobody sees any more what was begun, and searches for something else.
    page.get_by_text("Filter and sort").click()
    page.get_by_role("searchbox").fill("R-3")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Ships until")).to_be_focused()
    assert page.url == f"{shop.url}/#/orders"


def test_an_address_that_names_what_every_object_has_leads_to_the_orders(shop, at_desk):
    page = at_desk(refusals=(422,))
    for name in ("constructor", "__proto__", "toString"):
        page.evaluate("name => { location.hash = `#/${name}` }", name)
        expect(page).to_have_url(f"{shop.url}/#/orders")
        wait_for_rows(page)
    page.evaluate("location.hash = '#/orders?status=all&sort=constructor'")
    expect(page.locator("tbody tr")).to_have_count(shop.count())
    page.evaluate("location.hash = '#/orders?status=constructor'")
    expect(page.locator("#view").get_by_role("alert")).to_be_visible()
    page.evaluate("location.hash = '#/figures'")
    expect(page.locator(".picture").first).to_be_visible()
