"""Version 1: its resources. Each view says what it needs, and leaves the work to others."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time

from flask import Response, request
from werkzeug.http import http_date

from orders import domain
from orders.domain import NewOrder, Order, OrderAlreadyCancelled, OrderNotFound, Pet
from orders.store import pets
from orders.store.listing import OrderList
from orders.web import conditional, order_views
from orders.web.api import ApiBlueprint, render
from orders.web.call import current_call
from orders.web.document import operation
from orders.web.services import current_services
from schemas.order import NewOrderSchema, OrderSchema, ShipmentSchema
from schemas.pet import PetSchema

VERSION = 1
# RFC 9745: the moment from which the route has been deprecated, as a Unix time.
PETS_DEPRECATED_AT = 1_764_892_800
_PET_PATH = re.compile(r"/v1/pets/[^/]+")

ORDERS = ["orders"]
NEW_ORDER = {"petId": 7, "quantity": 2, "shipDate": "2026-12-01T08:00:00Z"}
SHIPMENT = {"shipDate": "2026-12-01T08:00:00Z"}
PENDING_ORDER = {
    "id": 41,
    "petId": 7,
    "quantity": 2,
    "shipDate": "2026-12-01T08:00:00.000Z",
    "complete": False,
}
SHIPPED_ORDER = {**PENDING_ORDER, "id": 42, "complete": True}
PET = {"id": 7, "name": "Rex", "categoryId": 1, "status": "available"}


blueprint = ApiBlueprint("v1", __name__, url_prefix=f"/v{VERSION}")


@blueprint.route("/store/orders", methods=["GET"], tags=ORDERS)
@operation("listOrders", "Return all orders placed in the store.", tagged=True)
@blueprint.response(
    200,
    OrderSchema(many=True),
    description="All orders that were not cancelled, by id.",
    example=[PENDING_ORDER, SHIPPED_ORDER],
)
def list_orders() -> Response:
    """Return all orders that were not cancelled, by id. Query parameters are ignored."""
    services = current_services()
    orders = services.list.now()
    unchanged = conditional.not_modified(orders.revision, orders.body)
    if unchanged is not None:
        return unchanged
    if orders.body is not None:
        return conditional.entity(orders.body, orders.revision)
    stream = OrderList(services.database)
    return conditional.entity(stream, stream.revision)


@blueprint.route("/store/orders", methods=["POST"], tags=ORDERS)
@operation(
    "placeOrder",
    "Place an order.",
    refusals=order_views.PLACE_REFUSALS,
    headers=("Location", "Idempotent-Replayed"),
    parameters=("Idempotency-Key",),
    stability="experimental",
)
@blueprint.arguments(NewOrderSchema, example=NEW_ORDER)
@blueprint.response(201, OrderSchema, description="The order, placed.", example=PENDING_ORDER)
def place_order(new: NewOrder) -> Order:
    """Place an order; with an Idempotency-Key, at most once."""
    return order_views.place(new, VERSION)


@blueprint.route("/store/orders/<id:orderId>", methods=["GET"], tags=ORDERS)
@operation(
    "getOrder",
    "Return one order.",
    refusals=("order_not_found",),
    tagged=True,
    stability="experimental",
)
@blueprint.response(200, OrderSchema, description="The order.", example=PENDING_ORDER)
def get_order(orderId: str) -> Response:  # noqa: N803 - named in the interface
    """Return an order that was not cancelled."""
    return order_views.get(orderId, VERSION)


@blueprint.route("/store/orders/<id:orderId>", methods=["DELETE"], tags=ORDERS)
@operation(
    "cancelOrder",
    "Cancel one order by its identifier.",
    refusals=order_views.CANCEL_REFUSALS,
    stability="beta",
)
@blueprint.response(204, description="Order cancelled successfully.")
def cancel_order(orderId: str) -> Response:  # noqa: N803 - named in the interface
    """Cancel a pending order."""
    order_views.cancel(orderId)
    return Response(status=204)


@blueprint.route("/store/orders/<id:orderId>/ship", methods=["POST"], tags=ORDERS)
@operation(
    "shipOrder",
    "Ship one order.",
    refusals=order_views.SHIP_REFUSALS,
    stability="experimental",
)
@blueprint.arguments(ShipmentSchema, location="optional_json", required=False, example=SHIPMENT)
@blueprint.response(200, OrderSchema, description="The order, shipped.", example=SHIPPED_ORDER)
def ship_order(
    shipment: dict[str, datetime],
    orderId: str,  # noqa: N803 - named in the interface
) -> Order:
    """Ship a pending order, at the time given or now."""
    return order_views.ship(orderId, shipment)


@blueprint.route("/pets/<id:petId>", methods=["GET"], tags=["pets"])
@operation(
    "getPet",
    "Return one pet. Deprecated: the catalogue is leaving this service.",
    refusals=("pet_not_found",),
    headers=("Deprecation", "Sunset"),
    deprecated=True,
)
@blueprint.response(200, PetSchema, description="The pet.", example=PET)
def get_pet(petId: str) -> Pet:  # noqa: N803 - named in the interface
    """Return a pet of the catalogue."""
    number = domain.parse_id(petId)
    with current_services().database.read() as connection:
        pet = None if number is None else pets.find(connection, number)
    if pet is None:
        raise domain.PetNotFound(petId)
    return pet


@blueprint.after_app_request
def announce_sunset(response: Response) -> Response:
    """Say on every answer of the pets' route to a valid key that the route is going away."""
    call = current_call()
    if call.caller and call.caller.key and _PET_PATH.fullmatch(request.environ["PATH_INFO"]):
        sunset = datetime.combine(current_services().settings.pets_sunset, time(), UTC)
        response.headers["Deprecation"] = f"@{PETS_DEPRECATED_AT}"
        response.headers["Sunset"] = http_date(sunset)
    return response


@blueprint.errorhandler(OrderAlreadyCancelled)
def hide_cancelled(error: OrderAlreadyCancelled) -> Response:
    """Answer as if there were no such order: this version could not tell a cancelled one apart."""
    return render(OrderNotFound(error.order_id))
