"""Accounts: users, whose collections are whose, and who may read them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("token_digest", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
        sa.UniqueConstraint("token_digest", name=op.f("uq_users_token_digest")),
    )
    _rebuild_collections()
    op.create_index(
        "uq_collections_common_name",
        "collections",
        ["name"],
        unique=True,
        sqlite_where=sa.text("owner_id IS NULL"),
        postgresql_where=sa.text("owner_id IS NULL"),
    )
    op.create_table(
        "collection_readers",
        sa.Column("collection_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_collection_readers_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_collection_readers_user_id_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("collection_id", "user_id", name=op.f("pk_collection_readers")),
    )
    op.create_index(op.f("ix_collection_readers_user_id"), "collection_readers", ["user_id"], unique=False)
    op.create_index(op.f("ix_documents_owner_id"), "documents", ["owner_id"], unique=False)
    op.create_index(op.f("ix_answers_owner_id_answers_created_at"), "answers", ["owner_id", "created_at"], unique=False)


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
