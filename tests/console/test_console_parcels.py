"""The console in a real browser on a day of parcels: from another shop's export to tracking."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import (
    ORDERS,
    PLENTY,
    announced,
    desk_shop,
    go_to,
    in_plain_words,
    next_poll,
    press,
    press_ship,
    requests_of,
    row,
    send_now,
    sign_in,
    wait_for_rows,
)
from tests.support.imports import table
from tests.support.machine import wait_until
from tests.support.paper import pdf_of, run, scanned

pytestmark = pytest.mark.browser

SHOP = {"orders": 2}

# The columns of Shopify's export.
ADDRESS = "Name Street Address1 Address2 Company City Zip Province Country Phone"
COLUMNS = [
    *("Name", "Email", "Financial Status", "Paid at", "Fulfillment Status", "Fulfilled at"),
    *("Accepts Marketing", "Currency", "Subtotal", "Shipping", "Taxes", "Total", "Discount Code"),
    *("Discount Amount", "Shipping Method", "Created at", "Lineitem quantity", "Lineitem name"),
    *("Lineitem price", "Lineitem compare at price", "Lineitem sku", "Lineitem requires shipping"),
    *("Lineitem taxable", "Lineitem fulfillment status"),
    *(f"{kind} {part}" for kind in ("Billing", "Shipping") for part in ADDRESS.split()),
    *("Notes", "Note Attributes", "Cancelled at", "Payment Method", "Payment Reference"),
    *("Refunded Amount", "Vendor", "Outstanding Balance", "Employee", "Location", "Device ID"),
    *("Id", "Tags", "Risk Level", "Source", "Lineitem discount"),
]
ITEMS = {"COL-S": (7, "Red collar - S"), "BOWL": (8, 'Bowl "Deluxe", 2 l'), "TREAT": (9, "Treats")}
NAMES = ("Mia Wong", "Zoë O'Brien", "Łukasz Żak", "Ada Lovelace", "Nguyễn Thị Hà")
MEANT = ["reference", "petId", "quantity", "item", "shipTo", "status", "note", "tracking"]
EXPORTED, ONE_BY_ONE = 300, 5


def export():
    """Return Shopify's export of a shop's orders, and the orders that are meant, in its order.

    Each order's cells stand on its first row. Every third order has two items; of ten, three have
    shipped and one is cancelled.
    """
    rows, meant = [], []
    for number in range(EXPORTED):
        state = ("shipped", "shipped", "shipped", "cancelled", *["pending"] * 6)[number % 10]
        created = f"2026-11-{1 + number // 15:02} {8 + number % 15 // 2:02}:04:05 +0100"
        name, house = NAMES[number % len(NAMES)], f"{number + 1} Harbour St"
        first = {
            "Email": f"{number}@example.org",
            "Financial Status": "refunded" if state == "cancelled" else "paid",
            "Fulfillment Status": "fulfilled" if state == "shipped" else "unfulfilled",
            "Fulfilled at": created if state == "shipped" else "",
            "Currency": "EUR",
            "Created at": created,
            "Billing Name": "The Bank",
            "Shipping Name": name,
            "Shipping Street": house,
            "Shipping Address1": house,
            "Shipping City": "Paris",
            "Shipping Zip": "'75008",
            "Shipping Country": "FR",
            "Notes": "Ring twice" if number % 7 == 0 else "",
            "Cancelled at": created if state == "cancelled" else "",
            "Id": 5_000_000_000_000 + number,
        }
        for index, (sku, (pet_id, item)) in enumerate([*ITEMS.items()][: 1 + (number % 3 == 0)]):
            line = {
                "Name": f"#{1001 + number}",
                "Lineitem quantity": 1 + number % 4,
                "Lineitem name": item,
                "Lineitem price": "9.90",
                "Lineitem sku": sku,
                "Lineitem fulfillment status": "fulfilled" if state == "shipped" else "pending",
                "Vendor": "Pets",
            }
            cells = line | (first if index == 0 else {})
            rows.append([cells.get(column, "") for column in COLUMNS])
            order = {
                "reference": line["Name"],
                "petId": pet_id,
                "quantity": line["Lineitem quantity"],
                "item": item,
                "shipTo": f"{name}\n{house}\n75008 Paris\nFR",
                "status": state,
            }
            meant.append(order | ({"note": first["Notes"]} if first["Notes"] else {}))
    return table(COLUMNS, *rows), meant


def stored(shop):
    """Return all orders by id, with what of them is meant."""
    orders, after = [], ""
    while after is not None:
        page = shop.api("GET", f"{ORDERS}?limit=200{after}").json()
        orders += page["orders"]
        after = f"&after={page['next']}" if "next" in page else None
    return {each["id"]: {name: each[name] for name in MEANT if name in each} for each in orders}


def import_export(shop, folder):
    """Import Shopify's export by the command; return the orders that are meant, by their ids."""
    content, lines = export()
    (folder / "orders_export.csv").write_text(content, encoding="utf-8")
    pets = table(["SKU", "petId"], *([sku, pet_id] for sku, (pet_id, _) in ITEMS.items()))
    (folder / "map.csv").write_text(pets)
    done = shop.service.command(
        *("orders", "import", str(folder / "orders_export.csv"), "--from", "shopify"),
        *("--pets", str(folder / "map.csv"), "--column", "note=Notes"),
    )
    assert done.stderr.endswith(f"Imported {len(lines)} orders.\n"), done.stderr
    meant = dict(zip(stored(shop), lines, strict=True))
    assert stored(shop) == meant
    return meant


def print_slips(page, meant, count, folder):
    """Print slips of the first orders that are to ship; return what a scanner reads on each."""
    boxes = page.get_by_role("checkbox", name=re.compile("^Choose order"))
    boxes.first.click()
    boxes.nth(count - 1).click(modifiers=["Shift"])
    expect(page.locator(".found")).to_have_text(f"{count} chosen")
    press(page, "Slips and labels")
    page.get_by_role("dialog").get_by_role("button", name="Print", exact=True).click()
    file = pdf_of(page, folder)
    read = [int(text) for texts in scanned(file) for text in texts]
    slips = run("pdftotext", file, "-").split("\f")[:-1]
    assert (len(set(read)), len(slips)) == (count, count)
    for order_id, slip in zip(read, slips, strict=True):
        order = meant[order_id]
        assert order["status"] == "pending"
        wanted = [f"Order {order_id}", order["reference"], order["item"], f"{order['quantity']}"]
        assert {*wanted, *order["shipTo"].splitlines()} <= {*slip.splitlines()}
    return read


def add_tracking(page, which, texts):
    """Press "Add tracking" and scan the parcels' numbers, each of which the scanner ends."""
    button = page.get_by_role("button", name=f"Add tracking of {which}", exact=True)
    dialog = page.get_by_role("dialog", name=f"Tracking of {which}")
    # If the page took the press for an accident, it is pressed again.
    wait_until(lambda: dialog.is_visible() or button.click())
    for text in texts:
        page.keyboard.type(f"{text}\n")
    expect(dialog).to_be_hidden()


@pytest.fixture
def empty_shop(tmp_path, forks):
    with desk_shop(tmp_path / "instance", forks=forks) as one:
        yield one


# A day of 40 takes a minute.
@pytest.mark.parametrize("slips", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_a_day_of_parcels_ends_with_no_mistake(empty_shop, visit, tmp_path, slips):
    shop = empty_shop
    meant = import_export(shop, tmp_path)
    page = visit(shop.url, before=lambda page: page.add_init_script("window.print = () => {}"))
    sign_in(page, shop.store.issue(**PLENTY)[1])
    wait_for_rows(page)
    read = print_slips(page, meant, slips, tmp_path)

    # Each is scanned. Some are shipped at once, with the parcel's number.
    for place, order_id in enumerate(read):
        page.keyboard.type(f"{order_id}\n")
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"Order {order_id} ")
        expect(page.locator("#view .facts")).to_contain_text(meant[order_id]["reference"])
        meant[order_id] |= {"status": "shipped", "tracking": f"JD {order_id:06}"}
        if place < ONE_BY_ONE:
            expect(page.get_by_role("button", name="Ship order")).to_be_focused()
            # The page takes an Enter right after a scan for the scanner's second.
            undo = page.get_by_role("button", name=f"Undo shipping order {order_id}", exact=True)
            wait_until(lambda undo=undo: undo.count() or page.keyboard.press("Enter"))
            add_tracking(page, f"order {order_id}", [meant[order_id]["tracking"]])
    # The others together.
    send_now(page)
    go_to(page, "orders")
    for order_id in read[:ONE_BY_ONE]:
        expect(row(page, order_id)).to_have_count(0)
    expect(page.locator(".found")).to_have_text(f"{slips - ONE_BY_ONE} chosen")
    together = f"{slips - ONE_BY_ONE} orders"
    press(page, f"Ship {together}")
    page.get_by_role("dialog").get_by_role("button", name=f"Ship {together}").click()
    add_tracking(page, together, [meant[order_id]["tracking"] for order_id in read[ONE_BY_ONE:]])
    send_now(page)
    announced(page, f"{together} shipped.")

    # One was shipped by mistake, and one customer wants to be forgotten.
    mistaken, forgotten = read[3], read[-1]
    page.keyboard.type(f"JD {mistaken:06}\n")
    press(page, "Reopen order")
    press(page, "Reopen the order")
    announced(page, f"Order {mistaken} reopened: it is pending again.")
    meant[mistaken]["status"] = "pending"
    del meant[mistaken]["tracking"]
    done = shop.service.command("orders", "forget", f"{forgotten}")
    assert "Deleted the personal data of 1 order." in done.stderr
    for name in ("reference", "note", "shipTo", "tracking"):
        meant[forgotten].pop(name, None)

    after = stored(shop)
    assert {each: after.get(each) for each in meant if after.get(each) != meant[each]} == {}
    assert len(after) == len(meant)


def test_tracking_is_entered_while_a_shipment_can_be_undone_and_sent_with_it(shop, at_desk):
    chosen = [shop.place(31) for _ in range(3)]
    page = at_desk(is_clock_ours=True)
    go_to(page, "orders?pet=31")
    expect(page.locator("tbody tr")).to_have_count(3)
    sent = requests_of(page)
    press_ship(page, chosen[0])
    press(page, f"Add tracking of order {chosen[0]}")
    # Nothing is sent meanwhile.
    page.clock.run_for(30_000)
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label(f"Order {chosen[0]}", exact=True)
    expect(field).to_be_focused()
    field.fill("zwölf")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("enter plain letters, digits and signs only.")
    no_violations(page)
    field.fill(" JD 1 ")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Change tracking of order")).to_be_visible()
    page.locator("#choose-all").check()
    press(page, "Ship 2 orders")
    dialog.get_by_role("button", name="Ship 2 orders").click()
    press(page, "Add tracking of 2 orders")
    for label in (f"Order {each}" for each in chosen[1:]):
        expect(dialog.get_by_label(label, exact=True)).to_be_focused()
        page.keyboard.type("\n" if label.endswith(f"{chosen[1]}") else "JD 3\n")
    assert [each for each in sent if not each.startswith("GET")] == []
    page.mouse.move(5, 5)
    page.clock.run_for(15_000)
    expect(page.locator("#shipping")).to_be_hidden()
    orders = [shop.order(each) for each in chosen]
    assert [each["status"] for each in orders] == ["shipped"] * 3
    assert [each.get("tracking") for each in orders] == ["JD 1", None, "JD 3"]


def test_an_order_that_is_forgotten_loses_its_texts_wherever_it_is_open(shop, at_desk):
    order_id = shop.place(32, reference="Ermintrude", shipTo="Ermintrude\n1 High St", note="Ring")
    shop.ship(order_id)
    tabs = []
    for place in ("orders?status=all&pet=32", f"orders/{order_id}", f"orders/{order_id}"):
        page = at_desk(is_clock_ours=True)
        # Cached contents are shown first when somebody returns to a view.
        go_to(page, "orders?status=all&search=Ermintrude")
        expect(row(page, order_id)).to_contain_text("Ermintrude")
        go_to(page, place)
        expect(page.locator("#view")).to_contain_text("Ermintrude")
        tabs.append(page)
    the_list, order, form = tabs
    press(form, "Change note or tracking")
    form.get_by_label("Note").fill("Ermintrude is in")
    shop.service.output("orders", "forget", str(order_id))
    for page in tabs:
        next_poll(page)
        announced(page, f"Order {order_id} had its personal data deleted.")
        expect(page.locator("#view")).not_to_contain_text("Ermintrude")
    for page in (order, form):
        steps = page.locator(".timeline li")
        expect(steps).to_have_count(3)
        assert re.fullmatch(
            "Personal data deleted: reference, note, address and tracking\n"
            ".+\nfrom the command line",
            steps.last.inner_text(),
        )
        assert all(steps.all_inner_texts())
        assert in_plain_words(page.locator("#view").inner_text())
        assert "Ermintrude" not in page.evaluate("JSON.stringify({ ...sessionStorage })")
        no_violations(page)
    expect(row(the_list, order_id)).to_be_visible()
    go_to(order, "orders?status=all&search=Ermintrude")
    expect(order.get_by_role("heading", name="No orders found")).to_be_visible()
