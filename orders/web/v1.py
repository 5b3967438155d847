"""Version 1: its resources. Each view says what it needs, and leaves the work to others."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time

from flask import Response, request
from werkzeug.http import http_date

from orders import domain
from orders.domain import NewOrder, Order, OrderAlreadyCancelled, OrderNotFound, Origin, Pet
from orders.store import listing, pets
from orders.store.idempotency import IdempotencyKey
from orders.store.listing import OrderList
from orders.web import entity
from orders.web.api import ApiBlueprint, render
from orders.web.call import current_call
from orders.web.document import operation
from orders.web.refusals import MalformedRequest
from orders.web.shop import current_shop
from schemas.order import NewOrderSchema, OrderSchema, ShipmentSchema
from schemas.pet import PetSchema

VERSION = 1
# RFC 9745: the moment from which the route has been deprecated, as a Unix time.
PETS_DEPRECATED_AT = 1_764_892_800
_IDEMPOTENCY_KEY = re.compile(r"[!-+\--~]{1,255}")
_PET_PATH = re.compile(r"/v1/pets/[^/]+")

ORDERS = ["orders"]
BODY_REFUSALS = (
    "malformed_request",
    "payload_too_large",
    "unsupported_media_type",
    "validation_failed",
)
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
    """Give all orders that were not cancelled, by id. Query parameters are ignored."""
    shop = current_shop()
    orders = shop.list.now()
    unchanged = entity.not_modified(orders.revision)
    if unchanged is not None:
        return unchanged
    if orders.body is not None:
        return entity.entity(orders.body, orders.revision)
    stream = OrderList(shop.database)
    return entity.entity(stream, stream.revision)


@blueprint.route("/store/orders", methods=["POST"], tags=ORDERS)
@operation(
    "placeOrder",
    "Place an order.",
    refusals=(*BODY_REFUSALS, "insufficient_scope", "idempotency_key_reused"),
    headers=("Location", "Idempotent-Replayed"),
    parameters=("Idempotency-Key",),
    stability="experimental",
)
@blueprint.arguments(NewOrderSchema, example=NEW_ORDER)
@blueprint.response(201, OrderSchema, description="The order, placed.", example=PENDING_ORDER)
def place_order(new: NewOrder) -> Order:
    """Place an order; with an Idempotency-Key, at most once."""
    placed = current_shop().orders.place(new, origin(), idempotency_key())
    headers = current_call().headers
    headers["Location"] = f"{current_shop().path_prefix}/v1/store/orders/{placed.order.id}"
    if placed.replayed:
        headers["Idempotent-Replayed"] = "true"
    return placed.order


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
    """Give an order that was not cancelled."""
    found = listing.one_order(current_shop().database, known(orderId), VERSION)
    if found is None:
        raise OrderNotFound(orderId)
    return entity.not_modified(found.revision) or entity.entity(found.body, found.revision)


@blueprint.route("/store/orders/<id:orderId>", methods=["DELETE"], tags=ORDERS)
@operation(
    "cancelOrder",
    "Cancel one order by its identifier.",
    refusals=("insufficient_scope", "order_not_found", "order_already_shipped"),
    stability="beta",
)
@blueprint.response(204, description="Order cancelled successfully.")
def cancel_order(orderId: str) -> Response:  # noqa: N803 - named in the interface
    """Cancel a pending order."""
    current_shop().orders.cancel(known(orderId), origin())
    return Response(status=204)


@blueprint.route("/store/orders/<id:orderId>/ship", methods=["POST"], tags=ORDERS)
@operation(
    "shipOrder",
    "Ship one order.",
    refusals=(*BODY_REFUSALS, "insufficient_scope", "order_not_found", "order_already_shipped"),
    stability="experimental",
)
@blueprint.arguments(ShipmentSchema, location="optional_json", required=False, example=SHIPMENT)
@blueprint.response(200, OrderSchema, description="The order, shipped.", example=SHIPPED_ORDER)
def ship_order(
    shipment: dict[str, datetime],
    orderId: str,  # noqa: N803 - named in the interface
) -> Order:
    """Ship a pending order, at the time given or now."""
    return current_shop().orders.ship(known(orderId), shipment.get("ship_date"), origin())


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
    """Give a pet of the catalogue."""
    number = domain.parse_id(petId)
    with current_shop().database.read() as connection:
        pet = None if number is None else pets.find(connection, number)
    if pet is None:
        raise domain.PetNotFound(petId)
    return pet


@blueprint.after_app_request
def announce_sunset(response: Response) -> Response:
    """Say on every answer of the pets' route to a valid key that the route is going away."""
    call = current_call()
    if call.caller and call.caller.key and _PET_PATH.fullmatch(request.environ["PATH_INFO"]):
        sunset = datetime.combine(current_shop().settings.pets_sunset, time(), UTC)
        response.headers["Deprecation"] = f"@{PETS_DEPRECATED_AT}"
        response.headers["Sunset"] = http_date(sunset)
    return response


@blueprint.errorhandler(OrderAlreadyCancelled)
def hide_cancelled(error: OrderAlreadyCancelled) -> Response:
    """Answer as if there were no such order: this version could not tell a cancelled one apart."""
    return render(OrderNotFound(error.order_id))


def known(order_id: str) -> int:
    """Give the number of an order from a path.

    Raises:
        OrderNotFound: no order can have it.
    """
    number = domain.parse_id(order_id)
    if number is None:
        raise OrderNotFound(order_id)
    return number


def origin() -> Origin:
    """Give who causes the change that this request makes."""
    call = current_call()
    return Origin(call.caller.actor if call.caller else "nobody", call.request_id)


def idempotency_key() -> IdempotencyKey | None:
    """Give the request's Idempotency-Key, or None.

    Raises:
        MalformedRequest: it is not 1 to 255 visible ASCII characters without a comma. A repeated
            header arrives with a comma.
    """
    value = request.headers.get("Idempotency-Key")
    caller = current_call().caller
    if value is None or caller is None or caller.key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(value):
        raise MalformedRequest(
            "Idempotency-Key must be 1 to 255 visible ASCII characters without a comma, once."
        )
    return IdempotencyKey(caller.key.id, VERSION, value)
