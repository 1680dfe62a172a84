"""Single sign-on: who vouches for an account, and groups with which collections are shared."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("issuer", sa.Text(), nullable=True))
    op.add_column("users", sa.Column("subject", sa.Text(), nullable=True))
    op.create_index("uq_users_issuer_subject", "users", ["issuer", "subject"], unique=True)
    for table, of in (("user_groups", "user"), ("collection_groups", "collection")):
        op.create_table(
            table,
            sa.Column(f"{of}_id", sa.String(length=32), nullable=False),
            sa.Column("name", sa.String(length=200), nullable=False),
            sa.ForeignKeyConstraint(
                [f"{of}_id"], [f"{of}s.id"], name=op.f(f"fk_{table}_{of}_id_{of}s"), ondelete="CASCADE"
            ),
            sa.PrimaryKeyConstraint(f"{of}_id", "name", name=op.f(f"pk_{table}")),
        )
        op.create_index(op.f(f"ix_{table}_name"), table, ["name"])
