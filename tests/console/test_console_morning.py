"""A morning of a shop's owner from the very first start, on the page only.

What isn't done on the page is what a colleague's program does with the key that it was given.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.browser import expect
from tests.support.console import announced, in_plain_words, press
from tests.support.machine import wait_until
from tests.support.service import running

pytestmark = pytest.mark.browser

ORDERS = "/v2/store/orders"
PRIVATE, PUBLIC = "http://192.168.1.9/hook", "https://192.88.98.1/hook"
HEAD = "petId,quantity,reference,item\n"


@pytest.fixture
def service(tmp_path, forks):
    """A service at its first start, and the address that it opened in a browser."""
    browser = tmp_path / "browser"
    opened = tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o700)
    environment = {"HOME": str(tmp_path), "BROWSER": f"{browser} %s", "ORDERS_BACKUPS": "backups"}
    with running(tmp_path / "instance", "--open", forks=forks, **environment) as one:
        wait_until(opened.exists)
        one.opened = opened.read_text().strip()
        yield one


@pytest.fixture(params=[("light", 1280), ("dark", 390)], ids=["desk", "phone"])
def page(request, service, visit):
    """The page that opens in the owner's browser; files are saved without asking where."""
    color_scheme, width = request.param
    look = {"viewport": {"width": width, "height": 844}, "color_scheme": color_scheme}
    page = visit(service.url, "/healthz", refusals={422}, **look)
    page.add_init_script("delete window.showSaveFilePicker")
    page.goto(service.opened)
    expect(page.locator("#who-name")).to_have_text("owner")
    expect(page.locator("#who-may")).to_have_text("administrator")
    assert "key=" not in page.url
    press(page, "Only in this tab")
    expect(page.get_by_role("heading", name="No orders yet")).to_be_visible()
    return page


def test_an_owners_morning_without_a_terminal(service, page):
    secret = a_key_for_a_colleague(page)
    first = service.request("POST", ORDERS, key=secret, json={"petId": 7, "reference": "A-1"})
    assert first.status == 201
    a_file_with_a_fault_and_the_corrected_one(page)
    a_webhook(page)
    a_colleagues_key_that_was_banned(service, page, secret)
    a_backup(service, page)
    who_did_what(page, first.json()["id"])
    assert "sok_" not in "".join(page.requested)
    assert service.stop() == 0
    assert secret not in "".join(service.log)


def go(page, place):
    page.get_by_role("link", name=place, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(place)


def card(page, title):
    return page.locator("li.panel", has=page.get_by_role("heading", name=title, exact=True))


def accept(page, text):
    page.get_by_role("dialog").get_by_role("button", name=text).click()


def a_key_for_a_colleague(page):
    go(page, "Keys")
    page.get_by_label("Name", exact=True).fill("Ada")
    page.get_by_label("Plan", exact=True).select_option("enterprise")
    page.get_by_label("Requests a minute").fill("9")
    page.get_by_label("Requests a day").fill("900")
    press(page, "Issue key")
    shown = page.get_by_label("Secret", exact=True)
    expect(shown).to_have_value(re.compile("^sok_"))
    secret = shown.input_value()
    go(page, "Figures")
    go(page, "Keys")
    expect(card(page, "Ada")).to_contain_text("enterprise (9 a minute, 900 a day)")
    expect(shown).to_have_count(0)
    assert secret not in page.content()
    return secret


def a_file_with_a_fault_and_the_corrected_one(page):
    go(page, "Import")
    check(page, "7,2,FILE-1,Collar\nseven,1,FILE-2,Lead\n")
    expect(page.get_by_role("heading", name="1 fault: nothing can be imported")).to_be_visible()
    expect(page.get_by_role("list", name="Faults")).to_contain_text("Line 3, petId")
    check(page, "7,2,FILE-1,Collar\n8,1,FILE-2,Lead\n")
    press(page, "Import 2 orders")
    expect(page.get_by_role("heading", name="2 orders imported.")).to_be_visible()
    page.get_by_role("link", name="Show the orders").click()
    expect(page.locator("tbody tr")).to_have_count(3)


def check(page, rows):
    file = {"name": "orders.csv", "mimeType": "text/csv", "buffer": (HEAD + rows).encode()}
    page.get_by_label("File of orders").set_input_files(file)
    press(page, "Check")


def a_webhook(page):
    go(page, "Webhooks")
    page.get_by_label("Address", exact=True).fill(PRIVATE)
    press(page, "Add webhook")
    refusal = page.locator("form.place .notice")
    expect(refusal).to_contain_text("The address is not one for a webhook")
    assert in_plain_words(refusal.inner_text())
    page.get_by_label("Address", exact=True).fill(PUBLIC)
    press(page, "Add webhook")
    expect(page.get_by_label("Secret", exact=True)).to_have_value(re.compile("^whsec_"))
    # Before anything happens that would be sent there.
    card(page, PUBLIC).get_by_role("button", name="Pause").click()
    expect(card(page, PUBLIC)).to_contain_text("Paused by hand")
    expect(page.get_by_role("contentinfo")).to_contain_text("have been paused since")
    card(page, PUBLIC).get_by_role("button", name="Remove").click()
    accept(page, "Remove the webhook")
    expect(card(page, PUBLIC)).to_have_count(0)
    expect(page.get_by_role("contentinfo")).not_to_contain_text("have been paused since")


def a_colleagues_key_that_was_banned(service, page, secret):
    def code():
        return service.request("GET", ORDERS, key=secret).json().get("code")

    wait_until(lambda: code() == "api_key_banned")
    go(page, "Keys")
    ada = card(page, "Ada")
    expect(ada).to_contain_text("Blocked after too many requests, until")
    ada.get_by_role("button", name="Unblock").click()
    announced(page, "Ada is no longer blocked.")
    ada.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("Requests a minute").fill("90")
    accept(page, "Save")
    expect(ada).to_contain_text("enterprise (90 a minute, 900 a day)")
    wait_until(lambda: code() is None)


def a_backup(service, page):
    go(page, "Backups")
    press(page, "Make a backup")
    announced(page, "Backup made")
    with page.expect_download() as saved:
        # On a slow machine, the service has made the daily backup, too.
        page.get_by_role("button", name="Download").first.click()
    stored = Path(service.environment["ORDERS_INSTANCE"], "backups", saved.value.suggested_filename)
    assert Path(saved.value.path()).read_bytes() == stored.read_bytes()
    announced(page, "is saved")


def who_did_what(page, order_id):
    page.get_by_role("link", name="Orders", exact=True).click()
    page.get_by_role("searchbox").fill(f"{order_id}")
    press(page, "Search")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Order {order_id}")
    history = page.locator(".timeline")
    expect(history).to_contain_text("with the key “Ada”")
    press(page, "Already shipped")
    accept(page, re.compile("shipped"))
    expect(history).to_contain_text("by you, on this page")
    page.reload()
    expect(history).to_contain_text(re.compile("by you|with your key, owner"))
