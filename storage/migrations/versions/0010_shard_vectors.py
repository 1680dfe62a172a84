"""A table for the vectors of blocks, which are made in the background."""

from alembic import op

from storage.catalogue.schema import shard_vectors

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    shard_vectors.create(op.get_bind(), checkfirst=True)
