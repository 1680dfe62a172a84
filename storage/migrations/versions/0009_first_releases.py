"""From any catalogue of 0.1 and 0.2 to schema 0009, in one step. New catalogues are made from the schema itself.

Whatever is missing is made as `storage.catalogue.schema` has it now: a later migration of one of these tables
looks first whether it finds its own change already made.
"""

import json

import sqlalchemy as sa
from alembic import op

from storage.catalogue.properties import insert_values
from storage.catalogue.schema import document_properties, document_texts, metadata
from storage.properties import stated_properties

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    inspector = sa.inspect(connection)
    if not inspector.has_table("users"):
        _rebuild_collections()
    elif "issuer" not in {column["name"] for column in inspector.get_columns("users")}:
        for name in ("issuer", "subject"):
            op.add_column("users", sa.Column(name, sa.Text(), nullable=True))
    metadata.create_all(connection)
    for table in ("users", "collections", "documents", "answers"):
        for index in metadata.tables[table].indexes:
            index.create(connection, checkfirst=True)
    _take_stated_properties(connection)


def _rebuild_collections() -> None:
    """SQLite drops the old table to do so, which removes every document from its collection; this puts them back."""
    op.execute(
        "CREATE TEMPORARY TABLE shelved AS SELECT id, collection_id FROM documents WHERE collection_id IS NOT NULL"
    )
    with op.batch_alter_table("collections") as batch:
        batch.add_column(sa.Column("everyone", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch.drop_constraint("uq_collections_name", type_="unique")
        batch.create_unique_constraint(op.f("uq_collections_owner_id_name"), ["owner_id", "name"])
    with op.batch_alter_table("collections") as batch:
        batch.alter_column("everyone", server_default=None)
    op.execute(
        "UPDATE documents SET collection_id = (SELECT collection_id FROM shelved WHERE shelved.id = documents.id) "
        "WHERE id IN (SELECT id FROM shelved)"
    )
    op.execute("DROP TABLE shelved")


def _take_stated_properties(connection: sa.Connection) -> None:
    """What files say of themselves becomes properties, from the metadata kept with their text; what is there stays."""
    texts, properties = document_texts.c, document_properties.c
    for document_id in connection.execute(sa.select(texts.document_id)).scalars().all():
        kept = connection.execute(sa.select(texts.extras).where(texts.document_id == document_id)).scalar()
        metadata = json.loads(kept or "{}").get("metadata") or {}
        own = sa.select(properties.name).where(properties.document_id == document_id)
        known = set(connection.execute(own).scalars())
        stated = stated_properties({name: value for name, value in metadata.items() if isinstance(value, str)})
        said = {name: values for name, values in stated.items() if name not in known}
        insert_values(connection, document_id, said, by_hand=False)
