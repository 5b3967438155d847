"""The console follows the events: by one stream for all tabs, or by polling."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.browser import expect
from tests.support.console import desk_shop, figure, next_poll, row, ship, sign_in
from tests.support.machine import wait_until
from tests.support.service import running

pytestmark = pytest.mark.browser

SHOP = {"orders": 3}


def streams(page):
    """Return how many streams all tabs have opened: each asks for one event."""
    return sum("/store/events?" in url and url.endswith("&limit=1") for url in page.requested)


def test_tabs_share_one_stream_which_another_tab_takes_over(shop, at_desk):
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
    # Neither the messages between tabs nor the names of what they share contain a key.
    held = tab.evaluate("navigator.locks.query()")["held"]
    assert [each["name"] for each in held if page.secret in each["name"]] == []
    assert len(held) == 1
    # Nothing is sent or received any more.
    tab.get_by_role("button", name="Sign out").click()
    wait_until(lambda: tab.evaluate("navigator.locks.query()")["held"] == [])


def test_a_refused_stream_is_replaced_by_polling_and_a_broken_one_is_reopened(shop, at_desk):
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


def test_a_change_whose_event_arrives_before_its_response_is_counted_once(shop, at_desk):
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


# The page's view of being hidden by another tab.
HIDING = """
Object.defineProperty(document, "hidden", { get: () => Boolean(window.isAway) });
window.hide = (isAway) => {
    window.isAway = isAway;
    document.dispatchEvent(new Event("visibilitychange"));
};
"""
LIVE, POLLS = "live", "next check in"


def hide(page, *, is_away=True):
    page.evaluate(f"hide({str(is_away).lower()})")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ({"plan": "free"}, POLLS),
        # A request a minute is less than a quarter of the one, and more than that of the other.
        ({"plan": "enterprise", "per_minute": 100, "per_day": 6_000}, LIVE),
        ({"plan": "enterprise", "per_minute": 100, "per_day": 5_000}, POLLS),
        ({"plan": "pro"}, LIVE),
    ],
    ids=["free", "6000", "5000", "pro"],
)
def test_a_stream_is_read_where_it_uses_no_more_of_the_daily_limit_than_polling(
    shop, at_desk, key, said
):
    page = at_desk(key)
    expect(page.locator("#updated")).to_contain_text(said)
    assert streams(page) == (said == LIVE)


def test_a_hidden_page_of_a_small_plan_polls_and_shown_again_it_has_missed_nothing(shop, at_desk):
    page = at_desk({"plan": "pro"}, before=lambda page: page.add_init_script(HIDING))
    busy = at_desk({"plan": "business"}, before=lambda page: page.add_init_script(HIDING))
    for each in (page, busy):
        expect(each.locator("#updated")).to_contain_text(LIVE)
        hide(each)
    expect(page.locator("#updated")).to_contain_text(POLLS)
    placed = shop.place()
    # With a plan for which streams are cheap, it goes on: new orders are announced at once.
    expect(row(busy, placed)).to_be_visible()
    expect(busy.locator("#updated")).to_contain_text(LIVE)
    expect(row(page, placed)).to_have_count(0)
    hide(page, is_away=False)
    expect(row(page, placed)).to_be_visible()
    expect(page.locator("#updated")).to_contain_text(LIVE)


def test_without_locks_only_visible_tabs_read_streams(shop, visit):
    # A browser has six connections to a service for all tabs.
    address = shop.url.replace("127.0.0.1", "shop.test")
    page = visit(address, before=lambda page: page.context.add_init_script(HIDING))
    assert page.evaluate("[isSecureContext, typeof navigator.locks]") == [False, "undefined"]
    _, secret = shop.store.issue()
    tabs = [page, *(page.context.new_page() for _ in range(7))]
    for tab in tabs:
        tab.goto(address)
        sign_in(tab, secret)
        expect(tab.locator("#updated")).to_contain_text(LIVE)
        hide(tab)
        expect(tab.locator("#updated")).to_contain_text(POLLS)
    placed = shop.place()
    for tab in (tabs[0], tabs[-1]):
        hide(tab, is_away=False)
        expect(row(tab, placed)).to_be_visible()
        expect(tab.locator("#updated")).to_contain_text(LIVE)


def test_a_service_that_falls_silent_is_followed_again_once_it_is_back(visit, tmp_path, forks):
    with desk_shop(tmp_path / "instance", orders=3, forks=forks) as shop:
        page = visit(shop.url, loses=True)
        page.clock.install()
        sign_in(page, shop.store.issue()[1])
        updated = page.locator("#updated")
        expect(updated).to_contain_text(LIVE)
        # As after sleep or a lost network: the end of the stream never arrives.
        os.kill(shop.service.process.pid, signal.SIGSTOP)
        page.clock.fast_forward(21_000)
        expect(updated).not_to_contain_text(LIVE)
        os.kill(shop.service.process.pid, signal.SIGCONT)
        placed = shop.place()
        page.clock.run_for(3_000)
        expect(updated).to_contain_text(LIVE)
        expect(row(page, placed)).to_be_visible()


def test_back_online_and_awake_a_page_is_live_again_and_has_missed_nothing(shop, at_desk):
    page = at_desk(loses=True)
    updated = page.locator("#updated")
    browser = page.context.new_cdp_session(page)
    browser.send("Network.enable")
    for away in (
        page.context.set_offline,
        lambda is_away: browser.send(
            "Page.setWebLifecycleState", {"state": "frozen" if is_away else "active"}
        ),
    ):
        expect(updated).to_contain_text(LIVE)
        away(True)
        placed = shop.place()
        away(False)
        expect(row(page, placed)).to_be_visible()
        expect(updated).to_contain_text(LIVE)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_service_that_restarts_is_followed_again_within_three_seconds_and_nothing_is_missed(
    visit, tmp_path, forks, end
):
    with desk_shop(tmp_path / "instance", orders=3, forks=forks) as shop:
        page = visit(shop.url, loses=True)
        page.clock.install()
        sign_in(page, shop.store.issue()[1])
        updated = page.locator("#updated")
        expect(updated).to_contain_text(LIVE)
        getattr(shop.service, end)()
        expect(updated).not_to_contain_text(LIVE)
        # The page keeps retrying.
        page.clock.run_for(60_000)
        page.clock.pause_at(page.evaluate("Date.now() / 1000 + 0.01"))
        port = str(shop.service.address[1])
        instance = shop.store.settings.instance
        with running(instance, forks=forks, ORDERS_PORT=port) as shop.service:
            # Before the page is back.
            placed = shop.place()
            page.clock.run_for(3_000)
            expect(updated).to_contain_text(LIVE)
            expect(row(page, placed)).to_be_visible()
