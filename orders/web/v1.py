"""The operations of version 1."""

from __future__ import annotations

from datetime import datetime

from flask import request

from orders import domain
from orders.domain import NewOrder, OrderAlreadyCancelled, OrderNotFound, Pet, PetNotFound
from orders.server import BUSY
from orders.store import lists, pets
from orders.store.lists import OrderList
from orders.web import etags
from orders.web.api import ApiBlueprint, render
from orders.web.call import NO_CONTENT, Reply
from orders.web.compression import is_large
from orders.web.openapi.document import operation
from orders.web.operations import (
    BODY_REFUSALS,
    CHANGE_REFUSALS,
    LIST_CONDITIONS,
    PLACE_REFUSALS,
    idempotency_key,
    location,
    origin,
    parse_order_id,
    written,
)
from orders.web.refusals import ServerBusy
from orders.web.services import current_services
from schemas.order import NewOrderSchema, OrderSchema, ShipmentSchema
from schemas.pet import PetSchema

VERSION = 1
# When the route was deprecated (RFC 9745), as a Unix time.
PETS_DEPRECATED_AT = 1_764_892_800
# What a write to an order heeds. Of its weak tag as of a list's, If-Match holds only as `*`.
_CONDITIONS = ("If-Match of weak tags", "If-None-Match of a write")

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


@blueprint.post("/store/orders", tags=["orders"])
@operation(
    refusals=PLACE_REFUSALS,
    headers=("Location", "Idempotent-Replayed"),
    parameters=(*LIST_CONDITIONS, "Idempotency-Key"),
    stability="experimental",
)
@blueprint.arguments(NewOrderSchema)
@blueprint.response(201, OrderSchema, description="The placed order.")
def place_order(new: NewOrder) -> Reply:
    """Place an order."""
    condition, key = etags.precondition_of_list(), idempotency_key(VERSION)
    placed = current_services().orders.place(new, origin(), key, condition)
    return written(placed, VERSION, 201, [location(placed.order.order_id, VERSION)])


@blueprint.get("/store/orders/<id:orderId>", tags=["orders"])
@operation(
    refusals=("order_not_found", "precondition_failed"),
    parameters=("If-Match of weak tags",),
    has_etag=True,
    stability="experimental",
)
@blueprint.response(200, OrderSchema, description="The order.")
def get_order(orderId: str) -> Reply:  # noqa: N803 - named in the interface
    """Return one order."""
    order_id = parse_order_id(orderId)
    order = lists.one_order(current_services().database, order_id, VERSION)
    if order is None:
        raise OrderNotFound(orderId)
    return etags.order_reply(order_id, order, strong=False)


@blueprint.delete("/store/orders/<id:orderId>", tags=["orders"])
@operation(refusals=CHANGE_REFUSALS, parameters=_CONDITIONS, stability="beta")
@blueprint.response(204, description="Order cancelled successfully.")
def cancel_order(orderId: str) -> Reply:  # noqa: N803 - named in the interface
    """Cancel one order by its identifier."""
    order_id, condition = parse_order_id(orderId), etags.precondition(strong=False)
    cancelled = current_services().orders.cancel(order_id, origin(), condition)
    return written(cancelled, VERSION, NO_CONTENT)


@blueprint.post("/store/orders/<id:orderId>/ship", tags=["orders"])
@operation(
    refusals=(*BODY_REFUSALS, *CHANGE_REFUSALS), parameters=_CONDITIONS, stability="experimental"
)
@blueprint.arguments(ShipmentSchema, location="optional_json", required=False)
@blueprint.response(
    200, OrderSchema, description="The shipped order.", example=OrderSchema.shipped_example
)
def ship_order(shipment: dict[str, datetime], orderId: str) -> Reply:  # noqa: N803 - as documented
    """Ship one order."""
    order_id, condition = parse_order_id(orderId), etags.precondition(strong=False)
    at = shipment.get("ship_date")
    return written(current_services().orders.ship(order_id, at, origin(), condition), VERSION)


@blueprint.get("/pets/<id:petId>", tags=["pets"])
@operation(
    refusals=("pet_not_found",),
    headers=("Deprecation", "Sunset"),
    deprecated_at=PETS_DEPRECATED_AT,
)
@blueprint.response(200, PetSchema, description="The pet.")
def get_pet(petId: str) -> Pet:  # noqa: N803 - named in the interface
    """Return one pet. Deprecated: the catalogue is leaving this service."""
    number = domain.parse_id(petId)
    with current_services().database.read() as connection:
        pet = None if number is None else pets.find(connection, number)
    if pet is None:
        raise PetNotFound(petId)
    return pet


@blueprint.errorhandler(OrderAlreadyCancelled)
def hide_cancelled(error: OrderAlreadyCancelled) -> Reply:
    """Answer as if there were no such order: this version has no status for cancelled ones."""
    return render(OrderNotFound(error.order_id))
