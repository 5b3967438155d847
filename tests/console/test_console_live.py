"""The console follows the events: by one stream for all tabs, or by polling."""

from __future__ import annotations

import pytest

from tests.support.browser import expect
from tests.support.console import desk_shop, figure, next_poll, row, ship, sign_in
from tests.support.machine import wait_until
from tests.support.service import running

pytestmark = pytest.mark.browser

SHOP = {"orders": 3}


def streams(page):
    """Return how many streams this page and its neighbours have opened: they ask for one event."""
    return sum("/store/events?" in url and url.endswith("&limit=1") for url in page.requested)


def test_tabs_share_one_stream_which_another_goes_on_with(shop, at_desk):
    page = at_desk()
    updated = page.locator("#updated")
    expect(updated).to_contain_text("live")
    tab = page.context.new_page()
    tab.goto(shop.url)
    sign_in(tab, page.secret)
    expect(tab.locator("#updated")).to_contain_text("live")
    wait_until(lambda: len(tab.evaluate("navigator.locks.query()")["pending"]) == 1)
    placed = [shop.place()]
    for each in (page, tab):
        expect(row(each, placed[0])).to_be_visible()
    assert streams(page) == 1
    page.close()
    placed.append(shop.place())
    expect(row(tab, placed[1])).to_be_visible()
    expect(tab.locator("#updated")).to_contain_text("live")
    assert streams(page) == 2
    # What goes between the tabs, and the name of what they share, hold no key.
    held = tab.evaluate("navigator.locks.query()")["held"]
    assert [each["name"] for each in held if page.secret in each["name"]] == []
    assert len(held) == 1
    # Nobody hears any more, or is heard.
    tab.get_by_role("button", name="Sign out").click()
    wait_until(lambda: tab.evaluate("navigator.locks.query()")["held"] == [])


def test_a_refused_stream_is_done_without_and_a_broken_one_opened_again(shop, at_desk):
    def refuse(route):
        if route.request.headers["accept"] != "text/event-stream":
            return route.continue_()
        return route.fulfill(status=503, headers={"Retry-After": "5"})

    page = at_desk(
        is_clock_ours=True,
        loses=True,
        refusals=(503,),
        before=lambda page: page.route("**/store/events?*", refuse),
    )
    updated = page.locator("#updated")
    expect(updated).to_contain_text("next check in")
    placed = shop.place()
    next_poll(page)
    expect(row(page, placed)).to_be_visible()
    page.unroute("**/store/events?*")
    page.clock.run_for(20_000)
    expect(updated).to_contain_text("live")


def test_a_change_whose_event_is_here_before_its_answer_is_counted_once(shop, at_desk):
    order_id = shop.place(53)
    page = at_desk()
    expect(page.locator("#updated")).to_contain_text("live")
    pending = int(figure(page, "pending").inner_text())

    def last_seen():
        return page.evaluate("JSON.parse(sessionStorage.getItem('watch')).last")

    def answer_late(route):
        if route.request.method == "GET":
            return route.continue_()
        before = last_seen()
        answer = route.fetch()
        wait_until(lambda: last_seen() > before)
        return route.fulfill(response=answer)

    page.route("**/v2/**", answer_late)
    ship(page, order_id)
    expect(row(page, order_id)).to_contain_text("Shipped")
    expect(figure(page, "pending")).to_have_text(str(pending - 1))


def test_a_service_that_restarts_is_followed_again_and_nothing_is_missed(visit, tmp_path, forks):
    with desk_shop(tmp_path / "instance", orders=3, forks=forks) as shop:
        page = visit(shop.url, loses=True)
        sign_in(page, shop.store.issue()[1])
        updated = page.locator("#updated")
        expect(updated).to_contain_text("live")
        shop.service.kill()
        expect(updated).not_to_contain_text("live")
        port = str(shop.service.address[1])
        instance = shop.store.settings.instance
        with running(instance, forks=forks, ORDERS_PORT=port) as shop.service:
            # Before the page is back.
            placed = shop.place()
            expect(updated).to_contain_text("live")
            expect(row(page, placed)).to_be_visible()
