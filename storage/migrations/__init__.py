"""Alembic migrations of the catalogue, run by `storage.upgrade` when a catalogue is opened."""
