"""The operations of version 1."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from flask import request

from orders import domain
from orders.domain import NewOrder, OrderAlreadyCancelled, OrderNotFound, Pet, PetNotFound
from orders.server import BUSY
from orders.store import orders_json, pets
from orders.store.orders_json import OrderList
from orders.web import replies
from orders.web.access import current_call
from orders.web.api import ApiBlueprint, render
from orders.web.bodies import terms
from orders.web.openapi import document
from orders.web.refusals import ServerBusy
from orders.web.replies import CREATED, NO_CONTENT, Reply, write_reply
from schemas.v1 import NewOrderSchema, OrderSchema, PetSchema, ShipmentSchema

VERSION = 1
# When the route was deprecated (RFC 9745), as a Unix time.
PETS_DEPRECATED_AT = 1_764_892_800
# The conditions on a write to an order. Its tag is weak, like a list's: If-Match holds only as `*`.
_CONDITIONS = ("If-Match of weak tags", "If-None-Match of a write")
# All tags of this version are weak, and only placing accepts an Idempotency-Key.
_order_terms = partial(terms, version=VERSION, strong=False, has_key=False)
_list_terms = partial(terms, version=VERSION, strong=False)

blueprint = ApiBlueprint("v1", __name__, url_prefix=f"/v{VERSION}")


@blueprint.get("/store/orders", tags=["orders"])
@document.operation(
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
    shop = current_call().shop
    orders = shop.list.now()
    varies = orders.body is None or replies.is_large(orders.body)
    unchanged = replies.if_current(lambda: orders.revision, varies=varies)
    if unchanged is not None:
        return unchanged
    if orders.body is not None:
        return replies.entity(orders.body, orders.revision)
    if request.environ.get(BUSY):
        raise ServerBusy
    stream = OrderList(shop.database)
    return replies.entity(stream, stream.revision)


@blueprint.post("/store/orders", tags=["orders"])
@document.operation(
    refusals=document.PLACE_REFUSALS,
    headers=("Location", "Idempotent-Replayed"),
    parameters=(*document.LIST_CONDITIONS, "Idempotency-Key"),
    stability="experimental",
)
@blueprint.arguments(NewOrderSchema)
@blueprint.response(201, OrderSchema, description="The placed order.")
def place_order(new: NewOrder) -> Reply:
    """Place an order."""
    call = current_call()
    placed = call.shop.orders.place(new, _list_terms(call))
    return write_reply(placed, VERSION, CREATED)


@blueprint.get("/store/orders/<id:orderId>", tags=["orders"])
@document.operation(
    refusals=("order_not_found", "precondition_failed"),
    parameters=("If-Match of weak tags",),
    has_etag=True,
    stability="experimental",
)
@blueprint.response(200, OrderSchema, description="The order.")
def get_order(orderId: str) -> Reply:
    """Return one order."""
    order_id = domain.parse_order_id(orderId)
    order = orders_json.one_order(current_call().shop.database, order_id, VERSION)
    if order is None:
        raise OrderNotFound(orderId)
    return replies.order_reply(order_id, order, strong=False)


@blueprint.delete("/store/orders/<id:orderId>", tags=["orders"])
@document.operation(refusals=document.CHANGE_REFUSALS, parameters=_CONDITIONS, stability="beta")
@blueprint.response(204, description="Order cancelled successfully.")
def cancel_order(orderId: str) -> Reply:
    """Cancel one order by its identifier."""
    call = current_call()
    order_id = domain.parse_order_id(orderId)
    cancelled = call.shop.orders.cancel(order_id, _order_terms(call))
    return write_reply(cancelled, VERSION, NO_CONTENT)


@blueprint.post("/store/orders/<id:orderId>/ship", tags=["orders"])
@document.operation(
    refusals=(*document.BODY_REFUSALS, *document.CHANGE_REFUSALS),
    parameters=_CONDITIONS,
    stability="experimental",
)
@blueprint.arguments(ShipmentSchema, location="optional_json", required=False)
@blueprint.response(
    200, OrderSchema, description="The shipped order.", example=OrderSchema.shipped_example
)
def ship_order(shipment: dict[str, datetime], orderId: str) -> Reply:
    """Ship one order."""
    call = current_call()
    order_id = domain.parse_order_id(orderId)
    at = shipment.get("ship_date")
    return write_reply(
        call.shop.orders.ship(order_id, at, _order_terms(call)),
        VERSION,
    )


@blueprint.get("/pets/<id:petId>", tags=["pets"])
@document.operation(
    refusals=("pet_not_found",), headers=("Deprecation", "Sunset"), deprecated_at=PETS_DEPRECATED_AT
)
@blueprint.response(200, PetSchema, description="The pet.")
def get_pet(petId: str) -> Pet:
    """Return one pet. Deprecated: the catalogue is leaving this service."""
    number = domain.parse_id(petId)
    with current_call().shop.database.read() as connection:
        pet = None if number is None else pets.find(connection, number)
    if pet is None:
        raise PetNotFound(petId)
    return pet


@blueprint.errorhandler(OrderAlreadyCancelled)
def hide_cancelled(error: OrderAlreadyCancelled) -> Reply:
    """Answer as if there were no such order: this version has no status for cancelled ones."""
    return render(OrderNotFound(error.order_id))
