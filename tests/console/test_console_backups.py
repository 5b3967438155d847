"""Backups on the console's page for a key with the scope admin: made, listed, and downloaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orders.apikeys import SCOPES
from tests.support.browser import expect, no_violations
from tests.support.console import announced, go_to, press, see_old_backups, too_wide

pytestmark = pytest.mark.browser

SHOP = {"orders": 2, "ORDERS_BACKUPS": "backups"}
OWNER = {"scopes": SCOPES, "name": "the owner"}
# A page can't answer the browser's own save dialog: without it, a file is saved as usual.
NO_QUESTION = "delete window.showSaveFilePicker"


@pytest.mark.parametrize(("color_scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_backup_is_made_and_saved_whole(shop, at_desk, color_scheme, width):
    page = at_desk(OWNER, color_scheme=color_scheme, viewport={"width": width, "height": 800})
    expect(page.locator("#who-may")).to_have_text("administrator")
    page.evaluate(NO_QUESTION)
    page.get_by_role("link", name="Backups", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Backups")
    press(page, "Make a backup")
    announced(page, "Backup made")
    save = page.get_by_role("button", name="Download").first
    expect(save).to_be_visible()
    no_violations(page)
    assert not too_wide(page)
    save.focus()
    with page.expect_download() as saved:
        page.keyboard.press("Enter")
    got = Path(saved.value.path()).read_bytes()
    stored = shop.store.settings.instance / "backups" / saved.value.suggested_filename
    assert hashlib.sha256(got).digest() == hashlib.sha256(stored.read_bytes()).digest()
    announced(page, "is saved")
    assert page.secret not in page.url + "".join(map(str, page.requested))


def test_a_download_that_is_refused_says_why(at_desk):
    page = at_desk(OWNER, refusals=(404,))
    page.evaluate(NO_QUESTION)
    go_to(page, "backups")
    press(page, "Make a backup")
    announced(page, "Backup made")
    page.route(
        "**/v2/backups/*",
        lambda route: route.fulfill(status=404, json={"code": "backup_not_found"}),
    )
    page.get_by_role("button", name="Download").first.click()
    expect(page.get_by_role("alert")).to_contain_text("This backup has been removed")


def test_the_footer_leads_administrators_to_the_backups_if_the_newest_is_old(at_desk):
    page = at_desk(OWNER)
    see_old_backups(page)
    said = page.locator("#banner-backups")
    expect(said).to_contain_text("The newest backup was made 3 Feb 2020 at 8:00.")
    expect(said).not_to_contain_text("administrator")
    said.get_by_role("link", name="Show backups").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Backups")


def test_others_see_no_backups(at_desk):
    page = at_desk()
    expect(page.get_by_role("link", name="Backups")).to_be_hidden()
    go_to(page, "backups")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Orders")
