"""The operation of version 2 that imports a file of orders, as `flask orders import` does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from werkzeug.datastructures import FileStorage

from orders.apikeys import ADMIN
from orders.domain import name_in_api
from orders.files import formats
from orders.files.formats import Reading
from orders.files.rows import ORDERS, Fault, Faults, FileRefused
from orders.files.shops import SHOPS
from orders.service import IfKnown, Imported
from orders.web.access import current_call
from orders.web.api import ApiBlueprint
from orders.web.bodies import IMPORTS, terms
from orders.web.openapi import document
from orders.web.refusals import ServerBusy, ValidationFailed
from orders.web.replies import REPLAYED, Reply, json_reply
from orders.web.v2 import VERSION
from schemas.imports import ImportFilesSchema, ImportQuerySchema, ImportSchema

blueprint = ApiBlueprint("imports", __name__, url_prefix=f"/v{VERSION}", is_strict=True)
_SHOWN_ORDERS = 3
_SHOWN_FAULTS = 1_000
_REPORT = ImportSchema()
# How messages name the command's options.
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


@blueprint.post(IMPORTS.removeprefix(f"/v{VERSION}"), tags=["orders"])
@document.operation(
    refusals=(
        *document.BODY_REFUSALS,
        "idempotency_key_reused",
        "server_busy",
    ),
    headers=("Idempotent-Replayed",),
    parameters=("Idempotency-Key",),
    stability="beta",
    scope=ADMIN,
)
@blueprint.arguments(ImportQuerySchema, location="query")
@blueprint.arguments(ImportFilesSchema, location="files")
@blueprint.response(200, ImportSchema, description="What was imported, or would be.")
def import_orders(query: dict[str, Any], files: dict[str, FileStorage]) -> Reply:
    """Import a file of orders, all of them or none."""
    # Each holds a worker for seconds.
    under_way = current_call().shop.importing
    if not under_way.acquire(blocking=False):
        raise ServerBusy("Another file is being imported", retry_after=2)
    try:
        return _import(query, files)
    finally:
        under_way.release()


def _import(query: Mapping[str, Any], files: Mapping[str, FileStorage]) -> Reply:
    call, file, dry_run = current_call(), files["file"], query["dry_run"]
    # Requests have seconds, of which a large file takes more.
    call.shop.database.set_deadline(None)
    faults = Faults(_SHOWN_FAULTS)
    known = query.get("if_known", IfKnown.REFUSE if "shop" in query else IfKnown.IMPORT)
    try:
        rows = formats.read(
            formats.pieces(file.stream),
            # Many programs send a file without a name of its own.
            formats.ending_of(Path(file.filename or "")) or ".csv",
            ORDERS,
            faults,
            _reading(query, files.get("pets")),
        )
        imported = call.shop.orders.import_orders(
            rows,
            faults,
            IfKnown(known),
            _SHOWN_ORDERS if dry_run else None,
            unique_references=query["unique_references"],
            terms=terms(call, VERSION, strong=False, has_key=not dry_run),
            request=["import", query, {name: _digest(each) for name, each in files.items()}],
        )
    except FileRefused as refused:
        if not dry_run:
            places = {_place(each): _plain(each) for each in refused.faults}
            raise ValidationFailed(places) from None
        return json_reply(_REPORT.dump(_rehearsal(Imported(0), refused.faults, refused.count)))
    if dry_run:
        return json_reply(_REPORT.dump(_rehearsal(imported, faults.first, faults.count)))
    reply = json_reply(_REPORT.dump(_report(imported)))
    reply.headers += [REPLAYED] * imported.replayed
    return reply


def _reading(query: Mapping[str, Any], pets: FileStorage | None) -> Reading:
    table = formats.read_pets(formats.pieces(pets.stream), "pets") if pets else None
    return Reading(
        columns=query.get("column", {}),
        ignore_others=query["ignore_others"],
        pets=table,
        dates=query.get("dates"),
        zone=ZoneInfo(query["zone"]) if "zone" in query else None,
        shop=SHOPS[query["shop"]] if "shop" in query else None,
    )


def _report(imported: Imported) -> dict[str, Any]:
    remarks = [{"message": text, "rows": rows} for text, rows in imported.remarks.items()]
    return {"orders": imported.count, "remarks": remarks}


def _rehearsal(imported: Imported, faults: Iterable[Fault], count: int) -> dict[str, Any]:
    shown = [
        {"line": each.line, "column": each.column or None, "message": _plain(each)}
        for each in faults
    ]
    return {**_report(imported), "first": imported.first, "faults": shown, "fault_count": count}


def _place(fault: Fault) -> str:
    return f"line {fault.line}, {fault.column}" if fault.column else f"line {fault.line}"


def _plain(fault: Fault) -> str:
    return _OPTION.sub(lambda option: name_in_api(option[1].replace("-", "_")), fault.reason)


def _digest(file: FileStorage) -> str:
    digest = hashlib.sha256(file.stream.read()).hexdigest()
    file.stream.seek(0)
    return digest
