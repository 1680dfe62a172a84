"""What the servers of one library share for a while: sessions, wrong attempts to sign in, files that wait."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shared_values",
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", name=op.f("pk_shared_values")),
    )
    op.create_index(op.f("ix_shared_values_until"), "shared_values", ["until"])
    name = op.f("ix_shared_values_kind_shared_values_owner_shared_values_until")
    op.create_index(name, "shared_values", ["kind", "owner", "until"])
