"""The database of the peers that have one: an orders table and a table of keys, by the ORM.

SQLite as SQLAlchemy's documentation sets it up, and, so that a comparison of writing is one, with
the durability of this service: WAL and synchronous=FULL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

LIMITS = ["100000000 per minute", "1000000000 per day"]
FILE_NAME = "orders.db"
CANCELLED, PENDING, SHIPPED = "cancelled", "pending", "shipped"


class Base(DeclarativeBase):
    """The base class of the tables."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    pet_id: Mapped[int]
    quantity: Mapped[int]
    ship_date: Mapped[datetime | None]
    status: Mapped[str]

    @property
    def complete(self) -> bool:
        return self.status == SHIPPED


class ApiKey(Base):
    """An API key, by its hash."""

    __tablename__ = "api_keys"

    id: Mapped[int] = mapped_column(primary_key=True)
    secret_hash: Mapped[str] = mapped_column(unique=True)


def engine_of(folder: Path) -> Engine:
    engine = create_engine(f"sqlite:///{folder / FILE_NAME}")

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    return engine


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def fill(folder: Path, orders: Iterable[dict[str, Any]], secret: str) -> None:
    engine = engine_of(folder)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.execute(insert(Order), list(_rows(orders)))
        session.add(ApiKey(secret_hash=hashed(secret)))
        session.commit()
    engine.dispose()


def _rows(orders: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for order in orders:
        ship_date = order["shipDate"]
        yield {
            "pet_id": order["petId"],
            "quantity": order["quantity"],
            "ship_date": ship_date and datetime.fromisoformat(ship_date).replace(tzinfo=None),
            "status": SHIPPED if order["complete"] else PENDING,
        }
