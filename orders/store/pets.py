"""The pets of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select

from orders.domain import Pet, PetStatus
from orders.store.database.database import converted
from orders.store.tables import pets

_BATCH = 500


def find(connection: Connection, pet_id: int) -> Pet | None:
    """Return the pet of an id, or None."""
    row = connection.execute(select(*pets.columns).where(pets.c.id == pet_id)).one_or_none()
    if row is None:
        return None
    return Pet(row.id, row.name, row.category_id, converted(PetStatus, row.status))


def replace_all(connection: Connection, new: Sequence[Pet]) -> None:
    """Insert pets, replacing those with the same ids."""
    for start in range(0, len(new), _BATCH):
        batch = new[start : start + _BATCH]
        ids = [pet.id for pet in batch]
        connection.execute(delete(pets).where(pets.c.id.in_(ids)))
        connection.execute(insert(pets), [asdict(pet) for pet in batch])
