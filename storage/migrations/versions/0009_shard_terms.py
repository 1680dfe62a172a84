"""Which words the blocks of a shard hold, by number: rare ones propose blocks to search."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shard_terms",
        sa.Column("term", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("shard_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("indices", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["shard_id"], ["shards.id"], name=op.f("fk_shard_terms_shard_id_shards"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("term", "shard_id", name=op.f("pk_shard_terms")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_shard_terms_shard_id"), "shard_terms", ["shard_id"])
