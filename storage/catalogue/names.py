"""Collections by their names."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, insert, select

from storage.catalogue.rows import now
from storage.catalogue.schema import collections


def checked_name(name: str) -> str:
    """Raises `ValueError` for an empty one."""
    if not name.strip():
        raise ValueError("A collection needs a name.")
    return name.strip()


def collection_row(name: str, owner_id: str | None) -> dict[str, Any]:
    """The row of a new collection."""
    return {"id": uuid4().hex, "name": name, "owner_id": owner_id, "everyone": False, "created_at": now()}


def collection_named(connection: Connection, name: str, owner_id: str | None) -> str:
    """Id of the owner's collection of that name, made if there is none."""
    mine = (collections.c.name == name) & collections.c.owner_id.is_not_distinct_from(owner_id)
    found = connection.execute(select(collections.c.id).where(mine)).scalar()
    if found is None:
        row = collection_row(name, owner_id)
        connection.execute(insert(collections).values(row))
        found = row["id"]
    return str(found)
