"""The views of version 1, with those of `order_views`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time

from flask import request
from werkzeug.http import http_date

from orders import domain
from orders.domain import OrderAlreadyCancelled, OrderNotFound, Pet
from orders.server import BUSY
from orders.store import pets
from orders.store.listing import OrderList
from orders.web import etags, order_views
from orders.web.api import ApiBlueprint, render
from orders.web.call import current_call
from orders.web.compression import is_large
from orders.web.openapi.document import operation
from orders.web.refusals import ServerBusy
from orders.web.replies import Reply
from orders.web.services import current_services
from schemas.order import NewOrderSchema, OrderSchema
from schemas.pet import PetSchema

VERSION = 1
# When the route was deprecated (RFC 9745), as a Unix time.
PETS_DEPRECATED_AT = 1_764_892_800
_PET_PATH = re.compile(r"/v1/pets/[^/]+")

blueprint = ApiBlueprint("v1", __name__, url_prefix=f"/v{VERSION}")


@blueprint.get("/store/orders", tags=["orders"])
@operation(
    refusals=("precondition_failed", "server_busy"),
    parameters=("If-Match of a list",),
    has_etag=True,
)
@blueprint.response(
    200,
    OrderSchema(many=True),
    description="All orders that were not cancelled, by id.",
    example=[OrderSchema.example, OrderSchema.shipped_example],
)
def list_orders() -> Reply:
    """Return all orders placed in the store."""
    services = current_services()
    orders = services.list.now()
    varies = orders.body is None or is_large(orders.body)
    unchanged = etags.if_current(lambda: orders.revision, varies=varies)
    if unchanged is not None:
        return unchanged
    if orders.body is not None:
        return etags.entity(orders.body, orders.revision)
    if request.environ.get(BUSY):
        raise ServerBusy
    stream = OrderList(services.database)
    return etags.entity(stream, stream.revision)


order_views.add_to(blueprint, VERSION, OrderSchema, NewOrderSchema, stability="experimental")


@blueprint.get("/pets/<id:petId>", tags=["pets"])
@operation(refusals=("pet_not_found",), headers=("Deprecation", "Sunset"), deprecated=True)
@blueprint.response(200, PetSchema, description="The pet.")
def get_pet(petId: str) -> Pet:  # noqa: N803 - named in the interface
    """Return one pet. Deprecated: the catalogue is leaving this service."""
    number = domain.parse_id(petId)
    with current_services().database.read() as connection:
        pet = None if number is None else pets.find(connection, number)
    if pet is None:
        raise domain.PetNotFound(petId)
    return pet


@blueprint.after_app_request
def announce_sunset(reply: Reply) -> Reply:
    """Announce the sunset on every response of the pets' route to a valid key."""
    call = current_call()
    if _PET_PATH.fullmatch(call.path) and call.caller and call.caller.key:
        sunset = datetime.combine(current_services().settings.pets_sunset, time(), UTC)
        call.headers["Deprecation"] = f"@{PETS_DEPRECATED_AT}"
        call.headers["Sunset"] = http_date(sunset)
    return reply


@blueprint.errorhandler(OrderAlreadyCancelled)
def hide_cancelled(error: OrderAlreadyCancelled) -> Reply:
    """Answer as if there were no such order: this version has no status for cancelled ones."""
    return render(OrderNotFound(error.order_id))
