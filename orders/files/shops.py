"""The exports of orders of other shops' software, a row for each line item, as cells of orders.

Shopify's own, and two of WooCommerce, which has none: the extensions "Advanced Order Export For
WooCommerce" (AlgolPlus) and "Customer/Order/Coupon Export" (SkyVerge), one row per item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orders.domain import Status
from orders.files.spreadsheets import cell_text, folded

# By column of an order, or by a part from which a column is made.
_Texts = dict[str, str]
# The columns that each row has for its line item. At least an order's first row has the rest.
_OF_A_LINE = {"quantity", "item", "sku", "lineStatus"}
# The same by a column of ours, and by how the headings begin that stand for it.
_OURS_OF_A_LINE, _HEADINGS_OF_A_LINE = {"petId", "quantity", "item"}, ("lineitem", "item")


@dataclass(frozen=True)
class Shop:
    """How some software exports orders.

    `columns` are the headings, folded, by the part they make; the first that a file has is used.
    `statuses` are folded, too; where a payment is one of `unpaid`, a pending order is cancelled.
    """

    name: str
    columns: Mapping[str, Sequence[str]]
    statuses: Mapping[str, Status]
    unpaid: frozenset[str] = frozenset()


def _words(words: str, status: Status) -> dict[str, Status]:
    return dict.fromkeys(words.split(), status)


_OF_AN_ADDRESS = ("name", "firstname", "lastname", "company", "street", "address1", "address2")


def _address(kind: str) -> dict[str, Sequence[str]]:
    """Return the headings of an address of WooCommerce, `shipping` or `billing`."""
    other = {
        "name": ["fullname"],
        "street": ["address12"],
        "province": ["state", "statecode"],
        "zip": ["postcode"],
        "country": ["country", "countrycode", "countryname"],
    }
    parts = {part: other.get(part, [part]) for part in (*_OF_AN_ADDRESS, "city", *other)}
    return {
        f"{kind}{part}": [name for each in names for name in (f"{each}{kind}", f"{kind}{each}")]
        for part, names in parts.items()
    }


SHOPS = {
    "shopify": Shop(
        "Shopify",
        {
            "reference": ["name"],
            "placedAt": ["createdat"],
            "quantity": ["lineitemquantity"],
            "item": ["lineitemname"],
            "sku": ["lineitemsku"],
            "lineStatus": ["lineitemfulfillmentstatus"],
            "status": ["fulfillmentstatus"],
            "payment": ["financialstatus"],
            "shippedAt": ["fulfilledat"],
            "cancelledAt": ["cancelledat"],
            **{
                f"shipping{part}": [f"shipping{part}"]
                for part in (*_OF_AN_ADDRESS, "city", "zip", "province", "country")
            },
        },
        _words("fulfilled", Status.SHIPPED)
        | _words("restocked", Status.CANCELLED)
        | _words("pending unfulfilled open onhold scheduled inprogress", Status.PENDING)
        | {"": Status.PENDING},
        frozenset({"refunded", "voided"}),
    ),
    "woocommerce": Shop(
        "WooCommerce",
        {
            "reference": ["ordernumber", "ordernumberformatted"],
            "placedAt": ["orderdate", "date"],
            "quantity": ["quantityrefund", "quantity", "itemquantity"],
            "item": ["itemname", "productname", "name"],
            "sku": ["sku", "itemsku"],
            "status": ["orderstatus", "status"],
            "shippedAt": ["completeddate", "datecompleted"],
            **_address("shipping"),
            **_address("billing"),
        },
        _words("completed", Status.SHIPPED)
        | _words("cancelled refunded failed", Status.CANCELLED)
        | _words("processing onhold pendingpayment pending", Status.PENDING),
    ),
}
_NEEDED = ("reference", "placedAt", "quantity", "item", "status")


class LeftOut(Exception):
    """A row of an export is no order. The message says why."""


class Export:
    """An export with this header, whose rows are read in their order."""

    def __init__(self, shop: Shop, header: Sequence[str], named: Mapping[str, int]) -> None:
        """Find the columns; ValueError where one is missing.

        `named` are the places of columns that were named for ours. What these say on the first row
        of an order holds for the others, too.
        """
        self._shop, self._first, self._named = shop, dict[str, str](), dict[str, str]()
        self._carried = {
            name: place
            for name, place in named.items()
            if name not in _OURS_OF_A_LINE
            and not folded(header[place]).startswith(_HEADINGS_OF_A_LINE)
        }
        places = {folded(heading): place for place, heading in reversed([*enumerate(header)])}
        self._places = {
            name: place
            for name, headings in shop.columns.items()
            if (place := next((places[each] for each in headings if each in places), None))
            is not None
        }
        for name in _NEEDED:
            if name not in self._places:
                raise ValueError(
                    f"there is no column {shop.columns[name][0]!r}, which {shop.name}'s export "
                    "of orders has, one row a line item"
                )

    def cells(self, row: Sequence[str]) -> dict[str, Any]:
        """Return a line item as the cells of an order, of which petId is its SKU.

        ValueError where no order can have its values, LeftOut where it is none.
        """
        texts = {name: text for name, at in self._places.items() if (text := cell_text(row[at]))}
        if texts.get("reference") != self._first.get("reference"):
            if "placedAt" not in texts:
                raise ValueError(
                    "the first row of this order, which has its date and address, is not above it: "
                    "export again, and do not sort or filter"
                )
            self._first = {name: texts[name] for name in texts if name not in _OF_A_LINE}
            self._named = {
                name: text for name, at in self._carried.items() if (text := cell_text(row[at]))
            }
        texts = self._first | texts
        for name, words in (("reference", "number of an order"), ("quantity", "quantity")):
            if name not in texts:
                raise ValueError(f"it has no {words}")
        if not texts["quantity"].strip("0"):
            raise LeftOut("left out, as the quantity is 0")
        return self._order(texts) | self._named

    def _order(self, texts: _Texts) -> dict[str, Any]:
        status = self._status(texts)
        cells = {name: texts[name] for name in ("reference", "quantity", "placedAt")}
        cells |= {"status": status.value, "petId": texts.get("sku", "")}
        cells |= {"item": " ".join(texts.get("item", "").split())}
        cells |= {"shipTo": _ship_to(texts, "shipping") or _ship_to(texts, "billing")}
        changed = texts.get("cancelledAt", "")
        if status is Status.SHIPPED:
            cells["shipDate"] = changed = texts.get("shippedAt", cells["placedAt"])
        return {name: text for name, text in (cells | {"updatedAt": changed}).items() if text}

    def _status(self, texts: _Texts) -> Status:
        if "cancelledAt" in texts:
            return Status.CANCELLED
        given = texts.get("lineStatus", texts.get("status", ""))
        status = self._shop.statuses.get(folded(given).removeprefix("wc"))
        if status is None:
            known = ", ".join(filter(None, self._shop.statuses))
            raise ValueError(
                f"status {given!r} is neither to ship, nor shipped, nor cancelled: replace it (and "
                f"the quantity, where a part has shipped) by one of {known}"
            )
        unpaid = texts.get("payment", "").casefold() in self._shop.unpaid
        return Status.CANCELLED if unpaid and status is Status.PENDING else status


def _ship_to(texts: _Texts, kind: str) -> str:
    """Return the lines of an address, as they stand on a parcel."""

    def part(name: str) -> str:
        return " ".join(texts.get(f"{kind}{name}", "").split())

    # Shopify writes '75008, so that spreadsheets leave it a text.
    code, city, province = part("zip").removeprefix("'"), part("city"), part("province")
    place = f"{city}, {province} {code}" if province else f"{code} {city}"
    lines = [
        part("name") or f"{part('firstname')} {part('lastname')}".strip(),
        part("company"),
        *((part("address1"), part("address2")) if part("address1") else (part("street"),)),
        place.strip(" ,"),
        part("country"),
    ]
    lines = [each for each in lines if each]
    return "\n".join(lines) if len(lines) > 1 else ""
