"""The console in a real browser on a packing day: many orders, on the page, paper and in a file."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.browser import expect
from tests.support.console import (
    ORDERS,
    PLENTY,
    announced,
    go_to,
    press,
    press_ship,
    requests_of,
    row,
    send_now,
    wait_for_rows,
)
from tests.support.imports import import_file, imported

pytestmark = pytest.mark.browser

SHOP = {"orders": 8}


def at(**later):
    return (datetime.now(UTC) + timedelta(**later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ids(page):
    return [int(each.get_attribute("data-id")) for each in page.locator("tbody tr").all()]


def test_shipping_takes_one_press_and_one_request_and_can_be_undone_for_ten_seconds(shop, at_desk):
    page = at_desk(is_clock_ours=True)
    sent = requests_of(page)
    press(page, "Ship order 2")
    expect(page.get_by_role("button", name="Ship order 3", exact=True)).to_be_focused()
    press(page, "Ship order 3")
    press(page, "Undo shipping order 3")
    page.locator("#view h1").focus()
    page.mouse.move(5, 5)
    page.clock.run_for(8_000)
    assert shop.order(2)["status"] == "pending"
    page.clock.run_for(4_000)
    announced(page, "Order 2 shipped.")
    expect(row(page, 2)).to_have_count(0)
    expect(row(page, 3)).to_contain_text("To ship")
    assert (shop.order(2)["status"], shop.order(3)["status"]) == ("shipped", "pending")
    assert [each for each in sent if not each.startswith("GET")] == ["POST store/orders/2/ship"]


def test_shipping_is_sent_when_the_page_is_left_and_failures_show_at_the_next_visit(shop, at_desk):
    page = at_desk(refusals=(409,))
    press(page, "Ship order 4")
    page.reload()
    wait_for_rows(page)
    expect(row(page, 4)).to_have_count(0)
    assert shop.order(4)["status"] == "shipped"
    page.evaluate("localStorage.setItem('left', '[5]')")
    page.reload()
    expect(page.locator("#banner-ship")).to_contain_text("The order is still to ship.")


def test_another_scan_finds_the_next_order_and_ships_nothing(shop, at_desk):
    first, second = (shop.place(8, reference=f"scan-{each}") for each in "ab")
    page = at_desk()
    page.get_by_role("searchbox").focus()
    for order_id, text in ((first, "scan-a\n"), (second, "scan-b\n"), (first, "SCAN-A\n")):
        page.keyboard.type(text)
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"Order {order_id}")
        expect(page.get_by_role("button", name="Ship order")).to_be_focused()
    expect(page.locator("#shipping")).to_be_hidden()


def test_several_are_shipped_by_one_request_and_each_that_failed_is_named(shop, at_desk):
    page = at_desk()
    chosen = [shop.place(9, reference=f"several {each}") for each in range(4)]
    go_to(page, "orders?pet=9")
    expect(page.locator("tbody tr")).to_have_count(4)
    boxes = page.get_by_role("checkbox", name=re.compile("^Choose order"))
    boxes.first.click()
    boxes.last.click(modifiers=["Shift"])
    expect(page.locator(".found")).to_have_text("4 chosen")
    # One that is about to ship is not shipped twice.
    press_ship(page, chosen[0])
    expect(page.get_by_role("button", name="Ship 3 orders")).to_be_visible()
    press(page, f"Undo shipping order {chosen[0]}")
    sent = requests_of(page)
    press(page, "Ship 4 orders")
    expect(page.get_by_role("dialog").locator("bdi")).to_have_count(4)
    shop.cancel(chosen[1])
    page.get_by_role("dialog").get_by_role("button", name="Ship 4 orders").click()
    send_now(page)
    failed = page.locator("#banner-ship")
    expect(failed).to_contain_text(f"Order {chosen[1]} was not shipped. Someone else was faster")
    assert sent.count("POST store/shipments") == 1
    assert [shop.order(each)["status"] for each in chosen] == [
        *("shipped", "cancelled", "shipped", "shipped")
    ]


def test_several_can_be_undone_for_ten_seconds_together_and_each(shop, at_desk):
    page = at_desk(is_clock_ours=True)
    chosen = [shop.place(11) for _ in range(4)]
    go_to(page, "orders?pet=11")
    expect(page.locator("tbody tr")).to_have_count(4)
    sent = requests_of(page)
    for button in ("Undo shipping 4 orders", f"Undo shipping of {chosen[0]} in the list"):
        page.locator("#choose-all").check()
        press(page, "Ship 4 orders")
        page.get_by_role("dialog").get_by_role("button", name="Ship 4 orders").click()
        page.clock.run_for(8_000)
        press(page, button)
    expect(page.locator("#shipping")).to_contain_text("Shipping 3 orders")
    assert [each for each in sent if not each.startswith("GET")] == []
    page.locator("#view h1").focus()
    page.mouse.move(5, 5)
    page.clock.run_for(12_000)
    announced(page, "3 orders shipped.")
    assert [shop.order(each)["status"] for each in chosen] == ["pending", *["shipped"] * 3]
    assert [each for each in sent if not each.startswith("GET")] == ["POST store/shipments"]


def test_several_whose_answer_is_lost_are_shipped_once(shop, at_desk):
    page = at_desk(is_clock_ours=True, loses=True)
    chosen = [shop.place(12) for _ in range(3)]
    go_to(page, "orders?pet=12")
    expect(page.locator("tbody tr")).to_have_count(3)
    lost = []

    def lose(route):
        lost.append(route.fetch())
        route.abort()

    page.route("**/v2/store/shipments", lose, times=1)
    page.locator("#choose-all").check()
    press(page, "Ship 3 orders")
    page.get_by_role("dialog").get_by_role("button", name="Ship 3 orders").click()
    send_now(page)
    expect(page.locator("#shipping")).to_contain_text("3 orders wait to ship")
    assert [shop.order(each)["status"] for each in chosen] == ["shipped"] * 3
    page.clock.run_for(5_000)
    announced(page, "3 orders shipped.")
    expect(page.locator("#shipping")).to_be_hidden()
    history = shop.api("GET", f"{ORDERS}/{chosen[0]}/events").json()["events"]
    assert [each["type"] for each in history] == ["order.placed", "order.shipped"]


def test_orders_that_did_not_ship_are_listed_in_one_banner(shop, at_desk):
    page = at_desk(refusals=(409,), viewport={"width": 1280, "height": 2400})
    gone = [shop.place(10) for _ in range(3)]
    go_to(page, "orders?pet=10")
    press_ship(page, *gone)
    for order_id in gone:
        shop.cancel(order_id)
    send_now(page)
    told = page.locator("#banner-ship")
    expect(told.locator("li")).to_have_count(3)
    expect(told.locator("li").first).to_contain_text("was not shipped. Someone else was faster")
    expect(page.locator("#banners .bad")).to_have_count(1)
    told.get_by_role("button", name="Close").click()
    expect(told).to_have_count(0)


def test_due_orders_come_first_and_have_filters(shop, at_desk):
    late, soon, later = (
        shop.place(11, shipDate=at(minutes=-5)),
        shop.place(11, shipDate=at(minutes=30)),
        shop.place(11, shipDate=at(days=40)),
    )
    undated = shop.place(11)
    page = at_desk(timezone_id="UTC", is_clock_ours=True, loses=True)
    assert ids(page)[-1] == later
    assert ids(page).index(late) < ids(page).index(undated)
    page.get_by_role("link", name="Late").click()
    expect(row(page, late)).to_contain_text("late")
    expect(row(page, undated)).to_have_count(0)
    # It becomes late while nobody does anything.
    expect(row(page, soon)).to_have_count(0)
    page.context.set_offline(True)
    page.clock.fast_forward(31 * 60_000)
    expect(row(page, soon)).to_contain_text("late")
    page.context.set_offline(False)
    page.get_by_role("link", name="No date").click()
    expect(row(page, undated)).to_be_visible()
    expect(row(page, late)).to_have_count(0)


def test_the_list_is_saved_without_formulas_and_comes_back_unchanged(
    shop, at_desk, make_store, tmp_path
):
    texts = [
        "=1+1",
        "'=1",
        " +x",
        "-",
        "@SUM(A1)",
        "'",
        "x ",
        'a "b", c;d',
        "\ufeffx",
        "'s-H",
        "\u3000",
    ]
    # Of these, the second is the hour that clocks repeat, and the third before spreadsheets' time.
    dates = ["2026-10-25T00:30:00.123Z", "2026-10-25T01:30:00.123Z", "0001-01-01T00:00:00Z"]
    notes = ['Leave at the "door",\nthank you', "=1", "\r\nx", "a\rb"]
    for number, text in enumerate(texts):
        more = {"shipDate": dates[number]} if number < len(dates) else {}
        shop.place(41, reference=text, item=text, note=notes[number % len(notes)], **more)
    page = at_desk(timezone_id="Europe/Berlin")
    go_to(page, "orders?pet=41")
    expect(page.locator("tbody tr")).to_have_count(len(texts))
    with page.expect_download() as download:
        press(page, "CSV of this page")
    content = Path(download.value.path()).read_bytes()
    (first, *others) = csv.DictReader(content.decode("utf-8-sig").splitlines(keepends=True))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", first["placedAt (Europe/Berlin)"])
    assert not [line for line in (first, *others) if re.match("[=+@-]", line["reference"])]
    other = make_store()
    imported(import_file(other, tmp_path, content), len(texts))
    path = "/v2/store/orders?petId=41&limit=200"
    came_back = other.client().get(path).get_json()["orders"]
    assert came_back == shop.api("GET", path).json()["orders"]


def test_the_whole_list_is_saved_after_saying_how_many_orders_it_has(shop, at_desk):
    for _ in range(52 - shop.count()):
        shop.place(42)
    page = at_desk(PLENTY)
    page.get_by_role("link", name="All").click()
    expect(page.locator("tbody tr")).to_have_count(50)
    with page.expect_download() as download:
        press(page, f"CSV of all {shop.count()} orders")
    with Path(download.value.path()).open(encoding="utf-8-sig", newline="") as file:
        assert len(list(csv.DictReader(file))) == shop.count() > 50


def test_the_packing_list_has_dates_that_stay_true(shop, at_desk):
    order_id = shop.place(43, reference="on paper", note="No knives", shipDate=at(minutes=5))
    page = at_desk(timezone_id="UTC")
    go_to(page, "orders?pet=43")
    # The previous list may have it, too.
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(row(page, order_id)).to_be_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    paper = page.locator("#packing")
    expect(paper).to_contain_text("No knives")
    expect(paper).to_contain_text(f"1 order, {datetime.now(UTC):%-d %b}")
    expect(paper).not_to_contain_text(re.compile("today|tomorrow", re.IGNORECASE))


def test_on_a_phone_nothing_covers_undo(shop, at_desk):
    page = at_desk(viewport={"width": 320, "height": 640})
    press_ship(page, 7, 8)
    press(page, "Undo shipping order 7")
    announced(page, "Order 7 was not shipped.")
    undo = page.get_by_role("button", name="Undo shipping order 8")
    said, below = (each.bounding_box() for each in (page.locator("#announcement"), undo))
    assert said["y"] + said["height"] <= below["y"]
    assert below["x"] + below["width"] < 320
    undo.click()
    expect(page.locator("#shipping")).to_be_hidden()
