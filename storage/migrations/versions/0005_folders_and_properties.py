"""Folders whose files are followed, and properties of documents: author, date, language, tags, own fields."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make_properties()
    _make_folders()
    _make_folder_files()


def _make_properties() -> None:
    op.create_table(
        "document_properties",
        sa.Column("document_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("folded", sa.Text(), nullable=False),
        sa.Column("number", sa.Float(), nullable=True),
        sa.Column("by_hand", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["documents.id"],
            name=op.f("fk_document_properties_document_id_documents"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("document_id", "name", "position", name=op.f("pk_document_properties")),
    )
    op.create_index(
        op.f("ix_document_properties_name_document_properties_folded"), "document_properties", ["name", "folded"]
    )


def _make_folders() -> None:
    op.create_table(
        "folders",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=True),
        sa.Column("collection", sa.Text(), nullable=True),
        sa.Column("removed", sa.String(length=8), nullable=False),
        sa.Column("watched", sa.Boolean(), nullable=False),
        sa.Column("last_run_at", sa.String(length=32), nullable=True),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.CheckConstraint("removed IN ('keep', 'trash', 'delete')", name=op.f("ck_folders_removed")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_folders")),
    )


def _make_folder_files() -> None:
    op.create_table(
        "folder_files",
        sa.Column("folder_id", sa.String(length=32), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("document_id", sa.String(length=32), nullable=True),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("stamp", sa.String(length=80), nullable=False),
        sa.Column("next_document_id", sa.String(length=32), nullable=True),
        sa.Column("next_sha256", sa.String(length=64), nullable=False),
        sa.Column("next_stamp", sa.String(length=80), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["folder_id"], ["folders.id"], name=op.f("fk_folder_files_folder_id_folders"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_folder_files_document_id_documents"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["next_document_id"],
            ["documents.id"],
            name=op.f("fk_folder_files_next_document_id_documents"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("folder_id", "source", name=op.f("pk_folder_files")),
    )
    for column in ("document_id", "next_document_id"):
        op.create_index(op.f(f"ix_folder_files_{column}"), "folder_files", [column])
