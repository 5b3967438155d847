"""The console's page of webhooks, with a real receiver, and for a key that manages nothing else."""

from __future__ import annotations

import re

import pytest

from orders.apikeys import SCOPES
from tests.support.browser import expect, no_violations
from tests.support.console import announced, go_to, in_plain_words, press, sign_in, too_wide
from tests.support.machine import wait_until
from tests.support.receiver import answer_with, receiving

pytestmark = pytest.mark.browser

SHOP = {"orders": 2}
OWNER = {"scopes": SCOPES, "name": "the owner"}
INTEGRATOR = {"scopes": ("webhooks",), "name": "the integrator"}
PUBLIC = "https://192.88.98.1/hook"
SCRIPT = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"


@pytest.fixture
def receiver(shop):
    """A receiver of this computer, which only the terminal can add; and its webhook's number."""
    with receiving() as one:
        shop.service.output("webhooks", "add", one.url, "--allow-private")
        yield one


@pytest.fixture(autouse=True)
def no_webhook_is_left(shop):
    """Nothing is sent to the public address when a later test places an order."""
    yield
    _, key = shop.store.issue(**OWNER)
    for webhook in shop.api("GET", "/v2/webhooks", key).json()["webhooks"]:
        assert shop.api("DELETE", f"/v2/webhooks/{webhook['id']}", key).status == 204


@pytest.fixture
def owner(at_desk):
    """The page of webhooks of an owner."""

    def open_page(**options):
        page = at_desk(OWNER, **options)
        page.get_by_role("link", name="Webhooks", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Webhooks")
        return page

    return open_page


def card(page, url):
    return page.locator("li.panel", has=page.get_by_role("heading", name=url, exact=True))


def act(page, url, action):
    card(page, url).get_by_role("button", name=f"{action}: {url}", exact=True).click()


def accept(page, text):
    page.get_by_role("dialog").get_by_role("button", name=text).click()


@pytest.mark.parametrize(("color_scheme", "width"), [("light", 1280), ("dark", 390)])
def test_answers_of_receivers_are_shown_as_text(shop, owner, receiver, color_scheme, width):
    receiver.answering = answer_with(400, SCRIPT.encode(), **{"Content-Type": "text/html"})
    page = owner(viewport={"width": width, "height": 800}, color_scheme=color_scheme)
    act(page, receiver.url, "Ping")
    hook = card(page, receiver.url)
    expect(hook.get_by_role("status")).to_contain_text("The receiver answered 400 in")
    expect(hook.get_by_role("status")).to_contain_text(SCRIPT)
    order_id = shop.place()
    wait_until(lambda: len(receiver.received) > 1)
    press(page, "Refresh")
    expect(hook).to_contain_text("Waiting to retry")
    act(page, receiver.url, "Deliveries")
    tried = hook.get_by_label("Deliveries", exact=True).get_by_role("listitem")
    expect(tried.first).to_contain_text(SCRIPT)
    expect(tried.filter(has_text="Event").first).to_contain_text("attempt 1")
    assert page.title() == "Webhooks · Store Orders"
    assert not too_wide(page)
    no_violations(page)

    receiver.answering = answer_with(204)
    before = len(receiver.received)
    hook.get_by_role("button", name=re.compile("^Send event")).first.click()
    announced(page, "is being sent again.")
    wait_until(lambda: len(receiver.received) > before)
    assert receiver.received[-1].json["data"]["id"] == order_id
    expect(tried.first).to_contain_text("Delivered")


def test_a_webhook_is_paused_resumed_changed_and_removed_by_keyboard_too(owner, receiver):
    page = owner()
    hook = card(page, receiver.url)
    hook.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(hook).to_contain_text("Paused by hand")
    expect(hook.get_by_role("button", name="Resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(hook).to_contain_text("Running")
    act(page, receiver.url, "Change")
    dialog = page.get_by_role("dialog")
    for kind in ("Placed", "Changed", "Shipped", "Cancelled"):
        dialog.get_by_label(kind, exact=True).uncheck()
    accept(page, "Save")
    expect(dialog.get_by_role("alert")).to_have_text("Choose at least one kind of event.")
    dialog.get_by_label("Reopened", exact=True).check()
    accept(page, "Save")
    expect(hook).to_contain_text("Reopened")
    expect(hook).not_to_contain_text("Placed")
    act(page, receiver.url, "New secret")
    accept(page, "Make a new secret")
    expect(page.get_by_label("Secret", exact=True)).to_have_value(re.compile("^whsec_"))
    act(page, receiver.url, "Remove")
    accept(page, "Remove the webhook")
    expect(hook).to_have_count(0)


def test_a_webhook_paused_after_failures_says_why(shop, owner, receiver):
    receiver.answering = answer_with(410)
    page = owner()
    shop.place()
    wait_until(lambda: receiver.received)

    def is_shown():
        press(page, "Refresh")
        return card(page, receiver.url).get_by_text("Paused after failures").count()

    wait_until(is_shown)
    expect(card(page, receiver.url)).to_contain_text("it answered 410 Gone")


def test_the_footer_leads_keys_that_manage_webhooks_to_a_paused_one(shop, owner, at_desk, receiver):
    page = owner()
    act(page, receiver.url, "Pause")
    said = page.locator("#banner-webhooks")
    expect(said).to_contain_text("Nothing is lost")
    expect(said).not_to_contain_text("administrator")
    no_violations(page)
    go_to(page, "orders")
    said.get_by_role("link", name="Show webhooks").click()
    act(page, receiver.url, "Resume")
    expect(said).to_have_count(0)
    act(page, receiver.url, "Pause")
    expect(said).to_be_visible()

    of_others = at_desk({"scopes": ("read", "write", "webhooks")}).locator("#banner-webhooks")
    expect(of_others).to_contain_text("Resume it if you added it, or tell your administrator")
    expect(of_others.get_by_role("link")).to_be_visible()
    clerk = at_desk().locator("#banner-webhooks")
    expect(clerk).to_contain_text("Tell your administrator that webhook")
    expect(clerk.get_by_role("link")).to_have_count(0)


def test_a_key_of_webhooks_alone_signs_in_to_their_page_and_sees_only_that(shop, visit):
    page = visit(shop.url, refusals=(409, 422))
    _, secret = shop.store.issue(**INTEGRATOR)
    sign_in(page, secret)
    expect(page.get_by_role("heading", level=1)).to_have_text("Webhooks")
    expect(page.locator("nav a:visible")).to_have_text(["Webhooks"])
    for place in ("orders", "orders/1", "new", "figures", "keys", "import", "key"):
        go_to(page, place)
        page.wait_for_function("location.hash === '#/webhooks'")
    notice = page.locator("form.place .notice")
    press(page, "Add webhook")
    expect(notice).to_have_text("Enter an address.")
    page.get_by_label("Address", exact=True).fill("http://127.0.0.1/hook")
    press(page, "Add webhook")
    expect(notice).to_contain_text("The address is not one for a webhook")
    assert in_plain_words(notice.inner_text())
    page.get_by_label("Address", exact=True).fill(PUBLIC)
    press(page, "Add webhook")
    expect(page.get_by_label("Secret", exact=True)).to_have_value(re.compile("^whsec_"))
    expect(card(page, PUBLIC)).to_contain_text("by the integrator")
    page.reload()
    expect(card(page, PUBLIC)).to_be_visible()
    expect(page.get_by_label("Secret", exact=True)).to_have_count(0)
    for _ in range(7):
        assert shop.api("POST", "/v2/webhooks", secret, json={"url": PUBLIC}).status == 201
    page.get_by_label("Address", exact=True).fill(PUBLIC)
    press(page, "Add webhook")
    expect(notice).to_contain_text("Remove one first.")
