"""Slips and labels as a label printer draws them, in black and white at 203 dpi, and scanned."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import expect, no_violations
from tests.support.console import go_to, press, row, sign_in, wait_for_rows
from tests.support.paper import pdf_of, run, scanned, words

pytestmark = pytest.mark.browser

SHOP = {"orders": 7}
# All symbols: each pair of digits, digits alone, and the check symbols that no pair stands for.
NUMBERS = [
    *range(1, 10),
    *(f"1{first:02}{first + 1:02}{first + 2:02}{first + 3:02}" for first in range(0, 100, 4)),
    *(98, 99, 165, 9223372036854775807),
]
NOTE = "Wrap it as a gift, and leave it with the neighbour, who is in from nine to five. " * 6
ADDRESSES = [
    "Ada Lovelace\n12 St James's Square\nLondon SW1Y 4JH",
    "\n".join(
        f"{line} Building at the far end of the yard, ring the bell twice" for line in range(8)
    ),
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft\n1010 Wien",
    "A\nB\nC\nD\nE\nF\nG\nH",
    "محمد علي\n12 Rue de la Paix\n75002 Paris",
    "🐶 Happy Paws 🐾\n1 Main Street\nSpringfield",
    ("Dr. Maximiliane von und zu Hohenzollern, c/o Verein der Freunde " * 8)[:499] + ".",
]


@pytest.fixture
def desk(at_desk):
    """A page on which printing waits for the test, as it does for a person's confirmation."""
    page = at_desk()
    page.add_init_script("window.print = () => {}")
    page.reload()
    wait_for_rows(page)
    return page


def ask(page, kind, **settings):
    """Press "Slips and labels" and choose what to print; return the dialog."""
    press(page, "Slips and labels")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(kind).check()
    for name, value in settings.items():
        dialog.get_by_label(name.capitalize()).fill(f"{value}")
    return dialog


def confirm(dialog):
    dialog.get_by_role("button", name="Print", exact=True).click()


def print_given(page, orders):
    """Open the print dialog for these orders, as the list does for its own."""
    page.evaluate(
        "orders => { import('/console/packing.js').then((it) => it.printSlips(orders)) }", orders
    )


def given(order_id, address, **fields):
    """An order as the service answers it, with an address."""
    fields = {"id": order_id, "petId": 7, "quantity": 1, "status": "pending", **fields}
    return {**fields, "shipTo": address, "placedAt": "2026-11-22T08:00:00Z"}


def test_each_symbol_of_code_128_is_drawn_as_a_scanner_reads_it(desk, tmp_path):
    desk.evaluate(
        """async (numbers) => {
            const { barcode } = await import("/console/code128.js");
            const part = (number) => {
                const made = document.createElement("p");
                made.style.margin = "2mm";
                made.append(barcode(number, 2));
                return made;
            };
            document.body.prepend(...numbers.map(part));
        }""",
        [f"{number}" for number in NUMBERS],
    )
    read = scanned(pdf_of(desk, tmp_path))
    assert sorted(int(each) for page in read for each in page) == sorted(map(int, NUMBERS))


def test_a_slip_for_each_order_is_printed_one_a_page_and_its_scan_opens_the_order(
    shop, desk, tmp_path
):
    ids = [
        shop.place(81, quantity=12, reference="WEB-10040", note=NOTE),
        shop.place(81, note="\n".join(f"{number}.-" for number in range(99))),
        shop.place(81),
    ]
    go_to(desk, "orders?pet=81")
    expect(desk.locator("tbody tr")).to_have_count(3)
    dialog = ask(desk, "one a page")
    no_violations(desk)
    expect(dialog.get_by_label("Columns")).to_be_hidden()
    dialog.get_by_role("button", name="Print", exact=True).press("Enter")
    file = pdf_of(desk, tmp_path)
    # The notes decide how many pages, and nothing of them is lost.
    first, second, *more, last = scanned(file)
    assert [first, second, last] == [[f"{each}"] for each in sorted(ids, key=int)]
    assert more
    assert not any(more)
    text = run("pdftotext", file, "-")
    for word in ("WEB-10040", "98.-", f"Order {ids[2]}", "12", "No. 81"):
        assert word in text
    assert text.count("neighbour") == NOTE.count("neighbour")
    desk.keyboard.type(f"{first[0]}\n")
    expect(desk.get_by_role("heading", level=1)).to_contain_text(f"Order {first[0]} ")


def test_two_slips_share_a_page_unless_one_is_too_long(desk, tmp_path):
    long = "\n".join("abcdefghijklmnopqrstuvwxyz")
    orders = [given(each, ADDRESSES[each % 3]) for each in range(1, 5)]
    print_given(desk, [*orders, given(5, ADDRESSES[0], note=long), given(6, ADDRESSES[6])])
    dialog = desk.get_by_role("dialog")
    dialog.get_by_label("two a page").check()
    confirm(dialog)
    file = pdf_of(desk, tmp_path)
    assert scanned(file) == [["1", "2"], ["3", "4"], ["5"], ["6"]]
    # The second begins in the lower half, with room to cut between them.
    heads = [top for text, _, top, _, _ in words(file) if text == "Order"]
    for upper, lower in (heads[0:2], heads[2:4]):
        assert 0 < upper < 30 < 297 / 2 + 8 < lower < 297 / 2 + 30


def test_labels_fit_in_their_places_whatever_the_addresses_are(desk, tmp_path):
    orders = [
        given(
            number,
            ADDRESSES[number % len(ADDRESSES)],
            reference=("r" * 63 + " ")[: number * 4].strip(),
        )
        for number in range(1, 27)
    ]
    print_given(desk, orders)
    dialog = desk.get_by_role("dialog")
    dialog.get_by_label("Address labels").check()
    expect(dialog).to_contain_text("24 labels a sheet, 70 \u00d7 37.1 mm each.")
    expect(dialog).not_to_contain_text("No address")
    confirm(dialog)
    file = pdf_of(desk, tmp_path)
    ids = [f"{order['id']}" for order in orders]
    assert scanned(file) == [ids[:24], ids[24:]]
    # The height of an emoji depends on the computer's fonts.
    found = [word for word in words(file) if re.search(r"\w", word[0])]
    for text, left, top, right, bottom in found:
        assert (left // 70, top // 37.125) == (right // 70, bottom // 37.125), text
        assert 4 < left % 70 < right % 70 < 67, text
        assert 2 < top % 37.125 < bottom % 37.125 < 36, text
    texts = [text for text, *_ in found]
    for word in ("Lovelace", "7", "H", "Springfield", "Paris", "Freunde"):
        wanted = sum(re.findall(r"\S+", each["shipTo"]).count(word) for each in orders)
        assert texts.count(word) >= wanted > 0, word


def test_a_sheet_is_chosen_once_and_labels_begin_at_the_first_free_one(shop, desk, tmp_path):
    ids = [shop.place(82, reference=f"Parcel-{each}") for each in "abc"]
    go_to(desk, "orders?pet=82")
    expect(desk.locator("tbody tr")).to_have_count(3)
    dialog = ask(desk, "Address labels", columns=2, rows=7, first=6)
    no_violations(desk)
    # None has an address: they are named before, and have a label with their reference.
    expect(dialog).to_contain_text(f"No address: orders {', '.join(map(str, sorted(ids)))}.")
    expect(dialog.get_by_label("Print these, too")).to_be_checked()
    confirm(dialog)
    file = pdf_of(desk, tmp_path)
    assert scanned(file) == [[f"{each}" for each in sorted(ids)]]
    places = [
        (left // 105, top // (297 / 7)) for text, left, top, *_ in words(file) if "Parcel" in text
    ]
    assert places == [(1, 2), (0, 3), (1, 3)]
    press(desk, "Sign out")
    sign_in(desk, desk.secret)
    wait_for_rows(desk)
    press(desk, "Slips and labels")
    for label, value in (("Columns", "2"), ("Rows", "7"), ("First free label", "1")):
        expect(dialog.get_by_label(label)).to_have_value(value)
    dialog.get_by_label("Rows").fill("0")
    confirm(dialog)
    expect(dialog).to_contain_text("Rows: enter a number from 1 to 20.")
    expect(dialog.get_by_label("Rows")).to_be_focused()


def test_orders_with_no_address_or_one_too_long_for_a_label_are_named_and_left_out(desk, tmp_path):
    orders = [given(1, ADDRESSES[0]), given(2, "W" * 500), given(3, None), given(4, ADDRESSES[5])]
    print_given(desk, orders)
    dialog = desk.get_by_role("dialog")
    dialog.get_by_label("Address labels").check()
    expect(dialog).to_contain_text("No address: order 3.")
    expect(dialog.get_by_label("Print these, too")).not_to_be_checked()
    confirm(dialog)
    expect(dialog).to_contain_text("Too long for a label of this size: the address of order 2.")
    confirm(dialog)
    assert scanned(pdf_of(desk, tmp_path)) == [["1", "4"]]


def test_the_packing_list_is_printed_after_labels_were_and_a_read_key_prints_slips(
    shop, visit, desk, tmp_path
):
    confirm(ask(desk, "Address labels"))
    assert scanned(pdf_of(desk, tmp_path)) != [[]]
    assert run("pdftotext", pdf_of(desk, tmp_path), "-").count("Packing list") == 1
    page = visit(shop.url)
    sign_in(page, shop.store.issue(scopes=("read",))[1])
    row(page, 3).get_by_role("link").click()
    press(page, "Slip or label")
    expect(page.get_by_role("dialog")).to_contain_text("Slips and labels of order 3")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Slip or label")).to_be_focused()


def test_pages_have_the_size_of_the_paper(desk, tmp_path):
    print_given(desk, [given(each, ADDRESSES[each]) for each in (1, 2)])
    dialog = desk.get_by_role("dialog")
    dialog.get_by_label("Address labels").check()
    dialog.get_by_label("Paper").select_option("4x6")
    expect(dialog).to_contain_text("1 label a sheet, 101.6 \u00d7 152.4 mm each.")
    confirm(dialog)
    file = pdf_of(desk, tmp_path)
    assert scanned(file) == [["1"], ["2"]]
    assert re.findall(r"size: +(\d+\S*) x (\d+\S*) pts", run("pdfinfo", file)) == [("288", "432")]
