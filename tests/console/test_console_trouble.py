"""The console in a real browser, when something is wrong: every refusal in words, and a way on."""

from __future__ import annotations

import pytest

from orders.domain import EventType
from orders.webhooks import endpoints, messages
from orders.webhooks.endpoints import NewEndpoint
from tests.support import faults as real_faults
from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    desk_shop,
    in_plain_words,
    said,
    sign_in,
    wait_for_rows,
)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trouble") / "instance"
    with desk_shop(folder, orders=6, ORDERS_BAN_AFTER="5") as one:
        yield one


def alert(page):
    return page.get_by_role("alert").filter(visible=True)


def assert_told(page, text, within=5):
    """Check that trouble is told, in words for everybody, on a page that everybody can use."""
    expect(alert(page)).to_contain_text(text, timeout=within * 1_000)
    assert in_plain_words(alert(page).inner_text())
    no_violations(page)


def spend(shop, secret, refusals=1):
    """Use up what a key has left elsewhere, and go on; return the last answer."""
    while refusals:
        response = shop.api("GET", "/v2/usage", key=secret)
        refusals -= response.status == 429
    return response


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "Enter or paste your key."),
        ("letmein", "This isn't a key: keys start with sok_."),
        ("schlüssel", "This isn't a key"),
    ],
)
def test_what_is_no_key_is_told_before_it_is_sent(shop, visit, key, words):
    page = visit(shop.url)
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#key-fault")).to_contain_text(words)
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    no_violations(page)
    assert not [url for url in page.requested if "/v2/" in url]


def test_a_key_that_opens_nothing(shop, visit):
    page = visit(shop.url, refusals=(401,))
    page.get_by_label("Key", exact=True).fill("sok_" + "a" * 38)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#key-fault")).to_contain_text("This key isn't valid")
    assert in_plain_words(page.locator("#key-fault").inner_text())
    assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_is_revoked_leads_back_to_the_door(shop, visit):
    page = visit(shop.url, refusals=(401,))
    key_id, secret = shop.store.issue()
    sign_in(page, secret)
    wait_for_rows(page)
    shop.revoke(key_id)
    # Within a second it is in force; the page looks again by itself.
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=8_000)
    assert_told(page, "has expired or has been revoked")
    assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_lost_its_right_to_write(shop, visit):
    page = visit(shop.url, refusals=(403,))
    key_id, secret = shop.store.issue()
    sign_in(page, secret)
    page.get_by_role("button", name="Ship order 2").click()
    with shop.store.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE api_keys SET scopes = 'read' WHERE id = {key_id}")
    page.wait_for_timeout(1_000)  # a change is in force within a second
    page.get_by_role("button", name="Ship it").click()
    assert_told(page, "Your key can view orders, but not edit them.")
    assert shop.order(2)["status"] == "pending"


def test_a_limit_is_told_with_the_time_to_wait_and_then_it_goes_on(shop, visit):
    page = visit(shop.url, refusals=(429,))
    page.clock.install()
    key_id, secret = shop.store.issue("enterprise", per_minute=30, per_day=5_000)
    sign_in(page, secret)
    wait_for_rows(page)
    spend(shop, secret)
    page.get_by_role("link", name="Shipped").click()
    assert_told(page, "You've reached this key's request limit.")
    expect(alert(page)).to_contain_text("Retrying in")
    expect(page.locator("#banner-limits")).to_contain_text("Available again today at")
    expect(page.get_by_role("button", name="Refresh")).to_be_disabled()
    # Meanwhile nothing is asked, whatever is pressed: a key that goes on is banned.
    asked = len(page.requested)
    page.get_by_role("link", name="All").click()
    page.get_by_role("link", name="Figures").click()
    page.clock.run_for(20_000)
    assert not [url for url in page.requested[asked:] if "/v2/" in url]
    shop.renew(key_id)
    page.clock.run_for(61_000)
    expect(page.locator(".picture").first).to_be_visible()
    expect(page.locator("#banner-limits")).to_have_count(0)


def test_a_limit_met_while_shipping_counts_down_in_the_question(shop, visit):
    page = visit(shop.url, refusals=(429,))
    page.clock.install()
    key_id, secret = shop.store.issue("enterprise", per_minute=30, per_day=5_000)
    sign_in(page, secret)
    page.get_by_role("button", name="Ship order 3").click()
    spend(shop, secret)
    page.get_by_role("button", name="Ship it").click()
    assert_told(page, "You've reached this key's request limit.")
    expect(page.locator("#confirm-yes")).to_be_disabled()
    expect(page.locator("#confirm-yes")).to_contain_text("Wait ")
    shop.renew(key_id)
    page.clock.run_for(61_000)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert shop.order(3)["status"] == "shipped"


def test_a_ban_is_told(shop, visit):
    page = visit(shop.url, refusals=(429,))
    _, secret = shop.store.issue("enterprise", per_minute=30, per_day=5_000)
    sign_in(page, secret)
    wait_for_rows(page)
    assert spend(shop, secret, refusals=5).json()["code"] == "api_key_banned"
    page.get_by_role("link", name="Figures").click()
    assert_told(page, "Your key is blocked after too many requests.")
    expect(alert(page)).to_contain_text("5 min")


def test_a_limit_at_the_door(shop, visit):
    page = visit(shop.url, refusals=(429,))
    _, secret = shop.store.issue("enterprise", per_minute=1, per_day=5_000)
    spend(shop, secret)
    page.get_by_label("Key", exact=True).fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#key-fault")).to_contain_text("Try again in")
    expect(page.locator("#sign-in button")).to_be_disabled()


def test_a_store_that_is_away_and_comes_back(shop, visit):
    page = visit(shop.url, refusals=(503,))
    sign_in(page, shop.store.issue()[1])
    page.get_by_role("button", name="Ship order 4").click()
    with real_faults.locked(shop.database):
        page.get_by_role("button", name="Ship it").click()
        assert_told(page, "The service can't reach its database at the moment.", within=15)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert shop.order(4)["status"] == "shipped"


def test_a_network_that_is_gone_and_comes_back(shop, visit):
    page = visit(shop.url, loses=True)
    sign_in(page, shop.store.issue()[1])
    wait_for_rows(page)
    page.context.set_offline(True)
    page.get_by_role("link", name="Shipped").click()
    assert_told(page, "Can't connect to the service.")
    expect(page.locator("#banner-connection")).to_be_visible()
    page.context.set_offline(False)
    # By itself.
    expect(page.locator("#banner-connection")).to_have_count(0)
    said(page, "Back online.")
    wait_for_rows(page)


def test_a_ship_whose_answer_got_lost_is_told_as_done_when_it_is_tried_again(shop, visit):
    page = visit(shop.url, refusals=(409,), loses=True)
    sign_in(page, shop.store.issue()[1])
    page.route(f"**{ORDERS}/5/ship", lambda route: (route.fetch(), route.abort("connectionreset")))
    page.get_by_role("button", name="Ship order 5").click()
    page.get_by_role("button", name="Ship it").click()
    assert_told(page, "It's safe to try again.")
    page.unroute(f"**{ORDERS}/5/ship")
    page.get_by_role("button", name="Try again").click()
    said(page, "Order 5 shipped.")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_paused_webhook_is_told(shop, visit):
    new = NewEndpoint("https://away.example.com/", (EventType.PLACED,), messages.generate_secret())
    with shop.store.database.write() as connection:
        endpoint_id = endpoints.add(connection, new, shop.store.clock.now())
        endpoints.pause(connection, endpoint_id, "a person did", shop.store.clock.now())
    page = visit(shop.url)
    sign_in(page, shop.store.issue()[1])
    expect(page.locator("#banner-webhooks")).to_contain_text(f"webhook {endpoint_id} is paused")
    no_violations(page)
    with shop.store.database.write() as connection:
        endpoints.remove(connection, endpoint_id)
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#banner-webhooks")).to_have_count(0)
