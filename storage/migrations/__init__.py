"""Alembic migrations of the catalogue, run by `storage.migrations.upgrade` when a catalogue is opened."""
