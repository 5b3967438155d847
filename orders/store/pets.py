"""What is asked of the pets table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import Connection, insert, select

from orders.domain import Pet, PetStatus
from orders.store.tables import PetRow


def find(connection: Connection, pet_id: int) -> Pet | None:
    """Give the pet, or None where there is none of that id."""
    row = connection.execute(
        select(*PetRow.__table__.columns).where(PetRow.id == pet_id)
    ).one_or_none()
    if row is None:
        return None
    return Pet(row.id, row.name, row.category_id, PetStatus(row.status))


def insert_all(connection: Connection, pets: Iterable[Pet]) -> None:
    """Insert pets, none of which may be there already."""
    connection.execute(insert(PetRow), [asdict(pet) for pet in pets])
