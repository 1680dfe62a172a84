"""What files say of themselves becomes properties of the documents that were stored before there were properties."""

import json

import sqlalchemy as sa
from alembic import op

from storage.names import encodable
from storage.properties import LONGEST_VALUE, number_of, stated_properties

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

texts = sa.table("document_texts", sa.column("document_id"), sa.column("extras"))
properties = sa.table(
    "document_properties",
    *map(sa.column, ("document_id", "name", "position", "value", "folded", "number")),
    sa.column("by_hand", sa.Boolean()),
)


def upgrade() -> None:
    """Files are not opened: their metadata is kept with their text. What is there already stays."""
    connection = op.get_bind()
    for document_id in connection.execute(sa.select(texts.c.document_id)).scalars().all():
        kept = connection.execute(sa.select(texts.c.extras).where(texts.c.document_id == document_id)).scalar()
        metadata = json.loads(kept or "{}").get("metadata") or {}
        own = sa.select(properties.c.name).where(properties.c.document_id == document_id)
        known = set(connection.execute(own).scalars())
        stated = stated_properties({name: value for name, value in metadata.items() if isinstance(value, str)})
        rows = [
            {
                "document_id": document_id,
                "name": name,
                "position": position,
                "value": value,
                "folded": value.casefold(),
                "number": number_of(name, value),
                "by_hand": False,
            }
            for name, values in stated.items()
            if name not in known
            for position, value in enumerate(encodable(value)[:LONGEST_VALUE] for value in values)
        ]
        if rows:
            connection.execute(sa.insert(properties), rows)
