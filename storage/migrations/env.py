"""Run by Alembic: migrate inside the transaction that `storage.migrations.upgrade` opened."""

from alembic import context

from storage.catalogue.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
