"""A morning of the shop's owner on the console's pages for a key with the scope admin."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orders.apikeys import SCOPES
from orders.store import apikeys as key_store
from tests.support.browser import expect, no_violations
from tests.support.console import (
    announced,
    go_to,
    in_plain_words,
    press,
    requests_of,
    sign_in,
    too_wide,
    wait_for_rows,
)

pytestmark = pytest.mark.browser

SHOP = {"orders": 2}
OWNER = {"scopes": SCOPES, "name": "the owner"}
LOOKS = [("light", 1280), ("dark", 320)]


def of_key(page, name):
    return page.locator("li.panel", has=page.get_by_role("heading", name=name, exact=True))


def of_page(page, place):
    go_to(page, place)
    expect(page.get_by_role("heading", level=1)).to_have_text(place.capitalize())


def accept(page, text):
    page.get_by_role("dialog").get_by_role("button", name=text).click()


def issue(page, name, *, may="View and edit orders"):
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("May").select_option(label=may)
    press(page, "Issue key")
    expect(page.get_by_label("Secret", exact=True)).to_be_visible()
    return page.get_by_label("Secret", exact=True).input_value()


def change_key(shop, key_id, **fields):
    with shop.store.database.write() as connection:
        key_store.change(connection, key_id, **fields)


def works(shop, secret):
    return shop.api("GET", "/v2/usage", secret).status == 200


@pytest.fixture
def owner(at_desk):
    """The page of an owner."""
    return lambda **options: at_desk(OWNER, **options)


def test_a_key_is_issued_copied_used_rotated_and_revoked(shop, owner):
    page = owner(permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="Keys", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Keys")
    secret = issue(page, "<b>Ada</b>", may="View orders")
    press(page, "Copy")
    announced(page, "Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == secret
    assert works(shop, secret)
    assert shop.api("POST", "/v2/store/orders", secret, json={"petId": 1}).status == 403
    ada = of_key(page, "<b>Ada</b>")
    expect(ada).to_contain_text("view orders")

    go_to(page, "orders")
    wait_for_rows(page)
    of_page(page, "keys")
    expect(ada).to_contain_text("300 a minute")
    expect(page.get_by_label("Secret", exact=True)).to_have_count(0)
    assert secret not in page.content()
    assert secret not in page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")

    ada.get_by_role("button", name="New secret").click()
    page.get_by_label("The previous secret works on").select_option(label="For an hour")
    accept(page, "Make a new secret")
    expect(page.get_by_label("Secret", exact=True)).to_be_visible()
    newer = page.get_by_label("Secret", exact=True).input_value()
    assert newer != secret
    assert works(shop, newer)
    assert works(shop, secret)
    expect(ada).to_contain_text("Previous secret")

    ada.get_by_role("button", name="Revoke").click()
    accept(page, "Revoke the key")
    expect(ada).to_have_count(0)
    assert not works(shop, newer)
    assert not works(shop, secret)
    page.get_by_text("no longer valid").click()
    expect(page.get_by_role("row", name="<b>Ada</b>")).to_contain_text("Revoked")


def test_a_key_gets_another_name_plan_figures_and_expiry(shop, owner):
    key_id, _ = shop.store.issue(name="Eve")
    page = owner(refusals=(422,))
    of_page(page, "keys")
    of_key(page, "Eve").get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("Eve's till")
    dialog.get_by_label("Plan", exact=True).select_option("enterprise")
    dialog.get_by_label("Requests a minute").fill("a few")
    accept(page, "Save")
    expect(dialog.get_by_role("alert")).to_contain_text("The requests a minute must be a whole")
    dialog.get_by_label("Requests a minute").fill("9000000")
    dialog.get_by_label("Requests a day").fill("900")
    dialog.get_by_label("Expires", exact=True).select_option("days")
    dialog.get_by_label("After how many days").fill("30")
    accept(page, "Save")
    expect(dialog.get_by_role("alert")).to_contain_text("The plan must not give more requests")
    dialog.get_by_label("Requests a minute").fill("90")
    accept(page, "Try again")
    expect(of_key(page, "Eve's till")).to_contain_text("enterprise (90 a minute, 900 a day)")
    with shop.store.database.read() as connection:
        key = key_store.get(connection, key_id)
    assert (key.name, key.per_minute, key.per_day) == ("Eve's till", 90, 900)
    assert timedelta(days=29) < key.expires_at - shop.store.clock.now() < timedelta(days=31)


def test_a_banned_key_is_unblocked_and_one_that_expires_soon_is_marked(shop, owner):
    banned, _ = shop.store.issue(name="Bob")
    soon, _ = shop.store.issue(name="Cleo")
    now = shop.store.clock.now()
    change_key(shop, banned, banned_until=now + timedelta(minutes=5))
    change_key(shop, soon, expires_at=now + timedelta(days=3))
    page = owner()
    of_page(page, "keys")
    expect(of_key(page, "Cleo")).to_contain_text("Expires 2")
    expect(of_key(page, "Cleo").locator(".notice")).to_be_visible()
    expect(of_key(page, "Bob")).to_contain_text("Blocked after too many requests, until")
    of_key(page, "Bob").get_by_role("button", name="Unblock").click()
    announced(page, "Bob is no longer blocked.")
    expect(of_key(page, "Bob").get_by_role("button", name="Unblock")).to_have_count(0)
    with shop.store.database.read() as connection:
        assert key_store.get(connection, banned).banned_until is None


def test_the_last_admin_key_is_not_revoked_and_the_page_says_why(start, visit):
    service = start()
    page = visit(service.url, refusals=(409,))
    sign_in(page, service.issue("business", "--scope", "admin"))
    of_page(page, "keys")
    press(page, "Revoke")
    accept(page, "Revoke the key")
    notice = page.get_by_role("dialog").get_by_role("alert")
    expect(notice).to_contain_text("This is the last key that can manage the shop.")
    assert in_plain_words(notice.inner_text())
    accept(page, "Close")
    expect(page.get_by_role("heading", name="(yours)")).to_be_visible()


def test_the_page_goes_on_with_the_new_secret_of_its_own_key(shop, owner):
    page = owner()
    of_page(page, "keys")
    own = page.locator("li.panel", has=page.get_by_role("heading", name="(yours)"))
    own.get_by_role("button", name="New secret").click()
    assert page.get_by_label("The previous secret works on").locator("option").count() == 3
    accept(page, "Make a new secret")
    expect(page.get_by_label("Secret", exact=True)).to_be_visible()
    secret = page.get_by_label("Secret", exact=True).input_value()
    assert page.evaluate("sessionStorage.getItem('key')") == secret
    page.reload()
    expect(page.get_by_role("heading", name="(yours)")).to_be_visible()


def test_errors_are_in_plain_words_and_a_lost_answer_issues_one_key(shop, owner):
    page = owner(refusals=(422,), loses=True)
    of_page(page, "keys")
    press(page, "Issue key")
    expect(page.locator("form.place .notice")).to_have_text("Enter a name.")
    page.get_by_label("Name", exact=True).fill("Dora")
    page.get_by_label("Expires after").fill("99999")
    press(page, "Issue key")
    expect(page.locator("form.place .notice")).to_contain_text("The number of days")
    assert in_plain_words(page.locator("form.place .notice").inner_text())
    page.get_by_label("Expires after").fill("365")

    def lose(route):
        route.fetch()
        route.abort()

    page.route("**/v2/keys", lose, times=1)
    press(page, "Issue key")
    press(page, "Send again")
    expect(page.get_by_text("can't be shown again")).to_be_visible()
    expect(of_key(page, "Dora")).to_have_count(1)


def test_other_keys_neither_see_the_pages_nor_reach_them(at_desk):
    page = at_desk()
    expect(page.get_by_role("link", name="Keys", exact=True)).to_be_hidden()
    for place in ("keys", "import"):
        go_to(page, place)
        page.wait_for_function("location.hash === '#/orders'")
        wait_for_rows(page)


HEAD = "petId,quantity,reference,item\n"


def choose(page, text, name="orders.csv"):
    content = text if isinstance(text, bytes) else text.encode()
    page.get_by_label("File of orders").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": content}
    )


def check_file(page, text):
    choose(page, text)
    press(page, "Check")


def test_a_file_is_checked_line_by_line_and_imported_whole(shop, owner):
    page = owner()
    page.get_by_role("link", name="Import", exact=True).click()
    page.get_by_role("button", name="Check").click()
    expect(page.locator("form.place .notice")).to_have_text("Choose a file.")
    check_file(page, HEAD + "7,2,FILE-1,<b>Collar</b>\nseven,1,FILE-2,\n8,0,FILE-3,\n")
    expect(page.get_by_role("heading", name="2 faults: nothing can be imported")).to_be_visible()
    faults = page.get_by_role("list", name="Faults").get_by_role("listitem")
    expect(faults).to_have_count(2)
    expect(faults.first).to_contain_text("Line 3, petId")
    expect(faults.last).to_contain_text("Line 4, quantity")
    expect(page.get_by_role("button", name="Import")).to_have_count(0)

    check_file(page, HEAD + "7,2,FILE-1,<b>Collar</b>\n8,1,FILE-2,\n")
    expect(page.get_by_role("heading", name="2 orders can be imported")).to_be_visible()
    expect(page.locator("dd", has_text="<b>Collar</b>")).to_be_visible()
    assert shop.count(reference="FILE-1") == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(({ id }) => id)")
    assert len({*ids}) == len(ids)
    press(page, "Import 2 orders")
    expect(page.get_by_role("heading", name="2 orders imported.")).to_be_visible()
    assert [shop.count(reference=f"FILE-{number}") for number in (1, 2)] == [1, 1]


def test_a_lost_answer_imports_a_file_once(shop, owner):
    page = owner(loses=True)
    of_page(page, "import")
    check_file(page, HEAD + "7,2,ONCE,\n")

    def lose(route):
        route.fetch()
        route.abort()

    expect(page.get_by_role("button", name="Import 1 order")).to_be_visible()
    page.route("**/v2/imports?*", lose, times=1)
    press(page, "Import 1 order")
    expect(page.locator("form.place .notice")).to_contain_text("The connection was lost")
    press(page, "Import 1 order")
    expect(page.get_by_role("heading", name="1 order imported.")).to_be_visible()
    assert shop.count(reference="ONCE") == 1


def test_a_file_of_more_than_16_mib_is_not_sent_and_progress_is_shown(owner):
    page = owner()
    of_page(page, "import")
    sent = requests_of(page)
    check_file(page, b"x" * (16 * 1024 * 1024))
    expect(page.locator("form.place .notice")).to_contain_text("flask orders import FILE")
    assert "POST imports" not in sent
    held = []
    page.route("**/v2/imports?*", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    check_file(page, HEAD + "7,2,WAITS,\n")
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_role("button", name="Check")).to_be_disabled()
    held[0].continue_()
    expect(page.get_by_role("button", name="Import 1 order")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_have_count(0)


@pytest.mark.parametrize(("color_scheme", "width"), LOOKS)
def test_the_pages_are_accessible(shop, owner, color_scheme, width):
    banned, _ = shop.store.issue(name="Eve")
    change_key(shop, banned, banned_until=shop.store.clock.now() + timedelta(minutes=5))
    page = owner(viewport={"width": width, "height": 800}, color_scheme=color_scheme)

    def check():
        no_violations(page)
        assert not too_wide(page), page.url

    of_page(page, "keys")
    name = f"{'W' * 90} {width}"
    issue(page, name)
    expect(of_key(page, name)).to_be_visible()
    check()
    page.get_by_label("Plan").select_option("enterprise")
    of_key(page, name).get_by_role("button", name="New secret").click()
    check()
    page.keyboard.press("Escape")
    of_page(page, "import")
    for row in ("7,2,A,Collar", f"{'W' * 90},2,A,"):
        check_file(page, f"{HEAD}{row}\n")
        expect(page.locator("#view h2")).to_be_visible()
        check()
