"""A peer: FastAPI with slowapi and SQLAlchemy under uvicorn, as their documentation shows it.

Run as `python -m tests.bench.peers.fastapi_slowapi FOLDER PORT`.
"""

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from tests.bench.peers.tables import (
    CANCELLED,
    LIMITS,
    PENDING,
    ApiKey,
    Order,
    engine_of,
    hashed,
)

sessions = sessionmaker()
bearer = HTTPBearer()
# Two windows for each request, over all routes together.
limiter = Limiter(key_func=lambda request: str(request.state.key_id), headers_enabled=True)
limited = limiter.shared_limit(";".join(LIMITS), scope="api")


class NewOrder(BaseModel):
    """What a client sends to place an order."""

    model_config = ConfigDict(populate_by_name=True)

    pet_id: int = Field(alias="petId")
    quantity: int = 1
    ship_date: datetime | None = Field(None, alias="shipDate")


class ShownOrder(NewOrder):
    """An order as clients see it."""

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)

    id: int
    complete: bool


def get_session() -> Iterator[Session]:
    with sessions() as session:
        yield session


SessionOfRequest = Annotated[Session, Depends(get_session)]


def identify(
    request: Request,
    session: SessionOfRequest,
    credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)],
) -> None:
    secret_hash = hashed(credentials.credentials)
    key = session.scalars(select(ApiKey).where(ApiKey.secret_hash == secret_hash)).one_or_none()
    if key is None:
        raise HTTPException(401)
    request.state.key_id = key.id


app = FastAPI(dependencies=[Depends(identify)])
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.get("/v1/store/orders", response_model=list[ShownOrder])
@limited
def list_orders(request: Request, response: Response, session: SessionOfRequest) -> list[Order]:
    return list(session.scalars(select(Order).where(Order.status != CANCELLED).order_by(Order.id)))


@app.post("/v1/store/orders", response_model=ShownOrder, status_code=201)
@limited
def place_order(
    request: Request, response: Response, session: SessionOfRequest, new: NewOrder
) -> Order:
    order = Order(status=PENDING, **new.model_dump())
    session.add(order)
    session.commit()
    return order


@app.get("/v1/store/orders/{order_id}", response_model=ShownOrder)
@limited
def get_order(
    request: Request, response: Response, session: SessionOfRequest, order_id: int
) -> Order:
    return found(session, order_id)


@app.delete("/v1/store/orders/{order_id}", status_code=204)
@limited
def cancel_order(
    request: Request, response: Response, session: SessionOfRequest, order_id: int
) -> None:
    order = found(session, order_id)
    if order.status != PENDING:
        raise HTTPException(409)
    order.status = CANCELLED
    session.commit()


def found(session: Session, order_id: int) -> Order:
    order = session.get(Order, order_id)
    if order is None or order.status == CANCELLED:
        raise HTTPException(404)
    return order


if __name__ == "__main__":
    sessions.configure(bind=engine_of(Path(sys.argv[1])))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]))
