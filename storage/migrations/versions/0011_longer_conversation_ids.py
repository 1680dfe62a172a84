"""Conversations have ids of the caller's, which may be longer than ours."""

from alembic import op

from storage.catalogue.schema import CallersId

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("conversations", "id", type_=CallersId)
        op.alter_column("answers", "conversation_id", type_=CallersId)
