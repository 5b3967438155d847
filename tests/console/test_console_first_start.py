"""The console takes a key from the address, as a first start passes one to it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import go_to, in_plain_words, press, sign_in
from tests.support.machine import installed, wait_until
from tests.support.service import running

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def service(tmp_path_factory, forks):
    """A service that was started with --open, with a fake browser that records the address."""
    folder = tmp_path_factory.mktemp("opened")
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {folder}/new && mv {folder}/new {folder}/opened\n')
    browser.chmod(0o700)
    environment = {"HOME": str(folder), "BROWSER": f"{browser} %s"}
    with running(folder / "instance", "--open", forks=forks, **environment) as one:
        wait_until((folder / "opened").exists)
        one.opened = (folder / "opened").read_text().strip()
        yield one


def key_of(page):
    return page.evaluate("[sessionStorage.getItem('key'), localStorage.getItem('key')]")


def signed_in_as(page, name):
    expect(page.locator("#shop")).to_be_visible()
    expect(page.locator("#who-name")).to_have_text(name)
    assert "key=" not in page.url
    assert "sok_" not in page.url


def question(page):
    return page.get_by_role("dialog")


def test_the_page_that_a_first_start_opens_is_signed_in_once(service, visit):
    text = Path(service.opened.removeprefix("file://")).read_text()
    link = text.split('href="')[1].split('"')[0]
    page = visit(service.url, "/healthz", refusals={404})
    page.goto(service.opened)
    signed_in_as(page, "owner")
    in_tab, on_computer = key_of(page)
    assert (in_tab[:4], on_computer) == ("sok_", None)
    expect(question(page)).to_contain_text("Stay signed in here?")
    assert in_plain_words(question(page).inner_text())
    no_violations(page)
    press(page, "Stay signed in")
    expect(question(page)).to_be_hidden()
    assert key_of(page)[1] == in_tab
    # Nothing leads back to the code, which is used up.
    page.go_back()
    assert page.url == f"{service.url}/healthz"
    page.go_forward()
    again = page.context.browser.new_context().new_page()
    again.goto(link)
    expect(again.locator("#sign-in-notice")).to_contain_text("This link works once")
    assert "key=" not in again.url
    again.context.close()
    # A person who is signed in stays signed in.
    page.goto(link)
    signed_in_as(page, "owner")


@pytest.fixture(scope="module")
def public(tmp_path_factory, forks):
    """A service that others reach at an encrypted address."""
    instance = tmp_path_factory.mktemp("public") / "instance"
    address = "https://192.168.1.20/v1"
    with running(instance, forks=forks, ORDERS_BASE_URL=address) as one:
        yield one


def test_a_phone_that_scans_the_code_is_signed_in_once(public, visit, tmp_path):
    page = visit(public.url, f"/#key={public.issue()}")
    signed_in_as(page, "test")
    go_to(page, "key")
    no_violations(page)
    press(page, "Show the code")
    page.locator("svg.qr").screenshot(path=tmp_path / "code.png")
    scan = [installed("zbarimg", package="zbar-tools"), "--quiet", "--nodbus", "--raw"]
    scanned = subprocess.check_output([*scan, tmp_path / "code.png"], text=True).strip()
    address, code = scanned.split("#key=")
    assert address == "https://192.168.1.20/"
    phone = visit(public.url, f"/#key={code}", viewport={"width": 390, "height": 844})
    signed_in_as(phone, "test")
    press(phone, "Only in this tab")
    later = visit(public.url, f"/#key={code}", refusals={404})
    expect(later.locator("#sign-in-notice")).to_contain_text("This link works once")


def test_without_an_encrypted_address_there_is_no_code(service, visit):
    page = visit(service.url, f"/#key={service.issue()}")
    signed_in_as(page, "test")
    go_to(page, "key")
    press(page, "Show the code")
    expect(page.get_by_text("Phones can't reach this service yet")).to_be_visible()
    expect(page.locator("svg.qr")).to_be_hidden()


def test_a_link_with_a_key_signs_in_in_its_tab_only(service, visit):
    key = service.issue()
    page = visit(service.url, f"/#key={key}")
    signed_in_as(page, "test")
    expect(question(page)).to_be_hidden()
    assert key_of(page) == [key, None]
    assert not [url for url in page.requested if key in url.partition("#")[0]]


def test_a_link_with_a_wrong_key_leaves_the_form(service, visit):
    page = visit(service.url, "/#key=sok_nobody", refusals={401})
    expect(page.locator("#sign-in-notice")).to_contain_text("This key isn't valid")
    assert key_of(page) == [None, None]


def test_a_key_revoked_meanwhile_leads_to_the_form_without_an_error(service, visit):
    page = visit(service.url, refusals={401})
    page.evaluate(
        """() => {
            sessionStorage.setItem("key", "sok_revoked");
            sessionStorage.setItem("used", `${Date.now()}`);
            sessionStorage.setItem("profile", JSON.stringify({ name: "old", scopes: ["read"] }));
        }"""
    )
    page.reload()
    expect(page.locator("#sign-in-notice")).to_contain_text("no longer valid")


def test_another_key_in_use_is_replaced_only_after_confirmation(service, visit):
    used, brought = service.issue(), service.output("keys", "issue", "till", "--plan", "pro")
    page = visit(service.url)
    sign_in(page, used)
    # As a link does, in a page that is open.
    bring = f"location.hash = 'key={brought.strip()}'"
    page.evaluate(bring)
    expect(question(page)).to_contain_text("Sign in as till?")
    no_violations(page)
    press(page, "Stay test")
    signed_in_as(page, "test")
    assert key_of(page) == [used, None]
    page.evaluate(bring)
    press(page, "Sign in as till")
    signed_in_as(page, "till")
    assert key_of(page) == [brought.strip(), None]


def test_a_remembered_key_of_an_earlier_store_gives_way_without_a_question(service, visit):
    key = service.issue()
    page = visit(service.url, refusals={401})
    page.evaluate(
        """() => {
            localStorage.setItem("key", "sok_ofAnEarlierStore");
            localStorage.setItem("profile", JSON.stringify({ name: "old", scopes: ["read"] }));
        }"""
    )
    page.goto("about:blank")
    page.goto(f"{service.url}/#key={key}")
    signed_in_as(page, "test")
    assert key_of(page) == [key, None]
