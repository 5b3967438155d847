"""A peer: this service's own stack written plainly, as each part's documentation shows it.

flask-smorest with marshmallow schemas, the ORM, Flask-Limiter in memory, the key by the ORM, on
waitress. Run as `python -m tests.bench.peers.plain_stack FOLDER PORT`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flask import Flask, g, request
from flask.views import MethodView
from flask_limiter import Limiter
from flask_smorest import Api, Blueprint, abort
from marshmallow import Schema, fields
from sqlalchemy import select
from sqlalchemy.orm import scoped_session, sessionmaker
from waitress import serve

from tests.bench.peers.tables import (
    CANCELLED,
    LIMITS,
    PENDING,
    ApiKey,
    Order,
    engine_of,
    hashed,
)

blueprint = Blueprint("orders", __name__, url_prefix="/v1/store/orders")
db = scoped_session(sessionmaker())


class OrderSchema(Schema):
    """An order as clients see it."""

    id = fields.Integer(dump_only=True)
    pet_id = fields.Integer(required=True, data_key="petId")
    quantity = fields.Integer(load_default=1)
    ship_date = fields.DateTime(data_key="shipDate", load_default=None)
    complete = fields.Boolean(dump_only=True)


@blueprint.route("")
class Orders(MethodView):
    """All orders."""

    @blueprint.response(200, OrderSchema(many=True))
    def get(self) -> list[Order]:
        return list(db.scalars(select(Order).where(Order.status != CANCELLED).order_by(Order.id)))

    @blueprint.arguments(OrderSchema)
    @blueprint.response(201, OrderSchema)
    def post(self, new: dict[str, object]) -> Order:
        order = Order(status=PENDING, **new)
        db.add(order)
        db.commit()
        return order


@blueprint.route("/<int:order_id>")
class OneOrder(MethodView):
    """One order."""

    @blueprint.response(200, OrderSchema)
    def get(self, order_id: int) -> Order:
        return found(order_id)

    @blueprint.response(204)
    def delete(self, order_id: int) -> None:
        order = found(order_id)
        if order.status != PENDING:
            abort(409)
        order.status = CANCELLED
        db.commit()


def found(order_id: int) -> Order:
    order = db.get(Order, order_id)
    if order is None or order.status == CANCELLED:
        abort(404)
    return order


def identify() -> None:
    secret = request.headers.get("Authorization", "").removeprefix("Bearer ")
    key = db.scalars(select(ApiKey).where(ApiKey.secret_hash == hashed(secret))).one_or_none()
    if key is None:
        abort(401)
    g.key_id = key.id


def make_app(folder: Path) -> Flask:
    app = Flask(__name__)
    app.config.update(API_TITLE="Orders", API_VERSION="v1", OPENAPI_VERSION="3.0.3")
    db.configure(bind=engine_of(folder))
    app.before_request(identify)
    Limiter(
        lambda: str(g.key_id),
        app=app,
        application_limits=LIMITS,  # type: ignore[arg-type]
        storage_uri="memory://",
        headers_enabled=True,
    )
    Api(app).register_blueprint(blueprint)
    app.teardown_appcontext(lambda _: db.remove())
    return app


if __name__ == "__main__":
    serve(make_app(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]))
