"""Alembic migrations of the catalogue, run by `storage.catalogue.database.upgrade` when a catalogue is opened."""
