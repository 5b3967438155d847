"""Tables from other programs: spreadsheets, and the exports of Shopify and WooCommerce."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from orders.files import formats
from orders.files.exporting import lines as exported_lines
from orders.files.formats import Reading
from orders.files.rows import ORDERS, Faults, FileRefused, checked
from orders.files.shops import SHOPS
from orders.files.spreadsheets import LONGEST_LINE, cell_text
from tests.support.commands import messages
from tests.support.imports import contents, imported, lines, orders_of, table
from tests.support.orders import order_row, put_rows

BERLIN = ("--zone", "Europe/Berlin")
ROWS = 'petId;reference;item\r\n7;Höhle;"a 5"" collar"\r\n'
PETS = "SKU;Name;petId\r\nCOL-S;Collar;7\r\nBOWL;;8\r\nCARD;Gift card;\r\n"
MAP = {"COL-S": "7", "Collar": "7", "BOWL": "8", "CARD": ""}


def read(content, name="orders.csv", **reading):
    """Return the cells of a file's rows, the messages of its faults, and the remarks."""
    file = io.BytesIO(content.encode() if isinstance(content, str) else content)
    pieces = iter(partial(file.readline, LONGEST_LINE + 1), b"")
    faults = Faults()
    try:
        rows = formats.read(pieces, Path(name).suffix, ORDERS, faults, Reading(**reading))
        rows = [cells for _, cells in checked(rows, ORDERS, faults)]
    except FileRefused as error:
        return [], [str(error)], faults.remarks
    return rows, [str(fault) for fault in faults.first], faults.remarks


@pytest.fixture
def pets(tmp_path):
    file = tmp_path / "map.csv"
    file.write_text(PETS, encoding="utf-8-sig", newline="")
    return ("--pets", str(file))


# Encodings and formats that spreadsheets write.

ENCODED = {
    "Excel, CSV (semicolon)": ("orders.csv", ROWS.encode("windows-1252")),
    "Excel, CSV UTF-8": ("orders.csv", ROWS.encode("utf-8-sig")),
    "Excel, Unicode text": ("orders.txt", ROWS.replace(";", "\t").encode("utf-16")),
    "Excel for Mac": ("orders.csv", ROWS.replace("\r\n", "\r").encode()),
    "LibreOffice": ("orders.csv", ROWS.replace(";", ",").replace("\r\n", "\n").encode()),
    "line ends of all kinds, empty rows, a quoted separator": (
        "orders.csv",
        '"No.;";pet-id;reference ; Item\r\n\n;7;Höhle;"a 5"" collar"\r;;;\n'.encode(),
    ),
    "big-endian": ("orders.tsv", b"\xfe\xff" + ROWS.replace(";", "\t").encode("utf-16-be")),
}


@pytest.mark.parametrize("case", ENCODED.values(), ids=ENCODED)
def test_a_table_is_read_as_its_program_wrote_it(case):
    name, content = case
    rows, faults, remarks = read(content, name, ignore_others=True)
    assert rows == [{"petId": 7, "reference": "Höhle", "item": 'a 5" collar'}], faults
    assert bool(remarks) == (b"H\xf6hle" in content)


# The text and the options; then the instant, or words of the error.
TIMES = {
    ("22.11.2026", *BERLIN): "2026-11-21T23:00:00.000Z",
    ("22.11.26 10:04", *BERLIN): "2026-11-22T09:04:00.000Z",
    ("05.06.2026", *BERLIN): "2026-06-04T22:00:00.000Z",
    ("11/22/2026 10:04:05 PM", *BERLIN): "2026-11-22T21:04:05.000Z",
    ("11/22/26, 12:04 am", *BERLIN): "2026-11-21T23:04:00.000Z",
    ("2026-11-22 10:04:05.1239", *BERLIN): "2026-11-22T09:04:05.123Z",
    ("2026-11-22 10:04:05 +0100",): "2026-11-22T09:04:05.000Z",
    ("2026-11-22 10:04:05 UTC",): "2026-11-22T10:04:05.000Z",
    ("05/05/2026", *BERLIN): "2026-05-04T22:00:00.000Z",
    ("05/06/2026", *BERLIN, "--dates", "mdy"): "2026-05-05T22:00:00.000Z",
    ("05/06/2026", *BERLIN, "--dates", "dmy"): "2026-06-04T22:00:00.000Z",
    ("26-11-22", *BERLIN, "--dates", "ymd"): "2026-11-21T23:00:00.000Z",
    # When clocks go back, this time occurs twice: the first is meant.
    ("2026-10-25 02:30", *BERLIN): "2026-10-25T00:30:00.000Z",
    ("2026-03-29 02:30", *BERLIN): "skipped in Europe/Berlin",
    ("05/06/2026", *BERLIN): "may be 5 June or 6 May: say which, with --dates",
    ("2026-11-22",): "in no time zone: name the shop's, such as --zone",
    ("31.02.2026", *BERLIN): "a date that exists: 31.02.2026 does not",
    ("22.11.2026", *BERLIN, "--dates", "mdy"): "does not in the order mdy",
    ("22.11.2026 24:00", *BERLIN): "a time that exists",
    ("22.11.2026 13:00 pm", *BERLIN): "a time that exists",
    ("44887", *BERLIN): "a spreadsheet's number for a day",
    ("44887,5", *BERLIN): "a spreadsheet's number for a day",
    ("22.11", *BERLIN): "must be a date-time",
    ("31.12.9999 23:00", "--zone", "America/New_York"): "must be a date-time",
}


@pytest.mark.parametrize(("given", "expected"), TIMES.items(), ids=map(" ".join, TIMES))
def test_a_time_is_read_correctly_or_the_message_names_the_option_it_needs(given, expected):
    text, *options = given
    told = dict(zip(options[::2], options[1::2], strict=True))
    zone = ZoneInfo(told["--zone"]) if told else None
    content = table(["petId", "placedAt"], [7, text])
    rows, faults, _ = read(content, zone=zone, dates=told.get("--dates"))
    if expected[-1] == "Z":
        assert rows == [{"petId": 7, "placedAt": expected}], faults
    else:
        (fault,) = faults
        assert fault.startswith("line 2, placedAt: ")
        assert expected in fault


def test_the_first_unambiguous_date_sets_the_order_and_a_mixture_is_rejected(
    take, rejected_here, store
):
    rows = "petId,placedAt\n7,12/24/2026 8:00\n7,01/02/2026 8:00\n"
    imported(take(rows, "orders.csv", *BERLIN), 2)
    assert [each[:10] for (each,) in orders_of(store, "placed_at")] == ["2026-12-24", "2026-01-02"]
    message = rejected_here(f"{rows}7,24/12/2026\n", "orders.csv", *BERLIN)
    assert "line 4, placedAt: 24/12/2026 and 12/24/2026 8:00 do not" in message


def test_columns_can_be_renamed_and_pets_looked_up_in_a_table(take, rejected, store, pets):
    header = ["Artikel", "Menge", "Pet ID", "Kunde"]
    columns = [f"--column={each}" for each in ("petId=Artikel", "quantity=menge")]
    rows = table(header, ["COL-S", 2, "x", "Mia"], ["CARD", 1, "", ""], ["BOWL", 3, "", ""])
    done = take(rows, "orders.csv", *columns, *pets, "--ignore-others")
    assert messages(done) == (
        "1 row left out, as the table of pets has no petId beside them.\nImported 2 orders.\n"
    )
    assert orders_of(store, "pet_id, quantity") == [(7, 2), (8, 3)]
    assert "line 1: unknown column 'Pet ID'" in rejected(rows, "orders.csv", *columns, *pets)
    assert "no column 'Art' for petId" in rejected(rows, "orders.csv", "--column", "petId=Art")
    assert "colour=Farbe is not" in rejected(rows, "orders.csv", "--column", "colour=Farbe")
    unknown = rejected("petId\nCOL-S\nCOL-M\n", "orders.csv", *pets)
    assert "line 3: the table of pets has neither 'COL-M'" in unknown
    assert "for tables" in rejected(lines({"petId": 7}), "orders.jsonl", *BERLIN)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("SKU,pet\nA,7\n", "line 1, map.csv: there is no column petId"),
        ("SKU,petId\nA,7\nB,seven\nA,8\n", "line 3, map.csv: petId must be a whole number"),
        ("SKU,petId\nA,7\nB,8\nA,8\n", "line 4, map.csv: 'A' has another petId above"),
    ],
)
def test_a_table_of_pets_with_faults_is_rejected(rejected, tmp_path, content, words):
    (tmp_path / "map.csv").write_text(content)
    assert words in rejected("petId\nA\n", "orders.csv", "--pets", str(tmp_path / "map.csv"))


HOSTILE = {
    "no bytes": (b"", "line 1: there is no header"),
    "twice, by another name": (b"petId,PET_ID\n7,7\n", "the column petId is there twice"),
    "a decimal comma": (b"petId;quantity\n7;1,0\n", "line 2, quantity: must be a whole"),
    "a point for thousands": (b"petId;quantity\n7;1.000\n", "line 2, quantity: must be a whole"),
    "an exponent": (b"petId;quantity\n7;3E5\n", "line 2, quantity: must be a whole"),
    "a zero byte": (b"petId;item\n7;a\0b\n", "line 2, item: must be"),
    "a line without end": (b"petId\n" + b"7," * 600_000, "line 2: it has a line of more than"),
    "a quote without end": (b'petId\n"7' + b"\n7" * 100_000, "line 2: it is not CSV"),
    "UTF-16 without its mark": ("petId\n7\n".encode("utf-16-le"), "line 1: unknown column"),
}


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE)
def test_an_unreadable_table_is_rejected(case):
    content, words = case
    assert words in read(content)[1][-1]


def test_an_overlong_line_of_json_is_rejected():
    assert "line 1: it has a line of more" in read(b"7" * 2_000_000, "orders.jsonl")[1][0]


# Importing again.


def test_rows_with_known_references_are_rejected_skipped_or_imported_again(
    take, rejected_here, store
):
    rows = table(["petId", "reference"], [7, "#1"], [8, "#1"], [9, ""], [9, "#2"])
    imported(take(rows), 4)
    message = rejected_here(rows, "orders.csv", "--if-known", "refuse")
    assert "line 2, reference: order 1 has '#1' already (see --if-known); line 3" in message
    more = rows + "7,#3\n8,#3\n"
    done = take(more, "orders.csv", "--if-known", "skip")
    assert messages(done).startswith(
        "3 rows left out, as an order has their reference.\nImported 3"
    )
    assert orders_of(store, "pet_id, reference")[4:] == [(9, None), (7, "#3"), (8, "#3")]
    imported(take(rows), 4)


def test_a_dry_run_shows_the_first_orders_and_every_fault(take, store):
    store.client().place(1)
    before = contents(store)
    rows = table(
        ["petId", "reference", "shipTo"], [7, "#1", "Mia\nHigh St"], *[["x", "", ""]] * 150
    )
    done = take(rows, "orders.csv", "--dry-run")
    assert done.exit_code == 1
    assert done.stdout.startswith("line 2\n  petId      7\n  quantity   1\n")
    assert "  shipTo     Mia / High St\n" in done.stdout
    assert len([each for each in done.stdout.splitlines() if ", petId: must be" in each]) == 150
    assert "Nothing would be imported: 150 faults." in done.stderr
    done = take("petId\n7\n", "orders.csv", "--dry-run")
    assert (done.exit_code, messages(done)) == (0, "A dry run: would import 1 order.\n")
    assert contents(store) == before


# Exports of other shops.

SHOPIFY = (
    "Name,Email,Financial Status,Fulfillment Status,Fulfilled at,Currency,Total,Created at,"
    "Lineitem quantity,Lineitem name,Lineitem sku,Lineitem fulfillment status,Shipping Name,"
    "Shipping Street,Shipping Address1,Shipping Address2,Shipping Company,Shipping City,"
    "Shipping Zip,Shipping Province,Shipping Country,Notes,Cancelled at,Id\n"
)
CREATED = "2026-11-20 10:04:05 +0100"


def shopify(*rows):
    """Return an export of rows, each given by its changes to an order's first or next row."""
    names = SHOPIFY.strip().split(",")
    first = {
        "Name": "#1001",
        "Financial Status": "paid",
        "Fulfillment Status": "unfulfilled",
        "Created at": CREATED,
        "Shipping Name": "Mia Wong",
        "Shipping Address1": "1 High St",
        "Shipping Street": "1 High St, Back",
        "Shipping Address2": "Back",
        "Currency": "EUR",
        "Shipping City": "Paris",
        "Shipping Zip": "'75008",
        "Shipping Country": "FR",
    }
    line = {"Lineitem quantity": 2, "Lineitem name": "A collar", "Lineitem sku": "COL-S"}
    line |= {"Lineitem fulfillment status": "pending"}
    made = [({"Name": "#1001"} if "next" in row else first) | line | row for row in map(dict, rows)]
    return table(names, *([row.get(name, "") for name in names] for row in made))


NEXT = {"next": True}
# The changes; then status, shipDate and updatedAt (without the year), or words of the error.
LINES = {
    "to ship": ({}, ("pending", None, None)),
    "shipped": (
        {"Lineitem fulfillment status": "fulfilled", "Fulfilled at": "2026-11-21 10:04:05 -0500"},
        ("shipped", "11-21T15:04:05.000Z", "11-21T15:04:05.000Z"),
    ),
    "shipped, nobody knows when": (
        {"Lineitem fulfillment status": "fulfilled"},
        ("shipped", "11-20T09:04:05.000Z", "11-20T09:04:05.000Z"),
    ),
    "cancelled": (
        {"Cancelled at": "2026-11-22 00:00:00 +0000"},
        ("cancelled", None, "11-22T00:00:00.000Z"),
    ),
    "restocked": (
        {"Lineitem fulfillment status": "restocked"},
        ("cancelled", None, None),
    ),
    "refunded": ({"Financial Status": "refunded"}, ("cancelled", None, None)),
    "by its order": (
        {"Lineitem fulfillment status": "", "Fulfillment Status": "fulfilled"},
        ("shipped", "11-20T09:04:05.000Z", "11-20T09:04:05.000Z"),
    ),
    "shipped in part": ({"Lineitem fulfillment status": "partial"}, "line 2: status 'partial'"),
    "a refund": ({"Lineitem quantity": -2}, "line 2, quantity: must be a whole number"),
    "no quantity": ({"Lineitem quantity": ""}, "line 2: it has no quantity"),
    "no number": ({"Name": ""}, "line 2: it has no number of an order"),
    "a long number": ({"Name": "#" * 65}, "line 2, reference: must be 1 to 64 characters"),
    "sorted": ({"Created at": ""}, "line 2: the first row of this order"),
    "another pet": (
        {"Lineitem sku": "X", "Lineitem name": "Y"},
        "line 2: the table of pets has neither 'X' nor 'Y'",
    ),
}


@pytest.mark.parametrize("case", LINES.values(), ids=LINES)
def test_the_status_of_a_line_item_is_read_from_a_shopify_export(case):
    changes, expected = case
    rows, faults, _ = read(shopify(changes), shop=SHOPS["shopify"], pets=MAP)
    if isinstance(expected, str):
        assert [expected in fault for fault in faults] == [True], faults
    else:
        found = [
            (cells["status"], *(cells.get(name, "")[5:] for name in ("shipDate", "updatedAt")))
            for cells in rows
        ]
        assert found == [tuple(each or "" for each in expected)], faults


def test_each_shopify_line_item_becomes_an_order_with_the_data_of_its_first_row(take, store, pets):
    rows = shopify(
        {"Notes": "Ring"},
        NEXT | {"Lineitem sku": "BOWL", "Lineitem quantity": 1, "Lineitem name": " Bowl  - L "},
        NEXT | {"Lineitem sku": "", "Lineitem name": "Collar"},
        NEXT | {"Lineitem sku": "CARD"},
        NEXT | {"Lineitem quantity": 0},
        {"Name": "#1002", "Shipping Province": "MA", "Shipping Company": "Pets Inc."},
    )
    done = take(rows, "orders.csv", "--from", "shopify", *pets, "--column", "note=Notes")
    assert "1 row left out, as the quantity is 0." in done.stderr
    assert "Imported 4 orders." in done.stderr
    address = "Mia Wong\n1 High St\nBack\n75008 Paris\nFR"
    assert orders_of(store, "reference, pet_id, quantity, item, ship_to, note") == [
        ("#1001", 7, 2, "A collar", address, "Ring"),
        ("#1001", 8, 1, "Bowl - L", address, "Ring"),
        ("#1001", 7, 2, "Collar", address, "Ring"),
        (
            "#1002",
            7,
            2,
            "A collar",
            "Mia Wong\nPets Inc.\n1 High St\nBack\nParis, MA 75008\nFR",
            None,
        ),
    ]


def test_an_export_without_its_table_of_pets_or_its_columns_is_rejected_with_the_reason(
    rejected, take
):
    message = rejected(shopify({}, NEXT), "orders.csv", "--from", "shopify")
    assert "line 2: its SKU, 'COL-S', is not the number of a pet" in message
    assert message.count("--pets") == 1
    assert "no column 'name'" in rejected("petId\n7\n", "orders.csv", "--from", "shopify")
    rows = shopify({"Lineitem sku": 7})
    imported(take(rows, "orders.csv", "--from", "shopify"), 1)
    assert "(see --if-known)" in messages(take(rows, "orders.csv", "--from", "shopify"))


ADVANCED = (
    "Order Number,Order Status,Order Date,First Name (Billing),Last Name (Billing),"
    "Address 1&2 (Billing),City (Billing),State Code (Billing),Postcode (Billing),"
    "Country Code (Billing),First Name (Shipping),Last Name (Shipping),Address 1&2 (Shipping),"
    "City (Shipping),State Code (Shipping),Postcode (Shipping),Country Code (Shipping),SKU,Item #,"
    "Item Name,Quantity (- Refund),Item Cost,Order Refund Amount\n"
)
SKYVERGE = (
    "order_id,order_number,date,status,shipping_first_name,shipping_last_name,shipping_company,"
    "shipping_address_1,shipping_address_2,shipping_city,shipping_state,shipping_postcode,"
    "shipping_country,item_name,item_sku,item_quantity\n"
)


@pytest.mark.parametrize(
    "rows",
    [
        ADVANCED
        + "501,Processing,2026-11-20 10:04,Mia,Wong,1 High St,Köln,,50667,DE,,,,,,,,COL-S,"
        + "1,Collar,2,9.90,0\n501,,,,,,,,,,,,,,,,,BOWL,2,Bowl,0,5,5\n",
        SKYVERGE
        + "9,501,2026-11-20 10:04:00,processing,Mia,Wong,,1 High St,,Köln,,50667,DE,Collar,"
        + "COL-S,2\n",
    ],
    ids=["Advanced Order Export", "Customer/Order/Coupon Export"],
)
def test_both_kinds_of_woocommerce_exports_are_read(rows):
    found, faults, _ = read(rows, shop=SHOPS["woocommerce"], pets=MAP, zone=ZoneInfo(BERLIN[1]))
    assert found == [
        {
            "reference": "501",
            "petId": 7,
            "quantity": 2,
            "item": "Collar",
            "status": "pending",
            "placedAt": "2026-11-20T09:04:00.000Z",
            "shipTo": "Mia Wong\n1 High St\n50667 Köln\nDE",
        }
    ], faults


@pytest.mark.parametrize(
    ("word", "status"),
    [("Completed", "shipped"), ("wc-on-hold", "pending"), ("Refunded", "cancelled")],
)
def test_the_status_of_an_order_is_read_from_a_woocommerce_export(word, status):
    rows = f"{SKYVERGE}9,501,2026-11-20 10:04:00,{word},,,,,,,,,,,COL-S,2\n"
    (cells,), *_ = read(rows, shop=SHOPS["woocommerce"], pets=MAP, zone=ZoneInfo(BERLIN[1]))
    assert (cells["status"], "shipTo" in cells) == (status, False)


# Round trips.

CHARACTERS = st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("'=+-@ \",;\u3000")


@pytest.mark.slow
@hypothesis_settings(max_examples=8, deadline=None)
@given(st.lists(st.text(CHARACTERS, min_size=1, max_size=64), min_size=20, max_size=60))
@example(
    ["=1", "'=1", "''=1", "' x", " x", "x ", "'", "''", "'x", "-", "\ufeffx", "\u3000", "'s-H"]
)
def test_exported_texts_never_start_a_formula_and_are_imported_unchanged(store, texts):
    store.execute("DELETE FROM orders")
    put_rows(store.database, [order_row(id=n, reference=text) for n, text in enumerate(texts, 1)])
    content = "".join(text for text, _ in exported_lines(store.database, ".csv"))
    cells = [row.split(",", 7)[7].rsplit(",", 4)[0] for row in content.split("\n")[:-1]]
    cells = [each[1:-1].replace('""', '"') if each[:1] == '"' else each for each in cells]
    assert list(map(cell_text, cells)) == texts
    assert not [each for each in cells if each[:1] in {*"=+-@"}]
